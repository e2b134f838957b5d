//! The event loop: the only owner of the desired state, the actual state and the list of pending operations.
//!
//! There is no lock and no polling. The loop sleeps until an event arrives or a timer is due, takes in all
//! queued events, and then plans once, for the volumes that changed. Anything that takes time runs in its own
//! task and comes back as an event.

mod changes;
mod commands;
pub mod config;
pub mod dump;
pub mod handle;
mod recovery;
mod reports;
mod state;
mod unidentified;
pub mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use api::{Bytes, Kind};
use api::clock::Instant;
use api::names::{Namespaced, VolumeName};
use api::timely::Timely;
use plugin_api::paths::Paths;
use plugin_api::{Config, EventSink, Facts, Mark, OperationContext, OperationId, ReportQueue};
use tokio::sync::{mpsc, watch as latest};

use crate::actual::ActualState;
use crate::desired::DesiredState;
use crate::event::{Event, EventQueue, Notice};
use crate::operation::executor::Executor;
use crate::operation::pending::{Admission, Pending};
use crate::operation::{Key, Operation};
use crate::populator::{Populator, lookup};
use crate::reconciler::{self, Step, Worlds};

pub use config::Parts;
pub use handle::{VolumeManager, WAIT_LIMIT};

/// Kinds that are followed: drivers and the node because plans depend on them; claims and volumes to resolve
/// pods again that failed on them; attachments for the text of attach errors.
const FOLLOWED: [Kind; 5] = [Kind::CsiDriver, Kind::Node, Kind::Claim, Kind::Volume, Kind::Attachment];

impl VolumeManager {
    /// Starts a manager on the current runtime. It reconstructs the volumes that a previous run left on disk,
    /// then follows pods. It ends with the runtime, or on [`shutdown`](Self::shutdown) or
    /// [`abort`](Self::abort).
    pub fn start(config: Config, parts: Parts) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let manager = Manager::new(config, parts, sender.clone());
        let task = tokio::spawn(manager.run(events)).abort_handle();
        Self { sender, task }
    }
}

struct Manager {
    desired: DesiredState,
    actual: ActualState,
    populator: Populator,
    pending: Pending,
    executor: Executor,
    /// Volumes for which something has changed since the last plan.
    dirty: BTreeSet<VolumeName>,
    facts: latest::Sender<Arc<Facts>>,
    recovery: recovery::Recovery,
    waits: waits::Waits,
    subscribers: Vec<mpsc::UnboundedSender<Notice>>,
    /// The node's `volumesInUse`, updated for each volume that changes.
    in_use: BTreeSet<VolumeName>,
    /// Whether subscribers have not been sent `in_use` since it changed.
    in_use_changed: bool,
    /// Volumes that the node's object was last seen to list in `volumesInUse` and that are still in `in_use`.
    reported: BTreeSet<VolumeName>,
    /// Claims in `NodeResizePending`, with the size allocated to them.
    resize_pending: BTreeMap<Namespaced, Option<Bytes>>,
    counters: BTreeMap<&'static str, u64>,
    registrations: u64,
}

impl Manager {
    fn new(config: Config, parts: Parts, sender: mpsc::UnboundedSender<Event>) -> Self {
        let facts = Facts { node_unfollowed: !config.watch_api, ..Facts::default() };
        let facts = latest::Sender::new(Arc::new(facts));
        let queue = Arc::new(EventQueue(sender.clone()));
        let template = OperationContext {
            host: parts.host,
            api: Timely::shared(parts.api, Arc::clone(&parts.clock)),
            clock: parts.clock,
            dialer: parts.dialer,
            containers: parts.containers,
            paths: Arc::new(Paths::new(&config.root)),
            config: Arc::new(config),
            events: EventSink::new(Arc::clone(&queue) as Arc<dyn ReportQueue>),
            // The executor gives each operation a mark of its own.
            mark: Mark::new(VolumeName::new(""), OperationId(0), None, queue),
            facts: facts.subscribe(),
        };
        Self {
            desired: DesiredState::default(),
            actual: ActualState::default(),
            populator: Populator::default(),
            pending: Pending::default(),
            executor: Executor::new(template, Arc::new(parts.registry), sender),
            dirty: BTreeSet::new(),
            facts,
            recovery: recovery::Recovery::default(),
            waits: waits::Waits::default(),
            subscribers: Vec::new(),
            in_use: BTreeSet::new(),
            in_use_changed: true,
            reported: BTreeSet::new(),
            resize_pending: BTreeMap::new(),
            counters: BTreeMap::new(),
            registrations: 0,
        }
    }

    async fn run(mut self, mut events: mpsc::UnboundedReceiver<Event>) {
        self.start_background_tasks();
        loop {
            let due = self.next_due();
            let clock = Arc::clone(&self.executor.context().clock);
            // Both futures may be dropped at any time: a queue keeps its events, and the deadline is computed
            // again.
            let event = tokio::select! {
                biased;
                event = events.recv() => event,
                () = until(&*clock, due) => None,
            };
            let ready = event.into_iter().chain(std::iter::from_fn(|| events.try_recv().ok()));
            for event in ready {
                if let ControlFlow::Break(ended) = self.handle(event) {
                    drop(self);
                    // The send fails when the caller of `shutdown` no longer waits.
                    let _ = ended.send(());
                    return;
                }
            }
            self.turn();
        }
    }

