//! What cases have waited for in vain, so that the next ones need not.

use std::collections::{BTreeMap, BTreeSet};

use testbed::bed::SHOWN;

/// The number of cases that have met each dead end.
#[derive(Debug, Default)]
pub(super) struct DeadEnds(BTreeMap<String, usize>);

impl DeadEnds {
    /// Takes note of what one case has met.
    pub(super) fn note<'a>(&mut self, met: impl Iterator<Item = &'a String>) {
        for key in met {
            *self.0.entry(key.clone()).or_default() += 1;
        }
    }

    /// The dead ends that at least `SHOWN` cases have met.
    pub(super) fn shown(&self) -> BTreeSet<String> {
        self.0.iter().filter(|(_, cases)| **cases >= SHOWN).map(|(key, _)| key.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_end_of_one_case_may_be_an_accident() {
        let (publish, stage) = ("publish".to_owned(), "stage".to_owned());
        let mut ends = DeadEnds::default();
        ends.note([&publish, &stage].into_iter());
        assert!(ends.shown().is_empty());
        ends.note([&publish].into_iter());
        assert_eq!(ends.shown(), BTreeSet::from([publish]));
    }
}
