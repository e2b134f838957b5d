//! Reads a recording: lines of our own traces, and of recorders beside other nodes, which have fewer fields.

use std::collections::{BTreeMap, BTreeSet};

use contracts::event::{Awaited, Event, Lifecycle, ProcessEdge, Role, TraceLine, WaitReturned};
use contracts::recording::Reader;
use contracts::rule::Witness;
use serde_json::{Map, Value};

use crate::compare::{Line, Trace, Unreadable};

/// The events of a recording that rules can judge.
#[derive(Debug)]
pub(crate) struct Recording {
    lines: Vec<TraceLine>,
    names_makers: bool,
}

impl Recording {
    /// Reads a recording. Lines that no rule judges, such as the steps of a player, are skipped.
    ///
    /// # Errors
    /// When the text is no recording.
    pub(crate) fn parse(text: &str) -> Result<Self, Unreadable> {
        let trace = Trace::parse(text)?;
        let (mut lines, mut mounts) = (Vec::new(), Mounts::default());
        let mut reader = Reader::default();
        for line in trace.lines() {
            // A line of the file, so that a reader finds it.
            let seq = line.number as u64;
            let t_ms = line.get("t_ms").as_f64().unwrap_or_default();
            let wrong = |why: serde_json::Error| Unreadable::Line { line: line.number, why: why.to_string() };
            let event = match of_another_recorder(line) {
                Some(event) => Some(event),
                None => reader.event(mounts.filled(line)).map_err(wrong)?,
            };
            lines.extend(event.map(|event| TraceLine { seq, t_ms, event }));
        }
        Ok(Self { lines, names_makers: reader.names_makers() })
    }

    /// The witnesses of the recording.
    pub(crate) fn witnesses(&self) -> BTreeSet<Witness> {
        let makers = self.names_makers.then_some(Witness::Makers);
        Witness::heard_in(&self.lines).into_iter().chain(makers).collect()
    }

    pub(crate) fn lines(&self) -> &[TraceLine] {
        &self.lines
    }
}

/// The event of a line by a recorder that plays scenarios against another volume manager.
fn of_another_recorder(line: &Line) -> Option<Event> {
    let node = |edge| process(Role::Node, edge);
    let driver = |edge| process(Role::Driver, edge);
    let returned = |what| {
        let said = |field: &str| line.text(field).to_owned();
        Event::Wait(WaitReturned { what, pod: said("pod"), err: said("err") })
    };
    Some(match line.ev.as_str() {
        "restart" => node(Lifecycle::Kill),
        "volume_manager_start" => node(Lifecycle::Start),
        "driver_started" => driver(Lifecycle::Start),
        "driver_registered" if line.text("err").is_empty() => driver(Lifecycle::Registered),
        "driver_stopped" => driver(Lifecycle::Exit),
        "wait_mount_returned" => returned(Awaited::Mounted),
        "wait_unmount_returned" => returned(Awaited::Unmounted),
        _ => return None,
    })
}

fn process(who: Role, edge: Lifecycle) -> Event {
    Event::Process(ProcessEdge { who, edge, status: None, root: None, hides_driver: false })
}

/// The known mounts, for recorders that write only the changed fields of a mount.
#[derive(Debug, Default)]
struct Mounts(BTreeMap<String, Map<String, Value>>);

impl Mounts {
    /// The fields of a line; of one about a mount with what its recorder cannot know: who mounted, and ids that no
    /// table shows.
    fn filled(&mut self, line: &Line) -> Map<String, Value> {
        if !line.ev.starts_with("mount_") {
            return line.fields().clone();
        }
        let target = line.text("target").to_owned();
        // The line of a change may have only the changed fields.
        let mut fields = match line.ev.as_str() {
            "mount_chg" => self.0.remove(&target).unwrap_or_default(),
            _ => Map::new(),
        };
        fields.extend(line.fields().clone());
        // A device is identified by its path on devtmpfs, which is the same wherever it is mounted.
        if line.text("fstype") == "devtmpfs" && !fields.contains_key("dev") {
            fields.insert("rdev".to_owned(), line.get("root").clone());
        }
        for (field, unknown) in [("by", "unknown".into()), ("id", 0.into()), ("dev", "".into())] {
            fields.entry(field).or_insert(unknown);
        }
        if line.ev != "mount_del" {
            self.0.insert(target, fields.clone());
        }
        fields
    }
}
