//! The attach/detach controller: attaches the volumes of pods to the nodes that the pods are bound to, and detaches a
//! volume that no pod wants once the node no longer uses it.
//!
//! It keeps three promises to the node. A volume is detached only while it is not in the node's `volumesInUse`, unless the
//! node has not been ready for long or was declared out of service. It is removed from the node's `volumesAttached` before
//! it is detached. And a volume for one node is never certainly attached to two.

mod book;
mod cluster;
mod plan;
mod pods;
mod reports;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::clock::{Alarm, Clock, Instant};
use api::follow::{Following, News};
use api::names::{NodeName, VolumeName};
use api::timely::Timely;
use api::{
    ApiError, ApiSource, Key as ObjectKey, Kind, Notification, Object, Patch, PatchBody, Pod, Reference,
    Severity,
};
use plugin_api::registry::Registry;
use plugin_api::{Changes, Facts, Reason, Remote, Spec};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::operation::pending::{Admission, Ended, Pending};
use crate::operation::{AttachVolume, DetachVolume, Failed, Key, Operation, attach, detach};
use book::{Book, Entry};
use cluster::{Cluster, Desired, Place};
use plan::{PATIENCE, Step};
use reports::{Reports, names};
use work::Work;

/// The period of the comparison between the attached volumes and their attachments.
const VERIFY_EVERY: Duration = Duration::from_secs(60);

/// A running controller. It stops when this is dropped.
#[derive(Debug)]
pub struct AttachDetach {
    task: AbortHandle,
}

/// The settings of a controller.
#[derive(Debug, Clone)]
pub struct AttachDetachConfig {
    /// Whether a volume is taken from a node that has not been ready for six minutes.
    pub force_detach: bool,
}

impl Default for AttachDetachConfig {
    fn default() -> Self {
        Self { force_detach: true }
    }
}

impl AttachDetach {
    /// Starts a controller on the current runtime.
    pub fn start(
        config: AttachDetachConfig,
        api: Arc<dyn ApiSource>,
        clock: Arc<dyn Clock>,
        registry: Registry,
    ) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        // A node is written to once at a time: a write that never ended would be its last.
        let api = Timely::shared(api, Arc::clone(&clock));
        let controller = Controller {
            config,
            context: OperationContext {
                api,
                clock,
                registry: Arc::new(registry),
                changes: Changes::default(),
            },
            cluster: Cluster::default(),
            book: None,
            pending: Pending::default(),
            reports: Reports::default(),
            work: Work::default(),
            verify_at: None,
            reported_conflicts: BTreeSet::new(),
            running: BTreeMap::new(),
            tasks: JoinSet::new(),
            sender,
        };
        Self { task: tokio::spawn(controller.run(events)).abort_handle() }
    }
}

impl Drop for AttachDetach {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What an operation needs to reach the API and the plugins.
#[derive(Debug, Clone)]
struct OperationContext {
    api: Arc<dyn ApiSource>,
    clock: Arc<dyn Clock>,
    registry: Arc<Registry>,
    changes: Changes,
}

impl OperationContext {
    fn remote<'a>(&'a self, facts: &'a Facts) -> Remote<'a> {
        Remote { api: &*self.api, clock: &*self.clock, facts, changes: &self.changes }
    }
}

#[derive(Debug)]
enum Event {
    Seen(Kind, News),
    Attached(plugin_api::OperationId, Result<String, Failed>),
    Detached(plugin_api::OperationId, Result<(), Failed>),
    Written(NodeName, Result<Object, ApiError>),
    /// These turned out not to be attached any more.
    Missing(Vec<(VolumeName, NodeName)>),
}

struct Controller {
    config: AttachDetachConfig,
    context: OperationContext,
    cluster: Cluster,
    /// `None` until everything has been seen.
    book: Option<Book>,
    pending: Pending,
    reports: Reports,
    work: Work,
    verify_at: Option<Instant>,
    /// Conflicts whose pods got an event, so that they get one event each.
    reported_conflicts: BTreeSet<(VolumeName, NodeName)>,
    running: BTreeMap<plugin_api::OperationId, Operation>,
    tasks: JoinSet<()>,
    sender: mpsc::UnboundedSender<Event>,
}

impl Controller {
    async fn run(mut self, mut events: mpsc::UnboundedReceiver<Event>) {
        for kind in cluster::FOLLOWED {
            let following =
                Following::new(kind, Arc::clone(&self.context.api), Arc::clone(&self.context.clock));
            self.tasks.spawn(following.send_to(self.sender.clone(), Event::Seen));
        }
        let (clock, mut alarm) = (Arc::clone(&self.context.clock), Alarm::default());
        loop {
            let event = tokio::select! {
                biased;
                event = events.recv() => event,
                () = alarm.until(&clock, self.next_due()) => None,
            };
            let ready = event.into_iter().chain(std::iter::from_fn(|| events.try_recv().ok()));
            for event in ready {
                self.take(event);
            }
            while self.tasks.try_join_next().is_some() {}
            self.turn();
        }
    }

