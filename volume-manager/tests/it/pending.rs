//! Properties of the pending operations, for any sequence of requests: compared with a plainer model.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::clock::Instant;
use api::names::VolumeName;
use plugin_api::OperationId;
use proptest::prelude::*;
use volume_manager::operation::pending::{Admission, Ended, Pending, delay_after};
use volume_manager::operation::{Key, OperationName};

#[derive(Debug, Clone, Copy)]
enum Happens {
    /// An operation is asked for: which, on which volume, for which pod.
    Asked(OperationName, usize, usize),
    /// A running operation ends.
    Ends(usize, Ended),
    Passes(u64),
    /// There is hope for the operations on a volume.
    Hope(usize),
    /// A volume is nowhere any more.
    Forgotten(usize),
}

fn happens() -> impl Strategy<Value = Happens> {
    let name = prop_oneof![
        Just(OperationName::Mount),
        Just(OperationName::Unmount),
        Just(OperationName::UnmountDevice)
    ];
    let ended = prop_oneof![Just(Ended::Well), Just(Ended::Badly), Just(Ended::Unwanted)];
    prop_oneof![
        (name, 0..2usize, 0..3usize).prop_map(|(name, volume, pod)| Happens::Asked(name, volume, pod)),
        (0..4usize, ended).prop_map(|(which, ended)| Happens::Ends(which, ended)),
        (0..3_000u64).prop_map(Happens::Passes),
        (0..2usize).prop_map(Happens::Hope),
        (0..2usize).prop_map(Happens::Forgotten),
    ]
}

const VOLUMES: [&str; 2] = ["v", "w"];
const PODS: [&str; 3] = ["a", "b", "c"];

fn key(name: OperationName, volume: usize, pod: usize) -> Key {
    let volume = VOLUMES[volume].into();
    match name {
        OperationName::Unmount => Key::pod(&volume, &PODS[pod].into()),
        _ => Key::volume(&volume),
    }
}

/// A simpler implementation of the same rules, to compare with.
#[derive(Default)]
struct Book {
    running: Vec<(OperationId, OperationName, Key)>,
    failed: BTreeMap<(OperationName, Key), (u32, Instant)>,
    /// The waiting operations, with the end of their back-off.
    waits: BTreeMap<(OperationName, Key), Instant>,
}

impl Book {
    /// The expected answer: `busy`, `not due` or `started`.
    fn answers(&self, name: OperationName, key: &Key, now: Instant) -> &'static str {
        let waits = |(_, due): &(u32, Instant)| *due > now;
        if self.running.iter().any(|(_, _, other)| other.excludes(key)) {
            "busy"
        } else if self.failed.get(&(name, key.clone())).is_some_and(waits) {
            "not due"
        } else {
            "started"
        }
    }

    fn ended(&mut self, name: OperationName, key: Key, ended: Ended, now: Instant) {
        match ended {
            Ended::Well => drop(self.failed.remove(&(name, key))),
            Ended::Unwanted => {}
            Ended::Badly => {
                let (failures, due) = self.failed.entry((name, key)).or_insert((0, now));
                *failures += 1;
                *due = now + delay_after(*failures);
            }
        }
    }

    /// Forgets the failures of a volume. Returns whether there were any.
    fn forget(&mut self, volume: &str) -> bool {
        let before = self.failed.len();
        self.failed.retain(|(_, key), _| key.volume.as_str() != volume);
        self.waits.retain(|(_, key), _| key.volume.as_str() != volume);
        self.failed.len() < before
    }

    /// The volumes whose back-off is over.
    fn take_due(&mut self, now: Instant) -> BTreeSet<VolumeName> {
        let due = |(_, until): &(&(OperationName, Key), &Instant)| **until <= now;
        let volumes = self.waits.iter().filter(due).map(|((_, key), _)| key.volume.clone()).collect();
        self.waits.retain(|_, until| *until > now);
        volumes
    }
}

proptest! {
    #[test]
    fn excluded_operation_waits_and_failed_one_backs_off(
        script in prop::collection::vec(happens(), 0..60),
    ) {
        let (mut pending, mut book) = (Pending::default(), Book::default());
        let mut now = Instant::now();
        for happens in script {
            match happens {
                Happens::Passes(time) => {
                    now += Duration::from_millis(time);
                    prop_assert_eq!(pending.take_due(now), book.take_due(now));
                }
                Happens::Hope(volume) => {
                    let ended = pending.end_back_off(|rung| rung.key.volume.as_str() == VOLUMES[volume]);
                    prop_assert_eq!(!ended.is_empty(), book.forget(VOLUMES[volume]));
                    prop_assert!(ended.iter().all(|ended| ended.as_str() == VOLUMES[volume]));
                }
                Happens::Forgotten(volume) => {
                    pending.forget(&VOLUMES[volume].into());
                    book.forget(VOLUMES[volume]);
                }
                Happens::Ends(which, _) if which >= book.running.len() => {}
                Happens::Ends(which, ended) => {
                    let (id, name, key) = book.running.remove(which);
                    prop_assert!(pending.finish(id, ended, now).is_some());
                    prop_assert!(pending.finish(id, ended, now).is_none(), "it ended twice");
                    book.ended(name, key, ended, now);
                }
                Happens::Asked(name, volume, pod) => {
                    let key = key(name, volume, pod);
                    let expected = book.answers(name, &key, now);
                    let of = (name == OperationName::Unmount).then(|| PODS[pod].into());
                    let answer = match pending.admit(name, key.clone(), of, now) {
                        Admission::Busy => "busy",
                        Admission::NotDue => {
                            let due = book.failed[&(name, key.clone())].1;
                            book.waits.insert((name, key), due);
                            "not due"
                        }
                        Admission::Started(id) => {
                            book.running.push((id, name, key));
                            "started"
                        }
                    };
                    prop_assert_eq!(answer, expected);
                }
            }
            prop_assert_eq!(pending.next_due(), book.waits.values().min().copied(), "who waits is woken in time");
            prop_assert_eq!(pending.running().count(), book.running.len());
            for (volume, pod) in VOLUMES.iter().flat_map(|volume| PODS.map(|pod| (*volume, pod))) {
                let on = book.running.iter().filter(|(_, _, key)| key.volume.as_str() == volume);
                prop_assert_eq!(pending.on(&volume.into()).count(), on.count());
                let of = |key: &Key| key.pod.as_ref().is_some_and(|of| of.as_str() == pod);
                let of_pod = book.running.iter().filter(|(_, _, key)| of(key)).count();
                prop_assert_eq!(pending.for_pod(&pod.into()).count(), of_pod);
            }
            let climbed: Vec<u32> = pending.ladders().map(|(_, ladder)| ladder.failures).collect();
            prop_assert_eq!(climbed.iter().sum::<u32>(), book.failed.values().map(|(n, _)| n).sum::<u32>());
        }
        // Once all operations have ended and their back-off is over, the waiting ones are due and may start.
        for (id, name, key) in std::mem::take(&mut book.running) {
            pending.finish(id, Ended::Well, now);
            book.ended(name, key, Ended::Well, now);
        }
        now += Duration::from_secs(123);
        pending.take_due(now);
        prop_assert_eq!(pending.next_due(), None);
        for (name, key) in book.failed.keys() {
            let admission = pending.admit(*name, key.clone(), None, now);
            let Admission::Started(id) = admission else { panic!("{admission:?}") };
            pending.finish(id, Ended::Well, now);
        }
        prop_assert_eq!(pending.ladders().count(), 0);
    }
}
