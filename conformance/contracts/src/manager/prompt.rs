//! Work that can begin begins at once: no operation waits for an unrelated one.
//!
//! These hold where `t_ms` is the manager's own clock. There time passes only while there is nothing to do, so
//! an operation that could have begun and did not is late by the manager's fault.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{
    Disturbance, Edge, Event, Lifecycle, ObjectKind, OperationEdge, OperationName, PodChange, PodPhase,
    Recovery, Role, StateChange, TraceLine, World,
};
use crate::rule::{Books, Check, Checked, Report, Rule, Witness};

use super::attachment::{attached_to_node, is_attached_to_node, is_for_one_pod, is_in_use, must_be_attached};
use super::recovery::Recovering;
use super::staging::handle;

const WITNESSES: &[Witness] = &[Witness::Manager, Witness::Operations, Witness::Api, Witness::Clock];

/// The longest delay of an operation that could start, in milliseconds.
const AT_ONCE: f64 = 1_000.0;

/// The longest delay if only the back-off of another operation could be the reason.
const NOT_ITS_BACK_OFF: f64 = 200.0;

pub(super) static OWN_BACK_OFF_ONLY: Rule = Rule {
    id: "INV-027",
    sentence: "an operation does not wait for the back-off of another one of its volume",
    witnesses: WITNESSES,
    check: Checked::With(|| {
        Box::new(Prompt::new(
            NOT_ITS_BACK_OFF,
            Kind::ALL,
            "waited for another operation's back-off",
            |debt| debt.beside_a_failure,
        ))
    }),
};

pub(super) static MOUNTED_AT_ONCE: Rule = Rule {
    id: "INV-083",
    sentence: "a volume that a pod wants and that nothing stands in the way of is worked on within a second",
    witnesses: WITNESSES,
    check: Checked::With(|| {
        let cause = "no operation was started for a volume that a pod wants";
        Box::new(Prompt::new(AT_ONCE, &[Kind::Mount], cause, |_| true))
    }),
};

pub(super) static MOUNTED_MEANWHILE: Rule = Rule {
    id: "INV-040",
    sentence: "a node that starts again mounts volumes while it does not know yet what it may undo",
    witnesses: &[Witness::Manager, Witness::Operations, Witness::Recovery, Witness::Api, Witness::Clock],
    check: Checked::With(|| {
        let cause = "a mount waited until everything was known";
        Box::new(Prompt::new(AT_ONCE, &[Kind::Mount], cause, |debt| debt.recovering))
    }),
};

pub(super) static TAKEN_BACK_AT_ONCE: Rule = Rule {
    id: "INV-084",
    sentence: "a volume's unmount begins within a second of its pod's end, its unstaging of the last unmount",
    witnesses: WITNESSES,
    check: Checked::With(|| {
        let kinds = &[Kind::Unmount, Kind::Unstage];
        Box::new(Prompt::new(AT_ONCE, kinds, "a volume that no pod wants was not torn down", |_| true))
    }),
};

pub(super) static STUCK_ALONE: Rule = Rule {
    id: "INV-085",
    sentence: "what is stuck on one volume holds up nothing on another",
    witnesses: WITNESSES,
    check: Checked::With(|| {
        Box::new(Prompt::new(AT_ONCE, Kind::ALL, "waited while another volume was stuck", |debt| {
            debt.beside_a_stuck_one
        }))
    }),
};

pub(super) static IN_ITS_TURN: Rule = Rule {
    id: "INV-028",
    sentence: "nothing is tried, and nothing climbs, before the node's status says attached and in use",
    witnesses: WITNESSES,
    check: Checked::Each(|books, line, report| {
        let Event::Operation(edge) = &line.event else { return };
        let Some(volume) = handle(&edge.volume) else { return };
        // The node may know only older objects.
        if books.slow_api || books.misses_node_changes {
            return;
        }
        if edge.edge != Edge::Start || edge.name != VERIFY || !must_be_attached(books, volume) {
            return;
        }
        report.tried();
        if !is_in_use(books, volume) || !is_attached_to_node(books, volume) {
            report.broken(
                "",
                "verified before the node's status listed the volume as attached and in use",
                edge.volume.as_str(),
            );
        }
    }),
};

const VERIFY: OperationName = OperationName::Verify;
const MOUNTS: &[OperationName] = &[VERIFY, OperationName::Mount, OperationName::Map];
const UNMOUNTS: &[OperationName] = &[OperationName::Unmount, OperationName::Unmap];
const UNSTAGES: &[OperationName] = &[OperationName::UnmountDevice, OperationName::UnmapDevice];

