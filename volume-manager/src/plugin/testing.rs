//! A bench for tests of single operations: the real executor and plugins on a real directory tree, with a
//! scripted driver behind in-memory connections, a few API objects, and a recorder instead of the actual state.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::clock::{Clock, TokioClock};
use api::names::{DriverName, OuterName, PluginName, PodUid, VolumeName};
use api::storage::CsiSource;
use api::{
    AccessMode, CsiDriver, Meta, Object, PersistentSource, Pod, PodVolume, Volume, VolumeMode, VolumeSource,
};
use csi_proto::v1::node_service_capability::rpc::Type as Capability;
use host::fake::{FakeHost, FakeKernel};
use host::{FileKind, Host, Propagation};
use plugin_api::error::Withdrawn;
use plugin_api::paths::Paths;
use plugin_api::registry::Registry;
use plugin_api::{
    Before, ClientStyle, Config, EventSink, Facts, Mark, OperationContext, OperationId, RegisteredDriver,
    Spec, Transition,
};
use testing::{MemoryApi, ScriptedDriver, Story};
use tokio::sync::{mpsc, watch};

use crate::event::{Event, EventQueue, Outcome, Report};
use crate::executor::Executor;
use crate::operation::{MountVolume, Operation, UnmountDevice, UnmountVolume};
use crate::plugin::registry::kubelet;

pub(crate) const DRIVER: &str = "d.example";

/// The spec of a plain volume with a claim.
pub(crate) fn persistent_spec(name: &str, driver: &str, handle: &str) -> Spec {
    Spec::persistent(Arc::new(volume(name, driver, handle)), false)
}

/// The PersistentVolume of [`persistent_spec`], for tests that change it.
pub(crate) fn volume(name: &str, driver: &str, handle: &str) -> Volume {
    let csi = CsiSource { driver: driver.into(), handle: handle.into(), ..CsiSource::default() };
    Volume {
        meta: Meta::named("", name),
        mode: Some(VolumeMode::Filesystem),
        access_modes: vec![AccessMode::ReadWriteOnce],
        source: PersistentSource::Csi(Box::new(csi)),
        ..Volume::default()
    }
}

/// Everything that an operation needs, with pod `web` (uid `u1`) and volume `pv` (handle `h`).
pub(crate) struct Bench {
    /// Declared before `root`: loop devices are detached while their backing files below the root still exist.
    _loops: LoopsBelow,
    pub(crate) root: tempfile::TempDir,
    pub(crate) story: Story,
    pub(crate) driver: ScriptedDriver,
    pub(crate) api: Arc<MemoryApi>,
    pub(crate) facts: watch::Sender<Arc<Facts>>,
    pub(crate) context: OperationContext,
    /// Shared by all operations, because a plugin may remember drivers between operations.
    pub(crate) registry: Arc<Registry>,
    pub(crate) spec: Arc<Spec>,
    pub(crate) pod: Pod,
    /// The volume's name in the pod.
    pub(crate) outer: OuterName,
    /// Whether marks before a risky call are refused.
    pub(crate) withdrawn: bool,
    sender: mpsc::UnboundedSender<Event>,
    events: mpsc::UnboundedReceiver<Event>,
}

impl Bench {
    /// A bench on the real host with a driver that stages.
    pub(crate) fn new() -> Self {
        Self::on(host::linux::LinuxHost::shared(), ClientStyle::Kubelet)
    }

