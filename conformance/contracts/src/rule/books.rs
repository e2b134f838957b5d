//! The state after the events of a trace, kept once for all rules.
//!
//! The books hold what the *manager* can know. A call that ended in an error the manager must take for final
//! has not happened; one whose outcome is unknown may have.

mod index;
mod objects;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::place::Place;
use crate::csi::Request;
use crate::event::{
    Actor, Disturbance, Edge, Effect, EffectKind, Event, Lifecycle, Mount, ObjectKind, OperationEdge,
    ProcessEdge, Role, RpcEnd, RpcStart, StateChange, TraceLine, World,
};
use index::{Flights, Paths};

/// The progress of a step, as the manager knows it. A step without an entry is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Done, and not undone since.
    Done,
    /// The step may be done or not: it must be undone, and done again before it is relied upon.
    Uncertain,
}

/// A call in flight.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The bare method name.
    pub method: String,
    pub request: Value,
    /// The line of its start.
    pub seq: u64,
    /// The number of the node's process that sent it.
    pub life: u32,
    /// The number of mounts at the call's staging path when it started.
    pub mounted: usize,
}

impl Call {
    fn of(start: &RpcStart, seq: u64, life: u32) -> Call {
        Call { method: start.method.clone(), request: start.req.clone(), seq, life, mounted: 0 }
    }

    /// Whether two calls are of one method, for one volume and in one life.
    fn is_like(&self, other: &Call) -> bool {
        (&self.method, self.volume(), self.life) == (&other.method, other.volume(), other.life)
    }

    pub fn request(&self) -> Request<'_> {
        Request::of(&self.request)
    }

    /// The volume it is about.
    pub fn volume(&self) -> &str {
        self.request().volume_id()
    }

    /// The target it names.
    pub fn target(&self) -> &str {
        self.request().target_path()
    }

    /// The staging path it names.
    pub fn staging(&self) -> &str {
        self.request().staging_path()
    }
}

/// The state of one volume on this node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Volume {
    /// Staging paths with their progress.
    pub staged: BTreeMap<String, Progress>,
    /// Targets with their progress.
    pub published: BTreeMap<String, Progress>,
    /// Targets whose unpublishing has worked since they were last published.
    pub unpublished: BTreeSet<String>,
    /// Staging paths whose unstaging has worked since they were last staged.
    pub unstaged: BTreeSet<String>,
    /// Whether the driver has answered that it made it.
    pub created: bool,
    /// Whether the volume was deleted or may have been: calls of a node may be answered NOT_FOUND.
    pub deleted: bool,
    /// The request of the last `NodeStageVolume` that was sent.
    pub stage_request: Option<Value>,
    /// The request of the last `NodePublishVolume` for each target.
    pub publish_requests: BTreeMap<String, Value>,
}

/// A path that the manager made in its own tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    Directory,
    /// A file it wrote.
    File,
    Link,
}

/// The state a trace has led to.
#[derive(Debug, Clone, Default)]
pub struct Books {
    /// Calls in flight, by their id.
    pub calls: BTreeMap<u64, Call>,
    /// The calls in flight that the node has made since it was started last.
    flights: Flights,
    asked_at: Paths,
    /// Volumes by their id at the driver.
    pub volumes: BTreeMap<String, Volume>,
    /// Whether the driver stages, once it was asked.
    pub stages: Option<bool>,
    /// Mounts by their target; the last of a list is on top.
    pub mounts: BTreeMap<String, Vec<Mount>>,
    /// Paths that the manager made and has not removed.
    pub entries: BTreeMap<String, Entry>,
    /// Files that the manager holds open, with the loop device that does it.
    pub locks: BTreeMap<String, String>,
    /// The operations that run now.
    pub operations: Vec<OperationEdge>,
    /// The manager's actual state, by key.
    pub actual: BTreeMap<String, String>,
    /// The manager's desired state, by key.
    pub desired: BTreeMap<String, String>,
    /// `status.volumesInUse` of the node, once it was seen.
    pub in_use: Option<BTreeSet<String>>,
    /// Volumes that were taken by force from a node that was lost, and that it has not begun to use again.
    pub forced: BTreeSet<String>,
    /// The API objects that the trace has, by kind and name.
    objects: BTreeMap<ObjectKind, BTreeMap<String, Value>>,
    /// The UIDs of pods by their names, of those that are gone, too.
    pub uids: BTreeMap<String, String>,
    /// The number of lives of the node's process that have ended.
    pub life: u32,
    /// Whether the node's process has ended and not started again.
    pub down: bool,
    /// Whether the API is slow ([`Disturbance::ApiSlow`]): the manager or a controller may not know its newest objects yet.
    pub slow_api: bool,
    /// Records that were damaged while the node was away, and that it has not written anew.
    pub damaged: BTreeSet<String>,
    /// The damaged records that are missing altogether.
    pub lost: BTreeSet<String>,
    /// Whether the node is not told of changes of its Node object.
    pub misses_node_changes: bool,
}

