//! The real manager on a simulated kernel, driver and API.

use sim::script::Scenario;

const STEPS: usize = 40;

#[test]
fn the_same_seed_gives_the_same_trace() {
    // One that breaks off early would be equal for a poor reason, so a trace is asked for.
    let traces = [7, 7].map(|seed| {
        let scenario = Scenario::of(seed);
        sim::trace_of(&scenario, &scenario.script(STEPS))
    });
    assert!(traces[0].lines().count() > 100, "{}", traces[0]);
    assert!(traces[0] == traces[1], "two runs of one seed differ");
}
