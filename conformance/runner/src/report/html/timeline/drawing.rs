//! The marks and the mounts of a trace, line by line.

use std::collections::{BTreeMap, VecDeque};

use contracts::event::{
    Actor, ApiChange, DirectCall, Edge, Effect, Emitted, Event, Lifecycle, Mount, MountDel, OperationEdge,
    ProcessEdge, RpcEnd, RpcStart, Step, TraceLine,
};
use contracts::recording::Reader;
use contracts::witnessed::{Found, Kind, Unexplained};
use serde_json::Value;

use super::{CALLS, CASE, CHANGES, CLUSTER, FILES, KERNEL, LANES, NODE, PROCESS, Point, Timeline};
use crate::report::html::mounts::Mounts;
use crate::report::html::single_line;

#[derive(Debug, Default)]
pub(super) struct Drawing {
    /// The most marks.
    most: usize,
    reader: Reader,
    unexplained: Unexplained,
    is_cut: bool,
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
    pub(super) fn of_at_most(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// The next line of the trace. Behind the last mark only changes of mounts are read.
    pub(super) fn line(&mut self, line: &str) {
        if self.events.len() >= self.most && !self.is_cut {
            self.is_cut = true;
            // Their ends are not read.
            self.open.clear();
        }
        if self.is_cut && !line.contains("mount_") {
            return;
        }
        let Ok(Value::Object(fields)) = serde_json::from_str(line) else { return };
        let at = fields.get("t_ms").and_then(Value::as_f64).unwrap_or_default();
        let Ok(Some(event)) = self.reader.event(fields) else { return };
        if self.is_cut && !matches!(event, Event::MountAdd(_) | Event::MountChg(_) | Event::MountDel(_)) {
            return;
        }
        self.event(at, &event);
        let found = self.unexplained.event(&TraceLine { seq: 0, t_ms: at, event });
        if self.reader.names_makers() {
            found.iter().for_each(|found| self.irregular(at, found));
        }
        self.events.truncate(self.most);
    }

    /// None if no line could be read.
    pub(super) fn finish(self) -> Option<Timeline> {
        let Self { events, mounts, kernel, earlier, is_cut, .. } = self;
        let is_empty = events.is_empty() && kernel.is_empty();
        let kernel = kernel.iter().map(|change| single_line(change)).collect();
        (!is_empty).then_some(Timeline { lanes: LANES, events, mounts, kernel, earlier, is_cut })
    }

    fn event(&mut self, at: f64, event: &Event) {
        self.mounts.event(event);
        match event {
            Event::RpcStart(start) => self.call(at, start),
            Event::RpcEnd(end) => self.answer(at, end),
            Event::DirectCall(call) => self.direct(at, call),
            Event::MountAdd(mount) => self.mount(at, mount),
            Event::MountChg(mount) => self.change(at, mount),
            Event::MountDel(gone) => self.unmount(at, gone),
            Event::Effect(effect) => self.effect(at, effect),
            Event::Operation(edge) => self.operation(at, edge),
            Event::Process(edge) => self.process(at, edge),
            Event::Case(step) => self.step(at, step),
            Event::Api(change) => self.object(at, change),
            Event::Event(event) => self.emitted(at, event),
            Event::Touched(touched) => {
                let text = format!("{} in {}: {:?}", touched.path, touched.method, touched.how);
                self.point(at, KERNEL, "bad", text);
            }
            Event::Wait(wait) => {
                self.point(at, NODE, "node", format!("waited for {}: {}", wait.pod, wait.err))
            }
            // No marks: rules judge some of these, and the page shows the findings.
            Event::State(_) | Event::Pod(_) | Event::Disturbed(_) | Event::MountsLost(_) => {}
            Event::Looked | Event::Recovered(_) | Event::Meddled(_) => {}
        }
    }

    /// A step of the case.
    fn step(&mut self, at: f64, step: &Step) {
        if step.action == "asked" {
            self.asked = step.on.split(' ').next().unwrap_or_default().to_owned();
        }
        self.point(at, CASE, "file", format!("{} {}", step.action, step.on));
    }

    fn object(&mut self, at: f64, change: &ApiChange) {
        let text = format!("{} {} {} by {}", change.verb, change.kind, change.object, change.by);
        self.point(at, CLUSTER, "cluster", text);
    }

    fn emitted(&mut self, at: f64, event: &Emitted) {
        let colour = if event.kind == "Warning" { "bad" } else { "cluster" };
        self.point(at, CLUSTER, colour, format!("{} {}: {}", event.reason, event.obj, event.message));
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

    fn change(&mut self, at: f64, mount: &Mount) {
        self.table(at, mount.by, &format!("~ {}  is {} now", mount.target, mount.opts));
        self.by(at, mount.by, KERNEL, "kernel", format!("changed {} to {}", mount.target, mount.opts));
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
