//! Plays seeds until one breaks a promise, and says which: what `volproof sim` does, without all that belongs
//! to `volproof`. Built aside with a bug in the manager, it has to find the bug.
//!
//! `seeds N` plays the seeds below N, `seeds N FIRST` those from FIRST on.

use std::process::ExitCode;

use sim::script::Scenario;
use sim::{Outcome, simulate};

/// The default of `volproof sim`.
const STEPS: usize = 40;

fn main() -> ExitCode {
    let arguments: Option<Vec<u64>> = std::env::args().skip(1).map(|number| number.parse().ok()).collect();
    let (first, end) = match arguments.as_deref() {
        Some(&[end]) => (0, end),
        Some(&[end, first]) => (first, end),
        _ => {
            eprintln!("usage: seeds N [FIRST]");
            return ExitCode::from(2);
        }
    };
    for seed in first..end {
        let scenario = Scenario::of(seed);
        if let Outcome::Violated(violated) = simulate(&scenario, &scenario.script(STEPS)) {
            println!("{violated}");
            return ExitCode::from(1);
        }
    }
    println!("{} seeds are clean", end.saturating_sub(first));
    ExitCode::SUCCESS
}
