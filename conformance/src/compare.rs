//! Compares two traces: the events, their order and the leftovers, but not the times.
//!
//! A trace is read ([`Trace`]) and divided into [sections](Section): for each volume its calls and mounts in their order,
//! for each object its events, for each pod the errors of its waits, and for each snapshot the states, the mounts,
//! the tree, the metadata, the claims and the loop devices. A section is lines of text without anything that may differ
//! between two correct runs: times, numbers of devices, names of generations, and the number of failed tries. Two traces
//! are equal if their sections are. A trace may come from this program or from a recorder beside a real
//! volume manager. Touches nothing: the input are texts.

mod calls;
mod read;
mod section;
mod snapshot;
mod words;

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use similar::{ChangeTag, TextDiff};

pub(crate) use read::Line;
pub use read::{Trace, Unreadable};
pub use section::Section;

/// The differences between the stories of two traces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Comparison {
    /// Whether the stories are the same.
    pub same: bool,
    /// The sections that differ.
    pub differences: Vec<Difference>,
}

/// A section that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The subject of the section.
    pub about: String,
    /// Lines of the first trace only.
    pub only_first: Vec<String>,
    /// Lines of the second trace only.
    pub only_second: Vec<String>,
    /// The section with marks, for people.
    #[serde(skip)]
    pub text: Vec<String>,
}

/// Compares the stories of two traces, object by object.
pub fn compare(first: &Trace, second: &Trace) -> Comparison {
    let (one, two) = (section::all(first), section::all(second));
    let order: Vec<&str> = one.iter().chain(&two).map(|section| section.about.as_str()).collect();
    let mut seen = BTreeSet::new();
    let abouts = order.into_iter().filter(|about| seen.insert(*about));
    let lines = |sections: &[Section], about: &str| {
        let found = sections.iter().find(|section| section.about == about);
        found.map(|section| section.lines.clone()).unwrap_or_default()
    };
    let differences: Vec<Difference> = (abouts.map(|about| (about, lines(&one, about), lines(&two, about))))
        .filter(|(_, first, second)| first != second)
        .map(|(about, first, second)| difference(about, &first, &second))
        .collect();
    Comparison { same: differences.is_empty(), differences }
}

fn difference(about: &str, first: &[String], second: &[String]) -> Difference {
    let (first, second): (Vec<&str>, Vec<&str>) =
        (first.iter().map(String::as_str).collect(), second.iter().map(String::as_str).collect());
    let diff = TextDiff::from_slices(&first, &second);
    let only = |tag: ChangeTag| {
        diff.iter_all_changes()
            .filter(move |change| change.tag() == tag)
            .map(|change| change.value().to_owned())
    };
    let mut text = Vec::new();
    for group in diff.grouped_ops(1) {
        if !text.is_empty() {
            text.push("   …".to_owned());
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let mark = match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            };
            text.push(format!(" {mark} {}", change.value()));
        }
    }
    Difference {
        about: about.to_owned(),
        only_first: only(ChangeTag::Delete).collect(),
        only_second: only(ChangeTag::Insert).collect(),
        text,
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for difference in &self.differences {
            writeln!(f, "{}", difference.about)?;
            for line in &difference.text {
                writeln!(f, "{line}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
