//! What a journal keeps beside its lines: calls under way, what was around them, and what explains the changes to come.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

use contracts::csi::Request;
use contracts::event::{
    Effect, Event, Lifecycle, Meddled, Meddling, ProcessEdge, Role, RpcEnd, Touch, Touched, TraceLine,
};
use contracts::witnessed::{self, Unexplained};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;

use super::announced::{Announced, Announcements};
use super::around::{Appeared, Around, Asked, Others};
use super::in_the_way::InTheWay;
use super::kept::Kept;
use super::kernel::Kernel;
use super::own::{self, Own};
use super::things::{Thing, Things};
use super::{Announcement, Teller, confirm};
use crate::loop_device::table;
use crate::masks::Masks;
use crate::symbols::Symbols;

#[derive(Debug)]
pub(super) struct State {
    pub(super) symbols: Symbols,
    pub(super) masks: Masks,
    pub(super) started: Instant,
    pub(super) lines: Vec<TraceLine>,
    /// The number of earlier lines that were dropped.
    pub(super) forgotten: usize,
    /// The number of lines that earlier looks have returned.
    pub(super) looked: usize,
    pub(super) teller: Teller,
    pub(super) kernel: Kernel,
    /// `None` while no node listens.
    pub(super) announcements: Option<Box<dyn Announcements>>,
    pub(super) own: Own,
    pub(super) flights: BTreeMap<u64, Flight>,
    /// The loop devices and processes at the last look.
    pub(super) things: Option<Things>,
    pub(super) unexplained: Unexplained,
    /// It was killed, or has ended, and was not started since.
    pub(super) node_is_dead: bool,
    /// Whether the node's files are also changed by hand, by the case or the user.
    pub(super) is_by_hand: bool,
    pub(super) next_call: u64,
    pub(super) gathered: Gathered,
    /// Whether the node is a foreign process, known by its calls.
    pub(super) follows_node: bool,
    /// The file that gets each line at once; `None` if none was asked for.
    pub(super) kept: Option<Kept>,
}

/// Facts about recorded calls that end when their lines are dropped.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// Targets that were not there before a driver was asked to publish at them.
    pub(super) made: BTreeSet<PathBuf>,
    pub(super) in_the_way: InTheWay,
    /// The files of loop devices that appeared during calls.
    pub(super) backings: BTreeSet<PathBuf>,
    /// Loop devices and processes, by the call during which they appeared.
    pub(super) appeared: BTreeMap<Thing, Appeared>,
    /// Calls whose error repeated a secret that the driver was given, each with the secret's key.
    pub(super) leaked_secrets: BTreeSet<(String, String)>,
    /// Calls that answered a context with one, likewise.
    pub(super) secrets_in_contexts: BTreeSet<(String, String)>,
}

/// A call that is under way.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) method: String,
    /// The reasons it gives a driver to change mounts.
    pub(super) work: BTreeSet<Work>,
    pub(super) started: Instant,
    /// Whether it publishes a raw device.
    pub(super) is_block: bool,
    pub(super) around: Option<Around>,
}

/// A volume that a driver has reason to change, and the path the call named.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Work {
    pub(super) volume: String,
    pub(super) path: String,
}

/// The most files and mounts that are remembered from calls.
const REMEMBERED: usize = 1000;

impl State {
    /// Looks for secrets that the driver was given in the contexts of its answer.
    pub(super) fn look_at_context(&mut self, method: &str, answer: &Value) {
        let contexts = [&answer["volume"]["volumeContext"], &answer["publishContext"]];
        let texts = contexts.into_iter().filter(|context| context.is_object()).map(ToString::to_string);
        let exposed = texts.filter_map(|text| self.masks.confided_in(&text)).collect::<Vec<_>>();
        self.gathered.secrets_in_contexts.extend(exposed.into_iter().map(|key| (method.to_owned(), key)));
    }

    pub(super) fn length(&self) -> usize {
        self.forgotten + self.lines.len()
    }

    pub(super) fn lines_from(&self, number: usize) -> &[TraceLine] {
        &self.lines[number.saturating_sub(self.forgotten).min(self.lines.len())..]
    }

    /// Forgets `lines` lines in all, but none that a call under way looks back to.
    pub(super) fn forget(&mut self, lines: usize) {
        let around = self.flights.values().filter_map(|flight| flight.around.as_ref());
        let oldest = around.map(Around::lines).min().unwrap_or(lines).min(lines);
        self.lines.drain(..oldest.saturating_sub(self.forgotten));
        self.forgotten = self.forgotten.max(oldest);
        self.looked = self.looked.max(self.forgotten);
        self.gathered.in_the_way.limit(REMEMBERED);
        if self.gathered.made.len() > REMEMBERED {
            self.gathered.made.clear();
        }
        if self.gathered.backings.len() > REMEMBERED {
            self.gathered.backings.clear();
        }
        if self.gathered.appeared.len() > REMEMBERED {
            self.gathered.appeared.clear();
        }
    }

