//! Running operations, failed operations, and the time of their next attempt.
//!
//! Two operations whose keys exclude each other never run at the same time. A failed operation has a back-off
//! ladder of its own, per operation and key: half a second, then doubled each time, up to 122 seconds. Another
//! operation on the same key neither waits for that ladder nor resets it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use api::clock::Instant;
use api::names::{PodUid, VolumeName};
use plugin_api::OperationId;

use super::{Key, OperationName};

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(122);

/// The back-off after that many failures in a row, counted from the end of the last one.
pub fn delay_after(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    FIRST.saturating_mul(1 << doublings).min(LONGEST)
}

/// Running operations and back-offs.
#[derive(Debug, Default)]
pub struct Pending {
    last: u64,
    running: BTreeMap<OperationId, Running>,
    by_volume: BTreeMap<VolumeName, BTreeSet<OperationId>>,
    by_pod: BTreeMap<PodUid, BTreeSet<OperationId>>,
    ladders: BTreeMap<Rung, Ladder>,
    /// Due times of ladders that an operation was refused for: planning it again then is the loop's next alarm.
    alarms: BTreeSet<(Instant, Rung)>,
}

#[derive(Debug, Clone)]
pub struct Running {
    pub name: OperationName,
    pub key: Key,
    /// The pod, for an operation on a pod's share of the volume.
    pub pod: Option<PodUid>,
}

impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.name, &self.key.volume, self.pod.as_ref())
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.name, &self.key.volume, self.key.pod.as_ref())
    }
}

fn write(
    f: &mut fmt::Formatter<'_>,
    name: OperationName,
    volume: &VolumeName,
    pod: Option<&PodUid>,
) -> fmt::Result {
    write!(f, "{name} {volume}")?;
    pod.map_or(Ok(()), |pod| write!(f, " {pod}"))
}

/// The operation and key that a ladder belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rung {
    pub key: Key,
    pub name: OperationName,
}

/// The back-off of a failed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ladder {
    /// Failures in a row.
    pub failures: u32,
    /// When the next attempt is allowed.
    pub due: Instant,
}

/// Whether an operation has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    Started(OperationId),
    /// An operation that excludes it runs. Plan it again when that one has ended.
    Busy,
    /// The operation is in back-off. Plan it again when [`Pending::take_due`] returns its volume.
    NotDue,
}

/// The end of an operation, for its ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The operation succeeded: its ladder is removed.
    Well,
    /// The operation failed: the next wait is longer.
    Badly,
    /// The operation was withdrawn: its ladder stays as it was.
    Unwanted,
}

impl Pending {
    /// Starts an operation unless a running one excludes it or it is in back-off.
    pub fn admit(&mut self, name: OperationName, key: Key, pod: Option<PodUid>, now: Instant) -> Admission {
        if self.on(&key.volume).any(|running| running.key.excludes(&key)) {
            return Admission::Busy;
        }
        let rung = Rung { key, name };
        if let Some(ladder) = self.ladders.get(&rung).filter(|ladder| ladder.due > now) {
            self.alarms.insert((ladder.due, rung));
            return Admission::NotDue;
        }
        self.last += 1;
        let id = OperationId(self.last);
        self.by_volume.entry(rung.key.volume.clone()).or_default().insert(id);
        if let Some(pod) = &pod {
            self.by_pod.entry(pod.clone()).or_default().insert(id);
        }
        self.running.insert(id, Running { name, key: rung.key, pod });
        Admission::Started(id)
    }

    /// Removes an operation that has ended and updates its ladder.
    pub fn finish(&mut self, id: OperationId, ended: Ended, now: Instant) -> Option<Running> {
        let running = self.running.remove(&id)?;
        leave(&mut self.by_volume, &running.key.volume, id);
        if let Some(pod) = &running.pod {
            leave(&mut self.by_pod, pod, id);
        }
        let rung = Rung { key: running.key.clone(), name: running.name };
        match ended {
            Ended::Well => drop(self.ladders.remove(&rung)),
            Ended::Unwanted => {}
            Ended::Badly => {
                let failures = self.ladders.get(&rung).map_or(0, |ladder| ladder.failures) + 1;
                self.ladders.insert(rung, Ladder { failures, due: now + delay_after(failures) });
            }
        }
        Some(running)
    }

    pub fn get(&self, id: OperationId) -> Option<&Running> {
        self.running.get(&id)
    }

    /// The running operations on a volume.
    pub fn on(&self, volume: &VolumeName) -> impl Iterator<Item = &Running> {
        self.by_volume.get(volume).into_iter().flatten().filter_map(|id| self.running.get(id))
    }

