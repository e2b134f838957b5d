//! The world of a simulation: kernel, driver, API, and the manager between them, which starts and crashes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::clock::TokioClock;
use api::names::{DriverName, PodUid};
use api::{ApiSource, Attachment, Key, Node, Pod, Resource};
use contracts::event::{Client, Disturbance, Event, Lifecycle, PodChange, PodPhase, ProcessEdge, Role};
use host::fake::{FakeHost, FakeKernel, Order};
use host::{Host, Propagation};
use plugin_api::registry::Registry;
use tokio::task::AbortHandle;
use volume_manager::plugin::csi::CsiPlugin;
use volume_manager::plugin::empty_dir::EmptyDirPlugin;
use volume_manager::{ClientStyle, Config, Parts, PodState, VolumeManager};

use crate::api::SimulatedApi;
use crate::claims;
use crate::controllers::{Attaching, Claiming};
use crate::crash::Crash;
use crate::driver::{NAME, SOCKET, SimulatedDriver};
use crate::faults::KernelFaults;
use crate::growth;
use crate::neighbour;
use crate::objects::{self, Disk, Forbidden, NEIGHBOUR, NODE};
use crate::script::Scenario;
use crate::status;
use crate::trace::Trace;

/// The manager's root directory.
pub(crate) const ROOT: &str = "/var/lib/kubelet";

/// Everything in a simulation.
pub(crate) struct World {
    pub(crate) trace: Trace,
    pub(crate) kernel: FakeKernel,
    pub(crate) driver: SimulatedDriver,
    pub(crate) api: SimulatedApi,
    pub(crate) crash: Crash,
    /// Decides when the controllers crash.
    pub(crate) controllers_crash: Crash,
    faults: KernelFaults,
    pub(crate) scenario: Scenario,
    manager: Option<VolumeManager>,
    /// The writer of the node's status.
    reporting: Option<AbortHandle>,
    /// Pods whose objects exist, with the state of their containers.
    pods: BTreeMap<u32, (Arc<Pod>, PodState)>,
    /// Pods of the other node.
    elsewhere: BTreeMap<u32, Key>,
    driver_up: bool,
    /// Directories with a damaged record, and whether anything was mounted in them at the time.
    pub(crate) damaged: BTreeMap<PathBuf, bool>,
    /// The controllers, if volumes are attached by them.
    attaching: Option<Attaching>,
    /// The controllers, if volumes are made by them.
    claiming: Option<Claiming>,
}

