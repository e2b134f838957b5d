//! `cargo xtask bench`: builds measuring programs in release, runs them one after the other, and has `measure` make a
//! table, a file and a picture of their rows.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::flags::{Bench, Subject};
use crate::packages;
use crate::workspace::{cargo, root, status, target_directory};

/// The crates with measuring programs. All are named to cargo each time, so that the programs agree on the features of
/// what they share, and nothing is built twice.
const PACKAGES: &[&str] = &["harness", "volume-manager", "host", "cluster", "conformance"];

impl Subject {
    const EVERY: &'static [Self] = &[
        Self::Pod,
        Self::Manager,
        Self::Cluster,
        Self::Harness,
        Self::Suite,
        Self::Sim,
        Self::Watch,
        Self::Plugins,
    ];

    /// The names of its programs: each is `benches/NAME.rs` of a crate.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Pod => &["pod"],
            Self::Manager => &["manager"],
            Self::Cluster => &["cluster"],
            Self::Harness => &["harness"],
            Self::Suite => &["suite"],
            Self::Sim => &["sim"],
            Self::Watch => &["watch"],
            Self::Plugins => &["plugins", "host"],
            Self::All => &[],
        }
    }
}

pub(crate) fn run(flags: Bench) -> Result<ExitCode> {
    if let Err(code) = packages::prepare(flags.no_install, None)? {
        return Ok(code);
    }
    let names = programs(&flags.subjects);
    let Some(programs) = build(&names)? else { return Ok(ExitCode::FAILURE) };
    let directory = target_directory()?.join("xtask");
    fs::create_dir_all(&directory).with_context(|| format!("cannot make `{}`", directory.display()))?;
    let rows = directory.join("bench.jsonl");
    // The rows of an earlier run: there are none after the first.
    let _ = fs::remove_file(&rows);
    let mut failed = Vec::new();
    for (name, program) in names.iter().zip(programs) {
        eprintln!("\n{:>12} {name}", "Measuring");
        if !status(&mut measuring(&program, &rows, &flags)?)?.success() {
            failed.push(*name);
        }
    }
    if rows.exists() {
        let mut report = cargo();
        report.args(["run", "--quiet", "--locked", "--package", "measure", "--"]).arg(&rows);
        report.args(options(&flags)?);
        anyhow::ensure!(status(&mut report)?.success(), "cannot report what was measured");
    }
    for name in &failed {
        eprintln!("error: `{name}` was not measured to its end");
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The programs of these subjects, each once; of `pod` if there are none.
fn programs(subjects: &[Subject]) -> Vec<&'static str> {
    let subjects = match subjects {
        [] => &[Subject::Pod],
        all if all.contains(&Subject::All) => Subject::EVERY,
        some => some,
    };
    let mut names = Vec::new();
    for name in subjects.iter().flat_map(|subject| subject.programs()) {
        if !names.contains(name) {
            names.push(*name);
        }
    }
    names
}

/// Builds these programs, and names their files in the same order; nothing if they do not build.
fn build(names: &[&str]) -> Result<Option<Vec<PathBuf>>> {
    let mut build = cargo();
    build.args(["bench", "--no-run", "--locked", "--message-format", "json-render-diagnostics"]);
    PACKAGES.iter().for_each(|package| _ = build.args(["--package", package]));
    names.iter().for_each(|name| _ = build.args(["--bench", name]));
    let output = build.stderr(Stdio::inherit()).output().context("cannot run `cargo bench`")?;
    if !output.status.success() {
        return Ok(None);
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    let built: Vec<(String, PathBuf)> = lines.lines().filter_map(program).collect();
    let file = |name: &&str| {
        let found = built.iter().find(|(built, _)| built == name);
        found.map(|(_, file)| file.clone()).with_context(|| format!("cargo has built no program `{name}`"))
    };
    names.iter().map(file).collect::<Result<_>>().map(Some)
}

/// Name and file of the measuring program that a line of cargo's JSON is about.
fn program(line: &str) -> Option<(String, PathBuf)> {
    let message: Value = serde_json::from_str(line).ok()?;
    let target = &message["target"];
    let is_bench = target["kind"].as_array()?.iter().any(|kind| kind == "bench");
    let file = message["executable"].as_str()?;
    is_bench.then(|| Some((target["name"].as_str()?.to_owned(), PathBuf::from(file))))?
}

fn measuring(program: &Path, rows: &Path, flags: &Bench) -> Result<Command> {
    let mut command = Command::new(program);
    command.current_dir(root()).arg("--rows").arg(rows);
    if let Some(rounds) = flags.rounds {
        command.arg("--rounds").arg(rounds.to_string());
    }
    if let Some(peers) = &flags.peers {
        command.arg("--peers").arg(std::path::absolute(peers)?);
    }
    Ok(command)
}

/// The options of the report. Cargo runs it in the root of the repository, and its paths are those of our caller.
fn options(flags: &Bench) -> Result<Vec<OsString>> {
    let files = [("--json", &flags.json), ("--since", &flags.since), ("--picture", &flags.picture)];
    let mut options = Vec::new();
    for (option, path) in files {
        if let Some(path) = path {
            options.extend([option.into(), std::path::absolute(path)?.into_os_string()]);
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_is_there() {
        let metadata = crate::workspace::metadata().expect("cargo knows the workspace");
        let packages = metadata["packages"].as_array().expect("there are packages");
        let ours = packages.iter().filter(|package| PACKAGES.iter().any(|name| package["name"] == **name));
        let targets = ours.flat_map(|package| package["targets"].as_array().into_iter().flatten());
        let benches = targets.filter(|target| target["kind"][0] == "bench");
        let mut there: Vec<&str> = benches.filter_map(|target| target["name"].as_str()).collect();
        let mut named = programs(&[Subject::All]);
        there.sort_unstable();
        named.sort_unstable();
        assert_eq!(there, named);
    }

    #[test]
    fn program_is_found_among_other_messages() {
        let bench = r#"{"reason":"compiler-artifact","target":{"kind":["bench"],"name":"pod"},"executable":"/t/pod-1"}"#;
        let library =
            r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"api"},"executable":null}"#;
        assert_eq!(program(bench), Some(("pod".to_owned(), PathBuf::from("/t/pod-1"))));
        assert_eq!([library, "no JSON", r#"{"reason":"build-finished"}"#].map(program), [None, None, None]);
    }

    #[test]
    fn subjects_are_measured_once() {
        assert_eq!(programs(&[]), ["pod"]);
        assert_eq!(programs(&[Subject::Plugins, Subject::Pod, Subject::Plugins]), ["plugins", "host", "pod"]);
        assert_eq!(programs(&[Subject::Pod, Subject::All]).len(), 9);
    }
}