    fn take(&mut self, event: Event) {
        let now = self.context.clock.now();
        match event {
            Event::Seen(kind, news) => {
                match &news {
                    News::Applied(object) | News::Deleted(object) => {
                        self.context.changes.notify(&object.key())
                    }
                    News::Only(_) => self.context.changes.tell_all(),
                }
                for seen in self.cluster.take(kind, news) {
                    let Some(book) = &mut self.book else { continue };
                    if let Some(node) = self.cluster.nodes.get(&seen.name) {
                        self.work.volumes.extend(book.take_in_use(&seen.name, node));
                    }
                    if seen.differs {
                        self.work.volumes.extend(book.of_node(&seen.name).cloned());
                        self.work.nodes.insert(seen.name);
                    }
                }
            }
            Event::Attached(id, result) => self.attached(id, result, now),
            Event::Detached(id, result) => self.detached(id, result, now),
            Event::Written(name, Ok(object)) => {
                if let Object::Node(node) = &object {
                    self.reports.written(&name, &node.volumes_attached);
                    self.cluster.take_written(&name, &node.volumes_attached);
                }
                // What it lists no longer can be detached now.
                let of_node = self.book.iter().flat_map(|book| book.of_node(&name));
                self.work.volumes.extend(of_node.cloned());
                self.work.nodes.insert(name);
            }
            // Also for a node without an object: until the watch reports its deletion, it would be written to again at
            // once.
            Event::Written(node, Err(_)) => self.reports.failed(node, now),
            Event::Missing(missing) => {
                let Some(book) = &mut self.book else { return };
                for (volume, node) in missing {
                    if self.pending.on(&volume).next().is_none() {
                        book.remove(&volume, &node);
                        self.work.add(&volume, &node);
                    }
                }
            }
        }
    }

    fn turn(&mut self) {
        if !self.cluster.is_known() {
            return;
        }
        let now = self.context.clock.now();
        for place in self.cluster.resolve(&self.context.registry) {
            if !self.cluster.desired.contains_key(&place) {
                self.reported_conflicts.remove(&place);
            }
            self.work.volumes.insert(place.0);
        }
        let mut book = self.book.take().unwrap_or_else(|| {
            let book = first_book(&self.cluster, &self.context.registry);
            self.work.extend_with_all(&book, &self.cluster);
            book
        });
        let desired = std::mem::take(&mut self.cluster.desired);
        self.work.volumes.extend(self.pending.take_due(now));
        self.work.take_due(now);
        let places = self.work.take_places(&book, &desired);
        places.iter().for_each(|place| self.look_at(place, &desired, &mut book, now));
        let (cluster, force) = (&self.cluster, self.config.force_detach);
        for step in plan::plan(cluster, &self.reports, (&places, &desired), &book, now, force) {
            self.perform(step, &desired, &mut book, now);
        }
        self.verify(&book, now);
        self.write_reports(&book, now);
        self.cluster.desired = desired;
        self.book = Some(book);
    }

    /// Records whether pods want an attachment, and how they use the volume.
    fn look_at(&mut self, place: &Place, desired: &Desired, book: &mut Book, now: Instant) {
        let wanted = desired.get(place);
        let (volume, node) = place;
        let busy = self.pending.on(volume).next().is_some();
        book.set_wanted(place, wanted.is_some(), busy, now);
        let Some(entry) = book.get_mut(volume, node) else { return };
        if let Some(wanted) = wanted {
            entry.spec = Some(Arc::clone(&wanted.spec));
        }
        let too_long = entry.unwanted_since.filter(|_| entry.in_use).map(|since| since + PATIENCE);
        if let Some(due) = too_long.filter(|due| *due > now) {
            self.work.wait_until(due, volume);
        }
    }

