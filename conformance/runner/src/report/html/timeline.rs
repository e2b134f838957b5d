//! The timeline of a case: the events of its trace by lanes, as data that the page draws.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use contracts::event::{
    Actor, DirectCall, Edge, Effect, Event, Lifecycle, Mount, MountDel, OperationEdge, ProcessEdge, RpcEnd,
    RpcStart, TraceLine,
};
use contracts::recording::Reader;
use contracts::witnessed::{Found, Kind, Unexplained};
use serde::Serialize;
use serde_json::Value;

use super::mounts::Mounts;
use super::single_line;
use crate::logs::moments::{Moment, Printer};

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
        let mut drawing = Drawing::default();
        let mut reader = Reader::default();
        let mut unexplained = Unexplained::default();
        let mut is_cut = false;
        for line in BufReader::new(File::open(trace).ok()?).lines() {
            // A line that is no text belongs to a trace that was damaged: what comes before it counts.
            let Ok(line) = line else { break };
            if drawing.events.len() >= most && !is_cut {
                is_cut = true;
                // Their ends are not read.
                drawing.open.clear();
            }
            if is_cut && !line.contains("mount_") {
                continue;
            }
            let Ok(Value::Object(fields)) = serde_json::from_str(&line) else { continue };
            let at = fields.get("t_ms").and_then(Value::as_f64).unwrap_or_default();
            if let Ok(Some(event)) = reader.event(fields) {
                if is_cut && !matches!(event, Event::MountAdd(_) | Event::MountChg(_) | Event::MountDel(_)) {
                    continue;
                }
                drawing.event(at, &event);
                let line = TraceLine { seq: 0, t_ms: at, event };
                let found = unexplained.event(&line).into_iter().filter(|_| reader.names_makers());
                found.for_each(|found| drawing.irregular(at, &found));
            }
            drawing.events.truncate(most);
        }
        let Drawing { events, mounts, kernel, earlier, .. } = drawing;
        let is_empty = events.is_empty() && kernel.is_empty();
        let kernel = kernel.iter().map(|change| single_line(change)).collect();
        (!is_empty).then_some(Self { lanes: LANES, events, mounts, kernel, earlier, is_cut })
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

#[derive(Debug, Default)]
struct Drawing {
    events: Vec<Point>,
    /// Calls and operations without an end yet, by the key that pairs both edges.
    open: BTreeMap<String, usize>,
    mounts: Mounts,
    kernel: VecDeque<String>,
    earlier: usize,
    /// The method of the call that the case is about to make itself: the call's own line does not name it.
    asked: String,
}

impl Drawing {
    fn event(&mut self, at: f64, event: &Event) {
        self.mounts.event(event);
        match event {
            Event::RpcStart(start) => self.call(at, start),
            Event::RpcEnd(end) => self.answer(at, end),
            Event::MountAdd(mount) => self.mount(at, mount),
            Event::MountChg(mount) => {
                self.table(at, mount.by, &format!("~ {}  is {} now", mount.target, mount.opts));
                let text = format!("changed {} to {}", mount.target, mount.opts);
                self.by(at, mount.by, KERNEL, "kernel", text);
            }
            Event::MountDel(gone) => self.unmount(at, gone),
            Event::Effect(effect) => self.effect(at, effect),
            Event::Operation(edge) => self.operation(at, edge),
            Event::Process(edge) => self.process(at, edge),
            Event::Case(step) => {
                if step.action == "asked" {
                    self.asked = step.on.split(' ').next().unwrap_or_default().to_owned();
                }
                self.point(at, CASE, "file", format!("{} {}", step.action, step.on));
            }
            Event::DirectCall(call) => self.direct(at, call),
            Event::Api(change) => {
                let text = format!("{} {} {} by {}", change.verb, change.kind, change.object, change.by);
                self.point(at, CLUSTER, "cluster", text);
            }
            Event::Event(event) => {
                let colour = if event.kind == "Warning" { "bad" } else { "cluster" };
                self.point(at, CLUSTER, colour, format!("{} {}: {}", event.reason, event.obj, event.message));
            }
            Event::Touched(touched) => {
                let text = format!("{} in {}: {:?}", touched.path, touched.method, touched.how);
                self.point(at, KERNEL, "bad", text);
            }
            Event::Wait(wait) => {
                self.point(at, NODE, "node", format!("waited for {}: {}", wait.pod, wait.err))
            }
            // No marks: rules judge some of these, and the page shows the findings.
            Event::State(_)
            | Event::Pod(_)
            | Event::Disturbed(_)
            | Event::MountsLost(_)
            | Event::Looked
            | Event::Recovered(_)
            | Event::Meddled(_) => {}
        }
    }

    fn irregular(&mut self, at: f64, Found { kind, what, .. }: &Found) {
        let verb = match kind {
            Kind::Stray => "stray",
            Kind::Phantom => "phantom",
        };
        self.point(at, KERNEL, "bad", format!("{verb}: {}", what.what));
    }

    fn point(&mut self, at: f64, lane: usize, colour: &'static str, text: String) {
        self.events.push(Point(at, 0.0, lane, colour, text.trim().to_owned(), -1));
    }

