//! Two witnesses of each mount: the kernel, which shows it, and the node or the driver, which had a reason to make it.
//!
//! The node announces its effects, and a driver works for calls. A change of the node's paths that no announcement and no
//! call explains is a *stray*; an announcement that the kernel does not show is a *phantom*. Both are judged from the facts
//! of a trace: the process that made each mount, the changes of the node's files between two calls, the calls and
//! operations under way, and the moments at which every effect had been announced.

mod place;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::csi::{PathField, Request};
use crate::event::{
    Actor, Edge, Effect, EffectKind, Event, Irregular, Lifecycle, Meddled, Mount, MountDel, OperationEdge,
    OperationName, ProcessEdge, Role, RpcEnd, TraceLine,
};
use crate::object::PersistentVolume;
use crate::rule::{Books, Check, Checked, Report, Rest, Rule, Witness};

use place::{is_above_contract, is_contract, is_mounted_by_drivers, volume_in};

const WITNESSES: &[Witness] = &[Witness::Rpc, Witness::Kernel, Witness::File, Witness::Makers];

pub const RULES: &[&Rule] = &[&STRAY, &PHANTOM];

static STRAY: Rule = Rule {
    id: "stray",
    sentence: "each change of what is the node's was announced, or a call to the driver is the reason for it",
    witnesses: WITNESSES,
    check: Checked::With(|| Box::new(Judging::of(Kind::Stray))),
};

static PHANTOM: Rule = Rule {
    id: "phantom",
    sentence: "the kernel shows what the node announces",
    witnesses: WITNESSES,
    check: Checked::With(|| Box::new(Judging::of(Kind::Phantom))),
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Stray,
    Phantom,
}

/// A stray or a phantom: one of the two witnesses did not see the mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub kind: Kind,
    /// The line of the trace at which it showed.
    pub seq: u64,
    pub what: Irregular,
}

/// All strays and phantoms of a trace at whose end nothing is left to be announced.
pub fn found(trace: &[TraceLine]) -> Vec<Found> {
    let mut unexplained = Unexplained::default();
    let mut found: Vec<Found> = trace.iter().flat_map(|line| unexplained.event(line)).collect();
    let end = trace.last().map_or(0, |line| line.seq);
    found.extend(unexplained.rest(end));
    found
}

struct Judging {
    kind: Kind,
    unexplained: Unexplained,
}

impl Judging {
    fn of(kind: Kind) -> Self {
        Self { kind, unexplained: Unexplained::default() }
    }

    fn report_own_kind(&self, found: &[Found], report: &mut Report) {
        let cause = match self.kind {
            Kind::Stray => "done, and not announced",
            Kind::Phantom => "announced, and not there",
        };
        for found in found.iter().filter(|found| found.kind == self.kind) {
            report.broken("", cause, format!("{} by the {}", found.what.what, maker(found.what.by)));
        }
    }
}

impl Check for Judging {
    fn event(&mut self, _: &Books, line: &TraceLine, report: &mut Report) {
        match (&line.event, self.kind) {
            (Event::MountAdd(_) | Event::MountDel(_) | Event::Meddled(_), Kind::Stray) => report.tried(),
            (Event::Effect(_), Kind::Phantom) => report.tried(),
            _ => {}
        }
        let found = self.unexplained.event(line);
        self.report_own_kind(&found, report);
    }

    fn rest(&mut self, _: &Books, _: &Rest, report: &mut Report) {
        let found = self.unexplained.rest(0);
        self.report_own_kind(&found, report);
    }
}

/// A reason for a driver to change mounts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Work {
    /// The volume's handle.
    volume: String,
    /// The path that the call is about.
    path: String,
    /// The volumes that its paths name, as directories call them.
    directories: BTreeSet<String>,
}

/// A mount event that the node may announce yet.
#[derive(Debug, Clone)]
struct Unclaimed {
    added: bool,
    target: String,
    by: Actor,
    /// Whether a driver may as well have done it, with a reason.
    guess: bool,
}

/// The changes of mounts that no announcement and no call explains yet.
#[derive(Debug, Clone, Default)]
pub struct Unexplained {
    /// The root of the node's tree, once a node has started.
    root: Option<String>,
    /// Whether the driver's processes cannot be seen, so that one that is gone was not known for the driver's.
    hides_driver: bool,
    /// Whether a confirmed effect needs no event of the kernel: the recorder has looked itself.
    trusts_confirmed: bool,
    working: BTreeMap<u64, Work>,
    /// Work that a driver may still do for calls whose caller has gone.
    abandoned: BTreeSet<Work>,
    operations: BTreeSet<(OperationName, String, String)>,
    /// The handles of the volumes that a directory may be named after.
    handles: BTreeMap<String, BTreeSet<String>>,
    unclaimed: Vec<Unclaimed>,
}

/// The calls during which a driver may change what the node shows.
const CHANGING: &[&str] =
    &["NodeStageVolume", "NodeUnstageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeExpandVolume"];