/// Something the manager could begin.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Owed {
    Mount { pod: String, volume: String },
    Unmount { pod: String, volume: String },
    Unstage { volume: String },
}

/// A kind of debt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Mount,
    Unmount,
    Unstage,
}

impl Kind {
    const ALL: &[Self] = &[Self::Mount, Self::Unmount, Self::Unstage];
}

impl Owed {
    fn volume(&self) -> &str {
        match self {
            Self::Mount { volume, .. } | Self::Unmount { volume, .. } | Self::Unstage { volume } => volume,
        }
    }
}

/// The debt of an operation with its circumstances.
struct Debt {
    /// Another operation of its volume has failed and was not done since.
    beside_a_failure: bool,
    /// An operation of another volume has been running all the time.
    beside_a_stuck_one: bool,
    /// The node may not unmount anything yet.
    recovering: bool,
}

/// An operation by its name, its volume and its pod.
type Named = (OperationName, String, String);

/// The operations that are due, since when, and what holds them up.
struct Prompt {
    limit: f64,
    /// The kinds of debts that it looks for.
    kinds: &'static [Kind],
    cause: &'static str,
    concerns: fn(&Debt) -> bool,
    /// When the last event was.
    now: f64,
    since: BTreeMap<Owed, f64>,
    running: BTreeMap<Named, f64>,
    failed: BTreeSet<Named>,
    /// Pods that get no new volumes, and of these those whose containers are gone.
    ending: BTreeSet<String>,
    gone: BTreeSet<String>,
    /// Whether this life has ended its reconstruction: it says so, or has started an operation.
    begun: bool,
    /// Whether this life may unmount volumes.
    may_unmount: bool,
    /// What this life knows.
    recovering: Recovering,
    /// The manager's knowledge of its node's object.
    node: Knowledge,
}

/// A manager's knowledge of an object that it follows.
#[derive(Default)]
struct Knowledge {
    /// Whether the manager has seen the object in this life.
    heard: bool,
    /// The attached volumes in the last version of the object that the manager saw, while its watch is down.
    last: Option<BTreeSet<String>>,
}

impl Prompt {
    fn new(limit: f64, kinds: &'static [Kind], cause: &'static str, concerns: fn(&Debt) -> bool) -> Self {
        Self {
            limit,
            kinds,
            cause,
            concerns,
            now: 0.0,
            since: BTreeMap::new(),
            running: BTreeMap::new(),
            failed: BTreeSet::new(),
            ending: BTreeSet::new(),
            gone: BTreeSet::new(),
            begun: true,
            may_unmount: true,
            recovering: Recovering::default(),
            node: Knowledge::default(),
        }
    }
}

impl Check for Prompt {
    fn event(&mut self, books: &Books, line: &TraceLine, report: &mut Report) {
        // From the last event to this one the books stood still.
        if line.t_ms > self.now && !books.down {
            self.judge(books, line.t_ms, report);
        }
        self.now = line.t_ms;
        self.recovering.event(books, line);
        match &line.event {
            Event::Operation(edge) => self.operation(edge),
            Event::Recovered(recovered) => self.begun |= recovered.what == Recovery::Volumes,
            Event::State(change) if change.to.is_empty() => self.left(books, change),
            // A reconstructed volume waits for the node's object, and delays other unmounts meanwhile.
            Event::State(change) if self.is_read_back(books, change) => self.may_unmount = false,
            Event::Pod(change) => self.pod(change),
            Event::Disturbed(disturbance) => self.disturbed(books, disturbance),
            Event::Process(edge) if edge.who == Role::Node => {
                self.running.clear();
                self.failed.clear();
                self.since.clear();
                (self.begun, self.may_unmount) = (false, false);
                self.node = Knowledge::default();
            }
            // A registration of the driver ends the back-off of its volumes.
            Event::Process(edge) if matches!(edge.edge, Lifecycle::Start | Lifecycle::Registered) => {
                self.failed.clear();
            }
            _ => {}
        }
    }
}

