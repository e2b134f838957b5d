//! The event loop: the only owner of the desired state, the actual state and the list of pending operations.
//!
//! There is no lock and no polling. The loop sleeps until an event arrives or a timer is due, takes in all
//! queued events, and then plans once, for the volumes that changed. Anything that takes time runs in its own
//! task and comes back as an event.

mod changes;
mod commands;
pub mod config;
pub mod handle;
mod known;
mod notices;
mod recover;
mod reports;
mod state;
mod stats;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use api::Kind;
use api::clock::{Alarm, Instant};
use api::follow::Following;
use api::names::VolumeName;
use api::timely::Timely;
use plugin_api::paths::Paths;
use plugin_api::{Config, EventSink, Facts, Mark, OperationContext, OperationId, ReportQueue};
use tokio::sync::mpsc;

use crate::actual::ActualState;
use crate::desired::DesiredState;
use crate::event::{Event, EventQueue, Notice};
use crate::executor::Executor;
use crate::in_use::InUse;
use crate::operation::pending::{Admission, Pending};
use crate::operation::{Key, Operation};
use crate::populator::{Populator, lookup};
use crate::reconciler::{self, Step, Worlds};
use crate::recovery::{Knowledge, Progress, Recovery};
use crate::waits::{self, Waits};
use known::Known;
use notices::Notices;

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
        Self::new(sender, task)
    }
}

struct Manager {
    desired: DesiredState,
    actual: ActualState,
    populator: Populator,
    recovery: Recovery,
    pending: Pending,
    executor: Executor,
    known: Known,
    /// Volumes for which something has changed since the last plan.
    dirty: BTreeSet<VolumeName>,
    in_use: InUse,
    waits: Waits,
    notices: Notices,
    counters: BTreeMap<&'static str, u64>,
}

