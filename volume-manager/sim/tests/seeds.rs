//! The simulation is reproducible, and in a world where nothing fails the manager breaks no promise.
//!
//! Worlds where things do fail are surveyed by `examples/survey.rs`: there the manager is not clean yet.

use sim::script::{Scenario, Step};
use sim::{Outcome, minimise, simulate, trace_of};

const STEPS: usize = 40;

#[test]
fn the_same_seed_gives_the_same_trace() {
    let scenario = Scenario::of(7);
    let script = scenario.script(STEPS);
    let first = trace_of(&scenario, &script);
    assert!(first.lines().count() > 100, "{first}");
    assert!(first == trace_of(&scenario, &script), "two runs of one seed differ");
}

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