/// Codes after which a call may or may not have worked.
const UNKNOWN: &[&str] =
    &["Canceled", "Cancelled", "DeadlineExceeded", "Unavailable", "ResourceExhausted", "Aborted"];

/// Whether a code leaves open what has happened.
pub fn is_unknown(code: &str) -> bool {
    UNKNOWN.contains(&code)
}

impl Books {
    /// Records one more event.
    pub fn apply(&mut self, line: &TraceLine) {
        match &line.event {
            Event::RpcStart(start) => self.start(start, line.seq),
            Event::RpcEnd(end) => self.end(end),
            Event::MountAdd(mount) => {
                self.mounts.entry(mount.target.clone()).or_default().push(mount.clone())
            }
            Event::MountChg(mount) => self.change_mount(mount),
            Event::MountDel(gone) => {
                self.remove_mount(&gone.target, gone.id);
                // A machine that starts anew has none of its devices open.
                if gone.by == Actor::Harness {
                    self.locks.remove(&gone.target);
                }
            }
            Event::Effect(effect) => self.effect(effect),
            Event::State(change) => self.state(change),
            Event::Operation(edge) => self.operation(edge),
            Event::Api(change) => self.api(change),
            Event::Process(edge) => self.process(edge),
            Event::Disturbed(disturbance) => self.disturbed(disturbance),
            _ => {}
        }
    }

    fn disturbed(&mut self, disturbance: &Disturbance) {
        match disturbance {
            Disturbance::ApiSlow => self.slow_api = true,
            Disturbance::ApiFast => self.slow_api = false,
            Disturbance::RecordDamaged { path } => _ = self.damaged.insert(path.clone()),
            Disturbance::RecordLost { path } => {
                self.damaged.insert(path.clone());
                self.entries.remove(path);
                self.lost.insert(path.clone());
            }
            Disturbance::KindUnheard { kind: ObjectKind::Node } => self.misses_node_changes = true,
            Disturbance::KindHeard { kind: ObjectKind::Node } => self.misses_node_changes = false,
            Disturbance::KindUnheard { .. }
            | Disturbance::KindHeard { .. }
            | Disturbance::MountDead { .. }
            | Disturbance::StepFailed { .. }
            | Disturbance::UsedElsewhere { .. } => {}
        }
    }

    /// The state of a volume, if it is known.
    pub fn volume(&self, id: &str) -> Option<&Volume> {
        self.volumes.get(id)
    }

