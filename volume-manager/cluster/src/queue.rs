//! The objects that a controller has to look at: each by one task at a time, and again after a growing pause
//! where that failed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::Key;
use api::clock::Instant;

/// The back-off of a failed step: the first pause, which doubles, and the longest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pauses {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

/// The result of a look at an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Failed,
    /// It failed in a way that no repetition is expected to mend.
    Infeasible,
}

#[derive(Debug)]
pub(crate) struct Queue {
    pauses: Pauses,
    ready: BTreeSet<Key>,
    due: BTreeSet<(Instant, Key)>,
    known: BTreeMap<Key, Known>,
}

/// An object that is looked at, or waits to be looked at again.
#[derive(Debug, Default)]
struct Known {
    running: bool,
    /// It changed while it was looked at.
    changed: bool,
    failures: u32,
    due: Option<Instant>,
}

impl Queue {
    pub(crate) fn new(pauses: Pauses) -> Self {
        Self { pauses, ready: BTreeSet::new(), due: BTreeSet::new(), known: BTreeMap::new() }
    }

    /// An object has changed: it is looked at now, or once more where that is under way.
    pub(crate) fn add(&mut self, key: Key) {
        match self.known.get_mut(&key) {
            Some(known) if known.running => known.changed = true,
            Some(known) => {
                if let Some(due) = known.due.take() {
                    self.due.remove(&(due, key.clone()));
                }
                self.ready.insert(key);
            }
            None => {
                self.ready.insert(key);
            }
        }
    }

    /// The next object to look at. [`ended`](Self::ended) has to follow.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Key> {
        while let Some((due, key)) = self.due.first().cloned()
            && due <= now
        {
            self.due.remove(&(due, key.clone()));
            self.ready.insert(key);
        }
        let key = self.ready.pop_first()?;
        let known = self.known.entry(key.clone()).or_default();
        (known.running, known.changed, known.due) = (true, false, None);
        Some(key)
    }

    /// A look has ended.
    pub(crate) fn ended(&mut self, key: Key, outcome: Outcome, now: Instant) {
        let Some(known) = self.known.get_mut(&key) else { return };
        known.running = false;
        if known.changed {
            if outcome == Outcome::Done {
                known.failures = 0;
            }
            self.ready.insert(key);
            return;
        }
        let pause = match outcome {
            Outcome::Done => {
                self.known.remove(&key);
                return;
            }
            Outcome::Failed => {
                let doubled = self.pauses.first.saturating_mul(2u32.saturating_pow(known.failures));
                known.failures = known.failures.saturating_add(1);
                doubled.min(self.pauses.longest)
            }
            Outcome::Infeasible => self.pauses.longest,
        };
        known.due = Some(now + pause);
        self.due.insert((now + pause, key));
    }

    /// Whether an object waits for nothing but a task.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When the next pause ends.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }
}

#[cfg(test)]
mod tests {
    use api::Kind;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn queue() -> Queue {
        Queue::new(Pauses { first: SECOND, longest: 3 * SECOND })
    }

    fn key(name: &str) -> Key {
        Key::cluster(Kind::Attachment, name)
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_after_failures_double_up_to_the_longest() {
        let (mut queue, start) = (queue(), Instant::now());
        queue.add(key("a"));
        let mut now = start;
        let mut pauses = Vec::new();
        for _ in 0..4 {
            let next = queue.next(now).expect("it is due");
            queue.ended(next, Outcome::Failed, now);
            let due = queue.next_due().expect("it is tried again");
            assert_eq!(queue.next(now), None, "not before its pause ends");
            pauses.push((due - now).as_secs());
            now = due;
        }
        assert_eq!(pauses, [1, 2, 3, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn object_that_changes_while_it_is_looked_at_is_looked_at_once_more() {
        let (mut queue, now) = (queue(), Instant::now());
        queue.add(key("a"));
        let first = queue.next(now).expect("it is new");
        queue.add(key("a"));
        queue.add(key("a"));
        assert_eq!(queue.next(now), None, "one task at a time");
        queue.ended(first, Outcome::Done, now);
        let again = queue.next(now).expect("it changed");
        queue.ended(again, Outcome::Done, now);
        assert_eq!((queue.next(now), queue.next_due()), (None, None));
        assert!(queue.known.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn change_ends_a_pause() {
        let (mut queue, now) = (queue(), Instant::now());
        queue.add(key("a"));
        let first = queue.next(now).expect("it is new");
        queue.ended(first, Outcome::Failed, now);
        queue.add(key("a"));
        assert_eq!((queue.next(now), queue.next_due()), (Some(key("a")), None));
    }
}