    fn perform(&mut self, step: Step, desired: &Desired, book: &mut Book, now: Instant) {
        match step {
            Step::Unreport(volume, node) => {
                if let Some(entry) = book.get_mut(&volume, &node) {
                    entry.reported = false;
                }
            }
            Step::Detach { volume, node, forced } => {
                let spec = book.get_mut(&volume, &node).and_then(|entry| {
                    // Also where the node's status could not be written: a node that comes back must not see the volume
                    // there.
                    entry.reported = false;
                    entry.spec.clone()
                });
                let request = Arc::new(DetachVolume { volume, spec, node, verify_safe: forced.is_none() });
                if self.start(Operation::Detach(request), now)
                    && let Some(reason) = forced
                {
                    tracing::warn!(reason, "forced detach");
                }
            }
            Step::Attach(volume, node) => {
                let Some(wanted) = desired.get(&(volume.clone(), node.clone())) else { return };
                self.reported_conflicts.remove(&(volume.clone(), node.clone()));
                let request = AttachVolume {
                    volume,
                    spec: Arc::clone(&wanted.spec),
                    plugin: wanted.plugin.clone(),
                    node,
                    pods: wanted.pods.values().cloned().collect(),
                };
                self.start(Operation::Attach(Arc::new(request)), now);
            }
            Step::Conflict(volume, node, message) => {
                let key = (volume, node);
                if let Some(wanted) =
                    desired.get(&key).filter(|_| self.reported_conflicts.insert(key.clone()))
                {
                    let pods: Vec<_> = wanted.pods.values().cloned().collect();
                    self.write_events(&pods, Severity::Warning, Reason::FailedAttachVolume, &message);
                }
            }
        }
    }

    /// Starts an operation, if none on the same volume runs and it did not fail lately.
    fn start(&mut self, operation: Operation, now: Instant) -> bool {
        let admission = self.pending.admit(operation.name(), Key::of(&operation), None, now);
        let Admission::Started(id) = admission else { return false };
        self.running.insert(id, operation.clone());
        let (context, sender, facts) =
            (self.context.clone(), self.sender.clone(), self.cluster.facts.clone());
        self.tasks.spawn(async move {
            let remote = context.remote(&facts);
            let event = match &operation {
                Operation::Attach(request) => {
                    Event::Attached(id, attach::run(request, &remote, &context.registry).await)
                }
                Operation::Detach(request) => {
                    Event::Detached(id, detach::run(request, &remote, &context.registry).await)
                }
                _ => return,
            };
            // A controller that is gone does not want to know.
            let _ = sender.send(event);
        });
        true
    }

    fn attached(&mut self, id: plugin_api::OperationId, result: Result<String, Failed>, now: Instant) {
        let ended = if result.is_ok() { Ended::Well } else { Ended::Badly };
        self.pending.finish(id, ended, now);
        let Some(Operation::Attach(request)) = self.running.remove(&id) else { return };
        let Some(book) = &mut self.book else { return };
        let (volume, node) = (request.volume.clone(), request.node.clone());
        self.work.add(&volume, &node);
        let spec = Some(Arc::clone(&request.spec));
        match result {
            Ok(device_path) => {
                book.put(volume, node, Entry::new(true, spec, device_path));
                let message =
                    format!("AttachVolume.Attach succeeded for volume \"{}\" ", request.spec.name());
                self.write_events(&request.pods, Severity::Normal, Reason::SuccessfulAttachVolume, &message);
            }
            Err(failed) => {
                book.put(volume, node, Entry::new(false, spec, String::new()));
                self.write_events(
                    &request.pods,
                    Severity::Warning,
                    Reason::FailedAttachVolume,
                    &failed.message(),
                );
            }
        }
    }

    fn detached(&mut self, id: plugin_api::OperationId, result: Result<(), Failed>, now: Instant) {
        let ended = if result.is_ok() { Ended::Well } else { Ended::Badly };
        self.pending.finish(id, ended, now);
        let Some(Operation::Detach(request)) = self.running.remove(&id) else { return };
        let Some(book) = &mut self.book else { return };
        self.work.add(&request.volume, &request.node);
        match result {
            Ok(()) => {
                book.remove(&request.volume, &request.node);
                // A failed operation of this node is not tried again; operations of other nodes have back-offs of their
                // own.
                let (volume, node) = (&request.volume, &request.node);
                let ended = self.pending.end_back_off(|rung| {
                    rung.key.volume == *volume && rung.key.node.as_ref().is_none_or(|other| other == node)
                });
                self.work.volumes.extend(ended);
            }
            Err(failed) => {
                tracing::info!(error = failed.message(), "cannot detach");
                // It is uncertain now whether the volume is attached. It is listed again only once it certainly is.
                if let Some(entry) = book.get_mut(&request.volume, &request.node) {
                    entry.certain = false;
                }
            }
        }
    }

