//! JSON: one line for each event on standard output, and `results.json` for the whole run.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use harness::private;

use super::Reporter;
use crate::event::{Event, RunRecord};

/// One JSON object a line.
pub struct Lines<W>(pub W);

impl<W: Write> Reporter for Lines<W> {
    fn report(&mut self, event: &Event) -> anyhow::Result<()> {
        serde_json::to_writer(&mut self.0, event)?;
        writeln!(self.0)?;
        Ok(self.0.flush()?)
    }
}

/// Writes `results.json` into a report directory. Its schema is `conformance/schema/results.schema.json`.
pub fn write_results(run: &RunRecord, directory: &Path) -> anyhow::Result<()> {
    let path = directory.join("results.json");
    let text = serde_json::to_string_pretty(run)? + "\n";
    private::write(&path, text).with_context(|| format!("cannot write `{}`", path.display()))
}

/// An error while the results of a run are read.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    #[error(transparent)]
    Unreadable(#[from] io::Error),
    #[error("it holds no results of a run")]
    Malformed(#[from] serde_json::Error),
    #[error("its version is {0}, and this volproof reads version {version}", version = RunRecord::VERSION)]
    OtherVersion(u32),
}

/// Reads `results.json`.
///
/// # Errors
/// When it is not there, or was not written by a volproof of this version of results.
pub fn read_results(path: &Path) -> Result<RunRecord, ResultsError> {
    let record: RunRecord = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    match record.version == RunRecord::VERSION {
        true => Ok(record),
        false => Err(ResultsError::OtherVersion(record.version)),
    }
}

#[cfg(test)]
mod tests;
