//! The standing of each promise after a run: kept, broken, not tried or not observable.
//!
//! A case reports the promises that it tried. A promise that no case of the run tried is not kept: it was not tried, or no
//! case could have seen it broken.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use contracts::promise::Strength;
use contracts::rule::{Rule, Witness};
use contracts::{driver, manager};
use serde::{Deserialize, Serialize};
use testbed::case::Case;

use crate::finding::Party;

/// The verdicts of one case beside its findings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// Promises that were tried and kept.
    pub kept: BTreeSet<String>,
    /// Promises whose rule needs a witness that the case did not have.
    pub unobservable: BTreeMap<String, Vec<Witness>>,
}

/// The standing of a promise after a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// At least one case broke it.
    Broken,
    /// At least one case had an occasion to break it, and none did.
    Kept,
    /// No case that ran had an occasion to break it.
    NotTried,
    /// No case could have seen it broken.
    NotObservable,
}

impl Standing {
    /// In the order of summaries.
    pub const ALL: [Self; 4] = [Self::Broken, Self::Kept, Self::NotTried, Self::NotObservable];
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Broken => "broken",
            Self::Kept => "kept",
            Self::NotTried => "not tried",
            Self::NotObservable => "not observable",
        })
    }
}

/// A promise with its standing after a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromiseRecord {
    /// `DRV-…` or `INV-…`.
    pub id: String,
    /// The part that the promise binds.
    pub binds: Party,
    /// The strength of a driver's promise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strength: Option<Strength>,
    pub sentence: String,
    pub standing: Standing,
    /// The number of cases that tried it.
    pub judged_in: usize,
    /// The missing witnesses of its rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<Witness>,
}

/// Promises that neither a rule nor the body of a case judges, and the part of the suite that does.
const JUDGED_BY_THE_SUITE: &[(&str, &str)] = &[
    ("DRV-001", "the first questions to the driver"),
    ("DRV-002", "the first questions to the driver"),
    ("DRV-005", "the first questions to the driver"),
    ("DRV-007", "the first questions to the driver"),
    ("DRV-008", "the first questions to the driver"),
    ("DRV-024", "the driver's list of volumes at the end of each case"),
    ("DRV-034", "each case that makes the calls of a node"),
    ("DRV-040", "each case that makes the calls of a node"),
    ("DRV-073", "the loop devices that are left when a case has unstaged its volumes"),
    ("DRV-093", "each case that makes the calls of a node"),
    ("DRV-094", "the logs and the error messages of each case"),
    ("DRV-098", "the processes that are left when a case has unstaged its volumes"),
    ("DRV-130", "each case that makes the calls of a node"),
    ("DRV-133", "each case that ends the driver and starts it again"),
    ("DRV-173", "the first questions to the driver"),
    ("DRV-174", "the first questions to the driver"),
    ("DRV-175", "the answers to all calls with secrets"),
];

/// The parts of the suite that judge a promise beside rules and the bodies of cases.
pub fn judged_by_the_suite(id: &str) -> impl Iterator<Item = &'static str> {
    JUDGED_BY_THE_SUITE.iter().filter(move |(promise, _)| *promise == id).map(|(_, part)| *part)
}

/// Whether anything in this program could see the promise broken.
pub fn is_judged(id: &str, cases: &[&Case]) -> bool {
    rule(id).is_some()
        || judged_by_the_suite(id).next().is_some()
        || cases.iter().any(|case| case.judges.contains(&id))
}

fn rule(id: &str) -> Option<&'static Rule> {
    driver::RULES.iter().copied().chain(manager::all()).find(|rule| rule.id == id)
}

/// The number of a driver's promises by standing: `1 broken, 61 kept, 40 not tried, 5 not observable`.
pub(crate) struct Counts<'a>(pub(crate) &'a [PromiseRecord]);

impl fmt::Display for Counts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_must =
            |record: &&PromiseRecord| record.strength.is_none_or(|strength| strength == Strength::Must);
        let of_driver = || self.0.iter().filter(|record| record.binds == Party::Driver);
        let mut parts: Vec<String> = Vec::new();
        for standing in Standing::ALL {
            let stands = |record: &&PromiseRecord| record.standing == standing;
            let all = of_driver().filter(stands).count();
            if standing != Standing::Broken {
                parts.push(format!("{all} {standing}"));
                continue;
            }
            let broken = of_driver().filter(stands).filter(is_must).count();
            parts.push(format!("{broken} {standing}"));
            parts.extend((all > broken).then(|| format!("{} recommended and not followed", all - broken)));
        }
        f.write_str(&parts.join(", "))
    }
}
