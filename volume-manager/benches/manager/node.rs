//! A node whose pods have one volume each, on the simulated kernel, without a recorder or a judge.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::clock::TokioClock;
use api::names::{Namespaced, PodUid};
use api::pod::VolumeMount;
use api::storage::{ClaimReference, ClaimSpec, ClaimStatus, CsiSource};
use api::{
    AccessMode, Bytes, Claim, ClaimPhase, Container, CsiDriver, Key, Kind, Meta, PersistentSource, Pod,
    PodVolume, Resource, Volume, VolumeMode, VolumeSource,
};
use host::fake::{FakeHost, FakeKernel};
use plugin_api::registry::Registry;
use testing::MemoryApi;
use volume_manager::event::Notice;
use volume_manager::plugin::csi::CsiPlugin;
use volume_manager::{ClientStyle, Config, Parts, PodState, VolumeManager};

use super::driver::{Driver, NAME};

const ROOT: &str = "/var/lib/kubelet";
const LIMIT: Duration = Duration::from_secs(3600);

pub(crate) struct Node {
    api: Arc<MemoryApi>,
    host: FakeHost,
    driver: Driver,
    pub(crate) manager: VolumeManager,
}

/// The times of one pod.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Life {
    /// From the pod to the first operation for it.
    pub(crate) first: Duration,
    /// From the pod's end to the first operation that takes its volume back.
    pub(crate) last: Duration,
}

impl Node {
    /// A node with an empty disk.
    pub(crate) async fn start() -> Self {
        let kernel = FakeKernel::new();
        kernel.make_dir_all(Path::new(ROOT), 0o750).expect("the kernel is empty");
        let api = Arc::new(MemoryApi::default());
        let node = api::Node { meta: Meta::named("", "node"), ..Default::default() };
        api.put(node.into_object());
        let driver = CsiDriver { meta: Meta::named("", NAME), attach_required: false, ..Default::default() };
        api.put(driver.into_object());
        let (driver, host) = (Driver { kernel: kernel.clone() }, FakeHost::new(kernel));
        let manager = manager(&api, &host, &driver);
        let node = Self { api, host, driver, manager };
        node.idle().await;
        node
    }

    /// The volumes of these pods, and their claims.
    pub(crate) fn provide(&self, pods: Range<usize>) {
        for number in pods {
            let (volume, claim) = volume(number);
            self.api.put(volume.into_object());
            self.api.put(claim.into_object());
        }
    }

    /// All of these pods come at once, and each waits for its volume.
    pub(crate) async fn come(&self, pods: Range<usize>) {
        for number in pods.clone() {
            self.manager.add_pod(Arc::new(pod(number)));
        }
        // After a restart these are all: what is none of theirs may go.
        self.manager.sources_ready();
        let waits = pods.map(|number| {
            let manager = self.manager.clone();
            tokio::spawn(async move { manager.wait_mounted(&uid(number), LIMIT).await })
        });
        for wait in waits.collect::<Vec<_>>() {
            wait.await.expect("it does not panic").expect("nothing fails here");
        }
        self.idle().await;
    }

    /// All of these pods end at once, and each waits for the end of its volume.
    pub(crate) async fn go(&self, pods: Range<usize>) {
        for number in pods.clone() {
            self.manager.set_pod_state(&uid(number), PodState::RuntimeGone);
        }
        let waits = pods.map(|number| {
            let manager = self.manager.clone();
            tokio::spawn(async move {
                manager.wait_unmounted(&uid(number), LIMIT).await?;
                manager.remove_pod(&uid(number));
                Ok::<_, volume_manager::WaitError>(())
            })
        });
        for wait in waits.collect::<Vec<_>>() {
            wait.await.expect("it does not panic").expect("nothing fails here");
        }
        self.idle().await;
    }