    pub(crate) fn on(host: Arc<dyn Host>, style: ClientStyle) -> Self {
        let root = tempfile::tempdir().expect("the test machine has a temporary directory");
        let story = Story::new(root.path());
        let driver = ScriptedDriver::new(story.clone());
        driver.can(&[Capability::StageUnstageVolume]);
        let api = Arc::new(MemoryApi::default());
        let (facts_sender, facts) = watch::channel(Arc::new(known_facts()));
        let (sender, events) = mpsc::unbounded_channel();
        let queue = Arc::new(EventQueue(sender.clone()));
        let mark = Mark::new(VolumeName::new(""), OperationId(0), None, Arc::clone(&queue) as _);
        let context = OperationContext {
            host,
            api: Arc::clone(&api) as _,
            clock: TokioClock::shared(),
            dialer: Arc::new(driver.clone()),
            containers: None,
            paths: Arc::new(Paths::new(root.path())),
            config: Arc::new(Config { client_style: style, ..Config::new("node-1", root.path()) }),
            events: EventSink::new(queue),
            mark,
            facts,
        };
        let mut pod = Pod { meta: Meta::named("default", "web"), ..Pod::default() };
        pod.meta.uid = "u1".into();
        let bench = Self {
            spec: Arc::new(persistent_spec("pv", DRIVER, "h")),
            facts: facts_sender,
            withdrawn: false,
            outer: "data".into(),
            _loops: LoopsBelow(root.path().to_owned()),
            root,
            story,
            driver,
            api,
            context,
            registry: Arc::new(kubelet()),
            pod,
            sender,
            events,
        };
        bench.object(|driver| driver.attach_required = false);
        bench
    }

    /// A bench on a simulated kernel, which can fail on order.
    #[expect(clippy::disallowed_methods, reason = "what the driver looks at is behind no door of the bench")]
    pub(crate) fn simulated() -> (Self, FakeHost) {
        let host = FakeHost::new(FakeKernel::new());
        let bench = Self::on(host.shared(), ClientStyle::Kubelet);
        host.kernel().make_dir_all(bench.root.path(), 0o750).expect("the kernel is empty");
        // The driver checks the real kernel for the directories that must exist when it is called.
        let (paths, inner) = (&bench.context.paths, bench.spec.name());
        for dir in [
            paths.csi_global_mount(&DRIVER.into(), &"h".into()),
            paths.csi_pod_volume(&bench.pod.uid(), &inner),
            paths.csi_block_staging(&inner),
            paths.csi_block_publish_dir(&inner),
        ] {
            std::fs::create_dir_all(dir).expect("the root is the bench's own");
        }
        (bench, host)
    }

    /// Changes the driver's CSIDriver object.
    pub(crate) fn object(&self, change: impl FnOnce(&mut CsiDriver)) {
        self.facts.send_modify(|facts| {
            let facts = Arc::make_mut(facts);
            let object = facts.csi_drivers.entry(DriverName::new(DRIVER)).or_default();
            change(Arc::make_mut(object));
        });
    }

    /// Changes the manager's facts.
    pub(crate) fn know(&self, change: impl FnOnce(&mut Facts)) {
        self.facts.send_modify(|facts| change(Arc::make_mut(facts)));
    }

    pub(crate) fn change_volume(&mut self, change: impl FnOnce(&mut Volume)) {
        let mut volume = self.spec.volume().expect("the bench's volume is persistent").as_ref().clone();
        change(&mut volume);
        self.spec =
            Arc::new(Spec { read_only: self.spec.read_only, ..Spec::persistent(Arc::new(volume), false) });
    }

    pub(crate) fn put(&self, object: Object) {
        self.api.put(object);
    }

    pub(crate) fn name(&self) -> VolumeName {
        VolumeName::new(format!("kubernetes.io/csi/{DRIVER}^h"))
    }

    /// The plugin that supports the volume.
    fn plugin(&self) -> PluginName {
        self.registry.pick(&self.spec).expect("one plugin takes the volume").name()
    }

    /// Replaces the bench's volume by an inline volume called `data`.
    pub(crate) fn inline(&mut self, source: VolumeSource) {
        self.spec = Arc::new(Spec::inline(Arc::new(PodVolume { name: "data".into(), source })));
    }