    /// Drops all lines but the first `lines`, and everything that was made of them.
    pub(super) fn rewind(&mut self, lines: usize) {
        self.lines.truncate(lines.saturating_sub(self.forgotten));
        self.looked = 0;
        self.teller = Teller::new(self.symbols.clone());
        self.unexplained = Unexplained::recording(&self.symbols.root().to_string_lossy());
        for line in &self.lines {
            self.unexplained.event(line);
        }
        self.gathered = Gathered::default();
        self.own.accept();
        self.kept = None;
    }

    pub(super) fn push(&mut self, event: Event) {
        if let Event::Process(edge) = &event
            && edge.who == Role::Node
        {
            self.node_is_dead = edge.edge != Lifecycle::Start;
        }
        let seq = self.length() as u64 + 1;
        let t_ms = (self.started.elapsed().as_secs_f64() * 1e6).round() / 1e3;
        let line = TraceLine { seq, t_ms, event };
        if let Some(kept) = &mut self.kept {
            kept.append(&line, &self.masks);
        }
        // The reader of the lines judges the findings; here only the reasons for the next lines are kept.
        self.unexplained.event(&line);
        self.lines.push(line);
    }

    /// Records what the node and the kernel have to say, and who did it.
    pub(super) fn drain(&mut self) {
        // The node is heard first: the mounts of the effects that it announces are then among the kernel's events.
        let announced = self.announcements.as_mut().map(|announcements| announcements.drain());
        for event in self.kernel.drain(&self.unexplained) {
            self.push(event);
        }
        announced.into_iter().flatten().for_each(|announced| self.hear(announced));
        self.announcements.take_if(|announcements| !announcements.is_open());
    }

    /// Records what the node says of itself. A notice that one that was killed had still on its way is nothing that it
    /// did: its books died with it.
    fn hear(&mut self, announced: Announced) {
        match announced {
            Announced::Notice(_) if self.node_is_dead => {}
            Announced::Notice(event) => self.push(event),
            Announced::Effect(said) => {
                self.effect(said);
                let goes_on = self.announcements.as_mut().is_none_or(|node| node.let_go_on());
                if !goes_on {
                    self.kill_node();
                }
            }
        }
    }

    /// Records an effect the node announces, after a look at the kernel. Returns whether the kernel shows it.
    pub(super) fn effect(&mut self, mut said: Announcement) -> bool {
        let path = said.path.to_string_lossy().into_owned();
        let is_reported = !self.kernel.is_witnessed() || self.unexplained.is_reported(said.effect, &path);
        let confirmed = is_reported && confirm::shows(&said);
        said.fields.remove(confirm::INODE);
        let effect = Effect {
            effect: said.effect,
            path,
            source: said.source.map(|source| source.to_string_lossy().into_owned()),
            fields: said.fields,
            confirmed,
        };
        let is_suspicious = |path: &Path| {
            let is_alone = self.flights.is_empty() && !self.is_by_hand && !self.node_is_dead;
            is_alone && !self.unexplained.abandoned_paths().any(|excused| path.starts_with(excused))
        };
        self.own.announced(&effect, self.symbols.root(), is_suspicious);
        self.push(Event::Effect(effect));
        confirmed
    }

    fn kill_node(&mut self) {
        if let Some(node) = self.kernel.actors.node {
            self.process(Role::Node, Lifecycle::Kill, None);
            // Fails if no process of the group is left, and then there is nothing to kill.
            let _ = killpg(Pid::from_raw(node), Signal::SIGKILL);
        }
    }

    /// Records the start or the end of a process.
    pub(super) fn process(&mut self, who: Role, edge: Lifecycle, status: Option<String>) {
        if edge == Lifecycle::Exit && who == Role::Node {
            // A dead node could not announce its last effects: they are no strays.
            self.own.forget_suspects();
        }
        if who == Role::Node {
            // Without the node others may do what they like in its tree.
            self.own.accept();
        }
        let is_node_start = (who, edge) == (Role::Node, Lifecycle::Start);
        let root = is_node_start.then(|| self.symbols.root().to_string_lossy().into_owned());
        let hides_driver = is_node_start && self.kernel.actors.driver_is_outside;
        self.push(Event::Process(ProcessEdge { who, edge, status, root, hides_driver }));
    }

    /// Looks around the path of a call that may change mounts, if it is one of the node's.
    pub(super) fn look_around(&mut self, flight: &Flight) -> Option<Around> {
        let work = flight.work.first()?;
        let path = Path::new(&work.path);
        let is_the_nodes = self.symbols.place(path).is_some() && self.symbols.is_contract(path);
        if !is_the_nodes {
            return None;
        }
        let things = Things::now(self.things.as_ref());
        self.things = Some(things.clone());
        let (root, others) = (self.symbols.root(), self.others_at(&work.path));
        Some(Around::look(path, root, self.length(), others, things))
    }

    /// The calls under way, beside one at this path.
    pub(super) fn others_at(&self, path: &str) -> Others {
        let here = |flight: &Flight| flight.work.iter().any(|work| work.path == path);
        match self.flights.values().any(here) {
            true => Others::Here,
            false if self.flights.is_empty() => Others::None,
            false => Others::Elsewhere,
        }
    }