    /// The running operations for a pod.
    pub fn for_pod(&self, pod: &PodUid) -> impl Iterator<Item = &Running> {
        self.by_pod.get(pod).into_iter().flatten().filter_map(|id| self.running.get(id))
    }

    /// All running operations, in starting order.
    pub fn running(&self) -> impl Iterator<Item = &Running> {
        self.running.values()
    }

    /// The failed operations that have not succeeded since.
    pub fn ladders(&self) -> impl Iterator<Item = (&Rung, &Ladder)> {
        self.ladders.iter()
    }

    /// The earliest time at which a refused operation may be tried.
    pub fn next_due(&self) -> Option<Instant> {
        self.alarms.first().map(|(due, _)| *due)
    }

    /// Takes the volumes with refused operations that may be tried now.
    pub fn take_due(&mut self, now: Instant) -> BTreeSet<VolumeName> {
        let mut volumes = BTreeSet::new();
        while let Some((_, rung)) = self.alarms.pop_first_if(|(due, _)| *due <= now) {
            volumes.insert(rung.key.volume);
        }
        volumes
    }

    /// Removes the ladders of the matching operations, because the cause of their failures may be gone. Returns
    /// their volumes.
    pub fn end_back_off(&mut self, concerns: impl Fn(&Rung) -> bool) -> BTreeSet<VolumeName> {
        let mut volumes = BTreeSet::new();
        self.ladders.retain(|rung, _| {
            let ended = concerns(rung);
            if ended {
                volumes.insert(rung.key.volume.clone());
            }
            !ended
        });
        self.alarms.retain(|(_, rung)| self.ladders.contains_key(rung));
        volumes
    }

    /// Removes all ladders of a volume that is neither desired nor actual any more.
    pub fn forget(&mut self, volume: &VolumeName) {
        // The first key of the volume in the map's order; the others follow it.
        let first = Rung { key: Key::volume(volume), name: OperationName::Verify };
        let of_volume = self.ladders.range(first..).take_while(|(rung, _)| &rung.key.volume == volume);
        let rungs: Vec<_> = of_volume.map(|(rung, ladder)| (ladder.due, rung.clone())).collect();
        for alarm in rungs {
            self.ladders.remove(&alarm.1);
            self.alarms.remove(&alarm);
        }
    }
}

fn leave<K: Ord>(index: &mut BTreeMap<K, BTreeSet<OperationId>>, key: &K, id: OperationId) {
    if let Some(ids) = index.get_mut(key) {
        ids.remove(&id);
        if ids.is_empty() {
            index.remove(key);
        }
    }
}

trait PopFirstIf<T> {
    fn pop_first_if(&mut self, wanted: impl FnOnce(&T) -> bool) -> Option<T>;
}

