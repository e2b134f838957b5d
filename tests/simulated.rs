//! Mutants of the volume manager that the simulation has to find: broken on purpose, one bug each.
//!
//! A mutant is a patch in `simulated/`. Its first lines say what is wrong with it, and which invariants it may be
//! found to break first (`Breaks:`). Each is applied to a copy of this working tree, built there, and has to be
//! found within [`SEEDS`] seeds; adding one is adding a file. That the seeds do not just fail always is shown by the
//! sources as they are, which come last.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serial_test::file_serial;
use tests::{SourceCopy, root};

/// Within how many seeds a bug has to be found.
const SEEDS: &str = "1000";

#[test]
#[file_serial(simulated)]
fn each_bug_is_found_within_a_thousand_seeds() {
    let copy = SourceCopy::new("simulated");
    let wrong: Vec<String> = mutants().iter().filter_map(|mutant| judge(&copy, mutant)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    let (clean, told) = play(&build(&copy).expect("the sources as they are can be built"), "100");
    assert!(clean, "{told}");
}

fn mutants() -> Vec<PathBuf> {
    let listed = fs::read_dir(root().join("tests/simulated")).expect("the mutants");
    let mut patches: Vec<PathBuf> = listed.flatten().map(|entry| entry.path()).collect();
    // One alone, while it is being written.
    if let Some(only) = std::env::var_os("MUTANT") {
        patches.retain(|patch| patch.file_stem() == Some(&only));
    }
    patches.sort();
    assert!(!patches.is_empty(), "there are no mutants");
    patches
}

/// Builds a mutant and plays seeds; says what is wrong if the bug was not found as what it is.
fn judge(copy: &SourceCopy, mutant: &Path) -> Option<String> {
    let text = fs::read_to_string(mutant).expect("a patch can be read");
    let breaks = text.lines().find_map(|line| line.strip_prefix("Breaks:"));
    let breaks = breaks.unwrap_or_else(|| panic!("`{}` has no line `Breaks:`", mutant.display()));
    let name = mutant.file_stem().expect("a file has a name").to_string_lossy();
    let program = match copy.with(mutant, build) {
        Ok(program) => program,
        Err(error) => return Some(format!("{name}: does not build\n{error}")),
    };
    let (clean, told) = play(&program, SEEDS);
    let found = breaks.split_whitespace().find(|rule| told.lines().any(|line| line.starts_with(*rule)));
    match (clean, found) {
        (false, Some(rule)) => {
            let seed = told.split(':').next().unwrap_or_default();
            println!("{name}: found by {seed}, {rule}");
            None
        }
        (true, _) => Some(format!("{name}: not found within {SEEDS} seeds")),
        (false, None) => Some(format!("{name}: found, but not as any of{breaks}:\n{told}")),
    }
}

fn build(copy: &SourceCopy) -> Result<PathBuf, String> {
    copy.build(&["--package", "sim", "--example", "seeds"], "debug/examples/seeds")
}

/// Plays seeds until one finds something. Whether none did, and what was told.
fn play(program: &Path, seeds: &str) -> (bool, String) {
    let output = Command::new(program).arg(seeds).output().expect("it can be started");
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}