/// The path fields of requests, the path that the call changes first.
const PATHS: [PathField; 3] = [PathField::Target, PathField::Staging, PathField::Volume];

/// The paths of a call that is a reason for a driver to change mounts, the changed one first; `None` for other calls.
pub fn changed_paths<'a>(method: &str, request: Request<'a>) -> Option<Vec<&'a str>> {
    let paths = || PATHS.iter().map(|field| request.path(*field)).filter(|path| !path.is_empty()).collect();
    is_changing(method).then(paths)
}

/// Whether a call gives a driver reason to change mounts.
pub fn is_changing(method: &str) -> bool {
    CHANGING.contains(&method)
}

impl Unexplained {
    /// For the recorder of a trace, who confirms what the kernel has reported and knows the root of the node's tree.
    pub fn recording(root: &str) -> Self {
        Self { root: Some(root.to_owned()), trusts_confirmed: true, ..Self::default() }
    }

    /// Takes the next event. Returns the strays and phantoms that it shows.
    pub fn event(&mut self, line: &TraceLine) -> Vec<Found> {
        let stray = |what: Option<Irregular>| what.map(|what| (Kind::Stray, what));
        let found = match &line.event {
            Event::MountAdd(Mount { target, by, unnamed, .. }) => {
                stray(self.changed(true, target, *by, *unnamed))
            }
            Event::MountDel(MountDel { target, by, unnamed, .. }) => {
                stray(self.changed(false, target, *by, *unnamed))
            }
            Event::MountsLost(lost) => stray(Some(Irregular { what: lost.why.clone(), by: Actor::Unknown })),
            Event::Effect(effect) => self.claim(effect).map(|what| (Kind::Phantom, what)),
            Event::Meddled(Meddled { how, path, by }) => {
                stray(Some(Irregular { what: format!("{how} {path}"), by: *by }))
            }
            Event::Looked => return self.rest(line.seq),
            other => {
                self.note_reason(other);
                None
            }
        };
        found.into_iter().map(|(kind, what)| Found { kind, seq: line.seq, what }).collect()
    }

    /// Notes calls and operations: they give the node or the driver a reason to change mounts, or end it.
    fn note_reason(&mut self, event: &Event) {
        match event {
            Event::RpcStart(start) => {
                if let Some(paths) = changed_paths(&start.method, start.request()) {
                    self.begin(start.id, start.request().volume_id(), &paths);
                }
            }
            Event::RpcEnd(end) => self.end(end),
            Event::DirectCall(call) => match call.edge {
                Edge::Start => {
                    let paths: Vec<&str> = call.paths.iter().map(String::as_str).collect();
                    self.begin(call.id, &call.volume, &paths);
                }
                Edge::End => drop(self.working.remove(&call.id)),
            },
            Event::Operation(edge) => self.operation(edge),
            Event::Process(edge) if edge.who == Role::Node => self.node(edge),
            Event::Api(change) => {
                if let Some(handle) = change.of().and_then(PersistentVolume::csi_handle) {
                    self.handles.entry(change.object.clone()).or_default().insert(handle.to_owned());
                }
            }
            _ => {}
        }
    }

    /// The strays that no announcement has explained at rest; none while an operation is under way.
    pub fn rest(&mut self, seq: u64) -> Vec<Found> {
        if self.is_at_work() {
            return Vec::new();
        }
        let unclaimed = std::mem::take(&mut self.unclaimed).into_iter().filter(|event| !event.guess);
        let describe = |event: Unclaimed| irregular(event.added, &event.target, self.likeliest(&event));
        unclaimed.map(describe).map(|what| Found { kind: Kind::Stray, seq, what }).collect()
    }

    /// Guesses which process made a mount when its maker has already exited: it was a child of the node or of the
    /// driver, and some mounts only the driver makes.
    fn likeliest(&self, event: &Unclaimed) -> Actor {
        let is_drivers = |root: &String| is_mounted_by_drivers(root, &event.target);
        match event.by {
            Actor::Unknown if !self.hides_driver && self.root.as_ref().is_some_and(is_drivers) => {
                Actor::Driver
            }
            by => by,
        }
    }

    /// Whether an operation of the node is under way, which may still announce its effects.
    fn is_at_work(&self) -> bool {
        !self.operations.is_empty()
    }

    /// The paths at which a driver may still work for calls whose caller has gone.
    pub fn abandoned_paths(&self) -> impl Iterator<Item = &Path> + Clone {
        self.abandoned.iter().map(|work| Path::new(&work.path))
    }

    /// Whether a look would find anything.
    pub fn is_overdue(&self) -> bool {
        !self.is_at_work() && !self.unclaimed.is_empty()
    }

    /// Whether a driver has a reason to change the mounts at a path. There is never a reason to cover or to unmount all
    /// of the node's root.
    pub fn excuses(&self, target: &str) -> bool {
        if self.is_above_contract(target) {
            return false;
        }
        let mut reasons = self.working.values().chain(&self.abandoned);
        let Some(directory) = volume_in(target) else { return reasons.next().is_some() };
        let handles = self.handles.get(directory);
        reasons.any(|work| {
            work.directories.contains(directory)
                || handles.is_some_and(|handles| handles.contains(&work.volume))
        })
    }