impl Prompt {
    fn judge(&mut self, books: &Books, until: f64, report: &mut Report) {
        let owed = self.owed(books);
        self.since.retain(|debt, _| owed.contains(debt));
        for debt in owed {
            let since = *self.since.entry(debt.clone()).or_insert(self.now);
            let beside = |(_, volume, _): &Named| volume == debt.volume();
            let known = Debt {
                beside_a_failure: self.failed.iter().any(beside),
                beside_a_stuck_one: self
                    .running
                    .iter()
                    .any(|(named, began)| !beside(named) && *began <= since),
                recovering: self.recovering.lasts(),
            };
            if !(self.concerns)(&known) {
                continue;
            }
            report.tried();
            if until - since > self.limit {
                report.broken("", self.cause, format!("{debt:?}"));
                // Once is enough.
                self.since.insert(debt, f64::INFINITY);
            }
        }
    }

    /// Everything that could be begun with the books as they are.
    fn owed(&self, books: &Books) -> BTreeSet<Owed> {
        let mut owed = BTreeSet::new();
        let looks_for = |kind| self.kinds.contains(&kind);
        let undone = books.actual.keys().filter(|_| self.may_unmount);
        for key in undone {
            if let Some((pod, volume)) = pod_and_volume(key) {
                if looks_for(Kind::Unmount) && self.owes_unmount(books, key, pod, volume) {
                    owed.insert(Owed::Unmount { pod: pod.to_owned(), volume: volume.to_owned() });
                }
            } else if let Some(volume) = key.strip_prefix("volume ")
                && looks_for(Kind::Unstage)
                && self.owes_unstage(books, volume)
            {
                owed.insert(Owed::Unstage { volume: volume.to_owned() });
            }
        }
        let wanted = books.desired.iter().filter(|_| self.begun && looks_for(Kind::Mount));
        for (key, wanted) in wanted {
            let Some((pod, volume)) = pod_and_volume(key) else { continue };
            let is_mounted = books.actual.get(key).is_some_and(|state| state.starts_with("VolumeMounted"));
            if !is_mounted && self.owes_mount(books, wanted, pod, volume) {
                owed.insert(Owed::Mount { pod: pod.to_owned(), volume: volume.to_owned() });
            }
        }
        owed
    }

    /// Whether the volume `key` is to be unmounted for a pod. Unmounts for other pods may run beside it.
    fn owes_unmount(&self, books: &Books, key: &str, pod: &str, volume: &str) -> bool {
        self.gone.contains(pod)
            && !books.desired.contains_key(key)
            && !self.runs(volume, |name, of| !UNMOUNTS.contains(&name) || of == pod)
            && !self.has_failed(volume, |name, of| UNMOUNTS.contains(&name) && of == pod)
    }

    fn owes_unstage(&self, books: &Books, volume: &str) -> bool {
        let is_used = || {
            let mut used =
                books.actual.keys().chain(books.desired.keys()).filter_map(|key| pod_and_volume(key));
            used.any(|(_, of)| of == volume)
        };
        // A manager that found unidentified directories first asks the API for their volumes.
        let may_ask = books.life > 0 && books.slow_api;
        !may_ask
            && is_staged(books, volume)
            && !is_used()
            && !self.runs(volume, |_, _| true)
            && !self.has_failed(volume, |name, _| UNSTAGES.contains(&name))
    }

    /// Whether a volume that is not mounted is to be mounted for a pod.
    fn owes_mount(&self, books: &Books, wanted: &str, pod: &str, volume: &str) -> bool {
        let csi = handle(volume);
        // The node's status counts once the manager has seen it.
        let is_reported_in_use = !wanted.contains("reportedInUse=false");
        let is_ready = |volume| {
            !must_be_attached(books, volume)
                || (is_reported_in_use && is_in_use(books, volume) && self.knows_attached(books, volume))
        };
        !self.ending.contains(pod)
            && !self.runs(volume, |_, _| true)
            && !self.has_failed(volume, |name, _| MOUNTS.contains(&name))
            && csi.is_none_or(is_ready)
            && !csi.is_some_and(|csi| self.waits_for_another_pod(books, csi, pod, volume))
    }

    /// Whether a volume for one pod still has an earlier pod, or its label. A volume that an earlier life staged with another
    /// label stays until volumes may be unmounted.
    fn waits_for_another_pod(&self, books: &Books, csi: &str, pod: &str, volume: &str) -> bool {
        if !is_for_one_pod(books, csi) {
            return false;
        }
        let mut held = books.actual.keys().filter_map(|key| pod_and_volume(key));
        held.any(|(other, of)| of == volume && other != pod)
            || (!self.may_unmount && is_staged(books, volume))
            || self.has_failed(volume, |name, _| UNSTAGES.contains(&name))
    }

