//! API objects that pods refer to, files of the node's machine, and the node's events about pods.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::{
    Bytes, Claim, ConfigMap, Meta, Notification, Owner, PersistentSource, Resource, Secret, Sensitive,
    Service, ServicePort, Severity, Volume, VolumeMode,
};
use harness::fault_fs::{Client, FaultFs, FaultFsOptions, Rule};
use harness::tmpfs::Tmpfs;
use nix::mount::MsFlags;

use super::disks::DISK;
use super::{Bed, Result, StepError};

/// The namespace of everything.
const NAMESPACE: &str = "default";

/// The directory of FlexVolume drivers, below the node's root.
const FLEX_VOLUME_DRIVERS: &str = "volumeplugins";

impl Bed {
    /// Writes a config map, whether there is one or not.
    pub(crate) fn write_config_map(&self, name: &str, data: &[(&str, &str)]) -> Result {
        let text: BTreeMap<String, String> =
            data.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
        if self.api_server.get::<ConfigMap>(NAMESPACE, name).is_some() {
            let changed = self.api_server.change(NAMESPACE, name, |map: &mut ConfigMap| map.data = text);
            return changed.map(drop).map_err(|error| StepError::ours(&error));
        }
        let map = ConfigMap { meta: Meta::named(NAMESPACE, name), data: text, ..ConfigMap::default() };
        self.api_server.create(map).map(drop).map_err(|error| StepError::ours(&error))
    }

    pub(crate) fn write_secret(&self, name: &str, data: &[(&str, &str)]) -> Result {
        let hidden = |text: &str| Sensitive::new(text.as_bytes().to_vec());
        let data = data.iter().map(|(key, text)| ((*key).to_owned(), hidden(text))).collect();
        let secret = Secret { meta: Meta::named(NAMESPACE, name), data };
        self.api_server.create(secret).map(drop).map_err(|error| StepError::ours(&error))
    }

    pub(crate) fn write_service(&self, name: (&str, &str), address: &str, ports: &[(&str, i32)]) -> Result {
        let port = |(name, number): &(&str, i32)| ServicePort {
            name: (*name).to_owned(),
            number: *number,
            protocol: "TCP".to_owned(),
        };
        let (meta, address) = (Meta::named(name.0, name.1), address.to_owned());
        let service = Service { meta, address, ports: ports.iter().map(port).collect() };
        self.api_server.create(service).map(drop).map_err(|error| StepError::ours(&error))
    }

    /// A persistent volume that is a path of the node, and its claim.
    pub(crate) fn write_local(&self, name: &str, path: &Path, mode: VolumeMode) -> Result {
        if let Some((device, path)) = self.disk_at(path) {
            self.journal.symbols().name_disk(name, &device.to_string(), &path);
        }
        let path = path.to_string_lossy().into_owned();
        let source = PersistentSource::Local { path, fs_type: String::new() };
        let added = self.api_server.add_volume(name, source, mode, Bytes(DISK));
        added.map_err(|error| StepError::ours(&error))
    }

    /// The directory of the node's machine that pods may be given: it is no volume's, and the node's root is
    /// not above it.
    pub(crate) fn machine(&self) -> Result<PathBuf> {
        if let Some(machine) = &*self.machine.borrow() {
            return Ok(machine.path().to_owned());
        }
        let directory = harness::Layout::standard().machine();
        std::fs::create_dir_all(&directory).map_err(|error| StepError::ours(&error))?;
        let machine = Tmpfs::mount(&directory, DISK).map_err(|error| StepError::ours(&error))?;
        // Shared, like the root of a machine: a mount that a pod makes there with propagation appears on the machine.
        let shared =
            nix::mount::mount(None::<&str>, &directory, None::<&str>, MsFlags::MS_SHARED, None::<&str>);
        shared.map_err(|error| StepError::ours(&error))?;
        self.machine.replace(Some(machine));
        Ok(directory)
    }

    /// Writes the program of a FlexVolume driver where the node looks for it.
    pub(crate) fn install_flex_volume_driver(&self, driver: &str, program: &str) -> Result {
        let name = driver.rsplit('/').next().unwrap_or_default();
        let directory = self.layout.root().join(FLEX_VOLUME_DRIVERS).join(driver.replace('/', "~"));
        let installed = || {
            std::fs::create_dir_all(&directory)?;
            let path = directory.join(name);
            std::fs::write(&path, program)?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
        };
        installed().map_err(|error| StepError::ours(&error))
    }

