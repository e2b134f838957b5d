//! `cargo xtask bench`: builds a measuring program in release and becomes it.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::flags::Bench;
use crate::packages;
use crate::workspace::cargo;

/// One pod in and out, beside a bare loop that does only its calls: `harness/benches/pod.rs` measures. With
/// `plugins` as the first word, what volumes cost that no driver makes (`harness/benches/plugins.rs`), and what
/// asking the mount table does (`volume-manager/host/benches/host.rs`). With
/// `harness`, what sandbox, recorder and programmable disk cost (`harness/benches/harness.rs`). With `manager`, how
/// the manager's own costs grow with its volumes (`volume-manager/benches/manager.rs`). With `watch`, what a watched
/// driver costs its node (`conformance/benches/watch.rs`).
pub(crate) fn run(mut flags: Bench) -> Result<ExitCode> {
    if let Err(code) = packages::prepare(flags.no_install, None)? {
        return Ok(code);
    }
    if flags.args.first().is_some_and(|word| word == "plugins") {
        flags.args.remove(0);
        let status =
            bench("harness", "plugins").args(flags.args).status().context("cannot run `cargo bench`")?;
        if !status.success() {
            return Ok(ExitCode::FAILURE);
        }
        let error = bench("host", "host").args(["10000", "100000"]).exec();
        return Err(error).context("cannot run `cargo bench`");
    }
    let error = match flags.args.first().and_then(|word| word.to_str()) {
        Some("harness") => bench("harness", "harness").exec(),
        Some("manager") => bench("volume-manager", "manager").args(flags.args).exec(),
        Some("watch") => bench("conformance", "watch").args(flags.args).exec(),
        _ => bench("harness", "pod").args(flags.args).exec(),
    };
    Err(error).context("cannot run `cargo bench`")
}

fn bench(package: &str, name: &str) -> Command {
    let mut cargo = cargo();
    cargo.args(["bench", "--locked", "--package", package, "--bench", name, "--"]);
    cargo
}
