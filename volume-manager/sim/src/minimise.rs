//! Reduces a script that breaks a contract to the steps that are needed.

use crate::run::{Outcome, Violated, simulate};
use crate::script::{Scenario, Step};

/// Finds the same violation in fewer steps: leaves out chunks, halved each round, as long as the rest breaks the same
/// contract.
pub fn minimise(violated: Violated) -> Violated {
    let signature = violated.signature();
    let mut best = violated;
    let mut chunk = best.steps.len().div_ceil(2);
    while chunk > 0 {
        let mut at = 0;
        while at < best.steps.len() {
            match violation_without(&best.scenario, &best.steps, at, chunk, &signature) {
                Some(smaller) => best = smaller,
                None => at += chunk,
            }
        }
        chunk /= 2;
    }
    best
}

/// Simulates the steps without a chunk. Returns the violation, if it is the same one.
fn violation_without(
    scenario: &Scenario,
    steps: &[Step],
    at: usize,
    chunk: usize,
    signature: &str,
) -> Option<Violated> {
    let end = (at + chunk).min(steps.len());
    let fewer: Vec<Step> = steps[..at].iter().chain(&steps[end..]).cloned().collect();
    match simulate(scenario, &fewer) {
        Outcome::Violated(violated) if violated.signature() == signature => Some(violated),
        _ => None,
    }
}