impl<T: Ord> PopFirstIf<T> for BTreeSet<T> {
    fn pop_first_if(&mut self, wanted: impl FnOnce(&T) -> bool) -> Option<T> {
        if self.first().is_some_and(wanted) { self.pop_first() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(volume: &str) -> (OperationName, Key) {
        (OperationName::Mount, Key::volume(&volume.into()))
    }

    fn unmount(volume: &str, pod: &str) -> (OperationName, Key) {
        (OperationName::Unmount, Key::pod(&volume.into(), &pod.into()))
    }

    struct Fixture {
        pending: Pending,
        now: Instant,
    }

    impl Fixture {
        fn new() -> Self {
            Self { pending: Pending::default(), now: Instant::now() }
        }

        fn admit(&mut self, (name, key): (OperationName, Key)) -> Admission {
            self.pending.admit(name, key, None, self.now)
        }

        fn run(&mut self, what: (OperationName, Key), ended: Ended) {
            let Admission::Started(id) = self.admit(what) else { panic!("the operation was not admitted") };
            self.pending.finish(id, ended, self.now);
        }

        fn pass(&mut self, milliseconds: u64) {
            self.now += Duration::from_millis(milliseconds);
        }
    }

    #[test]
    fn the_ladder_is_the_kubelets() {
        let seconds: Vec<f64> = (1..=11).map(|failures| delay_after(failures).as_secs_f64()).collect();
        assert_eq!(seconds, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 122.0, 122.0, 122.0]);
        assert_eq!(delay_after(u32::MAX), LONGEST);
    }

    #[test]
    fn unmounts_of_different_pods_run_together_and_keep_mounts_out() {
        let mut f = Fixture::new();
        assert!(matches!(f.admit(unmount("v", "a")), Admission::Started(_)));
        assert!(matches!(f.admit(unmount("v", "b")), Admission::Started(_)));
        assert_eq!(f.admit(unmount("v", "a")), Admission::Busy);
        assert_eq!(f.admit(mount("v")), Admission::Busy);
        assert!(matches!(f.admit(mount("w")), Admission::Started(_)));
    }

    #[test]
    fn a_failure_waits_and_says_when_it_is_due() {
        let mut f = Fixture::new();
        f.run(mount("v"), Ended::Badly);
        assert_eq!(f.pending.next_due(), None, "no operation was refused yet");
        assert_eq!(f.admit(mount("v")), Admission::NotDue);
        assert_eq!(f.pending.next_due(), Some(f.now + FIRST));
        f.pass(499);
        assert!(f.pending.take_due(f.now).is_empty());
        f.pass(1);
        assert_eq!(f.pending.take_due(f.now), BTreeSet::from(["v".into()]));
        assert!(matches!(f.admit(mount("v")), Admission::Started(_)));
    }

    #[test]
    fn a_success_forgets_and_an_unwanted_end_changes_nothing() {
        let mut f = Fixture::new();
        f.run(mount("v"), Ended::Badly);
        f.pass(500);
        f.run(mount("v"), Ended::Unwanted);
        f.run(mount("v"), Ended::Badly);
        assert_eq!(f.pending.ladders().next().map(|(_, ladder)| ladder.failures), Some(2));
        f.pass(1000);
        f.run(mount("v"), Ended::Well);
        assert_eq!(f.pending.ladders().count(), 0);
    }

    #[test]
    fn each_operation_and_each_pod_has_a_ladder_of_its_own() {
        let mut f = Fixture::new();
        f.run(unmount("v", "a"), Ended::Badly);
        f.run(mount("v"), Ended::Well);
        assert_eq!(
            f.admit(unmount("v", "a")),
            Admission::NotDue,
            "another operation's success does not reset this ladder"
        );
        assert!(matches!(f.admit(unmount("v", "b")), Admission::Started(_)));
    }

    #[test]
    fn forgotten_volume_loses_its_ladders_and_no_others() {
        let mut f = Fixture::new();
        let of_v = [mount("v"), unmount("v", "a"), (OperationName::Verify, Key::volume(&"v".into()))];
        for what in of_v.into_iter().chain([mount("u"), unmount("vv", "a"), mount("w")]) {
            f.run(what.clone(), Ended::Badly);
            assert_eq!(f.admit(what), Admission::NotDue);
        }
        f.pending.forget(&"v".into());
        let left: Vec<_> = f.pending.ladders().map(|(rung, _)| rung.key.volume.to_string()).collect();
        assert_eq!(left, ["u", "vv", "w"]);
        f.pass(500);
        assert_eq!(f.pending.take_due(f.now), ["u", "vv", "w"].map(VolumeName::from).into());
    }

    #[test]
    fn running_operation_is_found_by_volume_and_pod() {
        let mut f = Fixture::new();
        let (name, key) = unmount("v", "a");
        let Admission::Started(id) = f.pending.admit(name, key, Some("a".into()), f.now) else {
            panic!("nothing else runs")
        };
        assert!(matches!(f.admit(unmount("v", "b")), Admission::Started(_)), "an operation without a pod");
        assert_eq!(f.pending.on(&"v".into()).count(), 2);
        assert_eq!(f.pending.for_pod(&"a".into()).count(), 1);
        assert_eq!(f.pending.for_pod(&"b".into()).count(), 0);
        f.pending.finish(id, Ended::Well, f.now);
        assert_eq!(f.pending.on(&"v".into()).count(), 1);
        assert_eq!(f.pending.for_pod(&"a".into()).count(), 0);
        assert!(
            !f.pending.by_pod.contains_key(&"a".into()),
            "the index has no pod without a running operation"
        );
        f.run(mount("w"), Ended::Well);
        assert!(
            !f.pending.by_volume.contains_key(&"w".into()),
            "the index has no volume without a running operation"
        );
    }

    #[test]
    fn end_of_back_off_restarts_the_ladder() {
        let mut f = Fixture::new();
        f.run(mount("v"), Ended::Badly);
        f.run(mount("w"), Ended::Badly);
        assert_eq!(f.admit(mount("v")), Admission::NotDue);
        let ended = f.pending.end_back_off(|rung| rung.key.volume.as_str() == "v");
        assert_eq!(ended, BTreeSet::from(["v".into()]));
        assert_eq!(f.pending.next_due(), None);
        f.run(mount("v"), Ended::Badly);
        assert_eq!(f.admit(mount("w")), Admission::NotDue);
        assert_eq!(f.pending.ladders().map(|(_, ladder)| ladder.failures).collect::<Vec<_>>(), [1, 1]);
        let due = f.pending.next_due();
        assert!(due.is_some(), "the other operation was refused");
        f.pending.end_back_off(|rung| rung.key.volume.as_str() == "v");
        assert_eq!(f.pending.next_due(), due, "the other operation's due time stays");
    }
}
