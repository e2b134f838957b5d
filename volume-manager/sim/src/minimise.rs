//! From a script that breaks something to the steps it takes.

use crate::run::{Outcome, Violated, simulate};
use crate::script::{Scenario, Step};

/// The same violation from fewer steps: chunks are left out, smaller and smaller ones, for as long as what
/// is left breaks the same promise.
pub fn minimise(violated: Violated) -> Violated {
    let signature = violated.signature();
    let mut best = violated;
    let mut chunk = best.steps.len().div_ceil(2);
    while chunk > 0 {
        let mut at = 0;
        while at < best.steps.len() {
            match without(&best.scenario, &best.steps, at, chunk, &signature) {
                Some(smaller) => best = smaller,
                None => at += chunk,
            }
        }
        chunk /= 2;
    }
    best
}

fn without(
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
