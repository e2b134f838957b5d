//! Everything a scene needs, put together in a sandbox and judged at its end.

use std::ops::Deref;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::pod::{PodSecurity, VolumeDevice, VolumeMount};
use api::{AccessMode, Attachment, Container, CsiDriver, Meta, Pod, PodVolume, VolumeSource};
use contracts::event::Event;
use expect_test::Expect;
use harness::api_server::VolumeRequest;
use harness::journal::Journal;
use harness::ledger::{Entry, Ledger};
use harness::manifest::Manifest;
use harness::observe::{MountWatch, Witness};
use harness::sandbox::{MachineOptions, Sandbox, SandboxOptions};
use harness::symbols::Symbols;
use harness::testbed::Testbed;

/// Longer than anything takes here, however busy the machine is.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The testbed of a scene, and where its run keeps things.
pub(crate) struct Bed {
    testbed: Testbed,
    ledger: PathBuf,
    logs: PathBuf,
}

impl Deref for Bed {
    type Target = Testbed;

    fn deref(&self) -> &Testbed {
        &self.testbed
    }
}

/// A pod as a scene describes it.
pub(crate) struct PodSketch {
    name: String,
    volumes: Vec<PodVolume>,
    container: Container,
    security: PodSecurity,
}

impl PodSketch {
    pub(crate) fn of(name: &str) -> Self {
        let container = Container { name: "c".to_owned(), ..Container::default() };
        Self { name: name.to_owned(), volumes: Vec::new(), container, security: PodSecurity::default() }
    }

    pub(crate) fn mount(mut self, claim: &str) -> Self {
        let path = format!("/{claim}");
        self.container.mounts.push(VolumeMount { volume: claim.to_owned(), path, ..VolumeMount::default() });
        self.claim(claim)
    }

    pub(crate) fn device(mut self, claim: &str) -> Self {
        self.container.devices.push(VolumeDevice { volume: claim.to_owned(), path: format!("/dev/{claim}") });
        self.claim(claim)
    }

    pub(crate) fn read_only(mut self) -> Self {
        for volume in &mut self.volumes {
            if let VolumeSource::Claim { read_only, .. } = &mut volume.source {
                *read_only = true;
            }
        }
        self
    }

    /// With an empty directory in memory.
    pub(crate) fn memory(mut self, name: &str) -> Self {
        let path = format!("/{name}");
        self.container.mounts.push(VolumeMount { volume: name.to_owned(), path, ..VolumeMount::default() });
        let source = VolumeSource::EmptyDir { medium: "Memory".to_owned(), size_limit: None };
        self.volumes.push(PodVolume { name: name.into(), source });
        self
    }

    /// Its volumes are given to a group.
    pub(crate) fn group(mut self, group: u32) -> Self {
        self.security.fs_group = Some(group);
        self
    }

    fn claim(mut self, claim: &str) -> Self {
        let source = VolumeSource::Claim { claim: claim.to_owned(), read_only: false };
        self.volumes.push(PodVolume { name: claim.into(), source });
        self
    }

    fn pod(&self) -> Pod {
        Pod {
            meta: Meta::named("default", &self.name),
            volumes: self.volumes.clone(),
            containers: vec![self.container.clone()],
            security: self.security.clone(),
            ..Pod::default()
        }
    }
}

/// Plays one scene in a sandbox of the run with this ledger, which holds the other end of standard input. Looks
/// afterwards whether the journal found anything irregular.
pub(crate) fn play(ledger: &Path, scene: impl AsyncFnOnce(&Bed) -> Result<()>) -> Result<()> {
    play_before(Witness::Fanotify, ledger, scene)
}

/// The same with mounts seen as on a kernel that reports none: by comparing tables, and without names.
pub(crate) fn play_polled(ledger: &Path, scene: impl AsyncFnOnce(&Bed) -> Result<()>) -> Result<()> {
    play_before(Witness::Poll, ledger, scene)
}

