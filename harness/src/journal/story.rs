//! The story: what happened, for people, the same in every run.
//!
//! One line for each call that changes something and for each change at a path the node owns or checks.
//! The story has one volume after the other, since what happens to two of them has no order to rely on; within
//! a volume the order is the journal's. How a driver does its work, what it mounts elsewhere and how it
//! stages, is left out, so that one story fits every driver. Touches nothing.

mod call;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use contracts::event::{Actor, Effect, EffectKind, Event, Lifecycle, Mount, Role, TraceLine};
use contracts::witnessed::{self, Unexplained};

use crate::symbols::{Place, Symbols};
use call::Call;

/// The events since the last look.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Story {
    lines: Vec<Line>,
}

/// Turns lines of the journal into a story; remembers what a later story needs to know of an earlier one.
#[derive(Debug)]
pub struct Teller {
    symbols: Symbols,
    /// Calls that had not ended at the end of the last story.
    open: BTreeMap<u64, Call>,
    /// The backing file of each loop device, by the device's path.
    locks: BTreeMap<String, String>,
    /// Global map directories that are there.
    maps: BTreeSet<String>,
    /// The processes that the harness has ended.
    expected: BTreeSet<Role>,
    unexplained: Unexplained,
    show_private: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct Line {
    /// The volume under which the line stands; empty if it concerns none.
    group: String,
    verb: &'static str,
    what: String,
    rest: String,
    call: Option<Call>,
    /// The target, for a mount whose later options change this line.
    mount: Option<u64>,
}

impl Teller {
    /// A teller that leaves out the driver's own mounts.
    pub fn new(symbols: Symbols) -> Self {
        let (open, locks, maps, expected) = Default::default();
        let unexplained = Unexplained::recording(&symbols.root().to_string_lossy());
        Self { symbols, open, locks, maps, expected, unexplained, show_private: false }
    }

    /// Sets whether the story has the driver's own mounts, too.
    pub fn show_private(&mut self, show: bool) {
        self.show_private = show;
    }

    /// The story of these lines.
    pub fn tell(&mut self, trace: &[TraceLine]) -> Story {
        let mut lines = Vec::new();
        for traced in trace {
            self.add(&traced.event, traced.t_ms, &mut lines);
            for found in self.unexplained.event(traced) {
                let verb = match found.kind {
                    witnessed::Kind::Stray => "stray",
                    witnessed::Kind::Phantom => "phantom",
                };
                lines.push(self.irregular(verb, &found.what.what));
            }
        }
        fold_retries(&mut lines);
        // A stable sort: within a volume the order stays the journal's. What concerns no volume comes last.
        lines.sort_by(|a, b| (a.group.is_empty(), &a.group).cmp(&(b.group.is_empty(), &b.group)));
        Story { lines }
    }

    fn add(&mut self, event: &Event, t_ms: f64, lines: &mut Vec<Line>) {
        match event {
            Event::RpcStart(start) => {
                if let Some(call) = Call::start(start, t_ms, &self.symbols) {
                    self.open.insert(start.id, call.clone());
                    lines.push(Line::of_call(call));
                }
            }
            Event::RpcEnd(end) => {
                let Some(mut call) = self.open.remove(&end.id) else { return };
                call.end(end, t_ms, &self.symbols);
                match lines.iter_mut().find(|line| line.is_call(end.id)) {
                    Some(line) => line.call = Some(call),
                    // An earlier story has its start.
                    None => lines.push(Line::of_call(call)),
                }
            }
            Event::MountAdd(mount) => self.add_mount(mount, lines),
            Event::MountChg(mount) => self.change_mount(mount, lines),
            Event::MountDel(gone)
                if gone.by != Actor::Node && self.is_in_story(&gone.target, gone.by, &gone.seen_by) =>
            {
                self.at(&gone.target, "umount", String::new(), lines);
            }
            Event::Effect(effect) if effect.confirmed => self.add_effect(effect, lines),
            Event::Process(edge) if matches!(edge.edge, Lifecycle::Kill | Lifecycle::Terminate) => {
                self.expected.insert(edge.who);
            }
            // Only an unexpected end is news.
            Event::Process(edge) if edge.edge == Lifecycle::Exit && !self.expected.remove(&edge.who) => {
                let rest = edge.status.clone().unwrap_or_default();
                lines.push(Line::new("", "exit", edge.who.to_string(), rest));
            }
            _ => {}
        }
    }

