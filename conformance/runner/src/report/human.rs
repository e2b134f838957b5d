//! The report on the terminal.
//!
//! Plain lines. If standard error is a terminal, a line below them shows the running cases.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::Reporter;
use super::line::{Details, HeaderLines, Palette, StatusLine, SummaryLines, count};
use crate::event::{CaseReport, Event};
use crate::finding::Finding;
use crate::program;
use testbed::case::CaseId;

/// Writes a run for people.
pub struct Human<W> {
    out: W,
    palette: Palette,
    /// Whether each case is shown with the sentence that it proves.
    verbose: bool,
    /// The directory of the run's reports, if one was asked for.
    report: Option<PathBuf>,
    live: Option<Live>,
    /// Skipped cases that have no line.
    hidden: usize,
    /// Whether a case has a line.
    has_begun: bool,
    /// Findings shown so far, each with the case that it was shown with.
    shown: Vec<(Finding, CaseId)>,
}

impl<W: Write> Human<W> {
    /// Writes to `out`, with no line that changes.
    pub fn new(out: W, palette: Palette, verbose: bool) -> Self {
        Self { out, palette, verbose, report: None, live: None, hidden: 0, has_begun: false, shown: vec![] }
    }

    /// Names the directory of the run's reports.
    pub fn with_report(mut self, directory: Option<PathBuf>) -> Self {
        self.report = directory;
        self
    }

    /// Adds the line with the running cases. Only for terminals.
    pub fn with_live_line(mut self) -> Self {
        self.live = Some(Live::new());
        self
    }

    fn case(&mut self, case: &CaseReport) -> std::io::Result<()> {
        let palette = self.palette;
        // The summary has a line for each reason; a line for each case hides the first results.
        if case.status.is_skip() && !self.verbose {
            self.hidden += 1;
            return Ok(());
        }
        if !self.has_begun && self.hidden > 0 {
            let skipped = count(self.hidden, "case");
            writeln!(self.out, "{:>12} {skipped}, for the reasons at the end", "SKIP")?;
        }
        self.has_begun = true;
        writeln!(self.out, "{}", StatusLine { palette, case, hidden: self.hidden })?;
        if self.verbose {
            writeln!(self.out, "{:13}{}", "", case.proves)?;
        }
        if case.status.is_bad() {
            writeln!(self.out, "\n{}", Details { palette, case, shown: &self.shown })?;
            for finding in &case.findings {
                if !self.shown.iter().any(|(shown, _)| shown.key() == finding.key()) {
                    self.shown.push((finding.clone(), case.id.clone()));
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, event: &Event) -> std::io::Result<()> {
        let palette = self.palette;
        match event {
            Event::RunStarted(header) => {
                (self.hidden, self.has_begun) = (0, false);
                writeln!(self.out, "{}", HeaderLines(palette, header))?;
            }
            Event::CaseStarted { .. } | Event::CaseStep { .. } => return Ok(()),
            Event::CaseFinished(case) => self.case(case)?,
            Event::Interrupted { running, sweep: None } => writeln!(
                self.out,
                "\n  interrupted: stopping {}; Ctrl-C again leaves at once, and the rest to `volproof sweep`",
                count(running.len(), "case")
            )?,
            Event::Interrupted { running, sweep: Some(sweep) } => {
                writeln!(self.out, "\n  interrupted again: left {} to die", count(running.len(), "case"))?;
                for thing in sweep {
                    writeln!(self.out, "  `{} sweep` would undo: {thing}", program::name())?;
                }
                if sweep.is_empty() {
                    writeln!(self.out, "  `{} sweep` would find nothing to undo", program::name())?;
                }
            }
            Event::Kept { run, cases } => {
                writeln!(self.out, "  kept until Ctrl-C, for a look from another terminal:")?;
                for case in cases {
                    writeln!(self.out, "    {} enter {case} --run {run}", program::name())?;
                }
            }
            Event::RunFinished(run) => {
                let report = self.report.as_deref();
                write!(self.out, "{}", SummaryLines { palette, run, report })?;
            }
        }
        self.out.flush()
    }
}

impl<W: Write> Reporter for Human<W> {
    fn report(&mut self, event: &Event) -> anyhow::Result<()> {
        // The live line is taken off the screen while other lines are written.
        let live = self.live.take();
        match &live {
            Some(live) => live.bar.suspend(|| self.write(event))?,
            None => self.write(event)?,
        }
        self.live = live;
        if let Some(live) = &mut self.live {
            live.follow(event);
        }
        Ok(())
    }
}

/// The live line: progress, time, and the case of each lane.
struct Live {
    bar: ProgressBar,
    running: BTreeMap<CaseId, String>,
}

impl Live {
    fn new() -> Self {
        let bar = ProgressBar::no_length();
        // One line, cut at the terminal's width: a wrapped line cannot be erased.
        let style = ProgressStyle::with_template("{spinner:.dim} {pos}/{len} [{elapsed}] {wide_msg:.dim}");
        bar.set_style(style.expect("the template is constant").tick_chars("⠁⠂⠄⡀⢀⠠⠐⠈ "));
        Self { bar, running: BTreeMap::new() }
    }

    fn follow(&mut self, event: &Event) {
        match event {
            Event::RunStarted(header) => {
                self.bar.set_length(header.cases as u64);
                self.bar.enable_steady_tick(Duration::from_millis(120));
            }
            Event::CaseStarted { id } => drop(self.running.insert(id.clone(), String::new())),
            Event::CaseStep { id, step } => drop(self.running.insert(id.clone(), step.clone())),
            Event::CaseFinished(case) => {
                self.running.remove(&case.id);
                self.bar.inc(1);
            }
            Event::Interrupted { .. } => {}
            Event::Kept { .. } | Event::RunFinished(_) => return self.bar.finish_and_clear(),
        }
        let lane = |(id, step): (&CaseId, &String)| match step.is_empty() {
            true => id.to_string(),
            false => format!("{id} {step}"),
        };
        self.bar.set_message(self.running.iter().map(lane).collect::<Vec<_>>().join("  ·  "));
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
pub(crate) mod tests;
