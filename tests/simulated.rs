//! Mutants of the volume manager that the simulation has to find: broken on purpose, one bug each.
//!
//! A mutant is a patch in `simulated/`. Its first lines have the bug, the invariants that it may break first (`Breaks:`),
//! and those that it stands for (`Finds:`): within [`SEEDS`] seeds one has to find just these broken first, at one line of
//! the trace. Adding a mutant is adding a file.
//!
//! `Seed:` is the seed that found it last. If it is missing or no longer finds the mutant, all seeds are played; with
//! `UPDATE_EXPECT=1` the patch is corrected.

use std::collections::BTreeSet;
use std::process::Command;

use tests::{Mutant, Planted, SWITCH, in_parallel, is_thorough};

/// Within how many seeds a bug has to be found.
const SEEDS: u64 = 1000;

const SEED: &str = "Seed";

#[test]
fn each_bug_is_found_within_a_thousand_seeds() {
    let from_the_start =
        is_thorough("the search for a simulated mutant begins at the seed that its patch names");
    let judge = |mutant: Mutant| judge(&mutant, from_the_start);
    let wrong: Vec<String> = in_parallel(Mutant::all("simulated"), judge).into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Plays seeds. Returns an error text if none finds what the mutant stands for.
fn judge(mutant: &Mutant, from_the_start: bool) -> Option<String> {
    let (name, breaks) = (&mutant.name, mutant.field("Breaks"));
    let stands_for = mutant.stands_for();
    let finds_it = |found: &Found| stands_for.iter().all(|rule| found.first.contains(rule));
    let known = seed(mutant);
    let at_once = known.filter(|_| !from_the_start).and_then(|seed| play(name, seed, seed + 1));
    if at_once.as_ref().is_some_and(finds_it) {
        println!("{name}: found by its seed");
        return None;
    }
    let mut next = 0;
    while let Some(found) = play(name, next, SEEDS) {
        next = found.seed + 1;
        if found.first.iter().all(|rule| !breaks.split(' ').any(|named| named == rule)) {
            return Some(format!("{name}: found, but not as any of {breaks}:\n{}", found.text));
        }
        if finds_it(&found) {
            println!("{name}: found by seed {}", found.seed);
            if known != Some(found.seed) {
                println!("{name}: its patch names the seed {known:?}; UPDATE_EXPECT=1 corrects it");
                if std::env::var_os("UPDATE_EXPECT").is_some() {
                    mutant.write(SEED, &found.seed.to_string());
                }
            }
            return None;
        }
    }
    Some(format!("{name}: not found as {stands_for:?} within {SEEDS} seeds"))
}

/// The control: without the mutant, the seed that finds it finds nothing.
#[test]
fn each_seed_is_clean_without_its_mutant() {
    let mutants = Mutant::all("simulated");
    // Many share a seed.
    let seeds: BTreeSet<u64> = mutants.iter().filter_map(seed).collect();
    assert!(!seeds.is_empty(), "no mutant names its seed");
    let found =
        in_parallel(seeds.into_iter().collect(), |seed| play("", seed, seed + 1)).into_iter().flatten();
    let found: Vec<String> = found.map(|found| found.text).collect();
    assert!(found.is_empty(), "{}", found.join("\n\n"));
}

fn seed(mutant: &Mutant) -> Option<u64> {
    mutant.optional(SEED).map(|seed| seed.parse().expect("a seed is a number"))
}

/// What a seed has found.
struct Found {
    seed: u64,
    /// The invariants that were broken first, at one line of the trace; `left` if something is left and none is broken.
    first: BTreeSet<String>,
    text: String,
}

impl Found {
    /// Reads `seed 7: …`, the steps, and a line for each violation: `INV-007 cause: detail (line 12)` or `left: …`.
    fn read(text: String) -> Found {
        let seed = text.strip_prefix("seed ").and_then(|rest| rest.split(':').next());
        let seed = seed.and_then(|seed| seed.parse().ok()).expect("the seed comes first");
        let broken: Vec<(&str, &str)> = text
            .lines()
            .filter(|line| line.starts_with("INV-"))
            .filter_map(|line| line.rsplit_once(" ("))
            .collect();
        let at = broken.first().map(|(_, at)| *at);
        let of_first = broken.iter().filter(|(_, line)| Some(*line) == at);
        let mut first: BTreeSet<String> =
            of_first.filter_map(|(rule, _)| Some(rule.split(' ').next()?.to_owned())).collect();
        if first.is_empty() {
            first.insert("left".to_owned());
        }
        Found { seed, first, text }
    }
}

/// Plays seeds until one fails. Returns its failure.
fn play(mutant: &str, first: u64, end: u64) -> Option<Found> {
    let mut seeds = Command::new(Planted::seeds());
    let output = seeds
        .args([end, first].map(|number| number.to_string()))
        .env(SWITCH, mutant)
        .output()
        .expect("`seeds` can be started");
    let violation = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.code() {
        Some(0) => None,
        Some(1) => Some(Found::read(violation)),
        _ => panic!("`seeds` ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr)),
    }
}
