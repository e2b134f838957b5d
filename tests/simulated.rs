//! Mutants of the volume manager that the simulation has to find: broken on purpose, one bug each.
//!
//! A mutant is a patch in `simulated/`. Its first lines have the bug, and the invariants that it may break first
//! (`Breaks:`). Each has to be found within [`SEEDS`] seeds; adding one is adding a file.
//!
//! `Seed:` is the first seed of the search: the one that found the mutant last. If it is missing or no longer finds the
//! mutant, all seeds are played; with `UPDATE_EXPECT=1` the patch is corrected.

use std::process::Command;

use tests::{Mutant, Planted, SWITCH, in_parallel, is_thorough};

/// Within how many seeds a bug has to be found.
const SEEDS: u64 = 2000;

const SEED: &str = "Seed";

#[test]
fn each_bug_is_found_within_two_thousand_seeds() {
    let from_the_start =
        is_thorough("the search for a simulated mutant begins at the seed that its patch names");
    let judge = |mutant: Mutant| judge(&mutant, from_the_start);
    let wrong: Vec<String> = in_parallel(Mutant::all("simulated"), judge).into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Plays seeds. Returns an error text if none breaks an invariant that the mutant may break.
fn judge(mutant: &Mutant, from_the_start: bool) -> Option<String> {
    let (name, breaks) = (&mutant.name, mutant.field("Breaks"));
    let is_named = |violation: &String| {
        breaks.split(' ').any(|rule| violation.lines().any(|line| line.starts_with(rule)))
    };
    let known = seed(mutant);
    let at_once = known.filter(|_| !from_the_start).and_then(|seed| play(name, seed, seed + 1));
    let Some(violation) = at_once.filter(is_named).or_else(|| play(name, 0, SEEDS)) else {
        return Some(format!("{name}: not found within {SEEDS} seeds"));
    };
    if !is_named(&violation) {
        return Some(format!("{name}: found, but not as any of {breaks}:\n{violation}"));
    }
    // `seed 7: …`
    let seed =
        violation.split(':').next().and_then(|words| words.split(' ').nth(1)).expect("the seed comes first");
    println!("{name}: found by seed {seed}");
    if known.is_none_or(|known| known.to_string() != seed) {
        println!("{name}: its patch names the seed {known:?}; UPDATE_EXPECT=1 corrects it");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            mutant.write(SEED, seed);
        }
    }
    None
}

/// The control: without the mutant, the seed that finds it finds nothing.
#[test]
fn each_seed_is_clean_without_its_mutant() {
    let mutants = Mutant::all("simulated");
    let seeds: Vec<u64> = mutants.iter().filter_map(seed).collect();
    assert!(!seeds.is_empty(), "no mutant names its seed");
    let found: Vec<String> =
        in_parallel(seeds, |seed| play("", seed, seed + 1)).into_iter().flatten().collect();
    assert!(found.is_empty(), "{}", found.join("\n\n"));
}

fn seed(mutant: &Mutant) -> Option<u64> {
    mutant.optional(SEED).map(|seed| seed.parse().expect("a seed is a number"))
}

/// Plays seeds until one fails. Returns its failure.
fn play(mutant: &str, first: u64, end: u64) -> Option<String> {
    let mut seeds = Command::new(Planted::seeds());
    let output = seeds
        .args([end, first].map(|number| number.to_string()))
        .env(SWITCH, mutant)
        .output()
        .expect("`seeds` can be started");
    let violation = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.code() {
        Some(0) => None,
        Some(1) => Some(violation),
        _ => panic!("`seeds` ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr)),
    }
}