impl Manager {
    fn new(config: Config, parts: Parts, sender: mpsc::UnboundedSender<Event>) -> Self {
        let known = Known::new(Facts { node_unfollowed: !config.watch_api, ..Facts::default() });
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
            facts: known.subscribe(),
        };
        Self {
            desired: DesiredState::default(),
            actual: ActualState::default(),
            populator: Populator::default(),
            recovery: Recovery::default(),
            pending: Pending::default(),
            executor: Executor::new(template, Arc::new(parts.registry), sender),
            known,
            dirty: BTreeSet::new(),
            in_use: InUse::default(),
            waits: Waits::default(),
            notices: Notices::default(),
            counters: BTreeMap::new(),
        }
    }

    async fn run(mut self, mut events: mpsc::UnboundedReceiver<Event>) {
        self.start_background_tasks();
        let (clock, mut alarm) = (Arc::clone(&self.executor.context().clock), Alarm::default());
        loop {
            // Both futures may be dropped at any time: a queue keeps its events, and the alarm its moment.
            let event = tokio::select! {
                biased;
                event = events.recv() => event,
                () = alarm.until(&clock, self.next_due()) => None,
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

    /// Starts the tasks that run as long as the manager does, and the reconstruction.
    fn start_background_tasks(&mut self) {
        let cx = self.executor.context().clone();
        if cx.config.watch_api {
            for kind in FOLLOWED {
                let following = Following::new(kind, Arc::clone(&cx.api), Arc::clone(&cx.clock));
                let sender = self.executor.sender().clone();
                self.executor.background(following.send_to(sender, Event::Api));
            }
        } else {
            self.known.change(|facts| facts.csi_drivers_known = true);
        }
        let host = Arc::clone(&cx.host);
        self.executor.look_up(async move { Event::SeLinux(host.selinux_enabled().await) });
        self.reconstruct();
    }

    /// Takes in one event. Starts no operation: volumes that it concerns become dirty.
    fn handle(&mut self, event: Event) -> ControlFlow<tokio::sync::oneshot::Sender<()>> {
        match event {
            Event::Command(command) => return self.command(command),
            Event::Api(kind, change) => self.api_changed(kind, change),
            Event::Operation(id, report) => self.reported(id, report),
            Event::Emit(event) => self.emit(event),
            Event::Driver(registration) => self.registered(registration),
            Event::Resolved(pod, resolved) => self.resolved(&pod, resolved),
            Event::SeLinux(enabled) => self.known.change(|facts| facts.selinux = enabled),
            Event::Recovery(event) => self.recovery.observe(event),
        }
        ControlFlow::Continue(())
    }

    /// Acts on everything taken in: resolves pods, plans and starts operations, and answers waiters.
    fn turn(&mut self) {
        let now = self.now();
        self.populator.expire(now);
        let due = self.pending.take_due(now);
        self.dirty.extend(due);
        // Recovery before pods: the pods that want a volume which it adopts are resolved again. And once more
        // after them: they may identify volumes, and after the last of them searches start.
        loop {
            let (recovered, looked) = (self.recover(now), self.look_at_pods());
            let settled = self.populator.settle();
            if settled {
                self.notices.send(|| Notice::Knows(Knowledge::Pods));
                self.all_dirty();
            }
            if !(recovered || looked || settled) {
                break;
            }
        }
        // Nothing is planned before the volumes on disk are reconstructed: a volume that is already mounted
        // would be mounted again.
        while self.recovery.progress() > Progress::Reconstructing && !self.dirty.is_empty() {
            let dirty = std::mem::take(&mut self.dirty);
            self.count_many("volumes_planned", dirty.len());
            self.update_in_use(&dirty);
            for step in self.plan(&dirty) {
                self.perform(step, now);
            }
        }
        self.publish_in_use();
        self.end_waits(|waits, view| waits.decide(view, now));
    }

    fn plan(&self, dirty: &BTreeSet<VolumeName>) -> Vec<Step> {
        let facts = self.known.facts();
        let worlds = Worlds {
            desired: &self.desired,
            actual: &self.actual,
            facts: &facts,
            registry: self.executor.registry(),
            complete: self.populator.all_added() && self.recovery.progress() >= Progress::Identifying,
            explained: !self.recovery.is_searching(),
            orphans: &self.recovery.unidentified_names(),
        };
        reconciler::plan(worlds, dirty, |pod| self.populator.may_run(pod))
    }

    fn perform(&mut self, step: Step, now: Instant) {
        match step {
            Step::Start(operation) => self.start(operation, now),
            Step::Forget(volume) => self.forget(&volume),
            Step::Fail(pod, error) => {
                self.desired.add_error(&pod, error);
                self.waits.observe(waits::Event::Changed(&pod));
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
        self.notices.send(|| Notice::Started { name, volume, pod });
        self.executor.start(id, operation);
    }

    /// Resolves the volumes of the pods that are due: at once if that takes no API call, otherwise in a task.
    /// Returns whether there were any.
    fn look_at_pods(&mut self) -> bool {
        let due = self.populator.take_due(&self.known.facts());
        let any = !due.is_empty();
        for look in due {
            let uid = look.uid.clone();
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
        any
    }

    /// Ends the waits that are over.
    fn end_waits(&mut self, decide: impl FnOnce(&mut Waits, waits::View<'_>) -> Vec<waits::Step>) {
        let view = waits::View {
            desired: &self.desired,
            actual: &self.actual,
            pods: &self.populator,
            pending: &self.pending,
            recovery: &self.recovery,
            facts: &self.known.facts(),
            node: &self.executor.context().config.node,
        };
        for step in decide(&mut self.waits, view) {
            match step {
                waits::Step::ForgetErrors(pod) => drop(self.desired.take_errors(&pod)),
                waits::Step::End { goal, result, answer } => {
                    let error = result.as_ref().err().map(ToString::to_string);
                    if let Some((what, pod)) = goal.about_pod() {
                        self.notices.send(|| Notice::Waited {
                            what: what.to_owned(),
                            pod: pod.clone(),
                            error,
                        });
                    }
                    // The send fails when the caller no longer waits.
                    let _ = answer.send(result);
                }
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
