//! `cargo xtask test`: everything CI runs on this machine, counted.

use std::process::ExitCode;

use anyhow::Result;

use crate::flags::Test;
use crate::workspace::is_root;
use crate::{lane, packages, python, step};

pub(crate) fn run(flags: Test) -> Result<ExitCode> {
    if let Err(code) = packages::prepare(flags.no_install, None)? {
        return Ok(code);
    }
    let root = is_root();
    if root {
        python::prepare(flags.no_install)?;
    }
    let name = if flags.thorough { "test --thorough" } else { "test" };
    let total = step::run_all(name, &lane::everything(root), flags.thorough)?;
    if !root {
        eprintln!(
            "\nnote: without root the host tier was left out: loop devices, file systems, block volumes"
        );
    }
    eprintln!();
    println!("{total}");
    Ok(if total.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