    /// Calls of a method that this life of the node has in flight for a volume.
    pub fn in_flight<'a>(&'a self, volume: &'a str, method: &'a str) -> impl Iterator<Item = &'a Call> + 'a {
        self.flights.calls(volume, method).filter_map(|id| self.calls.get(&id))
    }

    /// The methods it has in flight for a volume, each once, however many calls there are.
    pub fn methods_in_flight<'a>(&'a self, volume: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.flights.methods(volume)
    }

    /// The volumes that were ever asked for at a path, as their staging path or a target.
    pub fn volumes_at<'a>(&'a self, path: &'a str) -> impl Iterator<Item = (&'a str, &'a Volume)> + 'a {
        self.asked_at.volumes(path).filter_map(|volume| Some((volume, self.volumes.get(volume)?)))
    }

    /// The UID of a pod's name; any other text is taken for a UID.
    pub fn uid<'a>(&'a self, pod: &'a str) -> &'a str {
        self.uids.get(pod).map_or(pod, String::as_str)
    }

    fn start(&mut self, start: &RpcStart, seq: u64) {
        // A call that arrives from a dead node was sent while it lived, and no process receives its answer.
        let life = if self.down { self.life - 1 } else { self.life };
        let mut call = Call::of(start, seq, life);
        call.mounted = self.mounts.get(call.staging()).map_or(0, Vec::len);
        if self.down {
            self.may_happen(&call);
        }
        match call.method.as_str() {
            "ControllerUnpublishVolume" if self.any_node_is_lost() => {
                self.forced.insert(call.volume().to_owned());
            }
            "DeleteVolume" => {
                self.volumes.entry(call.volume().to_owned()).or_default().deleted = true;
            }
            "NodeStageVolume" => {
                self.forced.remove(call.volume());
                self.asked_at.add(call.staging(), call.volume());
                let volume = self.volumes.entry(call.volume().to_owned()).or_default();
                volume.stage_request = Some(call.request.clone());
            }
            "NodePublishVolume" => {
                self.forced.remove(call.volume());
                self.asked_at.add(call.target(), call.volume());
                let volume = self.volumes.entry(call.volume().to_owned()).or_default();
                volume.publish_requests.insert(call.target().to_owned(), call.request.clone());
            }
            _ => {}
        }
        if life == self.life {
            self.flights.add(start.id, &call);
        }
        // A recording may give a number twice.
        if let Some(earlier) = self.calls.insert(start.id, call)
            && !self.calls[&start.id].is_like(&earlier)
        {
            self.flights.remove(start.id, &earlier);
        }
    }

    fn end(&mut self, end: &RpcEnd) {
        if end.method == "NodeGetCapabilities" && end.code == "OK" {
            self.stages = Some(end.response().capabilities().any(|name| name == "STAGE_UNSTAGE_VOLUME"));
        }
        if end.method == "CreateVolume" && end.code == "OK" {
            let id = end.response().created_volume();
            self.exists(id);
            self.volumes.entry(id.to_owned()).or_default().created = true;
        }
        let Some(call) = self.calls.remove(&end.id) else { return };
        self.flights.remove(end.id, &call);
        if call.method == "DeleteVolume" && end.code != "OK" && !is_unknown(&end.code) {
            self.exists(call.volume());
        }
        // A node that died in between has not heard the answer.
        let heard = call.life == self.life;
        let volume = self.volumes.entry(call.volume().to_owned()).or_default();
        let (steps, undos, path) = match call.method.as_str() {
            "NodeStageVolume" | "NodeUnstageVolume" => {
                (&mut volume.staged, &mut volume.unstaged, call.staging().to_owned())
            }
            "NodePublishVolume" | "NodeUnpublishVolume" => {
                (&mut volume.published, &mut volume.unpublished, call.target().to_owned())
            }
            _ => return,
        };
        match (call.method.contains("Un"), end.code == "OK") {
            (true, true) => _ = undos.insert(path.clone()),
            (true, false) => {}
            (false, _) => _ = undos.remove(&path),
        }
        let before = steps.get(&path).copied();
        let after = if call.method.contains("Un") {
            undone(before, end.code == "OK")
        } else {
            done(before, &end.code, heard)
        };
        match after {
            Some(progress) => steps.insert(path, progress),
            None => steps.remove(&path),
        };
    }

    /// A volume of this id exists, even if an earlier one of the same id was deleted.
    fn exists(&mut self, id: &str) {
        self.volumes.entry(id.to_owned()).or_default().deleted = false;
    }

    /// Forgets volumes that are not on the node and in no call, where there are more than `most`. Returns them.
    pub(super) fn forget_gone(&mut self, most: usize) -> Vec<String> {
        // Asked at each line: it is looked through only when there can be enough of them.
        if self.volumes.len() <= most.saturating_mul(2) {
            return Vec::new();
        }
        let is_idle = |volume: &Volume| volume.staged.is_empty() && volume.published.is_empty();
        let idle: Vec<&String> =
            self.volumes.iter().filter(|(_, volume)| is_idle(volume)).map(|(id, _)| id).collect();
        if idle.len() <= most {
            return Vec::new();
        }
        let busy: BTreeSet<&str> = self.calls.values().map(Call::volume).collect();
        let gone: Vec<String> = idle.into_iter().filter(|id| !busy.contains(id.as_str())).cloned().collect();
        for id in &gone {
            self.volumes.remove(id);
            self.forced.remove(id);
        }
        self.asked_at.retain(|volume| self.volumes.contains_key(volume));
        gone
    }

    fn change_mount(&mut self, changed: &Mount) {
        let stack = self.mounts.entry(changed.target.clone()).or_default();
        match stack.iter_mut().rev().find(|mount| mount.id == changed.id) {
            Some(mount) => *mount = changed.clone(),
            None => stack.push(changed.clone()),
        }
    }

    fn remove_mount(&mut self, target: &str, id: u64) {
        let Some(stack) = self.mounts.get_mut(target) else { return };
        let at = stack.iter().rposition(|mount| mount.id == id).or(stack.len().checked_sub(1));
        if let Some(at) = at {
            stack.remove(at);
        }
        if stack.is_empty() {
            self.mounts.remove(target);
        }
    }

    /// The node has written a lost record again: if nothing was mounted, it could not know its earlier calls.
    fn begin_anew(&mut self, record: &str) {
        let mounts = &self.mounts;
        let stays = |path: &String, _: &mut Progress| {
            mounts.contains_key(path) || Place::of(path).is_none_or(|place| place.metadata() != record)
        };
        for volume in self.volumes.values_mut() {
            volume.staged.retain(stays);
            volume.published.retain(stays);
        }
    }

    fn effect(&mut self, effect: &Effect) {
        let path = effect.path.clone();
        match effect.effect {
            EffectKind::Mkdir => _ = self.entries.insert(path, Entry::Directory),
            EffectKind::Write => {
                self.damaged.remove(&path);
                if self.lost.remove(&path) {
                    self.begin_anew(&path);
                }
                self.entries.insert(path, Entry::File);
            }
            EffectKind::Link => _ = self.entries.insert(path, Entry::Link),
            EffectKind::Lock => _ = self.locks.insert(path, effect.source.clone().unwrap_or_default()),
            // The event names the device; the file that it held open is in the books only.
            EffectKind::Unlock => self.locks.retain(|file, device| *file != path && *device != path),
            EffectKind::Rmdir | EffectKind::Remove | EffectKind::Unlink => {
                // All that begins with `path/`: `0` is the character after `/`.
                let below = format!("{path}/")..format!("{path}0");
                self.entries.extract_if(below, |_, _| true).for_each(drop);
                self.entries.remove(&path);
            }
            EffectKind::Rename => {
                if let (Some(entry), Some(to)) = (self.entries.remove(&path), effect.fields.get("to")) {
                    self.entries.insert(to.clone(), entry);
                }
            }
            EffectKind::Mount
            | EffectKind::Bind
            | EffectKind::Remount
            | EffectKind::Umount
            | EffectKind::Chmod
            | EffectKind::Chown
            | EffectKind::Format
            | EffectKind::Grow => {}
        }
    }

    fn state(&mut self, change: &StateChange) {
        let world = match change.world {
            World::Desired => &mut self.desired,
            World::Actual => &mut self.actual,
        };
        if change.to.is_empty() {
            world.remove(&change.key);
        } else {
            world.insert(change.key.clone(), change.to.clone());
        }
    }

    fn operation(&mut self, edge: &OperationEdge) {
        let same = |known: &OperationEdge| {
            (&known.name, &known.volume, &known.pod) == (&edge.name, &edge.volume, &edge.pod)
        };
        match edge.edge {
            Edge::Start => self.operations.push(edge.clone()),
            Edge::End => {
                if let Some(at) = self.operations.iter().position(same) {
                    self.operations.remove(at);
                }
            }
        }
    }

    /// A node that ended has lost its memory: the calls in flight, and which steps were done for certain.
    fn process(&mut self, edge: &ProcessEdge) {
        if edge.who != Role::Node {
            return;
        }
        match edge.edge {
            // A killed process exits, too: it has died once.
            Lifecycle::Kill | Lifecycle::Exit if !self.down => self.forget(),
            Lifecycle::Start => self.down = false,
            Lifecycle::Kill | Lifecycle::Exit | Lifecycle::Terminate | Lifecycle::Registered => {}
        }
    }

    /// A call of a node that will not hear how it ended.
    fn may_happen(&mut self, call: &Call) {
        let volume = self.volumes.entry(call.volume().to_owned()).or_default();
        match call.method.as_str() {
            "NodeStageVolume" => _ = volume.staged.insert(call.staging().to_owned(), Progress::Uncertain),
            "NodePublishVolume" => {
                _ = volume.published.insert(call.target().to_owned(), Progress::Uncertain);
            }
            _ => {}
        }
    }

    fn forget(&mut self) {
        let ids = self.flights.take().into_iter();
        let unheard: Vec<Call> = ids.filter_map(|id| self.calls.get(&id).cloned()).collect();
        unheard.iter().for_each(|call| self.may_happen(call));
        for volume in self.volumes.values_mut() {
            let steps = volume.staged.values_mut().chain(volume.published.values_mut());
            steps.for_each(|progress| *progress = Progress::Uncertain);
        }
        self.operations.clear();
        self.actual.clear();
        self.desired.clear();
        self.life += 1;
        self.down = true;
    }
}

/// The progress of a step after an attempt to do it.
fn done(before: Option<Progress>, code: &str, heard: bool) -> Option<Progress> {
    match (before, code) {
        (_, "OK") if heard => Some(Progress::Done),
        (_, "OK") => Some(Progress::Uncertain),
        // A failed repetition of a done step leaves it done: a live mount stays.
        (Some(Progress::Done), _) if heard => Some(Progress::Done),
        (_, code) if is_unknown(code) || !heard => Some(Progress::Uncertain),
        (before, _) => before,
    }
}

/// The progress of a step after an attempt to undo it: a failed one may have undone a part.
fn undone(before: Option<Progress>, worked: bool) -> Option<Progress> {
    if worked { None } else { before.map(|_| Progress::Uncertain) }
}
