//! A world: a mount namespace with a tmpfs, a driver process in it, and clients for its services.

use std::fs::File;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use csi_proto::v1;
use csi_proto::v1::controller_client::ControllerClient;
use csi_proto::v1::group_controller_client::GroupControllerClient;
use csi_proto::v1::identity_client::IdentityClient;
use csi_proto::v1::node_client::NodeClient;
use csi_proto::v1::volume_capability::access_mode::Mode;
use csi_proto::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use fake_csi::Sabotage;
use fake_csi::control::Client;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use tonic::transport::{Channel, Endpoint};

/// Runs a test on a thread with a mount namespace of its own. Without root it prints why it is skipped.
///
/// A namespace belongs to a thread: the test starts everything from this one, and its mounts end with it.
pub(crate) fn in_namespace<F: Future<Output = ()>>(test: impl FnOnce(World) -> F + Send) {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root to mount");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        let root = directory.path();
        scope.spawn(move || {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
            mount(Some("test"), root, Some("tmpfs"), MsFlags::empty(), Some("size=512m")).unwrap();
            mount(None::<&str>, root, None::<&str>, MsFlags::MS_SHARED, None::<&str>).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let world = World { root: root.to_owned(), driver: None, arguments: Vec::new(), sabotage: None };
            tokio::task::LocalSet::new().block_on(&runtime, test(world));
        });
    });
}

pub(crate) struct World {
    pub(crate) root: PathBuf,
    driver: Option<Child>,
    arguments: Vec<String>,
    /// For every driver of this world.
    pub(crate) sabotage: Option<Sabotage>,
}

impl World {
    pub(crate) fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    /// The directory for files of the driver's container, beside its state.
    pub(crate) fn local(&self) -> PathBuf {
        self.root.join("local")
    }

    /// A path on the node; makes its parent.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        let path = self.root.join("node").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    /// A new directory on the node, such as a staging path.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// Starts the driver with additional arguments, and waits until it answers.
    pub(crate) async fn start(&mut self, arguments: &[&str]) -> Csi {
        self.arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        self.restart().await
    }

    /// Starts the driver again with the same arguments.
    pub(crate) async fn restart(&mut self) -> Csi {
        let socket = self.spawn();
        Csi::connect(&socket).await
    }

