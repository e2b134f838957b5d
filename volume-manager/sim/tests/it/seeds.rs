//! The manager breaks no promise: not where nothing fails, and not where everything does.
//!
//! `SEEDS=10000 cargo test -p sim --test it seeds` goes further, from `FIRST_SEED`, and `volproof sim` faster.

use std::time::Duration;

use sim::script::{Scenario, Step};
use sim::{Outcome, minimise, simulate};

const STEPS: usize = 40;

#[test]
fn seeds_without_faults_break_nothing() {
    for seed in 0..60 {
        let scenario = Scenario {
            kernel_faults: 0,
            driver_faults: 0,
            api_delay: Duration::ZERO,
            vanish: false,
            damage: false,
            ..Scenario::of(seed)
        };
        let mut script = scenario.script(STEPS);
        script.retain(is_peaceful);
        if let Outcome::Violated(violated) = simulate(&scenario, &script) {
            panic!("{}", minimise(violated));
        }
    }
}

#[test]
fn seeds_with_faults_break_nothing() {
    let number = |name: &str| -> Option<u64> { std::env::var(name).ok()?.parse().ok() };
    let first = number("FIRST_SEED").unwrap_or(0);
    for seed in first..first + number("SEEDS").unwrap_or(200) {
        let scenario = Scenario::of(seed);
        if let Outcome::Violated(violated) = simulate(&scenario, &scenario.script(STEPS)) {
            panic!("{}", minimise(violated));
        }
    }
}

fn is_peaceful(step: &Step) -> bool {
    !matches!(
        step,
        Step::Crash { .. }
            | Step::CrashAt { .. }
            | Step::CrashController
            | Step::KillDriver
            | Step::StartDriver
            | Step::ApiAway
            | Step::ApiBack
    )
}
