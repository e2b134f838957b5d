//! A manager with an API in memory, a toy for a plugin, local volumes beside it, and time that passes
//! only when nothing else does.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::clock::TokioClock;
use api::names::{PodUid, VolumeName};
use api::pod::{SeLinuxOptions, VolumeMount};
use api::storage::{ClaimSpec, ClaimStatus};
use api::{
    ApiSource, AttachedVolume, Claim, ClaimPhase, Container, Kind, Meta, Node, Object, Patch, PatchBody, Pod,
    PodVolume, Volume, VolumeSource, get,
};
use async_trait::async_trait;
use expect_test::Expect;
use host::fake::{FakeHost, FakeKernel};
use plugin_api::registry::Registry;
pub(crate) use testing::toy::volume;
use testing::{MemoryApi, Toy};
use volume_manager::event::Notice;
use volume_manager::operation::OperationName;
use volume_manager::plugin::local::LocalPlugin;
use volume_manager::{Config, Connection, DialError, Dialer, Parts, PodState, VolumeManager};

/// The manager's root directory.
pub(crate) const ROOT: &str = "/var/lib/kubelet";
pub(crate) const LONG: Duration = Duration::from_secs(3600);

pub(crate) struct World {
    pub(crate) manager: VolumeManager,
    pub(crate) api: Arc<MemoryApi>,
    pub(crate) toy: Toy,
    pub(crate) kernel: FakeKernel,
    pub(crate) host: FakeHost,
}

/// There are no drivers here.
#[derive(Debug)]
pub(crate) struct NoDialer;

#[async_trait]
impl Dialer for NoDialer {
    async fn dial(&self, endpoint: &Path) -> Result<Connection, DialError> {
        Err(DialError { endpoint: endpoint.to_owned(), source: "there are no drivers here".into() })
    }
}

impl World {
    /// A node that has just started and knows all its pods, which are none.
    pub(crate) async fn new() -> Self {
        let world = Self::starting();
        world.manager.sources_ready();
        world.idle().await;
        world
    }

    /// A node that does not know its pods yet.
    pub(crate) fn starting() -> Self {
        let api = Arc::new(MemoryApi::default());
        api.put(Object::Node(Arc::new(Node { meta: Meta::named("", "node"), ..Node::default() })));
        let (toy, kernel) = (Toy::default(), FakeKernel::new());
        kernel.make_dir_all(Path::new(ROOT), 0o750).expect("the kernel is empty");
        let host = FakeHost::new(kernel.clone());
        let manager = start(Config::new("node", ROOT), &api, &toy, &host);
        Self { manager, api, toy, kernel, host }
    }

    /// The manager crashes and starts again; it does not know its pods yet.
    pub(crate) fn crash(&mut self) {
        self.restart(Config::new("node", ROOT));
    }

    /// Restarts the manager so that it follows no objects of the API.
    pub(crate) fn crash_and_follow_nothing(&mut self) {
        self.restart(Config { watch_api: false, ..Config::new("node", ROOT) });
    }

    fn restart(&mut self, config: Config) {
        self.manager.abort();
        self.manager = start(config, &self.api, &self.toy, &self.host);
    }

    /// Makes a leftover of an earlier run: the directory of a pod's volume, with a mount.
    pub(crate) fn left(&self, pod: &str, volume: &str) {
        let path = self.left_unmounted(pod, volume);
        self.kernel.mount("tmpfs", &path, "tmpfs", &[]).expect("the directory is there");
    }

    /// Makes a leftover of an earlier run without a mount.
    pub(crate) fn left_unmounted(&self, pod: &str, volume: &str) -> PathBuf {
        let path = Path::new(ROOT).join("pods").join(pod).join("volumes/kubernetes.io~toy").join(volume);
        self.kernel.make_dir_all(&path, 0o750).expect("the kernel is empty");
        path
    }

    /// A volume with a claim of the same name.
    pub(crate) fn volume(&self, name: &str) {
        self.put_volume(volume(name));
    }

    pub(crate) fn put_volume(&self, volume: Volume) {
        put_volume(&self.api, volume);
    }

    /// Changes the resize status of the claim of `data`.
    pub(crate) async fn says_of_its_growth(&self, resize: &str) {
        let claim = get::<Claim>(&*self.api, "default", "data").await.expect("it is there");
        let mut claim = (*claim).clone();
        claim.status.resize = resize.to_owned();
        self.api.put(Object::Claim(Arc::new(claim)));
    }

    /// A pod that uses claims appears.
    pub(crate) fn add(&self, name: &str, claims: &[&str]) -> PodUid {
        let pod = pod(name, claims);
        let uid = pod.uid();
        self.manager.add_pod(Arc::new(pod));
        uid
    }

    /// A pod appears, and all it causes happens.
    pub(crate) async fn run(&self, name: &str, claims: &[&str]) -> PodUid {
        let pod = self.add(name, claims);
        self.idle().await;
        pod
    }