    /// Takes in one event. Starts no operation: volumes that it concerns become dirty.
    fn handle(&mut self, event: Event) -> ControlFlow<tokio::sync::oneshot::Sender<()>> {
        match event {
            Event::Command(command) => return self.command(command),
            Event::Api(kind, change) => self.api_changed(kind, change),
            Event::Operation(id, report) => self.reported(id, report),
            Event::Tell(told) => self.tell(told),
            Event::Driver(registration) => self.registered(registration),
            Event::Resolved(pod, resolved) => self.resolved(&pod, resolved),
            Event::SeLinux(enabled) => self.change_facts(|facts| facts.selinux = enabled),
            Event::Reconstructed(reconstruction) => self.reconstructed(reconstruction),
            Event::NodeRead(read) => self.node_read(read),
            Event::Identified(found, identified) => self.directory_search_ended(found, identified),
            Event::StageSearched(at, found) => self.stage_search_ended(&at, found),
        }
        ControlFlow::Continue(())
    }

    /// Acts on everything taken in: resolves pods, plans and starts operations, and answers waiters.
    fn turn(&mut self) {
        let now = self.now();
        self.populator.expire(now);
        let due = self.pending.take_due(now);
        self.dirty.extend(due);
        self.read_node_if_needed(now);
        self.look_at_pods();
        if self.populator.settle() {
            self.all_dirty();
        }
        self.search_unidentified_directories();
        self.search_unidentified_stages();
        // Nothing is planned before the volumes on disk are reconstructed: a volume that is already mounted
        // would be mounted again.
        while self.recovery.is_read_back() && !self.dirty.is_empty() {
            let dirty = std::mem::take(&mut self.dirty);
            self.count_many("volumes_planned", dirty.len());
            self.update_in_use(&dirty);
            for step in self.plan(&dirty) {
                self.perform(step, now);
            }
        }
        self.publish_in_use();
        self.wake_waiters(now);
    }

    fn plan(&self, dirty: &BTreeSet<VolumeName>) -> Vec<Step> {
        let facts = self.facts.borrow();
        let worlds = Worlds {
            desired: &self.desired,
            actual: &self.actual,
            facts: &facts,
            registry: self.executor.registry(),
            complete: self.populator.all_added() && self.recovery.is_corrected(),
            explained: !self.recovery.is_searching(),
            orphans: &self.recovery.orphans(),
        };
        reconciler::plan(worlds, dirty, |pod| self.populator.may_run(pod))
    }

    fn perform(&mut self, step: Step, now: Instant) {
        match step {
            Step::Start(operation) => self.start(operation, now),
            Step::Forget(volume) => self.forget(&volume),
            Step::Fail(pod, error) => {
                self.desired.add_error(&pod, error);
                self.waits.concern(&pod);
            }
        }
    }

    fn start(&mut self, operation: Operation, now: Instant) {
        let (name, pod) = (operation.name(), operation.pod());
        let admission = self.pending.admit(name, Key::of(&operation), pod.clone(), now);
        // A refused operation is planned again when the operation that excludes it has ended.
        let Admission::Started(id) = admission else { return };
        let volume = operation.volume().clone();
        tracing::debug!(operation = %name, %volume, pod = pod.as_ref().map(tracing::field::display), "operation started");
        self.notify(|| Notice::Started { name, volume, pod });
        self.executor.start(id, operation);
    }

    /// Resolves the volumes of the pods that are due: at once if that takes no API call, otherwise in a task.
    fn look_at_pods(&mut self) {
        let facts = Arc::clone(&self.facts.borrow());
        for look in self.populator.take_due(&facts) {
            let uid = look.pod.uid();
            let local = lookup::is_local(&look.pod);
            let api = Arc::clone(&self.executor.context().api);
            let look = lookup::resolve(look, api);
            if local {
                use futures::FutureExt;
                let resolved = look.now_or_never().expect("a pod without claims needs no API call");
                self.resolved(&uid, resolved);
            } else {
                self.executor.look_up(async move { Event::Resolved(uid, look.await) });
            }
        }
    }

    fn now(&self) -> Instant {
        self.executor.context().clock.now()
    }

    /// The earliest deadline at which the loop must wake without an event.
    fn next_due(&self) -> Option<Instant> {
        let sources = [
            self.pending.next_due(),
            self.populator.next_retry(),
            self.waits.next_deadline(),
            self.recovery.next_due(),
        ];
        sources.into_iter().flatten().min()
    }

    fn all_dirty(&mut self) {
        let all = self.desired.volumes().map(|(volume, _)| volume);
        let all = all.chain(self.actual.volumes().map(|(volume, _)| volume)).cloned();
        self.dirty.extend(all);
    }

    fn count(&mut self, counter: &'static str) {
        self.count_many(counter, 1);
    }

    fn count_many(&mut self, counter: &'static str, many: usize) {
        *self.counters.entry(counter).or_default() += many as u64;
    }
}

async fn until(clock: &dyn api::clock::Clock, due: Option<Instant>) {
    match due {
        Some(due) => clock.sleep_until(due).await,
        None => std::future::pending().await,
    }
}