    /// Whether a path is in a directory in which volumes are mounted by contract between node and driver, or above.
    pub fn is_contract(&self, target: &str) -> bool {
        self.is_above_contract(target) || self.root.as_ref().is_some_and(|root| is_contract(root, target))
    }

    fn is_above_contract(&self, target: &str) -> bool {
        self.root.as_ref().is_some_and(|root| is_above_contract(root, target))
    }

    /// Whether the kernel reported a mount that the node announces now and had not announced before.
    pub fn is_reported(&self, effect: EffectKind, path: &str) -> bool {
        added(effect).is_none_or(|added| self.position(added, path).is_some())
    }

    fn position(&self, added: bool, path: &str) -> Option<usize> {
        self.unclaimed.iter().position(|event| event.added == added && event.target == path)
    }

    /// The phantom that an announcement is, if it is one.
    fn claim(&mut self, effect: &Effect) -> Option<Irregular> {
        let is_reported = added(effect.effect).is_none_or(|added| {
            let at = self.position(added, &effect.path);
            at.map(|at| self.unclaimed.remove(at)).is_some() || self.trusts_confirmed
        });
        let is_phantom = !(effect.confirmed && is_reported);
        is_phantom.then(|| Irregular { what: format!("{} {}", effect.effect, effect.path), by: Actor::Node })
    }

    fn begin(&mut self, id: u64, volume: &str, paths: &[&str]) {
        let directories: BTreeSet<String> =
            paths.iter().filter_map(|path| volume_in(path)).map(str::to_owned).collect();
        for directory in &directories {
            self.handles.entry(directory.clone()).or_default().insert(volume.to_owned());
        }
        let path = paths.first().copied().unwrap_or_default().to_owned();
        self.working.insert(id, Work { volume: volume.to_owned(), path, directories });
    }

    fn end(&mut self, end: &RpcEnd) {
        let Some(work) = self.working.remove(&end.id) else { return };
        if end.abandoned {
            self.abandoned.insert(work);
        } else if end.is_from_the_driver() && end.code == "OK" {
            // Any error may come from a retry that was refused while the earlier call still runs: ABORTED means that
            // outright. Only a driver that is done at this path has done what it was asked there before.
            self.abandoned.retain(|other| (&other.volume, &other.path) != (&work.volume, &work.path));
        }
    }

    fn operation(&mut self, edge: &OperationEdge) {
        let key = (edge.name, edge.volume.clone(), edge.pod.clone());
        match edge.edge {
            Edge::Start => self.operations.insert(key),
            Edge::End => self.operations.remove(&key),
        };
    }

    fn node(&mut self, edge: &ProcessEdge) {
        self.operations.clear();
        if edge.edge == Lifecycle::Exit {
            // The node could not announce its last effect before it ended: that is no stray.
            self.unclaimed.clear();
        }
        if edge.root.is_some() {
            self.root.clone_from(&edge.root);
            self.hides_driver = edge.hides_driver;
        }
    }

    fn changed(&mut self, added: bool, target: &str, by: Actor, unnamed: bool) -> Option<Irregular> {
        let excused = self.excuses(target);
        let contract = self.is_contract(target);
        let guess = unnamed && excused;
        match by {
            Actor::Harness => None,
            // The node announces it in a moment, or it is found unclaimed when the node is idle. A witness that names
            // no process leaves open whether it was the driver: then an announcement may follow, and need not.
            _ if by == Actor::Node || guess => {
                self.unclaimed.push(Unclaimed { added, target: target.to_owned(), by, guess });
                None
            }
            // Outside of these paths the driver and other processes of this machine may mount freely.
            Actor::Driver if excused || !contract => None,
            Actor::Unknown if !contract => None,
            // The process may have been a child of a node that is gone: then an announcement follows.
            Actor::Unknown => {
                self.unclaimed.push(Unclaimed { added, target: target.to_owned(), by, guess });
                None
            }
            _ => Some(irregular(added, target, by)),
        }
    }
}

fn maker(actor: Actor) -> &'static str {
    match actor {
        Actor::Node => "node",
        Actor::Driver => "driver",
        Actor::Harness => "harness",
        Actor::Unknown => "machine, or a process that is gone",
    }
}

/// Whether an effect adds a mount or takes one away; none for others, which the kernel does not report.
fn added(effect: EffectKind) -> Option<bool> {
    match effect {
        EffectKind::Mount | EffectKind::Bind => Some(true),
        EffectKind::Umount => Some(false),
        _ => None,
    }
}

fn irregular(added: bool, target: &str, by: Actor) -> Irregular {
    let verb = if added { "mount" } else { "umount" };
    Irregular { what: format!("{verb} {target}"), by }
}