    /// The runtime is done with a pod, and its object goes.
    pub(crate) fn end(&self, pod: &PodUid) {
        self.manager.set_pod_state(pod, PodState::RuntimeGone);
        self.manager.remove_pod(pod);
    }

    pub(crate) async fn idle(&self) {
        self.manager.wait_idle(LONG).await.expect("it becomes idle");
    }

    /// Lets time pass, with everything that is due in it.
    pub(crate) async fn pass(&self, milliseconds: u64) {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        self.idle().await;
    }

    /// The controller attaches these volumes to the node, and no others.
    pub(crate) async fn attach(&self, volumes: &[&str]) {
        let attached =
            volumes.iter().map(|name| AttachedVolume { name: unique(name), device_path: String::new() });
        let key = api::Key::cluster(Kind::Node, "node");
        let patch = Patch::of(key, PatchBody::VolumesAttached(attached.collect()));
        self.api.patch(patch).await.expect("the node is there");
    }

    /// Lists these volumes in the node's `volumesInUse`.
    pub(crate) async fn names_in_use(&self, volumes: &[&str]) {
        let volumes = volumes.iter().map(|name| unique(name)).collect();
        let key = api::Key::cluster(Kind::Node, "node");
        let patch = Patch::of(key, PatchBody::VolumesInUse(volumes));
        self.api.patch(patch).await.expect("the node is there");
    }

    /// The books, one line each.
    pub(crate) async fn books(&self) -> String {
        let dump = self.manager.dump().await.expect("it runs");
        let actual = dump.actual.iter().map(|(key, state)| format!("{key}: {state}\n"));
        actual.collect()
    }

    /// Compares the operations since the last look.
    pub(crate) fn sees(&self, expected: Expect) {
        expected.assert_eq(&self.toy.story());
    }

    /// Lets time pass. Returns the starts of all operations of this name, in milliseconds from now.
    pub(crate) async fn starts_of(&self, wanted: OperationName, within: u64) -> Vec<u128> {
        let (began, mut notices) = (tokio::time::Instant::now(), self.listen());
        let mut starts = Vec::new();
        let listening = async {
            while let Some(notice) = notices.recv().await {
                if matches!(notice, Notice::Started { name, .. } if name == wanted) {
                    starts.push(began.elapsed().as_millis());
                }
            }
        };
        let over = tokio::time::timeout(Duration::from_millis(within), listening).await;
        over.expect_err("the manager runs on");
        starts
    }

    /// Kubernetes events from now on.
    pub(crate) fn listen(&self) -> tokio::sync::mpsc::UnboundedReceiver<Notice> {
        self.manager.subscribe()
    }
}

fn start(config: Config, api: &Arc<MemoryApi>, toy: &Toy, host: &FakeHost) -> VolumeManager {
    let parts = Parts {
        api: Arc::clone(api) as _,
        host: host.shared(),
        clock: TokioClock::shared(),
        dialer: Arc::new(NoDialer),
        registry: Registry::new(vec![Arc::new(toy.clone()), Arc::new(LocalPlugin)]),
        containers: None,
    };
    VolumeManager::start(config, parts)
}

pub(crate) fn unique(name: &str) -> VolumeName {
    VolumeName::new(format!("kubernetes.io/toy/{name}"))
}

/// Puts a volume into an API, and the claim it is bound to.
pub(crate) fn put_volume(api: &MemoryApi, volume: Volume) {
    let name = volume.meta.name.clone();
    let claim = Claim {
        meta: Meta { uid: format!("uid-{name}"), ..Meta::named("default", &name) },
        spec: ClaimSpec { volume: name, ..ClaimSpec::default() },
        status: ClaimStatus { phase: ClaimPhase::Bound, capacity: volume.capacity, ..ClaimStatus::default() },
    };
    api.put(Object::Volume(Arc::new(volume)));
    api.put(Object::Claim(Arc::new(claim)));
}

/// A pod that uses `data`, and whose containers run with a label of this level.
pub(crate) fn labelled(name: &str, level: &str) -> Arc<Pod> {
    let mut pod = pod(name, &["data"]);
    pod.security.selinux =
        Some(Box::new(SeLinuxOptions { level: level.to_owned(), ..SeLinuxOptions::default() }));
    Arc::new(pod)
}

/// A pod that mounts claims under their own names.
pub(crate) fn pod(name: &str, claims: &[&str]) -> Pod {
    let mounts =
        claims.iter().map(|claim| VolumeMount { volume: (*claim).to_owned(), ..VolumeMount::default() });
    let container = Container { name: "main".to_owned(), mounts: mounts.collect(), ..Container::default() };
    let volumes = claims.iter().map(|claim| PodVolume {
        name: (*claim).into(),
        source: VolumeSource::Claim { claim: (*claim).to_owned(), read_only: false },
    });
    Pod {
        meta: Meta { uid: name.to_owned(), ..Meta::named("default", name) },
        volumes: volumes.collect(),
        containers: vec![container],
        ..Pod::default()
    }
}