    /// Writes `volumesAttached` of each of these nodes whose list differs from the attached volumes.
    fn write_reports(&mut self, book: &Book, now: Instant) {
        let mut nodes = std::mem::take(&mut self.work.nodes);
        nodes.extend(self.reports.due(now).cloned());
        for name in nodes {
            let Some(node) = self.cluster.nodes.get(&name) else { continue };
            // When a write that is under way has ended, or may be tried again, this node comes again.
            if !self.cluster.manages(&name) || !self.reports.may_write(&name, now) {
                continue;
            }
            let report = book.report(&name);
            let wanted = names(&report);
            let seen = wanted == names(&node.volumes_attached);
            let is_written = self.reports.last_written(&name).is_none_or(|last| *last == wanted);
            if seen && is_written && !self.reports.is_doubtful(&name) {
                continue;
            }
            self.reports.begun(name.clone());
            let (context, sender) = (self.context.clone(), self.sender.clone());
            self.tasks.spawn(async move {
                let key = ObjectKey::cluster(Kind::Node, name.as_str());
                let written = context.api.patch(Patch::of(key, PatchBody::VolumesAttached(report))).await;
                // A controller that is gone does not want to know.
                let _ = sender.send(Event::Written(name, written));
            });
        }
    }

    /// Checks periodically that attached volumes still have their attachments.
    fn verify(&mut self, book: &Book, now: Instant) {
        let due = *self.verify_at.get_or_insert(now + VERIFY_EVERY);
        if due > now {
            return;
        }
        self.verify_at = Some(now + VERIFY_EVERY);
        // The API is only asked about a volume whose attachment was not seen to say attached.
        let seen = self.cluster.attached();
        let known = book.entries().filter(|(_, _, entry)| entry.certain);
        let known: Vec<(VolumeName, NodeName, Arc<Spec>)> = known
            .filter_map(|(volume, node, entry)| Some((volume.clone(), node.clone(), entry.spec.clone()?)))
            .filter(|(_, node, spec)| !seen.contains(&(spec.name().as_str(), node.as_str())))
            .collect();
        if known.is_empty() {
            return;
        }
        let (context, sender, facts) =
            (self.context.clone(), self.sender.clone(), self.cluster.facts.clone());
        self.tasks.spawn(async move {
            let missing = missing(&context, &facts, known).await;
            // A controller that is gone does not want to know.
            let _ = sender.send(Event::Missing(missing));
        });
    }

    fn next_due(&self) -> Option<Instant> {
        let written = self.reports.next_due(self.context.clock.now());
        [self.pending.next_due(), self.work.next_due(), written, self.verify_at].into_iter().flatten().min()
    }

    fn write_events(&mut self, pods: &[Arc<Pod>], severity: Severity, reason: Reason, message: &str) {
        for pod in pods {
            let about = Reference::to(Kind::Pod, &pod.meta);
            let notification = Notification::about(about, severity, reason, message.to_owned());
            let api = Arc::clone(&self.context.api);
            self.tasks.spawn(async move {
                // Events are best effort everywhere in Kubernetes.
                let _ = api.create(Object::Notification(Arc::new(notification))).await;
            });
        }
    }
}

/// The book when the controller starts: a volume in a node's `volumesAttached` is attached; a volume with an attachment
/// may be.
fn first_book(cluster: &Cluster, registry: &Registry) -> Book {
    let mut book = Book::default();
    for (name, node) in &cluster.nodes {
        for attached in &node.volumes_attached {
            let entry = Entry::new(true, None, attached.device_path.clone());
            book.put(attached.name.clone(), name.clone(), entry);
        }
    }
    for attachment in cluster.attachments.values() {
        let Some(volume) = cluster.volumes.get(&attachment.volume) else { continue };
        let spec = Spec::persistent(Arc::clone(volume), false);
        let Some((_, name)) = cluster.attachable(registry, &spec) else { continue };
        let node = NodeName::new(&attachment.node);
        if book.get(&name, &node).is_none() {
            book.put(name, node, Entry::new(false, Some(Arc::new(spec)), String::new()));
        }
    }
    for (name, node) in &cluster.nodes {
        book.take_in_use(name, node);
    }
    book
}

async fn missing(
    context: &OperationContext,
    facts: &Facts,
    known: Vec<(VolumeName, NodeName, Arc<Spec>)>,
) -> Vec<(VolumeName, NodeName)> {
    let remote = context.remote(facts);
    let mut missing = Vec::new();
    for (volume, node, spec) in known {
        let Ok(plugin) = context.registry.pick(&spec) else { continue };
        let Some(attacher) = plugin.attacher() else { continue };
        // If the attachment cannot be read, the volume counts as attached.
        if let Ok(false) = attacher.is_attached(&remote, &spec, &node).await {
            missing.push((volume, node));
        }
    }
    missing
}