    /// Starts the driver again with the same arguments, and says whether it runs on.
    pub(crate) async fn starts_again(&mut self) -> bool {
        let socket = self.spawn();
        while !socket.exists() {
            if self.driver.as_mut().unwrap().try_wait().unwrap().is_some() {
                self.driver = None;
                return false;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        true
    }

    fn spawn(&mut self) -> PathBuf {
        self.kill();
        let socket = self.root.join("csi.sock");
        drop(std::fs::remove_file(&socket));
        let child = Command::new(env!("CARGO_BIN_EXE_fake-csi"))
            .arg(format!("--endpoint=unix://{}", socket.display()))
            .arg("--state-dir")
            .arg(self.state())
            .args(&self.arguments)
            .env("TMPDIR", self.local())
            .args(self.sabotage.map(|sabotage| format!("--sabotage={}", sabotage.name())))
            .stderr(File::options().create(true).append(true).open(self.log()).unwrap())
            .spawn()
            .unwrap();
        self.driver = Some(child);
        socket
    }

    /// Kills the driver with `SIGKILL`.
    pub(crate) fn kill(&mut self) {
        if let Some(mut driver) = self.driver.take() {
            driver.kill().unwrap();
            driver.wait().unwrap();
        }
    }

    /// Path of the driver's log.
    pub(crate) fn log(&self) -> PathBuf {
        self.root.join("driver.log")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.driver.as_ref().unwrap().id()
    }

    pub(crate) fn control(&self) -> Client {
        Client::new(&self.state())
    }

    /// Mount points and options of the mounts below a path, from mountinfo.
    pub(crate) fn mounts(&self, below: &Path) -> Vec<(PathBuf, String)> {
        let table = std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        let fields = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        fields
            .map(|fields| (PathBuf::from(fields[4]), fields[5].to_owned()))
            .filter(|(path, _)| path.starts_with(below) && path != below)
            .collect()
    }

    /// Backing files of loop devices in this world.
    pub(crate) fn loops(&self) -> Vec<PathBuf> {
        let devices = std::fs::read_dir("/sys/block").unwrap().flatten();
        let files =
            devices.filter_map(|entry| std::fs::read_to_string(entry.path().join("loop/backing_file")).ok());
        files.map(PathBuf::from).filter(|file| file.starts_with(&self.root)).collect()
    }

    /// Asserts that no volume, mount, image or loop device is left.
    pub(crate) async fn assert_clean(&self) {
        let books = self.control().books().await.unwrap();
        assert!(books.volumes.is_empty(), "volumes left: {:?}", books.volumes.keys());
        assert_eq!(self.mounts(&self.root), []);
        let files = std::fs::read_dir(self.state().join("volumes")).unwrap().count();
        assert_eq!(files, 0, "files of volumes left");
        for _ in 0..100 {
            if self.loops().is_empty() {
                return;
            }
            // The kernel detaches a device a moment after its last close.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("loop devices left: {:?}", self.loops());
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.kill();
        // Not left to the end of the namespace: removing the directory from outside before that would detach the tmpfs
        // with its mounts, and then a loop device, its image and the tmpfs would keep each other alive for ever.
        for (path, _) in self.mounts(&self.root).into_iter().rev() {
            let _ = umount2(&path, MntFlags::MNT_DETACH);
        }
        // The device of a block volume stays attached, and a mount namespace does not contain it.
        for entry in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let file = std::fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
            if Path::new(&file).starts_with(&self.root) {
                let device = Path::new("/dev").join(entry.file_name());
                drop(Command::new("losetup").arg("-d").arg(device).status());
            }
        }
        let _ = umount2(&self.root, MntFlags::MNT_DETACH);
    }
}

/// Clients for the services of a node.
#[derive(Clone)]
pub(crate) struct Csi {
    pub(crate) identity: IdentityClient<Channel>,
    pub(crate) controller: ControllerClient<Channel>,
    pub(crate) node: NodeClient<Channel>,
    pub(crate) group: GroupControllerClient<Channel>,
}

impl Csi {
    pub(crate) async fn connect(socket: &Path) -> Self {
        let endpoint = Endpoint::try_from(format!("unix:{}", socket.display())).unwrap();
        for _ in 0..1000 {
            if let Ok(channel) = endpoint.connect().await {
                return Self {
                    identity: IdentityClient::new(channel.clone()),
                    controller: ControllerClient::new(channel.clone()),
                    node: NodeClient::new(channel.clone()),
                    group: GroupControllerClient::new(channel),
                };
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the driver does not listen at {}", socket.display());
    }

    pub(crate) async fn create(&mut self, name: &str, capability: v1::VolumeCapability) -> v1::Volume {
        let request = create(name, capability);
        self.controller.create_volume(request).await.unwrap().into_inner().volume.unwrap()
    }

    pub(crate) async fn delete(&mut self, id: &str) -> Result<(), tonic::Status> {
        let request = v1::DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
        self.controller.delete_volume(request).await.map(drop)
    }

    pub(crate) async fn stage(
        &mut self,
        id: &str,
        path: &Path,
        capability: v1::VolumeCapability,
    ) -> Result<(), tonic::Status> {
        self.node.node_stage_volume(stage(id, path, capability)).await.map(drop)
    }

    pub(crate) async fn unstage(&mut self, id: &str, path: &Path) -> Result<(), tonic::Status> {
        let request =
            v1::NodeUnstageVolumeRequest { volume_id: id.to_owned(), staging_target_path: text(path) };
        self.node.node_unstage_volume(request).await.map(drop)
    }

    pub(crate) async fn unpublish(&mut self, id: &str, path: &Path) -> Result<(), tonic::Status> {
        let request = v1::NodeUnpublishVolumeRequest { volume_id: id.to_owned(), target_path: text(path) };
        self.node.node_unpublish_volume(request).await.map(drop)
    }
}

pub(crate) fn create(name: &str, capability: v1::VolumeCapability) -> v1::CreateVolumeRequest {
    v1::CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(v1::CapacityRange { required_bytes: 16 << 20, limit_bytes: 0 }),
        volume_capabilities: vec![capability],
        ..Default::default()
    }
}

pub(crate) fn stage(id: &str, path: &Path, capability: v1::VolumeCapability) -> v1::NodeStageVolumeRequest {
    v1::NodeStageVolumeRequest {
        volume_id: id.to_owned(),
        staging_target_path: text(path),
        volume_capability: Some(capability),
        ..Default::default()
    }
}

pub(crate) fn publish(
    id: &str,
    staging: &Path,
    target: &Path,
    capability: v1::VolumeCapability,
) -> v1::NodePublishVolumeRequest {
    v1::NodePublishVolumeRequest {
        volume_id: id.to_owned(),
        staging_target_path: text(staging),
        target_path: text(target),
        volume_capability: Some(capability),
        ..Default::default()
    }
}

pub(crate) fn mounted(fs_type: &str, mode: Mode) -> v1::VolumeCapability {
    let mount = MountVolume { fs_type: fs_type.to_owned(), ..Default::default() };
    capability(AccessType::Mount(mount), mode)
}

pub(crate) fn block(mode: Mode) -> v1::VolumeCapability {
    capability(AccessType::Block(BlockVolume {}), mode)
}

fn capability(access: AccessType, mode: Mode) -> v1::VolumeCapability {
    v1::VolumeCapability { access_mode: Some(AccessMode { mode: mode.into() }), access_type: Some(access) }
}

pub(crate) fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}