impl World {
    /// A node on which nothing has happened yet.
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let kernel = FakeKernel::new();
        kernel.make_dir_all(Path::new(ROOT), 0o750).expect("an empty kernel has room");
        kernel.mount("tmpfs", Path::new(ROOT), "tmpfs", &[]).expect("a directory can be mounted on");
        kernel.set_propagation(Path::new(ROOT), Propagation::Shared, false).expect("it is a mount point");
        let trace = Trace::new(kernel.clone(), Path::new(ROOT), scenario);
        let (crash, controllers_crash) = (Crash::default(), Crash::default());
        let api = SimulatedApi::new(trace.clone(), scenario, crash.clone());
        let driver = SimulatedDriver::new(
            kernel.clone(),
            trace.clone(),
            scenario,
            crash.clone(),
            controllers_crash.clone(),
        );
        let mut world = Self {
            faults: KernelFaults::new(scenario.seed, scenario.kernel_faults, crash.clone()),
            crash,
            controllers_crash,
            scenario: scenario.clone(),
            trace,
            kernel,
            driver,
            api,
            manager: None,
            reporting: None,
            pods: BTreeMap::new(),
            elsewhere: BTreeMap::new(),
            driver_up: true,
            damaged: BTreeMap::new(),
            attaching: None,
            claiming: None,
        };
        if !scenario.api_delay.is_zero() {
            world.trace.record(Event::Disturbed(Disturbance::ApiSlow));
        }
        world.furnish();
        world.start_controllers();
        world
    }

    /// Creates the objects that every scenario starts with.
    fn furnish(&self) {
        self.api.put(objects::driver(&self.scenario).into_object(), Client::Case);
        self.api.put(objects::secret().into_object(), Client::Case);
        let numbered = (0..self.scenario.volumes.len()).map(|number| Disk::numbered(&self.scenario, number));
        let forbidden = Forbidden::ALL.into_iter().filter(|why| *why != Forbidden::SomebodyElses);
        let forbidden = forbidden.map(|why| Disk::forbidden(&self.scenario, why, 0));
        let disks: Vec<Disk> = match self.scenario.forbidden {
            true => numbered.chain(forbidden).collect(),
            false => numbered.collect(),
        };
        self.api.put(objects::node(&self.scenario, NODE).into_object(), Client::Case);
        if self.scenario.controlled {
            self.api.put(objects::csi_node(NODE).into_object(), Client::Case);
            self.api.put(objects::csi_node(NEIGHBOUR).into_object(), Client::Case);
        }
        if self.scenario.neighbour {
            self.api.put(objects::node(&self.scenario, NEIGHBOUR).into_object(), Client::Case);
            neighbour::start(self.api.clone(), self.trace.clone());
        }
        match self.scenario.provisioned {
            true => claims::furnish(&self.api, &self.scenario),
            false => disks.into_iter().for_each(|disk| self.make(disk)),
        }
        if self.scenario.alone {
            self.kernel.set_selinux(Path::new(ROOT), true).expect("it is a mount point");
        }
        self.trace.look_at_mounts(contracts::event::Actor::Harness);
    }

    /// Creates a disk with its objects, attached if it must be and no controller does that.
    fn make(&self, disk: Disk) {
        self.driver.create(&disk.handle, disk.block).expect("every disk has its own name");
        if self.scenario.attachable && !self.scenario.controlled {
            self.api.put(disk.attachment().into_object(), Client::Controller);
            self.api.attached(NODE, disk.attached());
        }
        self.api.put(disk.volume.into_object(), Client::Case);
        self.api.put(disk.claim.into_object(), Client::Case);
    }

    /// Starts the controllers, or restarts them after a crash.
    pub(crate) fn start_controllers(&mut self) {
        self.controllers_crash.revive();
        let crash = self.controllers_crash.clone();
        let api: Arc<dyn ApiSource> = Arc::new(self.api.seen_by(Client::Controller, crash));
        if self.scenario.controlled {
            self.attaching = Some(Attaching::start(&api, &self.driver));
        }
        if self.scenario.provisioned {
            self.claiming = Some(Claiming::start(&api, &self.driver, self.scenario.groups));
        }
    }

    /// Ends the controllers where they stand. Requests that they have sent are served all the same.
    pub(crate) fn stop_controllers(&mut self) {
        (self.attaching, self.claiming) = (None, None);
    }

    /// Starts the manager, as after a crash or a reboot of its process.
    pub(crate) fn start_manager(&mut self) {
        self.crash.revive();
        self.faults.revive();
        let host = FakeHost::new(self.kernel.clone());
        let (faults, trace) = (self.faults.clone(), self.trace.clone());
        host.faults().decide_with(move |step| {
            let order = faults.decide(step);
            if matches!(order, Order::Fail(_) | Order::FailAfter(_)) {
                let (step, path) = (step.method.to_owned(), step.path.display().to_string());
                trace.record(Event::Disturbed(Disturbance::StepFailed { step, path }));
            }
            order
        });
        let mut config = Config::new(NODE, ROOT);
        config.client_style = if self.scenario.lean { ClientStyle::Lean } else { ClientStyle::Kubelet };
        let parts = Parts {
            api: Arc::new(self.api.clone()),
            host: host.shared(),
            clock: TokioClock::shared(),
            dialer: Arc::new(self.driver.clone()),
            registry: Registry::new(vec![Arc::new(CsiPlugin::new()), Arc::new(EmptyDirPlugin)]),
            containers: None,
        };
        self.node_edge(Lifecycle::Start);
        let manager = VolumeManager::start(config, parts);
        self.trace.listen(Some((manager.subscribe(), self.faults.clone())));
        for (pod, state) in self.pods.values() {
            manager.add_pod(Arc::clone(pod));
            manager.set_pod_state(&uid(pod), *state);
        }
        manager.sources_ready();
        self.reporting = Some(status::report(self.api.clone(), manager.clone()));
        if self.driver_up {
            manager.driver_registered(DriverName::new(NAME), SOCKET);
        }
        self.manager = Some(manager);
    }

    /// Aborts the manager. Requests that it has sent are served all the same.
    pub(crate) async fn stop_manager(&mut self) {
        let Some(manager) = self.manager.take() else { return };
        manager.abort();
        if let Some(reporting) = self.reporting.take() {
            reporting.abort();
        }
        // Its operations are dropped when the runtime next polls, and report nothing.
        tokio::task::yield_now().await;
        self.trace.listen(None);
        self.node_edge(Lifecycle::Kill);
    }

    pub(crate) fn add_pod(&mut self, number: u32, volumes: &[usize]) {
        if !self.can_schedule(volumes) {
            return;
        }
        let pod = Arc::new(objects::pod(&self.scenario, number, volumes));
        if self.scenario.provisioned {
            // The controllers make its volumes.
        } else if self.forbidden(number) == Some(Forbidden::SomebodyElses) {
            self.make(Disk::forbidden(&self.scenario, Forbidden::SomebodyElses, number));
        } else if objects::has_its_own(&self.scenario, number) {
            self.make(Disk::own(&self.scenario, number));
        }
        self.api.put(Pod::clone(&pod).into_object(), Client::Case);
        self.record_phase(&uid(&pod), PodPhase::Added);
        self.pods.insert(number, (Arc::clone(&pod), PodState::Running));
        if let Some(manager) = &self.manager {
            manager.add_pod(pod);
        }
        self.sync(number);
    }

    /// Waits for a pod's volumes in the background, as a pod worker does.
    pub(crate) fn sync(&self, number: u32) {
        let (Some(manager), Some((pod, _))) = (self.manager.clone(), self.pods.get(&number)) else { return };
        let pod = uid(pod);
        tokio::spawn(async move { manager.wait_mounted(&pod, Duration::from_secs(123)).await });
    }

    pub(crate) fn set_state(&mut self, number: u32, state: PodState) {
        let Some((pod, now)) = self.pods.get_mut(&number) else { return };
        *now = state;
        let pod = uid(pod);
        let phase = match state {
            PodState::Running => PodPhase::Running,
            PodState::Terminating => PodPhase::Terminating,
            PodState::RuntimeGone => PodPhase::RuntimeGone,
        };
        self.record_phase(&pod, phase);
        if let Some(manager) = &self.manager {
            manager.set_pod_state(&pod, state);
        }
    }

    pub(crate) fn remove_pod(&mut self, number: u32) {
        self.set_state(number, PodState::RuntimeGone);
        let Some((pod, _)) = self.pods.remove(&number) else { return };
        self.record_phase(&uid(&pod), PodPhase::Removed);
        self.api.remove(&pod.key(), Client::Case);
        if let Some(manager) = self.manager.clone() {
            let pod = uid(&pod);
            manager.remove_pod(&pod);
            // Its owner waits until the volumes are gone.
            tokio::spawn(async move { manager.wait_unmounted(&pod, Duration::from_secs(123)).await });
        }
    }

    /// Whether a scheduler binds a pod with these volumes to a node: not while a claim is missing or is being deleted.
    fn can_schedule(&self, volumes: &[usize]) -> bool {
        !self.scenario.provisioned || volumes.iter().all(|volume| claims::is_there(&self.api, *volume))
    }

    pub(crate) fn add_elsewhere(&mut self, number: u32, volumes: &[usize]) {
        if !self.can_schedule(volumes) {
            return;
        }
        let pod = objects::pod_elsewhere(&self.scenario, number, volumes);
        self.elsewhere.insert(number, pod.key());
        self.api.put(pod.into_object(), Client::Case);
    }

    pub(crate) fn remove_elsewhere(&mut self, number: u32) {
        if let Some(pod) = self.elsewhere.remove(&number) {
            self.api.remove(&pod, Client::Case);
        }
    }

    /// The node is lost: its pods are given up and end.
    pub(crate) fn lose_node(&mut self) {
        self.api.change("", NODE, |node: &mut Node| node.ready = false);
        for number in self.present() {
            self.remove_pod(number);
        }
    }

    /// Lets the node's object be ready again.
    pub(crate) fn find_node(&self) {
        self.api.change("", NODE, |node: &mut Node| node.ready = true);
    }

    /// Removes the empty directories of deleted pods, as a node does besides its manager. A file or mount in
    /// them keeps the directories above it.
    pub(crate) async fn sweep(&self) {
        let host = FakeHost::new(self.kernel.clone());
        let pods = Path::new(ROOT).join("pods");
        for pod in names(&host, &pods).await {
            if self.pods.values().any(|(known, _)| known.meta.uid == pod) {
                continue;
            }
            let volumes = pods.join(&pod).join("volumes");
            for plugin in names(&host, &volumes).await {
                for volume in names(&host, &volumes.join(&plugin)).await {
                    let volume = volumes.join(&plugin).join(volume);
                    // Fails for a directory that is missing, not empty or a mount point; then it stays.
                    let _ = host.remove_dir(&volume.join("mount")).await;
                    let _ = host.remove_dir(&volume).await;
                }
            }
        }
    }

    pub(crate) fn kill_driver(&mut self) {
        self.driver_up = false;
        self.driver.kill();
        if let Some(manager) = &self.manager {
            let driver = DriverName::new(NAME);
            manager.registration(volume_manager::Registration::Removed { driver });
        }
    }

    pub(crate) fn start_driver(&mut self) {
        self.driver_up = true;
        self.driver.start();
        if let Some(manager) = &self.manager {
            manager.driver_registered(DriverName::new(NAME), SOCKET);
        }
    }

    /// Does the controllers' part of an expansion; the rest is the node's.
    pub(crate) fn grow(&self, number: usize) {
        if self.scenario.provisioned {
            return claims::grow(&self.api, number);
        }
        growth::ask(&self.api, &Disk::numbered(&self.scenario, number), self.scenario.records_growth);
    }

    /// Requests expansions again that the node has given up. Whether there was any.
    pub(crate) fn insist_on_growth(&self) -> bool {
        if self.scenario.provisioned {
            return false;
        }
        let disks = (0..self.scenario.volumes.len()).map(|number| Disk::numbered(&self.scenario, number));
        disks.filter(|disk| growth::insist(&self.api, disk)).count() > 0
    }

    /// Volumes in use whose expansion is not complete.
    pub(crate) fn not_grown(&self) -> Vec<String> {
        if self.scenario.provisioned {
            return claims::unmet(&self.api, &self.driver, |claim| self.is_used(claim));
        }
        let disks = (0..self.scenario.volumes.len()).map(|number| Disk::numbered(&self.scenario, number));
        disks.filter_map(|disk| growth::missing(&self.api, &self.driver, &disk)).collect()
    }

    /// Whether a container of the node uses a claim.
    fn is_used(&self, claim: &str) -> bool {
        self.pods.values().any(|(pod, _)| pod.claims_of_containers().any(|used| used == claim))
    }

    /// Writes the claims that are missing.
    pub(crate) fn add_missing_claims(&self) {
        if self.scenario.provisioned {
            (0..self.scenario.volumes.len()).for_each(|volume| {
                claims::add(&self.api, &self.scenario, volume, None, None);
            });
        }
    }

    /// Whether a claim of a pod has no volume, or is being deleted: such a pod does not get its volumes.
    pub(crate) fn lacks_a_volume(&self, number: u32) -> bool {
        let Some((pod, _)) = self.pods.get(&number) else { return false };
        self.scenario.provisioned && pod.claims().any(|claim| !claims::has_a_volume(&self.api, &claim))
    }

    /// Ends all faults, and starts everything that is down.
    pub(crate) fn heal(&mut self) {
        self.crash.countermand();
        self.controllers_crash.countermand();
        self.faults.stop();
        self.driver.heal();
        self.api.heal();
        if !self.driver_up {
            self.start_driver();
        }
        if self.manager.is_none() {
            self.start_manager();
        }
        // A single-node volume that is in use on the other node would never be attached here.
        while let Some((_, pod)) = self.elsewhere.pop_first() {
            self.api.remove(&pod, Client::Case);
        }
    }

    /// The time until every client has seen every change once the API is fast: a request, its answer and a
    /// watched change, after the time limit of a request that is never answered.
    pub(crate) fn until_heard(&self) -> Duration {
        let given_up = if self.scenario.api_hangs { Duration::from_secs(31) } else { Duration::ZERO };
        given_up + self.scenario.api_delay * 3
    }

    /// Records that this time is over.
    pub(crate) fn has_heard(&self) {
        self.trace.record(Event::Disturbed(Disturbance::ApiFast));
    }

    /// The forbidden volume of a pod, which then never gets all of its volumes.
    pub(crate) fn forbidden(&self, pod: u32) -> Option<Forbidden> {
        Forbidden::of(&self.scenario, pod)
    }

    pub(crate) fn manager(&self) -> Option<&VolumeManager> {
        self.manager.as_ref()
    }

    /// Pods whose containers run.
    pub(crate) fn running(&self) -> Vec<(u32, PodUid)> {
        let running = self.pods.iter().filter(|(_, (_, state))| *state == PodState::Running);
        running.map(|(number, (pod, _))| (*number, uid(pod))).collect()
    }

    /// All pods with an object.
    pub(crate) fn present(&self) -> Vec<u32> {
        self.pods.keys().copied().collect()
    }

    fn node_edge(&self, edge: Lifecycle) {
        self.trace.record(Event::Process(ProcessEdge {
            who: Role::Node,
            edge,
            status: None,
            root: None,
            hides_driver: false,
        }));
    }

    fn record_phase(&self, pod: &PodUid, to: PodPhase) {
        self.trace.record(Event::Pod(PodChange { pod: pod.to_string(), to }));
    }
}

