//! Makes a table, a JSON file and a picture of rows, and compares them with earlier ones: the end of `cargo xtask bench`.
//!
//! Reads the rows and what `/proc` says about the machine, asks git for the commit, and writes the files that are named.

mod machine;
mod picture;
mod since;
mod table;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Parser;
use measure::Row;
use serde::{Deserialize, Serialize};

use machine::Machine;

/// Make a table, a JSON file and a picture of the rows of measuring programs
#[derive(Debug, Parser)]
struct Flags {
    /// The rows, a line each
    rows: PathBuf,
    /// Write rows, machine, date and commit there
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Compare with the rows of an earlier file
    #[arg(long, value_name = "FILE")]
    since: Option<PathBuf>,
    /// Draw the rows that have a floor there, as SVG
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
}

/// All that one call of `cargo xtask bench` has measured.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    machine: Machine,
    /// UTC.
    date: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    rows: Vec<Row>,
}

fn main() -> Result<()> {
    let flags = Flags::parse();
    let text = fs::read_to_string(&flags.rows).context("cannot read the rows: nothing was measured")?;
    let rows: Result<Vec<Row>, _> = text.lines().map(serde_json::from_str).collect();
    let report = Report {
        machine: Machine::read(),
        date: machine::date(),
        commit: machine::commit(),
        rows: rows.context("cannot read a row")?,
    };
    print!("{}", table::of(&report));
    if let Some(path) = &flags.since {
        print!("\n{}", since::compare(&read(path)?, &report));
    }
    if let Some(path) = &flags.json {
        let mut text = serde_json::to_string_pretty(&report)?;
        text.push('\n');
        fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    flags.picture.as_deref().map_or(Ok(()), |path| picture::draw(&report.rows, path))
}

fn read(path: &Path) -> Result<Report> {
    let failed = || format!("cannot read `{}`", path.display());
    serde_json::from_str(&fs::read_to_string(path).with_context(failed)?).with_context(failed)
}
