//! `volproof sim`: plays the volume manager on a simulated kernel, driver and API, seed by seed.

use std::fs;
use std::io::{IsTerminal, Write};
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use ::sim::script::Scenario;
use ::sim::{Outcome, Statistics, Violated};
use anyhow::Context;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::Exit;
use crate::terminal::{self, say};
use runner::exit_code;
use runner::report::line::count;

/// Play random lives of pods against the volume manager on a simulated kernel, and hold it to its promises
///
/// Nothing of this machine is used but its processors. A seed decides everything, so that whatever it finds is
/// found again.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// How many seeds to play
    #[arg(long, value_name = "N", default_value_t = 1000)]
    seeds: u64,
    /// The first of them
    #[arg(long, value_name = "S", default_value_t = 0)]
    first_seed: u64,
    /// How many things happen in each
    #[arg(long, value_name = "N", default_value_t = 40)]
    steps: usize,
    /// How many are played at a time; as many as there are processors where it is not said
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Where to write the trace of what is found, as `volproof run` writes those of its cases
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

pub(super) fn run(flags: &Flags) -> Result<u8, Exit> {
    let Some(end) = flags.first_seed.checked_add(flags.seeds) else {
        return Err(Exit::usage(format!("--first-seed and --seeds go beyond the last seed, {}", u64::MAX)));
    };
    if flags.seeds == 0 {
        return Err(Exit::new(exit_code::NOTHING_RAN, "--seeds 0 plays nothing"));
    }
    let begun = Instant::now();
    let played = Played::new(flags, end);
    let workers = flags.jobs.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| played.work());
        }
    });
    played.progress.finish_and_clear();
    let (statistics, found) = played.result();
    let Some((seed, found)) = found else {
        say!(
            "{} clean: {} events in {:.1} s",
            count(usize::try_from(flags.seeds).unwrap_or(usize::MAX), "seed"),
            statistics.events,
            begun.elapsed().as_secs_f64()
        );
        return Ok(exit_code::OK);
    };
    print(flags, seed, found)?;
    Ok(exit_code::CASES_FAILED)
}

/// The failure of a seed.
enum Found {
    /// A contract was broken, or the end state was wrong.
    Violated(Box<Violated>),
    Panicked,
}

/// The seeds that are being played, handed out in order.
struct Played {
    next: AtomicU64,
    end: u64,
    steps: usize,
    stop: AtomicBool,
    sum: Mutex<(Statistics, Option<(u64, Found)>)>,
    progress: ProgressBar,
}

impl Played {
    fn new(flags: &Flags, end: u64) -> Self {
        let progress = match std::io::stderr().is_terminal() {
            true => ProgressBar::new(flags.seeds),
            false => ProgressBar::hidden(),
        };
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {eta} left");
        progress.set_style(style.expect("the template is one"));
        Self {
            next: AtomicU64::new(flags.first_seed),
            end,
            steps: flags.steps,
            stop: AtomicBool::new(false),
            sum: Mutex::default(),
            progress,
        }
    }

    /// Plays seeds until none is left or one fails. Seeds that were handed out before are played to their end, so that the
    /// lowest failing seed is reported whichever thread is faster.
    fn work(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.end {
                return;
            }
            let scenario = Scenario::of(seed);
            let script = scenario.script(self.steps);
            let outcome = catch_unwind(AssertUnwindSafe(|| ::sim::simulate(&scenario, &script)));
            let found = match outcome {
                Ok(Outcome::Clean(statistics)) => {
                    self.add(statistics);
                    self.progress.inc(1);
                    continue;
                }
                Ok(Outcome::Violated(violated)) => Found::Violated(Box::new(violated)),
                Err(_) => Found::Panicked,
            };
            self.stop.store(true, Ordering::Relaxed);
            let mut sum = self.sum.lock().expect("no thread panics while it holds the lock");
            if sum.1.as_ref().is_none_or(|(lowest, _)| seed < *lowest) {
                sum.1 = Some((seed, found));
            }
        }
    }

    fn add(&self, statistics: Statistics) {
        let mut sum = self.sum.lock().expect("no thread panics while it holds the lock");
        sum.0.events += statistics.events;
        sum.0.simulated_ms += statistics.simulated_ms;
    }

    fn result(self) -> (Statistics, Option<(u64, Found)>) {
        self.sum.into_inner().expect("no thread panics while it holds the lock")
    }
}

/// Prints a failure with the fewest steps that cause it, and the command that reproduces it.
fn print(flags: &Flags, seed: u64, found: Found) -> Result<(), Exit> {
    match found {
        Found::Panicked => say!("seed {seed}: the simulation panicked"),
        Found::Violated(violated) => {
            let least = ::sim::minimise(*violated);
            terminal::write_text(least.to_string().as_bytes());
            if let Some(file) = &flags.trace {
                write_trace(file, &least).with_context(|| format!("cannot write `{}`", file.display()))?;
                say!("trace  {}", file.display());
            }
        }
    }
    say!("again  volproof sim --first-seed {seed} --seeds 1 --steps {}", flags.steps);
    if let Some(commit) = commit() {
        say!("commit {commit}");
    }
    Ok(())
}

fn write_trace(file: &Path, violated: &Violated) -> anyhow::Result<()> {
    let mut out = std::io::BufWriter::new(fs::File::create(file)?);
    writeln!(out, "{}", contracts::recording::header())?;
    for line in &violated.trace {
        writeln!(out, "{}", serde_json::to_string(line)?)?;
    }
    Ok(out.flush()?)
}

/// The commit of this build, from the build's or from the CI's environment.
fn commit() -> Option<String> {
    option_env!("VOLPROOF_COMMIT").map(str::to_owned).or_else(|| std::env::var("GITHUB_SHA").ok())
}
