//! Reads a recording line by line: lines of our own traces, and of recorders beside other nodes, which have fewer fields.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead};

use contracts::event::{Awaited, Event, Lifecycle, ProcessEdge, Role, TraceLine, WaitReturned};
use contracts::recording::Reader;
use contracts::rule::Witness;
use serde_json::{Map, Value};

use crate::compare::{Line, Unreadable};

/// Why a recording cannot be judged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// The events of a recording that rules can judge. Only the present line is kept.
#[derive(Debug)]
pub(crate) struct Recording<R> {
    text: R,
    number: usize,
    reader: Reader,
    mounts: Mounts,
    witnesses: BTreeSet<Witness>,
    tells: bool,
}

impl<R: BufRead> Recording<R> {
    pub(crate) fn new(text: R) -> Self {
        Self {
            text,
            number: 0,
            reader: Reader::default(),
            mounts: Mounts::default(),
            witnesses: BTreeSet::new(),
            tells: false,
        }
    }

    /// The next event; `None` at the end. Lines that no rule judges, such as the steps of a player, are skipped.
    ///
    /// # Errors
    /// When the text is no recording.
    pub(crate) fn next(&mut self) -> Result<Option<TraceLine>, ReadError> {
        let mut text = String::new();
        loop {
            text.clear();
            if self.text.read_line(&mut text)? == 0 {
                return if self.tells { Ok(None) } else { Err(Unreadable::Empty.into()) };
            }
            self.number += 1;
            if text.trim().is_empty() {
                continue;
            }
            let line = Line::parse(&text, self.number)?;
            self.tells |= line.is_compared();
            if let Some(line) = self.judged(line)? {
                self.witnesses.extend(Witness::behind(&line.event));
                return Ok(Some(line));
            }
        }
    }

    fn judged(&mut self, line: Line) -> Result<Option<TraceLine>, Unreadable> {
        let number = line.number;
        let wrong = |why: serde_json::Error| Unreadable::Line { line: number, why: why.to_string() };
        let t_ms = line.get("t_ms").as_f64().unwrap_or_default();
        let event = match of_another_recorder(&line) {
            Some(event) => Some(event),
            None => self.reader.event(self.mounts.filled(line)).map_err(wrong)?,
        };
        // A line of the file, so that a reader finds it.
        Ok(event.map(|event| TraceLine { seq: number as u64, t_ms, event }))
    }

    /// The witnesses so far.
    pub(crate) fn witnesses(&self) -> BTreeSet<Witness> {
        let makers = self.reader.names_makers().then_some(Witness::Makers);
        self.witnesses.iter().copied().chain(makers).collect()
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
    fn filled(&mut self, line: Line) -> Map<String, Value> {
        if !line.ev.starts_with("mount_") {
            return line.into_fields();
        }
        let target = line.text("target").to_owned();
        // The line of a change may have only the changed fields.
        let mut fields = match line.ev.as_str() {
            "mount_chg" => self.0.remove(&target).unwrap_or_default(),
            _ => Map::new(),
        };
        let (is_device, root) = (line.text("fstype") == "devtmpfs", line.get("root").clone());
        let is_gone = line.ev == "mount_del";
        fields.extend(line.into_fields());
        // A device is identified by its path on devtmpfs, which is the same wherever it is mounted.
        if is_device && !fields.contains_key("dev") {
            fields.insert("rdev".to_owned(), root);
        }
        for (field, unknown) in [("by", "unknown".into()), ("id", 0.into()), ("dev", "".into())] {
            fields.entry(field).or_insert(unknown);
        }
        if !is_gone {
            self.0.insert(target, fields.clone());
        }
        fields
    }
}
