//! `cargo xtask tidy`: the rules of this repository, as code.
//!
//! Each rule is one file with one `check` over the [`Repository`] as read, and with tests that it can fail.
//! All violations are collected before any is printed: mending them is one round trip, not one a line.

use std::process::ExitCode;

use anyhow::Result;

use crate::tally::Tally;
use repository::Repository;

mod arrows;
mod bugs;
mod cases;
mod circles;
mod claims;
mod documents;
mod doors;
mod headers;
mod lints;
mod names;
mod programs;
mod repository;
mod source;
mod subjects;
mod words;

/// A place that breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    /// The file, from the root of the repository, with a line where that helps.
    place: String,
    /// The defect, and the mending.
    what: String,
}

impl Violation {
    fn new(place: impl Into<String>, what: impl Into<String>) -> Violation {
        Violation { place: place.into(), what: what.into() }
    }
}

type Rule = fn(&Repository) -> Vec<Violation>;

const RULES: &[Rule] = &[
    arrows::check,
    bugs::check,
    cases::check,
    circles::check,
    claims::check,
    documents::check,
    doors::check,
    headers::check,
    lints::check,
    names::check,
    programs::check,
    subjects::check,
    words::check,
];

pub(crate) fn run() -> Result<ExitCode> {
    let violations = violations()?;
    println!("{}", tally(&violations));
    Ok(if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads the repository, applies each rule and prints what breaks one.
pub(crate) fn violations() -> Result<Vec<Violation>> {
    let repository = Repository::read()?;
    let mut violations: Vec<Violation> = RULES.iter().flat_map(|rule| rule(&repository)).collect();
    violations.sort();
    for violation in &violations {
        eprintln!("{}: {}", violation.place, violation.what);
    }
    Ok(violations)
}

/// One check, and as many failures as there are violations.
pub(crate) fn tally(violations: &[Violation]) -> Tally {
    match violations.len() as u64 {
        0 => Tally::of_check(true),
        failed => Tally { failed, ..Tally::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_is_tidy() {
        let violations = violations().expect("the repository can be read");
        assert_eq!(violations, []);
    }
}
