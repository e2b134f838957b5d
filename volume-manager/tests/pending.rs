//! What holds of everything that may run and wait, whatever is asked for: held against a plainer book.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use volume_manager::clock::Instant;
use volume_manager::event::OperationId;
use volume_manager::operation::pending::{Admission, Ended, Pending, delay_after};
use volume_manager::operation::{Key, OperationName};

/// Something that happens.
#[derive(Debug, Clone, Copy)]
enum Happens {
    /// An operation is asked for: which, on which volume, for which pod.
    Asked(OperationName, usize, usize),
    /// One of those that run ends.
    Ends(usize, Ended),
    /// Milliseconds pass.
    Passes(u64),
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
    ]
}

fn key(name: OperationName, volume: usize, pod: usize) -> Key {
    let volume = ["v", "w"][volume].into();
    match name {
        OperationName::Unmount => Key::pod(&volume, &["a", "b", "c"][pod].into()),
        _ => Key::volume(&volume),
    }
}

/// The plainer book.
#[derive(Default)]
struct Book {
    running: Vec<(OperationId, OperationName, Key)>,
    failed: BTreeMap<(OperationName, Key), (u32, Instant)>,
}

impl Book {
    /// What has to be answered.
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
}

proptest! {
    #[test]
    fn what_excludes_waits_and_what_failed_waits_its_own_time(
        script in prop::collection::vec(happens(), 0..60),
    ) {
        let (mut pending, mut book) = (Pending::default(), Book::default());
        let mut now = Instant::now();
        for happens in script {
            match happens {
                Happens::Passes(time) => now += Duration::from_millis(time),
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
                    let answer = match pending.admit(name, key.clone(), None, now) {
                        Admission::Busy => "busy",
                        Admission::NotDue => {
                            let due = book.failed[&(name, key)].1;
                            prop_assert!(pending.next_due().is_some_and(|next| next <= due), "nobody wakes");
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
            prop_assert_eq!(pending.running().count(), book.running.len());
            let climbed: Vec<u32> = pending.ladders().map(|(_, ladder)| ladder.failures).collect();
            prop_assert_eq!(climbed.iter().sum::<u32>(), book.failed.values().map(|(n, _)| n).sum::<u32>());
        }
        // Once everything has ended and its time has come, whoever waited is told, and may start.
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
