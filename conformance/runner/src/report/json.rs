//! JSON: a line an event on standard output, and `results.json` for the whole run.

use std::io::Write;
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

#[cfg(test)]
mod tests;
