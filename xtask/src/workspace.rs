//! Where things are: the root of the repository, what cargo knows about it, and how cargo is called.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result};
use serde_json::Value;

/// The exit code for "the environment could not be prepared", as of `volproof run`.
pub(crate) const NOT_PREPARED: u8 = 4;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("xtask is a directory of the repository").to_path_buf()
}

/// A cargo command in the root of the repository: the very cargo that runs us.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    // The variables of `cargo run` about a package would make each nested build compile anew.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR" {
            command.env_remove(name);
        }
    }
    command
}

/// Builds the `volproof` that cases run with, and names it; nothing if it does not build.
pub(crate) fn build_volproof() -> Result<Option<PathBuf>> {
    let volproof = target_directory()?.join("conformance/volproof");
    if !volproof.exists() {
        eprintln!("{:>12} volproof from its sources: some minutes the first time, seconds after", "Building");
    }
    let arguments = ["build", "--profile", "conformance", "--locked", "--package", "conformance"];
    let built = status(cargo().args(arguments))?;
    Ok(built.success().then_some(volproof))
}

/// Runs a command to its end with our own terminal.
pub(crate) fn status(command: &mut Command) -> Result<ExitStatus> {
    command.status().with_context(|| format!("cannot run `{}`", command.get_program().display()))
}

/// The packages of this repository in `cargo metadata`.
pub(crate) fn metadata() -> Result<Value> {
    let output = cargo()
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .output()
        .context("cannot run `cargo metadata`")?;
    anyhow::ensure!(
        output.status.success(),
        "`cargo metadata` failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    serde_json::from_slice(&output.stdout).context("cannot read the answer of `cargo metadata`")
}

/// The directory of cargo's output, as environment and configuration files set it.
pub(crate) fn target_directory() -> Result<PathBuf> {
    let metadata = metadata()?;
    let directory =
        metadata["target_directory"].as_str().context("`cargo metadata` names no target directory")?;
    Ok(PathBuf::from(directory))
}

/// Whether we may mount on this machine.
pub(crate) fn is_root() -> bool {
    // The effective user owns what /proc shows of this process: no system call wrapper needed.
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}
