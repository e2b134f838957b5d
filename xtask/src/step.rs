//! The steps that lanes are made of: each runs one thing to its end and says what came of it.
//!
//! Everything is compiled once, in the development profile, by one command ([`Step::Build`], which lints as it
//! compiles); the steps after it find their programs ready. That is what keeps a clean run on two cores short.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::build::{self, Built};
use crate::cargo_test::{Tested, Tests};
use crate::tally::Tally;
use crate::tidy;
use crate::times::{Clock, Times, Took};
use crate::workspace::{cargo, status, target_directory};

/// The exit code of `volproof run` when it has skipped everything.
const NOTHING_RAN: i32 = 3;

/// One thing CI does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The code is formatted.
    Format,
    /// The rules of this repository hold.
    Tidy,
    /// Everything builds, once, for all that follows; the compiler and clippy have nothing to say.
    Build,
    /// Tests inside the crates.
    UnitTests,
    /// Tests of the product that wait most of their time: all later steps run beside them.
    WaitingTests,
    /// All other tests in `tests/` directories: of crates, and of the product as a product.
    ProductTests,
    /// All cases against fake-csi, on a tier.
    Conformance(Tier),
}

/// A place to run cases, by its name on volproof's command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tier {
    Host,
    Rootless,
    Vm,
}

impl Tier {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Tier::Host => &["--tier", "host"],
            Tier::Rootless => &["--tier", "rootless"],
            Tier::Vm => &["--tier", "vm", "--kernel", "all"],
        }
    }

    fn name(self) -> &'static str {
        self.arguments()[1]
    }
}

/// Runs steps in order, prints what came of each, and adds everything up.
///
/// A step that fails does not stop the next: one run shows all that is wrong. Only a build that fails does,
/// since what follows would only repeat it; a warning does not, and is a failure.
///
/// `name` is the command's, under which the times of its steps are kept.
pub(crate) fn run_all(name: &str, steps: &[Step], thorough: bool) -> Result<Tally> {
    let mut sum = Sum { total: Tally::default(), times: Times::of(name, &target_directory()?) };
    let mut done = Done::default();
    thread::scope(|scope| -> Result<()> {
        let mut beside = Vec::new();
        for step in steps {
            eprintln!("\n{:>12} {}", "Step", step.title());
            if *step == Step::WaitingTests {
                beside.push(scope.spawn(move || {
                    let (clock, mut done) = (Clock::start(), Done::default());
                    step.run(thorough, &mut done).map(|outcome| (step, outcome, clock.stop(), done))
                }));
                continue;
            }
            let clock = Clock::start();
            let outcome = step.run(thorough, &mut done)?;
            sum.add(*step, outcome.tally, clock.stop());
            if outcome.is_last {
                break;
            }
        }
        for ended in beside {
            let (step, outcome, took, theirs) = ended.join().expect("a step returns its errors")?;
            sum.add(*step, outcome.tally, took);
            done.left_out.extend(theirs.left_out);
        }
        Ok(())
    })?;
    // A test's time is no reason to fail: a directory that cannot be written to is told and that is all.
    if let Err(error) = sum.times.write() {
        eprintln!("warning: {error:#}");
    }
    if !done.left_out.is_empty() {
        eprintln!("\nnote: left to `cargo xtask test --thorough`:");
        done.left_out.iter().for_each(|line| eprintln!("      {line}"));
    }
    Ok(sum.total)
}

/// The results and the times of all steps.
struct Sum {
    total: Tally,
    times: Times,
}

impl Sum {
    fn add(&mut self, step: Step, tally: Tally, took: Took) {
        eprintln!("{:>12} {}: {tally} [{:.0}s]", "Done", step.title(), took.seconds);
        if let Some(slower) = self.times.record(&step.title(), took) {
            eprintln!("warning: {slower}");
        }
        self.total += tally;
    }
}

/// What earlier steps leave to later ones and to the end.
#[derive(Debug, Default)]
struct Done {
    /// The report of all cases on the host tier.
    honest: Option<PathBuf>,
    /// The parts of tests that run only with `--thorough`.
    left_out: Vec<String>,
}

/// The result of a step.
struct Outcome {
    tally: Tally,
    /// Whether the next steps would only fail for the same reason.
    is_last: bool,
}

impl From<Tally> for Outcome {
    fn from(tally: Tally) -> Self {
        Self { tally, is_last: false }
    }
}

