//! A seed is a whole story: played again, in this process or in another one, it gives the same trace to the
//! last byte. Without that a violation found once could not be looked at twice.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::Command;

use sim::script::Scenario;
use sim::trace_of;

const SEEDS: u64 = 50;
const STEPS: usize = 40;

/// Says to the second process that it is one: it only prints what it sees.
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
fn two_processes_see_the_same() {
    let seen: String = (0..SEEDS).map(|seed| format!("{seed} {:016x}\n", digest(&played(seed)))).collect();
    if std::env::var_os(ECHO).is_some() {
        print!("{seen}");
        return;
    }
    let myself = std::env::current_exe().expect("a test runs from a file");
    let mut other = Command::new(myself);
    let other =
        other.args(["--exact", "replay::two_processes_see_the_same", "--nocapture"]).env(ECHO, "1").output();
    let other = String::from_utf8(other.expect("it starts").stdout).expect("it prints text");
    // Around it stands what the test harness prints.
    assert!(other.contains(&seen), "this process:\n{seen}\nthe other:\n{other}");
}

fn played(seed: u64) -> String {
    let scenario = Scenario::of(seed);
    trace_of(&scenario, &scenario.script(STEPS))
}

/// Of one library version and one process: all that is asked of it is that equal traces have equal digests,
/// and different ones hardly ever.
fn digest(trace: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    trace.hash(&mut hasher);
    hasher.finish()
}