fn play_before(witness: Witness, ledger: &Path, scene: impl AsyncFnOnce(&Bed) -> Result<()>) -> Result<()> {
    let sandbox = Sandbox::enter(SandboxOptions {
        lifeline: Some(std::io::stdin().as_fd().try_clone_to_owned()?),
        ledger: Some(ledger.to_owned()),
        name: "scene".to_owned(),
        // The directory of the ledger, which is opened again for each container.
        machine: MachineOptions {
            open: ledger.parent().map(Path::to_owned).into_iter().collect(),
            ..Default::default()
        },
        ..Default::default()
    })?;
    let logs = tempfile::tempdir()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (ledger, logs) = (ledger.to_owned(), logs.path().to_owned());
        let bed = Bed::put_up(&sandbox, witness, ledger, logs).await?;
        let played = tokio::time::timeout(2 * LIMIT, scene(&bed)).await.context("the scene hangs")?;
        // The node may still have to say what it did last.
        bed.journal.suspects_settle().await;
        let irregular = bed.journal.irregular();
        if played.is_err() || !irregular.is_empty() {
            bed.journal.write(&bed.logs)?;
            let log = |name: &str| std::fs::read_to_string(bed.logs.join(name)).unwrap_or_default();
            eprintln!(
                "--- journal\n{}--- manager\n{}--- driver\n{}",
                log("journal.txt"),
                log("manager.log"),
                log("driver.log")
            );
        }
        played?;
        ensure!(irregular.is_empty(), "irregular: {irregular:?}");
        Ok(())
    })
}

impl Bed {
    async fn put_up(sandbox: &Sandbox, witness: Witness, ledger: PathBuf, logs: PathBuf) -> Result<Self> {
        let layout = sandbox.layout();
        // A kernel that reports no mounts has the other witness only.
        let witness = MountWatch::start_with(witness).or_else(|_| MountWatch::start())?;
        let journal = Journal::new(Symbols::new(layout.clone()), Some(Box::new(witness)));
        let builder = Testbed::builder(journal, layout, Manifest::fake_csi(&[]), logs.clone());
        Ok(Self { testbed: builder.put_up().await?, ledger, logs })
    }

    /// Writes control groups down that are about to be made.
    pub(crate) fn will_make(&self, paths: Vec<PathBuf>) -> Result<()> {
        Ok(Ledger::open(&self.ledger)?.record(&Entry::Cgroups { paths })?)
    }

    /// The file of this name among the logs.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.logs.join(name)
    }

    pub(crate) fn attach_required(&self) -> Result<()> {
        self.api_server
            .change::<CsiDriver>("", self.driver_name(), |driver| driver.attach_required = true)?;
        Ok(self.attach_after(Duration::ZERO)?)
    }

    pub(crate) fn attachments(&self) -> Vec<&'static str> {
        let state = |attachment: &Attachment| if attachment.attached { "attached" } else { "detached" };
        self.api_server.list::<Attachment>().iter().map(|attachment| state(attachment)).collect()
    }

    pub(crate) async fn volume(&self, name: &str) -> Result<()> {
        self.provision(VolumeRequest::new(name, self.manifest())).await
    }

    pub(crate) async fn block_volume(&self, name: &str) -> Result<()> {
        self.provision(VolumeRequest { block: true, ..VolumeRequest::new(name, self.manifest()) }).await
    }

    pub(crate) async fn shared_volume(&self, name: &str) -> Result<()> {
        let access_modes = vec![AccessMode::ReadWriteOnce];
        self.provision(VolumeRequest { access_modes, ..VolumeRequest::new(name, self.manifest()) }).await
    }

    async fn provision(&self, wanted: VolumeRequest) -> Result<()> {
        self.provisioner.provision(&wanted).await?;
        Ok(())
    }

    pub(crate) fn add(&self, pod: &PodSketch) -> Result<()> {
        self.node.add_pod(pod.pod())?;
        Ok(())
    }

    pub(crate) async fn start(&self, pod: &PodSketch) -> Result<()> {
        self.add(pod)?;
        Ok(self.node.wait_mounted(&pod.name, LIMIT).await?)
    }

    pub(crate) async fn stop(&self, pod: &str) -> Result<()> {
        self.node.remove_pod(pod, false).await?;
        Ok(self.node.wait_gone(pod, LIMIT).await?)
    }

    pub(crate) async fn forget(&self) -> Result<()> {
        self.node.wait_idle(LIMIT).await?;
        self.journal.look();
        Ok(())
    }

    pub(crate) async fn sees(&self, story: Expect) -> Result<()> {
        self.node.wait_idle(LIMIT).await?;
        story.assert_eq(&self.journal.look().to_string());
        Ok(())
    }

    /// The calls of these methods that ended well, in their order.
    pub(crate) fn order(&self, methods: &[&str]) -> Vec<String> {
        let ended = |event: Event| match event {
            Event::RpcEnd(end) if end.code == "OK" && methods.contains(&end.method.as_str()) => {
                Some(end.method)
            }
            _ => None,
        };
        self.journal.trace().into_iter().filter_map(|line| ended(line.event)).collect()
    }
}