fn uid(pod: &Pod) -> PodUid {
    PodUid::new(&pod.meta.uid)
}

async fn names(host: &FakeHost, dir: &Path) -> Vec<String> {
    let entries = host.read_dir(dir).await.unwrap_or_default();
    entries.into_iter().filter_map(|entry| entry.name.into_string().ok()).collect()
}

/// Leftovers below the root, without directories that always stay.
pub(crate) fn leftovers(world: &World) -> Vec<String> {
    let table = world.kernel.mount_table();
    let mounts = table
        .entries()
        .iter()
        .filter(|entry| entry.mount_point.starts_with(ROOT) && entry.mount_point != Path::new(ROOT))
        .map(|entry| format!("a mount at {}", entry.mount_point.display()));
    let loops =
        world.kernel.loops().into_iter().map(|(device, _)| format!("{} is attached", device.display()));
    let held = world.driver.holds().into_iter().map(|held| format!("the driver has {held}"));
    let attached = match world.scenario.controlled {
        true => world.api.all::<Attachment>(),
        false => Vec::new(),
    };
    let claims = match world.scenario.provisioned {
        true => claims::leftovers(&world.api, &world.driver),
        false => Vec::new(),
    };
    let attached = attached.into_iter().map(|left| format!("{} is attached", left.volume));
    mounts.chain(loops).chain(held).chain(attached).chain(claims).collect()
}