    /// A point that is linked to the driver's last call without an end, if the driver made it.
    fn by(&mut self, at: f64, by: Actor, lane: usize, colour: &'static str, text: String) {
        let cause = self.last_call().filter(|_| by == Actor::Driver);
        let cause = cause.and_then(|index| i64::try_from(index).ok());
        self.events.push(Point(at, 0.0, lane, colour, text, cause.unwrap_or(-1)));
    }

    fn begin(&mut self, key: String, at: f64, lane: usize, colour: &'static str, text: String) {
        self.open.insert(key, self.events.len());
        self.events.push(Point(at, 0.1, lane, colour, text, -1));
    }

    fn end(&mut self, key: &str, at: f64, failed: bool, text: &str) {
        let Some(index) = self.open.remove(key) else { return };
        let point = &mut self.events[index];
        point.1 = (at - point.0).max(0.1);
        if failed {
            point.3 = "bad";
        }
        point.4 += text;
    }

    fn call(&mut self, at: f64, start: &RpcStart) {
        let about = ["volumeId", "snapshotId", "name", "targetPath", "stagingTargetPath"];
        let about = about.iter().filter_map(|field| start.req.get(field)?.as_str()).collect::<Vec<_>>();
        let text = format!("{} {}", start.method, about.join(" "));
        self.begin(format!("call {}", start.id), at, CALLS, "call", text);
    }

    fn answer(&mut self, at: f64, end: &RpcEnd) {
        let text = format!(" → {} {}", end.code, end.message);
        self.end(&format!("call {}", end.id), at, end.code != "OK", text.trim_end());
    }

    /// A call of the case's own.
    fn direct(&mut self, at: f64, call: &DirectCall) {
        let key = format!("direct {}", call.id);
        match call.edge {
            Edge::Start => {
                let about = [&call.volume].into_iter().chain(&call.paths).map(String::as_str);
                let text = format!("{} {}", self.asked, about.collect::<Vec<_>>().join(" "));
                self.begin(key, at, CALLS, "call", text.trim_end().to_owned());
            }
            Edge::End => {
                let answer =
                    call.answer.as_ref().map(|answer| (answer.code.as_str(), answer.message.as_str()));
                let (code, message) = answer.unwrap_or(("no answer", ""));
                self.end(&key, at, code != "OK", format!(" → {code} {message}").trim_end());
            }
        }
    }

    fn operation(&mut self, at: f64, edge: &OperationEdge) {
        let key = format!("operation {} {} {}", edge.name, edge.volume, edge.pod);
        match edge.edge {
            Edge::Start => {
                let text = format!("{} {} {}", edge.name, edge.volume, edge.pod);
                self.begin(key, at, NODE, "node", text);
            }
            Edge::End => {
                let error = edge.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
                self.end(&key, at, edge.error.is_some(), &error);
            }
        }
    }

    fn mount(&mut self, at: f64, mount: &Mount) {
        let shown = format!("{} {} ({})", mount.fstype, mount.source, mount.opts);
        self.by(at, mount.by, KERNEL, "kernel", format!("mount {} = {shown}", mount.target));
        self.table(at, mount.by, &format!("+ {}  =  {shown}", mount.target));
    }

    /// A change of the mount table, with the process and the call of the driver during which it came.
    fn table(&mut self, at: f64, by: Actor, change: &str) {
        if by == Actor::Harness {
            return;
        }
        let call = self.last_call().map(|index| self.events[index].4.split(' ').next().unwrap_or_default());
        let during = call.map(|call| format!(", during {call}")).unwrap_or_default();
        let by = match by {
            Actor::Driver => "by the driver",
            Actor::Node => "by the node",
            Actor::Harness | Actor::Unknown => "by an unknown process",
        };
        self.kernel.push_back(format!("{at:>9.1} ms  {change}   {by}{during}"));
        if self.kernel.len() > CHANGES {
            self.kernel.pop_front();
            self.earlier += 1;
        }
    }

    /// The last call without an answer.
    fn last_call(&self) -> Option<usize> {
        self.open.values().filter(|index| self.events[**index].2 == CALLS).max().copied()
    }

    fn unmount(&mut self, at: f64, gone: &MountDel) {
        self.by(at, gone.by, KERNEL, "kernel", format!("unmount {}", gone.target));
        self.table(at, gone.by, &format!("- {}", gone.target));
    }

    fn effect(&mut self, at: f64, effect: &Effect) {
        let source = effect.source.as_ref().map(|source| format!(" from {source}")).unwrap_or_default();
        let colour = if effect.confirmed { "file" } else { "bad" };
        self.point(at, FILES, colour, format!("{} {}{source}", effect.effect, effect.path));
    }

    fn process(&mut self, at: f64, edge: &ProcessEdge) {
        let colour = if edge.edge == Lifecycle::Kill { "bad" } else { "file" };
        let status = edge.status.as_deref().unwrap_or_default();
        self.point(at, PROCESS, colour, format!("{} {} {status}", edge.who, edge.edge));
    }
}

#[cfg(test)]
mod tests;
