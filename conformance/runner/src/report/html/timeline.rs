//! The timeline of a case: the events of its trace by lanes, as data that the page draws.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use contracts::event::{
    Actor, Edge, Effect, Event, Lifecycle, Mount, MountDel, OperationEdge, ProcessEdge, RpcEnd, RpcStart,
    TraceLine,
};
use contracts::recording::Reader;
use contracts::witnessed::{Found, Kind, Unexplained};
use serde::Serialize;
use serde_json::Value;

/// The most marks that are drawn of one case. The trace itself has all of them.
const MOST: usize = 5000;

const LANES: [&str; 7] = ["case", "cluster", "node", "calls", "kernel", "files", "process"];
const CASE: usize = 0;
const CLUSTER: usize = 1;
const NODE: usize = 2;
const CALLS: usize = 3;
const KERNEL: usize = 4;
const FILES: usize = 5;
const PROCESS: usize = 6;

/// The data that the page draws.
#[derive(Debug, Serialize)]
pub(super) struct Timeline {
    lanes: [&'static str; LANES.len()],
    events: Vec<Point>,
    /// Mounts that were made in the case and not unmounted yet, by path.
    #[serde(skip)]
    pub(super) mounted: BTreeMap<String, Vec<String>>,
}

/// A mark: start, duration, lane, colour, text, and the index of the mark that caused it or -1.
#[derive(Debug, Serialize)]
struct Point(f64, f64, usize, &'static str, String, i64);

impl Timeline {
    /// The timeline of a trace; `None` if there is no trace or no line of it can be read.
    pub(super) fn of(trace: &Path) -> Option<Self> {
        let mut drawing = Drawing::default();
        let mut reader = Reader::default();
        let mut unexplained = Unexplained::default();
        for line in BufReader::new(File::open(trace).ok()?).lines() {
            let Ok(Value::Object(fields)) = serde_json::from_str(&line.ok()?) else { continue };
            let at = fields.get("t_ms").and_then(Value::as_f64).unwrap_or_default();
            if let Ok(Some(event)) = reader.event(fields) {
                drawing.event(at, &event);
                let line = TraceLine { seq: 0, t_ms: at, event };
                let found = unexplained.event(&line).into_iter().filter(|_| reader.names_makers());
                found.for_each(|found| drawing.irregular(at, &found));
            }
            if drawing.events.len() >= MOST {
                break;
            }
        }
        let Drawing { events, mounted, .. } = drawing;
        (!events.is_empty()).then_some(Self { lanes: LANES, events, mounted })
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
    mounted: BTreeMap<String, Vec<String>>,
}

impl Drawing {
    fn event(&mut self, at: f64, event: &Event) {
        match event {
            Event::RpcStart(start) => self.call(at, start),
            Event::RpcEnd(end) => self.answer(at, end),
            Event::MountAdd(mount) => self.mount(at, mount),
            Event::MountChg(mount) => {
                let text = format!("changed {} to {}", mount.target, mount.opts);
                self.by(at, mount.by, KERNEL, "kernel", text);
            }
            Event::MountDel(gone) => self.unmount(at, gone),
            Event::Effect(effect) => self.effect(at, effect),
            Event::Operation(edge) => self.operation(at, edge),
            Event::Process(edge) => self.process(at, edge),
            Event::Case(step) => self.point(at, CASE, "file", format!("{} {}", step.action, step.on)),
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
            | Event::DirectCall(_)
            | Event::MountsLost(_)
            | Event::Looked
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
        let calls = self.open.values().filter(|index| self.events[**index].2 == CALLS);
        let cause = calls.max().filter(|_| by == Actor::Driver).and_then(|index| i64::try_from(*index).ok());
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
        self.mounted.entry(mount.target.clone()).or_default().push(shown);
    }

    fn unmount(&mut self, at: f64, gone: &MountDel) {
        self.by(at, gone.by, KERNEL, "kernel", format!("unmount {}", gone.target));
        if let Some(stack) = self.mounted.get_mut(&gone.target) {
            stack.pop();
            if stack.is_empty() {
                self.mounted.remove(&gone.target);
            }
        }
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
mod tests {
    use super::*;

    /// The timeline of a trace with these lines.
    fn timeline(lines: &str) -> Option<Timeline> {
        let directory = tempfile::tempdir().unwrap();
        let trace = directory.path().join("trace.jsonl");
        std::fs::write(&trace, lines).unwrap();
        Timeline::of(&trace)
    }

    #[test]
    fn mount_during_a_call_is_linked_to_it_and_stays_until_it_is_unmounted() {
        let mount = |target: &str, id: u64| {
            format!(
                r#"{{"seq":2,"t_ms":2.0,"ev":"mount_add","target":"{target}","root":"/","fstype":"ext4","source":"/dev/loop0","opts":"rw","super":"rw","dev":"7:0","id":{id},"by":"driver","seen_by":"poll"}}"#
            )
        };
        let lines = [
            contracts::recording::header(),
            r#"{"seq":1,"t_ms":1.0,"ev":"rpc_start","id":7,"method":"NodeStageVolume","req":{"volumeId":"</v>"}}"#.into(),
            mount("/a", 1),
            mount("/b", 2),
            r#"{"seq":4,"t_ms":3.0,"ev":"mount_del","target":"/b","id":2,"by":"driver","seen_by":"poll"}"#.into(),
            r#"{"seq":5,"t_ms":5.0,"ev":"rpc_end","id":7,"method":"NodeStageVolume","code":"Internal","message":"no","dur_ms":4.0}"#.into(),
            "half a li".into(),
        ];
        let timeline = timeline(&lines.join("\n")).unwrap();
        let json: Value = serde_json::from_str(&timeline.json()).unwrap();
        let call = serde_json::json!([1.0, 4.0, CALLS, "bad", "NodeStageVolume </v> → Internal no", -1]);
        assert_eq!(json["events"][0], call);
        assert_eq!(json["events"][1][5], 0, "the mount's cause is the call");
        assert!(!timeline.json().contains('<'));
        assert_eq!(timeline.mounted.keys().collect::<Vec<_>>(), ["/a"]);
    }

    #[test]
    fn trace_that_is_not_there_or_empty_has_no_timeline() {
        assert!(Timeline::of(Path::new("/no/such/trace")).is_none());
        assert!(timeline("").is_none());
    }
}
