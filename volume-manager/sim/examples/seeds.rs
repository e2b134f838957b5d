//! Plays seeds until one breaks a promise, and says which: what `volproof sim` does, without all that belongs
//! to `volproof`. Built aside with a bug in the manager, it has to find the bug.
//!
//! `seeds N` plays the seeds below N.

use std::process::ExitCode;

use sim::script::Scenario;
use sim::{Outcome, simulate};

/// As many as `volproof sim` plays where it is not told.
const STEPS: usize = 40;

fn main() -> ExitCode {
    let seeds = std::env::args().nth(1).and_then(|seeds| seeds.parse().ok());
    let Some(seeds) = seeds else {
        eprintln!("usage: seeds N");
        return ExitCode::from(2);
    };
    for seed in 0..seeds {
        let scenario = Scenario::of(seed);
        if let Outcome::Violated(violated) = simulate(&scenario, &scenario.script(STEPS)) {
            println!("{violated}");
            return ExitCode::from(1);
        }
    }
    println!("{seeds} seeds are clean");
    ExitCode::SUCCESS
}
