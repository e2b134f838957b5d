//! Compiling the workspace once, with clippy looking on.
//!
//! `cargo clippy` compiles without making code, so that a build after it compiles everything again. Clippy is a compiler
//! with more lints: put before the compiler of the workspace's own crates, it makes the code as well, and CI compiles
//! once. The same setting goes to each cargo command that uses what was built ([`linted`]): without it cargo would take
//! the crates for others and compile them again.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, IsTerminal};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::workspace::cargo;

/// The result of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Built {
    /// Without a word of the compiler or of clippy.
    Clean,
    /// All is there, and something was to be said about it.
    WithWarnings,
    Failed,
}

/// Builds programs and tests of all crates, and prints what the compiler and clippy have to say.
pub(crate) fn workspace() -> Result<Built> {
    let format = if std::io::stderr().is_terminal() { "json-diagnostic-rendered-ansi" } else { "json" };
    // `--all-targets` so that programs and tests agree on the features of what they share: built apart, half of the
    // dependencies would be built twice.
    let mut child = cargo()
        .args(linted()?)
        .args(["build", "--workspace", "--all-targets", "--locked", "--message-format", format])
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run `cargo build`")?;
    let mut diagnostics = Diagnostics::default();
    let output = child.stdout.take().expect("stdout was asked for");
    for line in BufReader::new(output).lines() {
        if let Some(text) = diagnostics.new_in(&line.context("cannot read what `cargo build` prints")?) {
            eprint!("{text}");
        }
    }
    let ended = child.wait().context("cannot wait for `cargo build`")?;
    Ok(match (ended.success(), diagnostics.shown.is_empty()) {
        (false, _) => Built::Failed,
        (true, true) => Built::Clean,
        (true, false) => Built::WithWarnings,
    })
}

/// The arguments that make cargo compile the crates of the workspace with clippy.
///
/// Arguments and no variable: a test that runs cargo itself would inherit the variable.
pub(crate) fn linted() -> Result<[OsString; 2]> {
    let driver = sysroot()?.join("bin/clippy-driver");
    anyhow::ensure!(driver.exists(), "there is no `{}`: run `rustup component add clippy`", driver.display());
    let driver = driver.into_os_string().into_string().ok().context("the toolchain's path is not text")?;
    // A JSON string is a TOML string.
    let setting = format!("build.rustc-workspace-wrapper={}", Value::from(driver));
    Ok(["--config".into(), setting.into()])
}

fn sysroot() -> Result<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .args(["--print", "sysroot"])
        .current_dir(crate::workspace::root())
        .output()
        .context("cannot run `rustc`")?;
    anyhow::ensure!(output.status.success(), "`rustc --print sysroot` ended with {}", output.status);
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

/// The compiler's messages, each once: a library and its unit tests are compiled from the same source.
#[derive(Debug, Default)]
struct Diagnostics {
    shown: BTreeSet<String>,
}

impl Diagnostics {
    /// The text of a diagnostic in a line of cargo's JSON, if it is one and was not seen before.
    fn new_in(&mut self, line: &str) -> Option<String> {
        let message: Value = serde_json::from_str(line).ok()?;
        if message["reason"] != "compiler-message" || is_summary(message["message"]["message"].as_str()?) {
            return None;
        }
        let text = message["message"]["rendered"].as_str()?.to_owned();
        self.shown.insert(text.clone()).then_some(text)
    }
}

/// Whether a message only counts those before it.
fn is_summary(message: &str) -> bool {
    message.starts_with("aborting due to ") || message.ends_with(" emitted")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diagnostic_is_shown_once_and_all_else_is_not() {
        let unused =
            r#"{"reason":"compiler-message","message":{"message":"unused","rendered":"warning: unused\n"}}"#;
        let mut diagnostics = Diagnostics::default();
        assert_eq!(diagnostics.new_in(unused).as_deref(), Some("warning: unused\n"));
        assert_eq!(diagnostics.new_in(unused), None, "the unit tests of the same library");
        let others = [
            r#"{"reason":"compiler-artifact","fresh":true}"#,
            r#"{"reason":"compiler-message","message":{"message":"1 warning emitted","rendered":"warning: 1"}}"#,
            "no JSON",
        ];
        assert_eq!(others.map(|line| diagnostics.new_in(line)), [None, None, None]);
        assert_eq!(diagnostics.shown.len(), 1);
    }

    #[test]
    fn clippy_compiles_the_workspace() {
        let [flag, setting] = linted().expect("clippy is part of the toolchain");
        assert_eq!(flag, "--config");
        let setting = setting.into_string().expect("it is text");
        assert!(setting.starts_with("build.rustc-workspace-wrapper=\"/"), "{setting}");
    }
}
