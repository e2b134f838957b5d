//! In a world where nothing fails the manager breaks no promise.
//!
//! Worlds where things do fail are surveyed by `examples/survey.rs`: there the manager is not clean yet.

use sim::script::{Scenario, Step};
use sim::{Outcome, minimise, simulate};

const STEPS: usize = 40;

#[test]
fn where_nothing_fails_every_promise_is_kept() {
    for seed in 0..60 {
        let scenario = Scenario { kernel_faults: 0, driver_faults: 0, ..Scenario::of(seed) };
        let mut script = scenario.script(STEPS);
        script.retain(is_peaceful);
        if let Outcome::Violated(violated) = simulate(&scenario, &script) {
            panic!("{}", minimise(violated));
        }
    }
}

fn is_peaceful(step: &Step) -> bool {
    !matches!(
        step,
        Step::Crash { .. }
            | Step::CrashAtStep { .. }
            | Step::KillDriver
            | Step::StartDriver
            | Step::ApiAway
            | Step::ApiBack
    )
}