    /// Gives this thread, and all threads it starts, a mount namespace of its own. `false`, with the reason on
    /// the terminal, where that is not permitted.
    pub(crate) async fn private_mounts(&self) -> bool {
        if let Err(error) = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS) {
            eprintln!("skipped: no mount namespace of our own: {error}");
            return false;
        }
        let private = self.context.host.set_propagation(Path::new("/"), Propagation::Private, true).await;
        private.expect("a namespace of our own obeys");
        true
    }

    /// Type and options of the mount at a path below the root, from the kernel's mount table.
    pub(crate) async fn mount_at(&self, below: &str) -> Option<String> {
        let table = self.context.host.mount_table().await.expect("the mount table can be read");
        let entry = table.at(&self.path(below))?;
        Some(format!("{} {} {}", entry.fs_type, entry.options.join(","), entry.super_options.join(",")))
    }

    pub(crate) fn mounting(&self) -> MountVolume {
        MountVolume {
            volume: self.name(),
            spec: Arc::clone(&self.spec),
            plugin: self.plugin(),
            pod: Arc::new(self.pod.clone()),
            uid: self.pod.uid(),
            outer: vec![self.outer.clone()],
            gid: None,
            selinux_label: String::new(),
            size_limit: None,
            device_path: String::new(),
            attachable: false,
            device: Before::Absent,
            before: Before::Absent,
            used_elsewhere: false,
            expansion_failed: false,
            expansion_blocked: false,
        }
    }

    pub(crate) fn unmounting(&self) -> UnmountVolume {
        UnmountVolume {
            volume: self.name(),
            plugin: self.plugin(),
            pod: PodUid::new("u1"),
            inner: self.spec.name(),
            spec: Some(Arc::clone(&self.spec)),
        }
    }

    pub(crate) fn leaving(&self) -> UnmountDevice {
        let paths = &self.context.paths;
        let device_mount_path = match self.spec.mode() {
            VolumeMode::Filesystem => paths.csi_global_mount(&DRIVER.into(), &"h".into()),
            VolumeMode::Block => paths.csi_block_map(&self.spec.name()),
        };
        UnmountDevice {
            volume: self.name(),
            plugin: self.plugin(),
            spec: Arc::clone(&self.spec),
            device_path: String::new(),
            device_mount_path,
        }
    }

    /// Runs an operation to its end. Returns the story since the last call, with the outcome as its last line.
    pub(crate) async fn run(&mut self, operation: Operation) -> String {
        let mut executor =
            Executor::new(self.context.clone(), Arc::clone(&self.registry), self.sender.clone());
        executor.start(OperationId(1), operation);
        loop {
            match self.events.recv().await.expect("the bench holds a sender") {
                Event::Operation(_, Report::Learned { transition, done }) => {
                    let refused = self.withdrawn
                        && matches!(
                            transition,
                            Transition::DeviceUncertain { .. } | Transition::PodUncertain(_)
                        );
                    self.story.push(format!("mark {}", word(&transition)));
                    let _ = done.send(if refused { Err(Withdrawn) } else { Ok(()) });
                }
                Event::Operation(_, Report::Finished(outcome)) => {
                    self.tell_events();
                    self.story.push(match outcome {
                        Outcome::Done => "done".to_owned(),
                        Outcome::Failed(failed) => {
                            format!("failed {:?}: {}", failed.source.class(), failed.message())
                        }
                        Outcome::Panicked(text) => format!("panicked: {text}"),
                    });
                    return self.story.take();
                }
                Event::Emit(event) => self.tell_event(event),
                other => panic!("no operation sends {other:?}"),
            }
        }
    }

    fn tell_events(&mut self) {
        while let Ok(Event::Emit(event)) = self.events.try_recv() {
            self.tell_event(event);
        }
    }

    fn tell_event(&self, event: plugin_api::EmittedEvent) {
        let plugin_api::EmittedEvent { about, severity, reason, message } = event;
        self.story.push(format!("event {} {severity:?} {reason}: {message}", about.kind));
    }

    /// Every file and directory below the root, with modes, and links with their targets.
    pub(crate) async fn tree(&self) -> String {
        let mut lines = String::new();
        let mut unread = vec![self.root.path().to_owned()];
        let mut found = BTreeMap::new();
        while let Some(dir) = unread.pop() {
            for entry in self.context.host.read_dir(&dir).await.expect("the bench's own directories") {
                let path = dir.join(entry.name);
                let there = self.context.host.symlink_metadata(&path).await.expect("it was listed");
                let mut line = format!(" {:o}", there.mode);
                match there.kind {
                    FileKind::Directory => {
                        line.push('/');
                        unread.push(path.clone());
                    }
                    FileKind::Symlink => {
                        let target = self.context.host.read_link(&path).await.expect("it is a link");
                        line = format!(" -> {}", self.story.symbolic(&target.display().to_string()));
                    }
                    _ => {}
                }
                found.insert(path, line);
            }
        }
        for (path, line) in found {
            lines.push_str(&format!("{}{line}\n", self.story.symbolic(&path.display().to_string())));
        }
        lines
    }

    /// The lines of [`Bench::tree`] without directories: the leftovers that need a cleanup.
    pub(crate) async fn files(&self) -> Vec<String> {
        let tree = self.tree().await;
        tree.lines().filter(|line| !line.ends_with('/')).map(str::to_owned).collect()
    }

    pub(crate) fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.root.path().join(below)
    }

    pub(crate) fn now(&self) -> api::clock::Instant {
        TokioClock.now()
    }
}