    fn runs(&self, volume: &str, which: impl Fn(OperationName, &str) -> bool) -> bool {
        self.running.keys().any(|(name, of, pod)| of == volume && which(*name, pod))
    }

    fn has_failed(&self, volume: &str, which: impl Fn(OperationName, &str) -> bool) -> bool {
        self.failed.iter().any(|(name, of, pod)| of == volume && which(*name, pod))
    }

    fn operation(&mut self, edge: &OperationEdge) {
        let named = (edge.name, edge.volume.clone(), edge.pod.clone());
        if edge.edge == Edge::Start {
            self.begun = true;
            let undoes = [UNMOUNTS, UNSTAGES].concat();
            self.may_unmount |= undoes.contains(&edge.name);
            // An operation of this volume that is due afterwards counts from then.
            self.since.retain(|debt, _| debt.volume() != edge.volume);
            self.running.insert(named, self.now);
            return;
        }
        self.running.remove(&named);
        match edge.error {
            Some(_) => _ = self.failed.insert(named),
            // The pods of a volume share the ladder of its mounts.
            None if MOUNTS.contains(&edge.name) && handle(&edge.volume).is_some() => {
                self.failed.retain(|(name, volume, _)| (name, volume) != (&edge.name, &edge.volume));
            }
            None => _ = self.failed.remove(&named),
        }
    }

    /// Whether the manager can know that its node's status lists the volume as attached.
    fn knows_attached(&self, books: &Books, volume: &str) -> bool {
        let heard = self.node.last.as_ref().is_none_or(|last| last.contains(volume));
        !books.slow_api && heard && is_attached_to_node(books, volume)
    }

    /// Whether the manager recovered this volume of a pod, or this stage, from disk: no operation of this life has led to it.
    fn is_read_back(&self, books: &Books, change: &StateChange) -> bool {
        let is_new = books.life > 0 && change.world == World::Actual && change.from.is_empty();
        let is_known = match (pod_and_volume(&change.key), change.key.strip_prefix("volume ")) {
            (Some((pod, volume)), _) if change.to.starts_with("VolumeMountUncertain") => {
                self.runs(volume, |_, running| running == pod)
            }
            (_, Some(volume)) if change.to.starts_with("DeviceMountUncertain") => {
                self.runs(volume, |_, _| true)
            }
            _ => return false,
        };
        is_new && !is_known
    }

    /// A volume that has left both books is a new one when it comes back.
    fn left(&mut self, books: &Books, change: &StateChange) {
        let volume = change.key.rsplit(' ').next().unwrap_or_default();
        let stays = |(world, book): (World, &BTreeMap<String, String>)| {
            let mut keys = book.keys().filter(|key| key.rsplit(' ').next() == Some(volume));
            keys.any(|key| world != change.world || *key != change.key)
        };
        if ![(World::Actual, &books.actual), (World::Desired, &books.desired)].into_iter().any(stays) {
            self.failed.retain(|(_, of, _)| of != volume);
        }
    }

    fn pod(&mut self, change: &PodChange) {
        match change.to {
            PodPhase::Added => {
                self.ending.remove(&change.pod);
                self.gone.remove(&change.pod);
            }
            PodPhase::Running => {}
            PodPhase::Terminating => self.end(&change.pod, false),
            PodPhase::RuntimeGone | PodPhase::Removed => self.end(&change.pod, true),
        }
    }

    fn disturbed(&mut self, books: &Books, disturbance: &Disturbance) {
        match disturbance {
            Disturbance::KindHeard { kind: ObjectKind::Node } => {
                self.node = Knowledge { heard: true, last: None };
            }
            Disturbance::KindUnheard { kind: ObjectKind::Node } if self.node.last.is_none() => {
                let heard = self.node.heard;
                self.node.last = Some(if heard { attached_to_node(books) } else { BTreeSet::new() });
            }
            _ => {}
        }
    }

    fn end(&mut self, pod: &str, gone: bool) {
        self.ending.insert(pod.to_owned());
        if gone {
            self.gone.insert(pod.to_owned());
        }
    }
}

/// Whether a volume is staged, or may be.
fn is_staged(books: &Books, volume: &str) -> bool {
    let state = books.actual.get(&format!("volume {volume}"));
    state.is_some_and(|state| {
        state.starts_with("DeviceGloballyMounted") || state.starts_with("DeviceMountUncertain")
    })
}

/// The pod and the volume in the key of a pod's volume.
fn pod_and_volume(key: &str) -> Option<(&str, &str)> {
    key.strip_prefix("pod ")?.split_once(' ')
}
