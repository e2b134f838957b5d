//! The commands of this repository: `cargo xtask <command>`.
//!
//! It links no crate of the product, so it builds quickly, and still builds when the product does not.
//! Each command is one file with one `run`; this one only declares, parses and dispatches.

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, Parser};

use crate::flags::{Command, Xtask};

mod bench;
mod build;
mod cargo_test;
mod ci;
mod conformance;
mod flags;
mod lane;
mod libtest;
mod new_case;
mod nightly;
mod package;
mod packages;
mod python;
mod site;
mod step;
mod tally;
mod test;
mod tidy;
mod times;
mod workspace;

fn main() -> ExitCode {
    let xtask = Xtask::parse();
    let ended = match xtask.command {
        None => help(),
        Some(Command::Conformance(flags)) => conformance::run(flags),
        Some(Command::Test(flags)) => test::run(flags),
        Some(Command::Ci(flags)) => ci::run(flags),
        Some(Command::Nightly(flags)) => nightly::run(flags),
        Some(Command::Tidy) => tidy::run(),
        Some(Command::NewCase(flags)) => new_case::run(&flags),
        Some(Command::Package(flags)) => package::run(flags),
        Some(Command::Site(flags)) => site::run(flags),
        Some(Command::Bench(flags)) => bench::run(flags),
    };
    ended.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(workspace::NOT_PREPARED)
    })
}

fn help() -> Result<ExitCode> {
    Xtask::command().print_help()?;
    Ok(ExitCode::SUCCESS)
}