/// A loop device over a file, released with its bench.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) device: PathBuf,
}

impl Disk {
    /// A disk of that size; `None`, with the reason on the terminal, where loop devices are not permitted.
    pub(crate) async fn new(bench: &Bench, size: usize) -> Option<Self> {
        let file = bench.path("disk");
        bench.context.host.write_file(&file, &vec![0; size], 0o600).await.expect("the bench is writable");
        match bench.context.host.lock_device(&file).await {
            Ok(device) => Some(Self { device }),
            Err(error) => {
                eprintln!("skipped: no loop device: {}", api::error::chain(&error));
                None
            }
        }
    }
}

/// All loop devices over files below a directory, of any process: they outlive a mount namespace.
struct LoopsBelow(PathBuf);

impl Drop for LoopsBelow {
    #[expect(clippy::disallowed_methods, reason = "there is no awaiting a host in a drop")]
    fn drop(&mut self) {
        for device in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let backing = std::fs::read_to_string(device.path().join("loop/backing_file"));
            if backing.is_ok_and(|file| Path::new(file.trim_end()).starts_with(&self.0)) {
                let path = Path::new("/dev").join(device.file_name());
                // Best effort. A device in use is released by its last user, which ends with the test's thread.
                let _ = std::process::Command::new("losetup").arg("-d").arg(path).status();
            }
        }
    }
}

fn known_facts() -> Facts {
    let registered = RegisteredDriver { endpoint: "/d.sock".into(), instance: 1 };
    Facts {
        csi_drivers_known: true,
        registered: BTreeMap::from([(DriverName::new(DRIVER), registered)]),
        ..Facts::default()
    }
}

/// A transition in a word or two.
fn word(transition: &Transition) -> String {
    match transition {
        Transition::DeviceUncertain { .. } => "device uncertain".into(),
        Transition::DeviceMounted { device_path, selinux_label, .. } => {
            let mut text = "device mounted".to_owned();
            if !device_path.is_empty() {
                text.push_str(&format!(" from {device_path}"));
            }
            if !selinux_label.is_empty() {
                text.push_str(&format!(" as {selinux_label}"));
            }
            text
        }
        Transition::DeviceFailed { class, .. } => format!("device failed: {class:?}"),
        Transition::DeviceUndoing => "device undoing".into(),
        Transition::DeviceUnmounted => "device unmounted".into(),
        Transition::PodUncertain(_) => "pod uncertain".into(),
        Transition::PodMounted(_, mounted) => format!(
            "pod mounted{}{}",
            if mounted.read_only { " read-only" } else { "" },
            // The same condition as for a mount of a container (`container::mounts`).
            if mounted.managed && mounted.selinux_relabel { " to be labelled" } else { "" }
        ),
        Transition::PodFailed(_, class) => format!("pod failed: {class:?}"),
        Transition::PodUndoing(_) => "pod undoing".into(),
        Transition::PodUnmounted(_) => "pod unmounted".into(),
        other => format!("{other:?}"),
    }
}