/// A build that worked proves nothing yet, so it is not counted: a lane that only builds must not look good.
impl From<Built> for Outcome {
    fn from(built: Built) -> Self {
        let tally = if built == Built::Clean { Tally::default() } else { Tally::of_check(false) };
        Self { tally, is_last: built == Built::Failed }
    }
}

impl Done {
    fn count(&mut self, tested: Tested) -> Tally {
        self.left_out.extend(tested.left_out);
        tested.tally
    }
}

impl Step {
    fn title(self) -> String {
        match self {
            Step::Format => "formatting".into(),
            Step::Tidy => "tidy".into(),
            Step::Build => "build and lints".into(),
            Step::UnitTests => "unit tests".into(),
            Step::WaitingTests => "product tests that wait".into(),
            Step::ProductTests => "product tests".into(),
            Step::Conformance(tier) => format!("conformance of fake-csi, tier {}", tier.name()),
        }
    }

    fn run(self, thorough: bool, done: &mut Done) -> Result<Outcome> {
        let honest = done.honest.clone();
        let tests = Tests { thorough, honest: honest.as_deref() };
        let tally = match self {
            Step::Build => return build::workspace().map(Outcome::from),
            Step::Format => checked(cargo().args(["fmt", "--all", "--check"]))?,
            Step::Tidy => tidy::tally(&tidy::violations()?),
            Step::UnitTests => done.count(tests.of_units()?),
            Step::WaitingTests => done.count(tests.that_wait()?),
            Step::ProductTests => done.count(tests.of_the_product()?),
            Step::Conformance(tier) => {
                let report = target_directory()?.join("xtask/conformance").join(tier.name());
                let tally = conformance(tier, &report)?;
                done.honest = (tier == Tier::Host).then_some(report).or(honest);
                tally
            }
        };
        Ok(tally.into())
    }
}

fn checked(command: &mut Command) -> Result<Tally> {
    Ok(Tally::of_check(status(command)?.success()))
}

fn conformance(tier: Tier, report: &Path) -> Result<Tally> {
    // Yesterday's results must never be taken for today's.
    if report.exists() {
        std::fs::remove_dir_all(report).with_context(|| format!("cannot remove `{}`", report.display()))?;
    }
    let mut volproof = Command::new(target_directory()?.join("debug/volproof"));
    volproof.arg("run").args(tier.arguments()).arg("--report").arg(report);
    let ended = status(&mut volproof)?;
    let mut tally = results(&report.join("results.json")).unwrap_or_default();
    let all_skipped = ended.code() == Some(NOTHING_RAN) && tally.skipped > 0;
    if !ended.success() && tally.failed == 0 && !all_skipped {
        eprintln!("error: `volproof run` ended with {ended}");
        tally.failed = 1;
    }
    Ok(tally)
}

fn results(path: &Path) -> Result<Tally> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let results: Value =
        serde_json::from_str(&text).with_context(|| format!("cannot read `{}`", path.display()))?;
    let cases = results["cases"].as_array().context("no `cases` in the results")?;
    Ok(cases.iter().fold(Tally::default(), |mut all, case| {
        all += of_status(case["status"].as_str().unwrap_or_default());
        all
    }))
}

/// One case's status, counted. An unknown status is a failure, not a success.
fn of_status(status: &str) -> Tally {
    match status {
        "skipped_driver" | "skipped_host" => Tally { skipped: 1, ..Tally::default() },
        status => Tally::of_check(matches!(status, "passed" | "xfail")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_is_a_failure_and_only_a_failed_build_is_the_last_step() {
        for (built, failed, is_last) in
            [(Built::Clean, 0, false), (Built::WithWarnings, 1, false), (Built::Failed, 1, true)]
        {
            let outcome = Outcome::from(built);
            assert_eq!((outcome.tally.failed, outcome.is_last), (failed, is_last), "{built:?}");
            assert_eq!(outcome.tally.passed, 0, "{built:?}");
        }
    }

    #[test]
    fn unexpected_pass_or_leak_is_a_failure() {
        for failed in ["failed", "leaked", "error", "driver_exited", "xpass", "", "new"] {
            assert_eq!(of_status(failed), Tally::of_check(false), "{failed}");
        }
        assert_eq!(of_status("xfail"), Tally::of_check(true));
        assert_eq!(of_status("skipped_host").skipped, 1);
    }
}
