//! `cargo xtask bench`: builds the measuring program in release and becomes it.

use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::flags::Bench;
use crate::packages;
use crate::workspace::cargo;

/// One pod in and out, beside a bare loop that does only its calls: `harness/benches/pod.rs` measures.
pub(crate) fn run(flags: Bench) -> Result<ExitCode> {
    if let Err(code) = packages::prepare(flags.no_install, false)? {
        return Ok(code);
    }
    let error = cargo()
        .args(["bench", "--locked", "--package", "harness", "--bench", "pod", "--"])
        .args(flags.args)
        .exec();
    Err(error).context("cannot run `cargo bench`")
}