    /// Adds a mount. A mount of the node is added when the node announces it, and one without a reason as a stray.
    fn add_mount(&mut self, mount: &Mount, lines: &mut Vec<Line>) {
        if mount.by == Actor::Node || !self.is_in_story(&mount.target, mount.by, &mount.seen_by) {
            return;
        }
        let Some(place) = self.symbols.place(Path::new(&mount.target)) else { return };
        let (verb, rest) = match &mount.rdev {
            Some(device) => {
                self.symbols.name_device(place.volume(), device);
                let name = self.symbols.device(device).unwrap_or_else(|| device.clone());
                ("bind", format!("=  {name}"))
            }
            None => ("mount", if is_read_only(mount) { "ro".to_owned() } else { String::new() }),
        };
        if let Some(mut line) = self.line_at(&mount.target, verb, rest) {
            line.mount = Some(mount.id);
            lines.push(line);
        }
    }

    /// Whether a mount event is in the story. If its process is unknown or gone, such as a helper of mount(8), a mount at
    /// the node's own paths is added when the node announces it.
    fn is_in_story(&self, target: &str, by: Actor, seen_by: &str) -> bool {
        let place = self.symbols.place(Path::new(target));
        (seen_by != "poll" && by != Actor::Unknown)
            || !matches!(
                place,
                Some(Place::Map { .. } | Place::InPod { .. } | Place::SubPath { .. } | Place::Global { .. })
            )
    }

    /// Gives the line of a mount its final options.
    fn change_mount(&mut self, mount: &Mount, lines: &mut Vec<Line>) {
        let rest = if is_read_only(mount) { "ro" } else { "rw" };
        match lines.iter_mut().rfind(|line| line.mount == Some(mount.id) && line.verb == "mount") {
            Some(line) => line.rest = if rest == "ro" { rest.to_owned() } else { String::new() },
            None if mount.by != Actor::Node => self.at(&mount.target, "remount", rest.to_owned(), lines),
            None => {}
        }
    }

    fn add_effect(&mut self, effect: &Effect, lines: &mut Vec<Line>) {
        let field = |key: &str| effect.fields.get(key).cloned();
        let source = effect.source.clone().unwrap_or_default();
        match effect.effect {
            EffectKind::Bind => self.at(&effect.path, "bind", format!("=  {}", self.source(&source)), lines),
            EffectKind::Mount => self.at(&effect.path, "mount", field("fstype").unwrap_or_default(), lines),
            EffectKind::Umount => self.at(&effect.path, "umount", String::new(), lines),
            EffectKind::Link => {
                let to = field("to").map(|to| self.symbols.path(Path::new(&to))).unwrap_or_default();
                self.at(&effect.path, "link", format!("->  {to}"), lines);
            }
            EffectKind::Unlink => self.at(&effect.path, "unlink", String::new(), lines),
            EffectKind::Lock => {
                self.locks.insert(source, effect.path.clone());
                self.at(&effect.path, "lock", String::new(), lines);
            }
            EffectKind::Unlock => {
                let held = self.locks.remove(&effect.path).unwrap_or_else(|| effect.path.clone());
                self.at(&held, "unlock", String::new(), lines);
            }
            EffectKind::Mkdir if self.is_map(&effect.path) => _ = self.maps.insert(effect.path.clone()),
            EffectKind::Mkdir if self.is_directory(&effect.path) => {
                self.at(&effect.path, "mkdir", String::new(), lines)
            }
            EffectKind::Rmdir | EffectKind::Remove if self.is_directory(&effect.path) => {
                self.at(&effect.path, "rmdir", String::new(), lines);
            }
            EffectKind::Rmdir | EffectKind::Remove => {
                // The map directory may go alone or with the directory around it.
                let inside = format!("{}/dev", effect.path);
                for map in [&effect.path, &inside] {
                    if self.maps.remove(map) {
                        self.at(map, "rmdir", String::new(), lines);
                    }
                }
            }
            _ => {}
        }
    }

    fn is_map(&self, path: &str) -> bool {
        matches!(self.symbols.place(Path::new(path)), Some(Place::Map { pod: None, .. }))
    }

