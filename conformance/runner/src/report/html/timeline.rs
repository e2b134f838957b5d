//! The timeline of a case: the events of its trace by lanes, as data that the page draws.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::Serialize;

use drawing::Drawing;

use super::mounts::Mounts;
use crate::logs::moments::{Moment, Printer};

mod drawing;

/// The most marks that are drawn of one case. The trace itself has all of them.
pub(super) const MOST: usize = 5000;

/// The most changes of the mount table that are listed of one case.
pub(super) const CHANGES: usize = 40;

const LANES: [&str; 9] =
    ["case", "cluster", "node", "calls", "kernel", "files", "process", "driver log", "kernel log"];
const CASE: usize = 0;
const CLUSTER: usize = 1;
const NODE: usize = 2;
const CALLS: usize = 3;
const KERNEL: usize = 4;
const FILES: usize = 5;
const PROCESS: usize = 6;
const DRIVER_LOG: usize = 7;
const KERNEL_LOG: usize = 8;

/// The data that the page draws.
#[derive(Debug, Serialize)]
pub(super) struct Timeline {
    lanes: [&'static str; LANES.len()],
    events: Vec<Point>,
    #[serde(skip)]
    pub(super) mounts: Mounts,
    /// The last changes of the mount table, and the number of those before.
    #[serde(skip)]
    pub(super) kernel: Vec<String>,
    #[serde(skip)]
    pub(super) earlier: usize,
    /// Whether the trace has more events.
    #[serde(skip)]
    pub(super) is_cut: bool,
}

/// A mark: start, duration, lane, colour, text, and the index of the mark that caused it or -1.
#[derive(Debug, Serialize)]
struct Point(f64, f64, usize, &'static str, String, i64);

impl Timeline {
    /// The timeline of a trace, with at most so many marks; `None` if there is no trace or no line of it can be read.
    pub(super) fn of(trace: &Path, most: usize) -> Option<Self> {
        let mut drawing = Drawing::of_at_most(most);
        for line in BufReader::new(File::open(trace).ok()?).lines() {
            // A line that is no text belongs to a trace that was damaged: what comes before it counts.
            let Ok(line) = line else { break };
            drawing.line(&line);
        }
        drawing.finish()
    }

    /// Adds the lines of the logs, with at most so many marks altogether. A line that came during a call is linked to the
    /// last call that had begun.
    pub(super) fn with_logs(mut self, moments: &[Moment], most: usize) -> Self {
        let room = most.saturating_sub(self.events.len());
        let calls = self.events.iter().enumerate().filter(|(_, event)| event.2 == CALLS);
        let calls: Vec<(usize, f64, f64)> =
            calls.map(|(index, call)| (index, call.0, call.0 + call.1)).collect();
        let during = |at: f64| calls.iter().rev().find(|(_, start, end)| (*start..=*end).contains(&at));
        let lines = moments.iter().take(room).map(|Moment { t_ms, of, text }| {
            let lane = match of {
                Printer::Driver => DRIVER_LOG,
                Printer::Kernel => KERNEL_LOG,
            };
            let cause = during(*t_ms).and_then(|(index, ..)| i64::try_from(*index).ok());
            // A driver may print before the trace begins.
            Point((t_ms.max(0.0) * 1e3).round() / 1e3, 0.0, lane, "log", text.clone(), cause.unwrap_or(-1))
        });
        let lines: Vec<Point> = lines.collect();
        self.is_cut |= moments.len() > room;
        self.events.extend(lines);
        self
    }

    /// The number of marks.
    pub(super) fn marks(&self) -> usize {
        self.events.len()
    }

    /// JSON for the content of a `script` element, which no text in it can end.
    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default().replace('<', "\\u003c")
    }
}

#[cfg(test)]
mod tests;
