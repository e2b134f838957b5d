//! A seed determines the whole simulation: played again, in this process or in another one, it gives the same trace to
//! the last byte. Without that a violation could not be reproduced from its seed.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::Command;

use sim::script::Scenario;
use sim::trace_of;

const SEEDS: u64 = 50;
const STEPS: usize = 40;

/// Set for the second process, which only prints its digests.
const ECHO: &str = "VOLPROOF_SIM_ECHO";

#[test]
fn a_seed_played_twice_gives_the_same_trace() {
    for seed in 0..SEEDS {
        let (first, second) = (played(seed), played(seed));
        if first != second {
            let at = first.lines().zip(second.lines()).position(|(one, other)| one != other);
            let line = |of: &str| at.and_then(|at| of.lines().nth(at)).unwrap_or("nothing more").to_owned();
            panic!("seed {seed}, line {at:?}:\n{}\n{}", line(&first), line(&second));
        }
    }
}

#[test]
fn two_processes_give_the_same_traces() {
    let seen: String = (0..SEEDS).map(|seed| format!("{seed} {:016x}\n", digest(&played(seed)))).collect();
    if std::env::var_os(ECHO).is_some() {
        print!("{seen}");
        return;
    }
    let myself = std::env::current_exe().expect("a test runs from a file");
    let mut other = Command::new(myself);
    let other = other
        .args(["--exact", "replay::two_processes_give_the_same_traces", "--nocapture"])
        .env(ECHO, "1")
        .output();
    let other = String::from_utf8(other.expect("it starts").stdout).expect("it prints text");
    // The test harness prints lines before and after the digests.
    assert!(other.contains(&seen), "this process:\n{seen}\nthe other:\n{other}");
}

fn played(seed: u64) -> String {
    let scenario = Scenario::of(seed);
    trace_of(&scenario, &scenario.script(STEPS))
}

/// Equal traces have equal digests and different ones hardly ever, for one version of the standard library.
fn digest(trace: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    trace.hash(&mut hasher);
    hasher.finish()
}
