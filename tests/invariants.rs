//! Each invariant has a mutant that breaks it, or a row that says why it has none (docs/behaviour/10-invariants.md).

use std::collections::{BTreeMap, BTreeSet};

use tests::Mutant;

/// The heads of the tables of invariants without a mutant.
const TABLES: [&str; 2] = ["## Invariants that no trace shows", "## Invariants without a mutant"];

fn document() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/behaviour/10-invariants.md");
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The ids in a text: `INV-` and three digits.
fn ids(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("INV-").map(|(at, _)| &text[at..text.len().min(at + 7)])
}

/// The invariants in the first column of a table.
fn rows<'a>(document: &'a str, head: &str) -> BTreeSet<&'a str> {
    let (_, section) = document.split_once(head).unwrap_or_else(|| panic!("there is no `{head}`"));
    let section = section.split("\n## ").next().unwrap_or_default();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells.flat_map(ids).collect()
}

#[test]
fn each_invariant_has_a_mutant_or_a_row() {
    let document = document();
    let all: BTreeSet<&str> = document
        .lines()
        .filter_map(|line| ids(line.strip_prefix("- ")?).next().filter(|_| line.starts_with("- INV-")))
        .collect();
    assert!(all.len() > 100, "the invariants cannot be read: {all:?}");

    let mutants = ["mutants", "simulated"].into_iter().flat_map(Mutant::all);
    let mut broken: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for mutant in mutants {
        for rule in mutant.stands_for() {
            broken.entry(rule).or_default().push(mutant.name.clone());
        }
    }
    let argued: BTreeSet<&str> = TABLES.iter().flat_map(|head| rows(&document, head)).collect();

    let without: Vec<&&str> =
        all.iter().filter(|id| !broken.contains_key(**id) && !argued.contains(**id)).collect();
    assert!(without.is_empty(), "no mutant breaks {without:?}, and no row says why");
    let needless: Vec<&str> =
        rows(&document, TABLES[1]).into_iter().filter(|id| broken.contains_key(*id)).collect();
    assert!(needless.is_empty(), "{needless:?} have a mutant, and a row that says why not");
    let unknown: Vec<&&str> = argued.iter().filter(|id| !all.contains(**id)).collect();
    assert!(unknown.is_empty(), "there is no {unknown:?}");
}