    pub(super) fn note_appeared(&mut self, flight: &Flight) {
        let (Some(around), Some(work)) = (&flight.around, flight.work.first()) else { return };
        let things = Things::now(Some(around.things()));
        for thing in things.since(around.things()) {
            if let Thing::Loop(number, _) = thing {
                self.gathered.backings.extend(table::read(number).map(|bound| bound.backing));
            }
            let call = || Appeared { method: flight.method.clone(), volume: work.volume.clone() };
            self.gathered.appeared.entry(thing).or_insert_with(call);
        }
        self.things = Some(things);
    }

    /// The touched paths around a call that has ended; `changed` are the changes of the node's own entries meanwhile.
    pub(super) fn touched(
        &mut self,
        flight: &Flight,
        end: &RpcEnd,
        changed: Vec<(PathBuf, Meddling)>,
    ) -> Vec<Touched> {
        let (Some(around), Some(work)) = (&flight.around, flight.work.first()) else { return Vec::new() };
        let is_mounted = self.kernel.is_mounted(&work.path);
        let others = self.others_at(&work.path);
        let asked = Asked { method: &flight.method, is_block: flight.is_block };
        let is_ok = end.code == "OK" && end.is_from_the_driver();
        let meanwhile = &self.lines[around.lines() - self.forgotten..];
        let mut touched =
            around.touched(end.id, asked, is_ok, meanwhile, &mut self.gathered.made, is_mounted);
        let is_above = |touched: &Touched| Path::new(&work.path).starts_with(&touched.path);
        touched.retain(|touched| match others {
            // Whichever of the calls it was: the driver did it.
            _ if touched.how == Touch::Linked && is_above(touched) => true,
            Others::None => true,
            Others::Elsewhere if touched.path == work.path => true,
            Others::Elsewhere | Others::Here => touched.path.ends_with("/vol_data.json"),
        });
        touched.extend(self.linked_elsewhere(flight, end, changed, meanwhile, &touched));
        touched
    }

    /// The other entries of the node that became links during a call, such as the directory of another volume. The node never
    /// puts a link in the place of what it made.
    fn linked_elsewhere(
        &self,
        flight: &Flight,
        end: &RpcEnd,
        changed: Vec<(PathBuf, Meddling)>,
        meanwhile: &[TraceLine],
        known: &[Touched],
    ) -> Vec<Touched> {
        let is_free = |line: &TraceLine| matches!(line.event, Event::Case(_) | Event::Disturbed(_));
        if self.is_by_hand || self.node_is_dead || meanwhile.iter().any(is_free) {
            return Vec::new();
        }
        let linked = own::topmost(changed.into_iter().filter(|(_, how)| *how == Meddling::Link));
        let linked = linked.into_iter().map(|(path, _)| path.to_string_lossy().into_owned());
        let new = linked.filter(|path| !known.iter().any(|known| Path::new(path).starts_with(&known.path)));
        let touched = |path| Touched {
            method: flight.method.clone(),
            id: end.id,
            path,
            how: Touch::Linked,
            named: false,
        };
        new.map(touched).collect()
    }

    /// Records a look, if an overdue announcement is missing, and which of the node's files were changed by another
    /// process.
    ///
    /// At the end all such changes are recorded. Before it, the node may still announce a change as its own, and not
    /// all that it does is an operation.
    pub(super) fn look(&mut self, is_the_end: bool) {
        if self.unexplained.is_overdue() {
            self.push(Event::Looked);
        }
        // A change at this moment may be the node's, which has no time to announce it at the end.
        if !is_the_end {
            self.compare_own();
        }
        let by = self.kernel.actors.driver();
        for (how, path) in self.own.take_suspects(!is_the_end) {
            self.push(Event::Meddled(Meddled { how, path, by }));
        }
    }

    /// Looks at what the node has made, before anything else happens to it. While a call is under way, each change has
    /// a reason; a call that was abandoned is a reason at its own path.
    pub(super) fn compare_own(&mut self) {
        if !self.flights.is_empty() {
            return;
        }
        match !self.is_by_hand && !self.node_is_dead {
            true => self.own.compare(self.unexplained.abandoned_paths()),
            false => _ = self.own.accept(),
        }
    }
}

impl Flight {
    pub(super) fn new(method: &str, req: &Value, symbols: &Symbols) -> Self {
        let request = Request::of(req);
        let mut work = BTreeSet::new();
        if let Some(paths) = witnessed::changed_paths(method, request) {
            let path = paths.first().copied().unwrap_or_default();
            // By its paths, too: the handle of a volume that lives inside a pod has no name.
            let places = paths.iter().filter_map(|path| symbols.place(Path::new(path)));
            let volumes = places.map(|place| place.volume().to_owned());
            let handle = Some(request.volume_id()).filter(|handle| !handle.is_empty());
            let volumes = volumes.chain(handle.map(|handle| symbols.volume(handle)));
            work.extend(volumes.map(|volume| Work { volume, path: path.to_owned() }));
        }
        let is_block = Asked::of(method, req).is_block;
        Self { method: method.to_owned(), work, started: Instant::now(), is_block, around: None }
    }
}
