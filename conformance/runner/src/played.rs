//! The findings of scenarios and manifests: the rules of cases, applied while they are played and at their end.

use std::collections::BTreeSet;

use contracts::driver;
use contracts::rule::{Judge, Rest, Witness};
use harness::journal::Journal;

use crate::finding::Finding;
use crate::judge;

/// The witnesses of whatever is played.
const WITNESSES: [Witness; 3] = [Witness::Rpc, Witness::Kernel, Witness::File];

/// The findings so far. Each is returned once.
pub struct Findings {
    judge: Judge,
    /// The number of lines of the journal that are judged.
    judged: usize,
    given: BTreeSet<(String, String, String)>,
}

impl Default for Findings {
    fn default() -> Self {
        let judge = Judge::new(driver::RULES.iter().copied(), &WITNESSES);
        Self { judge, judged: 0, given: BTreeSet::new() }
    }
}

impl Findings {
    /// The driver's broken promises since the last call.
    pub fn since(&mut self, journal: &Journal) -> Vec<Finding> {
        let lines = journal.since(self.judged);
        self.judged += lines.len();
        let broken: Vec<_> = lines.iter().flat_map(|line| self.judge.event(line)).collect();
        let found = broken.iter().filter_map(|violation| {
            let rule = driver::RULES.iter().find(|rule| rule.id == violation.contract)?;
            Some(judge::drivers(rule, violation, journal.symbols()))
        });
        let found: Vec<Finding> = found.collect();
        self.new_ones(found)
    }

    /// The findings of the whole journal that are new. `rest` is the desired state at the end; without it the journal was cut
    /// off, and rules do not ask for events that should happen eventually.
    pub async fn at_the_end(&mut self, journal: &Journal, rest: Option<&Rest>) -> Vec<Finding> {
        let (mut found, _) = judge::judgement(&journal.trace(), rest, journal.symbols());
        journal.suspects_settle().await;
        found.extend(judge::irregular(&journal.irregular(), journal.symbols()));
        let secrets = journal.leaked_secrets();
        found.extend(secrets.iter().map(|(method, key)| judge::secret_repeated(method, key)));
        judge::sort(&mut found);
        self.new_ones(found)
    }

    /// The finding of a driver that ended unasked.
    pub fn driver_ended(&mut self, said: &str) -> Vec<Finding> {
        self.new_ones(judge::driver_ended(said, None, None, &[]))
    }

    fn new_ones(&mut self, found: impl IntoIterator<Item = Finding>) -> Vec<Finding> {
        let is_new = |finding: &Finding| {
            let (contract, method, cause) = finding.key();
            self.given.insert((contract.to_owned(), method.to_owned(), cause.to_owned()))
        };
        found.into_iter().filter(is_new).collect()
    }
}