    /// Whether a path is a volume of a pod that the node itself makes, with no driver in between.
    fn is_directory(&self, path: &str) -> bool {
        let drivers = path.contains("/kubernetes.io~csi/") || path.contains("/volumeDevices/");
        !drivers && matches!(self.symbols.place(Path::new(path)), Some(Place::InPod { .. }))
    }

    /// A bind's source: the device behind it, where it is a device some volume is reached through.
    fn source(&self, source: &str) -> String {
        match self.symbols.place(Path::new(source)) {
            Some(Place::Publish { volume, .. }) if self.symbols.has_device(&volume) => {
                format!("<device:{volume}>")
            }
            _ => self.symbols.path(Path::new(source)),
        }
    }

    fn at(&self, path: &str, verb: &'static str, rest: String, lines: &mut Vec<Line>) {
        lines.extend(self.line_at(path, verb, rest));
    }

    fn line_at(&self, path: &str, verb: &'static str, rest: String) -> Option<Line> {
        let place = self.symbols.place(Path::new(path))?;
        // A story does not have the driver's own mounts at the staging path.
        let private = matches!(place, Place::Stage { .. });
        (!private || self.show_private).then(|| Line::new(place.volume(), verb, place.to_string(), rest))
    }

    fn irregular(&self, verb: &'static str, what: &str) -> Line {
        let path = what.split_once(' ').map_or(what, |(_, path)| path);
        let place = self.symbols.place(Path::new(path));
        let group = place.as_ref().map(Place::volume).unwrap_or_default();
        Line::new(group, verb, self.symbols.text(what), String::new())
    }
}

impl Line {
    fn new(group: &str, verb: &'static str, what: String, rest: String) -> Self {
        Self { group: group.to_owned(), verb, what, rest, call: None, mount: None }
    }

    fn of_call(call: Call) -> Self {
        let mut line = Self::new(&call.volume, "csi", call.to_string(), String::new());
        line.call = Some(call);
        line
    }

    fn is_call(&self, id: u64) -> bool {
        self.call.as_ref().is_some_and(|call| call.id == id)
    }

    fn rest(&self, spans: bool) -> String {
        match &self.call {
            Some(call) => call.result(spans),
            None => self.rest.clone(),
        }
    }
}

impl Story {
    /// Whether nothing happened that is worth telling.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The story with the time that retries took, which no two runs share.
    pub fn with_times(&self) -> String {
        self.render(true)
    }

    /// The story without each call that the driver put off and that was made again.
    #[must_use]
    pub fn without_put_off_calls(&self) -> Self {
        let mut lines: Vec<Line> = Vec::with_capacity(self.lines.len());
        for line in &self.lines {
            if let (Some(call), Some(Line { call: Some(earlier), .. })) = (&line.call, lines.last())
                && earlier.is_tried_again_by(call)
            {
                lines.pop();
            }
            lines.push(line.clone());
        }
        Self { lines }
    }

    fn render(&self, spans: bool) -> String {
        // Columns are as wide as the widest name, in steps of four: then most changes leave other lines alone.
        let wide = |line: &&Line| !line.rest(spans).is_empty();
        let widest = self.lines.iter().filter(wide).map(|line| line.what.chars().count() + 2).max();
        let width = widest.unwrap_or_default().max(20).next_multiple_of(4);
        let mut text = String::new();
        for line in &self.lines {
            let row = format!("{:<6} {:<width$}{}", line.verb, line.what, line.rest(spans));
            text += row.trim_end();
            text.push('\n');
        }
        text
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

/// Merges each failed attempt with the one before it, if nothing else happened to the volume in between.
fn fold_retries(lines: &mut Vec<Line>) {
    let mut last: BTreeMap<String, usize> = BTreeMap::new();
    let mut kept: Vec<Line> = Vec::with_capacity(lines.len());
    for line in lines.drain(..) {
        let before = last.get(&line.group).map(|at| &mut kept[*at]);
        if let (Some(call), Some(Line { call: Some(earlier), .. })) = (&line.call, before)
            && earlier.absorbs(call)
        {
            continue;
        }
        last.insert(line.group.clone(), kept.len());
        kept.push(line);
    }
    *lines = kept;
}

fn is_read_only(mount: &Mount) -> bool {
    mount.opts.split(',').any(|option| option == "ro")
}

#[cfg(test)]
mod tests;
