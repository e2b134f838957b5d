//! How long the node is waited for: as long as something may come of it, and no longer.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use harness::census::{self, Stuck};
use harness::facts;
use harness::journal::Journal;
use harness::load::{self, Late};
use harness::node::NodeError;

use super::{Bed, FUTILE, StepError, sentence};
use crate::dead_end::{DeadEnd, Following, NotUndone, Search, UNDOES, fails_by_itself};
use crate::failure::chain;

/// The number of cases that must have met a dead end before the next ones expect it.
pub const SHOWN: usize = 2;

/// A wait that came to nothing.
#[derive(Debug)]
pub(super) struct Waited {
    pub(super) node: NodeError,
    why: Why,
}

#[derive(Debug)]
enum Why {
    /// The node said so, or its time was over.
    Over,
    DeadEnd(DeadEnd),
    /// A call that earlier waits have waited for in vain is still not answered.
    Unanswered(String),
    /// The machine was too busy for the time to count.
    Overloaded(Late),
}

impl Waited {
    pub(super) fn not_undone(&self) -> Option<NotUndone> {
        if let Why::DeadEnd(end) = &self.why { end.not_undone() } else { None }
    }

    /// The node's error, and why the wait ended.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = chain(&self.node);
        match &self.why {
            Why::Over => {}
            Why::DeadEnd(end) => lines.push(end.to_string()),
            Why::Unanswered(method) => lines.push(unanswered(method)),
            Why::Overloaded(late) => lines.push(late.to_string()),
        }
        lines
    }
}

impl From<Waited> for StepError {
    fn from(waited: Waited) -> Self {
        let Waited { node, why } = waited;
        match (node, why) {
            (NodeError::Refused(said), Why::DeadEnd(end)) => {
                if let Some(NotUndone { method, cause }) = end.not_undone() {
                    return Self::Promise { contract: UNDOES, method, cause };
                }
                Self::Broken(end.explain(sentence(&said).trim_end_matches('.')))
            }
            (NodeError::Refused(said), Why::Unanswered(method)) => {
                Self::Broken(vec![sentence(&said), unanswered(&method)])
            }
            (NodeError::Refused(said), Why::Overloaded(late)) => {
                Self::Environment(vec![late.to_string(), sentence(&said)])
            }
            (node, _) => Self::of_node(&node),
        }
    }
}

impl Bed {
    /// Waits as long as something may still come of it: a driver that is at work is given all the time there is, one
    /// that only ever says no is given up earlier, and one that has said so for good at once.
    pub(super) async fn patiently<F>(
        &self,
        journal: &Journal,
        wait: impl Fn(Duration) -> F,
    ) -> Result<(), Waited>
    where
        F: Future<Output = Result<(), NodeError>>,
    {
        let begin = journal.length();
        let why = tokio::select! {
            biased;
            // Longer than the other two: it ends with the node's own word only.
            waited = wait(self.limit * 4) => return waited.map_err(|node| Waited { node, why: Why::Over }),
            end = self.dead_end(journal) => Why::DeadEnd(end),
            method = self.silence(journal) => Why::Unanswered(method),
            late = self.idle_for_too_long(journal) => match late {
                Some(_) if fails_by_itself(&journal.since(begin)) => Why::Over,
                Some(late) if !self.is_stopped() => Why::Overloaded(late),
                _ => {
                    self.note_unanswered(journal);
                    Why::Over
                }
            },
        };
        // It may have come in this moment; if not, the node says how far it is.
        let last = wait(Duration::ZERO).await;
        last.map_err(|node| {
            if let Why::DeadEnd(end) = &why {
                self.made.dead_ends.borrow_mut().insert(end.key.clone());
            }
            Waited { node, why }
        })
    }

    /// The same until a deadline, also while calls are under way.
    pub(super) async fn until<F>(
        &self,
        journal: &Journal,
        end: Instant,
        wait: impl Fn(Duration) -> F,
    ) -> Result<(), Waited>
    where
        F: Future<Output = Result<(), NodeError>>,
    {
        let left = super::winding_up::left_until(end);
        match tokio::time::timeout(left, self.patiently(journal, &wait)).await {
            Ok(waited) => waited,
            Err(_) => wait(Duration::ZERO).await.map_err(|node| Waited { node, why: Why::Over }),
        }
    }

    /// The waits of this case that timed out.
    pub fn dead_ends(&self) -> BTreeSet<String> {
        self.made.dead_ends.borrow().iter().cloned().chain(self.silent_ends()).collect()
    }

    /// Returns when the driver refuses for good what is waited for.
    pub(super) async fn dead_end(&self, journal: &Journal) -> DeadEnd {
        let known = self.known_dead_ends.union(&self.made.dead_ends.borrow()).cloned().collect();
        Following::new(journal.clone(), Search::new(known)).dead_end().await
    }

    /// Whether a process of the sandbox was stopped, and not by the case: on a machine with less load it would not go on
    /// either.
    fn is_stopped(&self) -> bool {
        let hung = self.made.hung.borrow();
        let is_the_cases = |stuck: &Stuck| hung.iter().any(|process| process.pid == stuck.pid());
        census::stuck().iter().any(|stuck| stuck.is_stopped() && !is_the_cases(stuck))
    }

    /// Returns when no call was under way for too long, or all the time is over that a case has for one wait; with
    /// the load, if that was so high that the time says nothing.
    async fn idle_for_too_long(&self, journal: &Journal) -> Option<Late> {
        // A process waits for an NFS server in the kernel, and no call shows it; and an emulated machine is slow.
        let futile = if self.nfs.is_there() || facts::in_guest() { 3 * FUTILE } else { FUTILE };
        let at_work = async {
            loop {
                let late = load::limit_reached(futile.min(self.limit)).await;
                if late.is_cut_short || journal.in_flight().is_empty() {
                    return late;
                }
            }
        };
        let late = tokio::select! {
            biased;
            late = at_work => late,
            late = load::limit_reached(self.limit) => late,
        };
        late.is_cut_short.then_some(late)
    }
}

fn unanswered(method: &str) -> String {
    format!("ended early: {method} is not answered, as in the waits before")
}
