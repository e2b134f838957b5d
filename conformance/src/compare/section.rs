//! A trace in sections. Which line of a trace belongs where is decided here.

use std::collections::BTreeMap;

use super::read::{Line, Trace};
use super::{calls, snapshot, words};

/// Lines about one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// The subject of the lines.
    pub about: String,
    /// Sorted where their order means nothing.
    pub lines: Vec<String>,
}

impl Section {
    pub(super) fn new(about: impl Into<String>, lines: Vec<String>) -> Self {
        Self { about: about.into(), lines }
    }
}

/// All sections of a trace, in order.
pub(super) fn all(trace: &Trace) -> Vec<Section> {
    let mut sections = calls::sections(trace);
    sections.extend(grouped(trace, event));
    sections.extend(grouped(trace, wait));
    sections.extend(snapshot::sections(trace));
    sections
}

/// Sections of lines that are taken one by one. A repeated line is left out.
fn grouped(trace: &Trace, line_of: impl Fn(&Line) -> Option<(String, String)>) -> Vec<Section> {
    let mut sections: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (about, line) in trace.lines().iter().filter_map(line_of) {
        let lines = sections.entry(about).or_default();
        if lines.last() != Some(&line) {
            lines.push(line);
        }
    }
    sections.into_iter().map(|(about, lines)| Section::new(about, lines)).collect()
}

/// An event of the node: recordings of a kubelet hold no others. Volumes are worked on side by side, so the order holds
/// within one only.
fn event(line: &Line) -> Option<(String, String)> {
    let of_node = line.ev == "event" && line.text("by").is_empty();
    if !of_node || words::is_of_pod_sync(line.text("message")) {
        return None;
    }
    let (object, message) = (line.text("obj"), words::message(line.text("message")));
    let volume = message.split_once("volume \"").and_then(|(_, rest)| rest.split('"').next());
    let about = match volume {
        Some(volume) => format!("events of {object} about {volume}"),
        None => format!("events of {object}"),
    };
    Some((about, format!("{} {}: {message}", line.text("type"), line.text("reason"))))
}

/// The result of a wait for volumes.
fn wait(line: &Line) -> Option<(String, String)> {
    let what = match line.ev.as_str() {
        "wait_mount_returned" => "volumes",
        "wait_unmount_returned" => "the end of its volumes",
        _ => return None,
    };
    let error = match line.text("err") {
        "" => "came".to_owned(),
        error => words::error_of_wait(error),
    };
    Some((format!("answer to the wait of pod {} for {what}", line.text("pod")), error))
}