    /// One pod comes and goes.
    pub(crate) async fn pod_life(&self, number: usize) -> Life {
        self.provide(number..number + 1);
        self.idle().await;
        let pod = Arc::new(pod(number));
        let first = self.until_started(|manager| manager.add_pod(pod)).await;
        self.idle().await;
        let gone = |manager: &VolumeManager| manager.set_pod_state(&uid(number), PodState::RuntimeGone);
        let last = self.until_started(gone).await;
        self.manager.remove_pod(&uid(number));
        self.idle().await;
        Life { first, last }
    }

    /// The time from a request to its first operation.
    async fn until_started(&self, say: impl FnOnce(&VolumeManager)) -> Duration {
        let mut notices = self.manager.subscribe();
        self.idle().await;
        // The timer is looked at when nothing else is to be done: what was thrown away is gone by then.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let began = Instant::now();
        say(&self.manager);
        loop {
            if let Notice::Started { .. } = notices.recv().await.expect("it runs") {
                return began.elapsed();
            }
        }
    }

    /// The manager crashes, and another one begins. It knows no pod yet.
    pub(crate) async fn restart(&mut self) {
        self.manager.abort();
        tokio::task::yield_now().await;
        self.manager = manager(&self.api, &self.host, &self.driver);
    }

    /// All of these objects are gone from the API: who still has them keeps them.
    pub(crate) fn forget(&self, pods: Range<usize>) {
        for number in pods {
            self.api.remove(&Key::cluster(Kind::Volume, format!("pv-{number}")));
            self.api.remove(&Key::namespaced(Kind::Claim, "default", format!("claim-{number}")));
        }
    }

    pub(crate) async fn idle(&self) {
        self.manager.wait_idle(LIMIT).await.expect("it becomes idle");
    }
}

fn manager(api: &Arc<MemoryApi>, host: &FakeHost, driver: &Driver) -> VolumeManager {
    let parts = Parts {
        api: Arc::clone(api) as _,
        host: host.shared(),
        clock: TokioClock::shared(),
        dialer: Arc::new(driver.clone()),
        registry: Registry::new(vec![Arc::new(CsiPlugin::new())]),
        containers: None,
    };
    let config = Config { client_style: ClientStyle::Lean, ..Config::new("node", ROOT) };
    let manager = VolumeManager::start(config, parts);
    manager.driver_registered(NAME.into(), "/csi.sock");
    manager
}

fn uid(number: usize) -> PodUid {
    PodUid::new(format!("00000000-0000-0000-0000-{number:012}"))
}

fn pod(number: usize) -> Pod {
    let mount = VolumeMount { volume: "data".to_owned(), path: "/data".to_owned(), ..Default::default() };
    let container = Container { name: "main".to_owned(), mounts: vec![mount], ..Container::default() };
    let source = VolumeSource::Claim { claim: format!("claim-{number}"), read_only: false };
    Pod {
        meta: Meta { uid: uid(number).to_string(), ..Meta::named("default", format!("pod-{number}")) },
        node: "node".to_owned(),
        volumes: vec![PodVolume { name: "data".into(), source }],
        containers: vec![container],
        ..Pod::default()
    }
}

fn volume(number: usize) -> (Volume, Claim) {
    let (name, claim) = (format!("pv-{number}"), format!("claim-{number}"));
    let meta = Meta { uid: format!("uid-{number}"), ..Meta::named("default", &claim) };
    let csi = CsiSource { driver: NAME.into(), handle: name.as_str().into(), ..CsiSource::default() };
    let volume = Volume {
        meta: Meta::named("", &name),
        capacity: Bytes(1 << 30),
        access_modes: vec![AccessMode::ReadWriteOnce],
        claim: Some(ClaimReference { claim: Namespaced::new("default", &claim), uid: meta.uid.clone() }),
        mode: Some(VolumeMode::Filesystem),
        source: PersistentSource::Csi(Box::new(csi)),
        ..Volume::default()
    };
    let status = ClaimStatus { phase: ClaimPhase::Bound, capacity: Bytes(1 << 30), ..ClaimStatus::default() };
    (volume, Claim { meta, spec: ClaimSpec { volume: name, ..ClaimSpec::default() }, status })
}
