//! The registry of promises: each with its rule, the cases that judge it, and the sabotages that break it.
//!
//! The catalogue has the sentence and its section of CSI, a case registers itself when it is linked, and fake-csi names the
//! promise of each of its sabotages. This file joins them; nothing is listed twice.

use contracts::driver;
use contracts::promise::{self, Promise};
use contracts::rule::Rule;
use harness::manifest::Sabotage;
use testbed::case::{self, About, Case};

use crate::promises::judged_by_the_suite;

/// A promise of a driver, with everything in this program that judges or breaks it.
#[derive(Debug)]
pub struct Entry {
    pub promise: &'static Promise,
    /// The rule that judges it in every trace.
    pub rule: Option<&'static Rule>,
    /// The parts of the suite that judge it in every run, beside the rules.
    pub suite: Vec<&'static str>,
    /// The cases that judge it, or that let a rule try it.
    pub cases: Vec<&'static Case>,
    /// The faults of fake-csi that break it.
    pub sabotages: Vec<Sabotage>,
}

impl Entry {
    /// Whether anything in this program could see it broken.
    pub fn is_judged(&self) -> bool {
        self.rule.is_some() || !self.suite.is_empty() || !self.cases.is_empty()
    }
}

/// Every promise of a driver, by number.
pub fn all() -> Vec<Entry> {
    let cases = case::all();
    promise::all().map(|promise| entry(promise, &cases)).collect()
}

/// The promise of an id such as `DRV-060`.
pub fn find(id: &str) -> Option<Entry> {
    promise::find(id).map(|promise| entry(promise, &case::all()))
}

/// The cases that can find a sabotage. If the first questions find it, any one case will do, as it starts the driver.
pub fn cases_that_see(sabotage: Sabotage) -> Vec<&'static Case> {
    let cases = case::all();
    let judging: Vec<_> = judging(sabotage.promise(), &cases).collect();
    match judging.is_empty() {
        false => judging,
        true => cases.into_iter().find(|case| asks_nothing(case)).into_iter().collect(),
    }
}

fn entry(promise: &'static Promise, cases: &[&'static Case]) -> Entry {
    let id = promise.id;
    Entry {
        promise,
        rule: driver::RULES.iter().copied().find(|rule| rule.id == id),
        suite: judged_by_the_suite(id).collect(),
        cases: judging(id, cases).collect(),
        sabotages: Sabotage::ALL.iter().copied().filter(|sabotage| sabotage.promise() == id).collect(),
    }
}

fn judging<'a>(id: &'a str, cases: &'a [&'static Case]) -> impl Iterator<Item = &'static Case> + 'a {
    cases.iter().copied().filter(move |case| case.judges.contains(&id))
}

fn asks_nothing(case: &Case) -> bool {
    case.needs().is_empty() && case.about() == About::Driver
}
