//! `cargo test`, with its output read and counted.

use std::io::{BufRead, BufReader, Write};
use std::iter::Sum;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result};

use crate::libtest::Reader;
use crate::tally::Tally;
use crate::workspace::{cargo, metadata, target_directory};
use crate::{build, python};

/// The program whose tests run one at a time, and wait most of their time.
const ALONE: &str = "alone";

/// The suite as a driver's author embeds it.
const EMBEDDED: &str = "embed";

/// The cases of it that show that it works: the step before has run all.
const EMBEDDED_CASES: &str = "csi::lifecycle";

/// How tests run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tests<'a> {
    /// With the parts that take too long for a push.
    pub(crate) thorough: bool,
    /// The report of all cases against the honest driver, if it was made by a step before: no test makes it again.
    pub(crate) honest: Option<&'a Path>,
}

/// The result of a `cargo test`.
#[derive(Debug, Default)]
pub(crate) struct Tested {
    pub(crate) tally: Tally,
    /// The parts of tests that run only with `--thorough`.
    pub(crate) left_out: Vec<String>,
}

impl Sum for Tested {
    fn sum<I: Iterator<Item = Tested>>(all: I) -> Tested {
        all.fold(Tested::default(), |mut sum, tested| {
            sum.tally += tested.tally;
            sum.left_out.extend(tested.left_out);
            sum
        })
    }
}

impl Tests<'_> {
    /// Those inside the crates.
    pub(crate) fn of_units(self) -> Result<Tested> {
        self.run(&["--lib".into(), "--bins".into()], &[])
    }

    /// Those of [`ALONE`].
    pub(crate) fn that_wait(self) -> Result<Tested> {
        self.run(&targets(&[ALONE]), &[])
    }

    /// All others in `tests/` directories.
    pub(crate) fn of_the_product(self) -> Result<Tested> {
        let all = programs()?;
        let is_other = |name: &&str| ![ALONE, EMBEDDED].contains(name);
        let others: Vec<&str> = all.iter().map(String::as_str).filter(is_other).collect();
        let few: &[&str] = if self.thorough { &[] } else { &[EMBEDDED_CASES] };
        let all = [self.run(&targets(&[EMBEDDED]), few), self.run(&targets(&others), &[])];
        let mut tested: Tested = all.into_iter().sum::<Result<Tested>>()?;
        if !self.thorough {
            tested.left_out.push(format!("`{EMBEDDED}` runs the cases of {EMBEDDED_CASES} alone, not all"));
        }
        Ok(tested)
    }

    /// Runs the tests of some targets, or those that match `filter`.
    fn run(self, targets: &[String], filter: &[&str]) -> Result<Tested> {
        let mut command = cargo();
        command.args(build::linted()?);
        if self.thorough {
            command.env("VOLPROOF_THOROUGH", "1");
        }
        if let Some(report) = self.honest {
            command.env("VOLPROOF_HONEST_REPORT", report);
        }
        if let Some(python) = python::prepared()? {
            command.env(python::VARIABLE, python);
        }
        let mut child = command
            .args(["test", "--workspace", "--locked", "--quiet", "--no-fail-fast"])
            .args(targets)
            .args(["--", "--show-output", "--format=pretty"])
            .args(filter)
            // The build step has made it; without this, tests that run it would build it again to be sure.
            .env("VOLPROOF_PROGRAM", target_directory()?.join("debug/volproof"))
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot run `cargo test`")?;
        let mut reader = Reader::default();
        let output = child.stdout.take().expect("stdout was asked for");
        // What failed is printed as a whole: the lines of two programs must not mix.
        let mut failures = String::new();
        for line in BufReader::new(output).split(b'\n') {
            let line = line.context("cannot read what `cargo test` prints")?;
            let shown = reader.line(&String::from_utf8_lossy(&line));
            failures.extend(shown.into_iter().flat_map(|line| [line, "\n".into()]));
            if !reader.is_among_failures() && !failures.is_empty() {
                std::io::stderr().write_all(std::mem::take(&mut failures).as_bytes())?;
            }
        }
        std::io::stderr().write_all(failures.as_bytes())?;
        let ended = child.wait().context("cannot wait for `cargo test`")?;
        let mut tally = reader.tally();
        // A program that died, or tests that do not compile, leave no counts: that must not look like success.
        if !ended.success() && tally.failed == 0 {
            tally.failed = 1;
        }
        Ok(Tested { tally, left_out: reader.into_left_out() })
    }
}

/// The arguments of `cargo test` that choose test programs.
fn targets(names: &[&str]) -> Vec<String> {
    names.iter().flat_map(|name| ["--test".to_owned(), (*name).to_owned()]).collect()
}

/// The names of all test programs of the workspace. Programs of several crates share a name.
fn programs() -> Result<Vec<String>> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().context("no `packages` in `cargo metadata`")?;
    let targets = packages.iter().filter_map(|package| package["targets"].as_array()).flatten();
    let is_test = |target: &&serde_json::Value| {
        target["kind"].as_array().is_some_and(|kinds| kinds.contains(&"test".into()))
    };
    let mut names: Vec<String> =
        targets.filter(is_test).filter_map(|target| target["name"].as_str()).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_those_in_tests_directories() {
        let programs = programs().expect("cargo knows the workspace");
        for name in [ALONE, EMBEDDED, "it", "mutants"] {
            assert!(programs.iter().any(|program| program == name), "{name}: {programs:?}");
        }
        assert!(!programs.iter().any(|program| program == "volproof"), "{programs:?}");
    }
}