    /// Removes the programs of all FlexVolume drivers. Returns the error if they stay.
    pub(super) fn remove_flex_volume_drivers(&self) -> Option<String> {
        let directory = self.layout.root().join(FLEX_VOLUME_DRIVERS);
        match std::fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Some(format!("cannot remove `{}`: {error}", directory.display()))
            }
            _ => None,
        }
    }

    /// Notes on a persistent volume which group it belongs to.
    pub(super) fn give_group(&self, volume: &str, gid: u32) -> Result {
        let annotate = |volume: &mut Volume| {
            volume.meta.annotations.insert("pv.beta.kubernetes.io/gid".to_owned(), gid.to_string());
        };
        self.api_server.change("", volume, annotate).map(drop).map_err(|error| StepError::ours(&error))
    }

    /// The size of a claim's volume; zero if it has none.
    pub(crate) fn size(&self, claim: &str) -> u64 {
        let claim = self.api_server.get::<Claim>(NAMESPACE, claim);
        claim.map_or(0, |claim| claim.status.capacity.0)
    }

    /// Makes a claim a pod's own.
    pub(crate) fn give_to_pod(&self, claim: &str, pod: &str) -> Result {
        let owner = Owner {
            kind: "Pod".to_owned(),
            name: pod.to_owned(),
            uid: format!("uid-{pod}"),
            controller: true,
            ..Owner::default()
        };
        let given =
            self.api_server.change(NAMESPACE, claim, |claim: &mut Claim| claim.meta.owners = vec![owner]);
        given.map(drop).map_err(|error| StepError::ours(&error))
    }

    /// A directory of the machine that is served by a process of its own.
    pub(crate) fn start_fuse(&self) -> Result<PathBuf> {
        let machine = self.machine()?;
        let (backing, target) = (machine.join("backing"), machine.join("served"));
        for directory in [&backing, &target] {
            std::fs::create_dir_all(directory).map_err(|error| StepError::ours(&error))?;
        }
        let control = harness::Layout::standard().state().join("fuse.sock");
        let options = FaultFsOptions { backing, target: target.clone(), control, seed: self.seed };
        let fuse = FaultFs::start(options).map_err(|error| StepError::ours(&error))?;
        self.fuse.replace(Some(fuse));
        Ok(target)
    }

    /// Lets some of its answers go wrong.
    pub(crate) fn spoil_fuse(&self, rule: Rule) -> Result {
        let ordered = self.served()?.arm(rule);
        ordered.map(drop).map_err(|error| StepError::ours(&error))
    }

    /// Waits until a call to it is not answered.
    pub(crate) async fn fuse_hangs(&self) -> Result {
        let control = self.served()?;
        let waiting = async {
            while control.status().map_err(|error| StepError::ours(&error))?.hanging == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Ok(())
        };
        let late = |_| StepError::Broken(vec!["No call came that is not to be answered.".to_owned()]);
        tokio::time::timeout(self.limit, waiting).await.map_err(late)?
    }

    /// Lets all go well again.
    pub(crate) fn mend_fuse(&self) -> Result {
        let control = self.served()?;
        let mended = control.clear().and_then(|()| control.release());
        mended.map_err(|error| StepError::ours(&error))
    }

    fn served(&self) -> Result<Client> {
        let none = || StepError::Ours(vec!["no file system is served".to_owned()]);
        self.fuse.borrow().as_ref().map(FaultFs::control).ok_or_else(none)
    }

    /// Kills the process that serves the file system.
    pub(crate) fn kill_fuse(&self) -> Result {
        match &mut *self.fuse.borrow_mut() {
            Some(fuse) => fuse.die().map_err(|error| StepError::ours(&error)),
            None => Err(StepError::Ours(vec!["no file system is served".to_owned()])),
        }
    }

    /// Has a pod synced, as happens once a minute, and waits until nothing is under way.
    pub(crate) async fn sync(&self, pod: &str) -> Result {
        let synced = self.node_of(pod).sync_pod(pod).await;
        synced.map_err(|error| StepError::of_node(&error))
    }

    /// The first event with these words about a pod whose volumes cannot be mounted.
    pub(crate) async fn complaint(&self, pod: &str, words: &str) -> Result<String> {
        let about = |event: &Notification| {
            event.severity == Severity::Warning
                && event.about.name == pod
                && event.reason.starts_with("Failed")
                && event.message.contains(words)
        };
        let waiting = self.api_server.wait_for(&[Notification::KIND], || {
            let event = self.api_server.list::<Notification>().into_iter().find(|event| about(event))?;
            Some(format!("{}: {}\n", event.reason, self.journal.symbols().text(&event.message)))
        });
        let late = |_| StepError::Broken(vec![format!("Nothing is said about the pod `{pod}`.")]);
        tokio::time::timeout(self.limit, waiting).await.map_err(late)
    }
}
