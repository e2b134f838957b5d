//! Calls that a driver does not answer: which, and whether to wait for them once more.

use std::collections::BTreeSet;
use std::time::Duration;

use contracts::event::Event;
use harness::journal::Journal;

use super::Bed;

/// A call that is younger may yet be answered.
const LONG: Duration = Duration::from_secs(5);

/// A call that takes this many times as long as the slowest before it counts as not answered.
const SLOWER: f64 = 3.0;

/// The wait for a call that earlier cases have waited for in vain.
const SHORT: Duration = Duration::from_secs(2);

/// The pause between two looks at the age of calls under way.
const TICK: Duration = Duration::from_millis(100);

impl Bed {
    /// The calls that were not answered while all the time passed that there is for them.
    pub fn unanswered(&self) -> BTreeSet<String> {
        self.made.unanswered.borrow().clone()
    }

    /// Notes the calls of which nothing has come, on a machine that had the time for them.
    pub fn note_unanswered(&self, journal: &Journal) {
        // The proxy may hold calls that the driver has answered long ago.
        if self.proxy().held() == 0 {
            let old = journal.calls_older_than(LONG.max(self.slowness(journal)));
            self.made.unanswered.borrow_mut().extend(old);
        }
    }

    /// The time for which a driver's work may go on after a call: several times its slowest call.
    pub(crate) fn slowest(&self) -> Duration {
        self.made.slowest.get().mul_f64(SLOWER)
    }

    /// The least time limit of a call for this driver: several times its slowest answered call.
    pub(super) fn slowness(&self, journal: &Journal) -> Duration {
        let answered = journal.trace().into_iter().filter_map(|line| match line.event {
            Event::RpcEnd(end) if !end.abandoned && end.injected.is_none() => Some(end.dur_ms / 1e3),
            _ => None,
        });
        let slowest = answered.fold(self.made.slowest.get().as_secs_f64(), f64::max);
        Duration::from_secs_f64(SLOWER * slowest)
    }

    /// Notes a call of the suite's own that was not answered.
    pub(super) fn note_unanswered_call(&self, method: &str) {
        self.made.unanswered.borrow_mut().insert(method.to_owned());
    }

    /// Calls that went unanswered, as keys of dead ends: after enough cases the next ones do not wait for them.
    pub(super) fn silent_ends(&self) -> impl Iterator<Item = String> {
        self.unanswered().into_iter().map(|method| key(&method))
    }

    /// Returns when a call is under way that earlier cases have waited for in vain, or that this one has: the call.
    pub(super) async fn silence(&self, journal: &Journal) -> String {
        loop {
            let is_known = |method: &String| {
                self.made.unanswered.borrow().contains(method) || self.known_dead_ends.contains(&key(method))
            };
            let older =
                if self.proxy().held() == 0 { journal.calls_older_than(SHORT) } else { BTreeSet::new() };
            if let Some(method) = older.into_iter().find(is_known) {
                return method;
            }
            tokio::time::sleep(TICK).await;
        }
    }
}

fn key(method: &str) -> String {
    format!("{method} without an answer")
}
