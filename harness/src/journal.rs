//! Everything that happened, in one order.
//!
//! The journal is asked to record from many sides at once, and what it writes down is one sequence. Three
//! rules make that sequence true:
//!
//! - before anything is recorded, all mount events that are pending are recorded ([`Witness::drain`]), and all that the
//!   node has announced ([`Announcements::drain`]);
//! - the proxy passes an edge of a call on only after it was recorded;
//! - the node goes on after an effect only when the journal has looked at the kernel and recorded it.
//!
//! So each line before another one happened before it. This file holds the order; `kernel` judges who did
//! what, `confirm` looks at the kernel, `story` writes it for people. It reads links and sysfs, changes nothing,
//! and writes only the report files that its caller names.

mod announced;
mod around;
mod behind;
mod claims;
mod confirm;
mod in_the_way;
mod kept;
mod kernel;
mod own;
mod report;
mod state;
mod story;
mod things;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use contracts::csi::Request;
use contracts::event::{
    self, ApiChange, DirectAnswer, DirectCall, EffectKind, Event, Lifecycle, PodChange, PodPhase, Role,
    RpcEnd, RpcStart, Step, TraceLine, Unreadable,
};
use contracts::witnessed::{self, Found, Unexplained};
use serde_json::Value;
use tokio::sync::watch;

pub use announced::{Announced, Announcements};
pub use around::Appeared;
pub use behind::LoopsBehind;
pub use claims::Claiming;
pub use kept::Limits;
pub use kernel::{Actors, Seen, Witness};
pub use report::ReportError;
pub use story::{Story, Teller};
pub use things::Thing;

use crate::Layout;
use crate::masks::Masks;
use crate::symbols::Symbols;
use kept::Kept;
use kernel::Kernel;
use own::Own;
use state::{Flight, Gathered, State};

/// The one order of a case. Clones share it.
#[derive(Debug, Clone)]
pub struct Journal {
    symbols: Symbols,
    masks: Masks,
    state: Arc<Mutex<State>>,
    length: watch::Sender<u64>,
}

/// An effect as the node announces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    pub effect: EffectKind,
    /// The changed path.
    pub path: PathBuf,
    /// What is shown there now: a bind's source, a lock's loop device. For an `unlock`, the file that was held.
    pub source: Option<PathBuf>,
    /// Everything else: `to`, `fstype`, `options`, `inode`.
    pub fields: BTreeMap<String, String>,
}

/// The end of a call.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// The gRPC code in Go's spelling, such as `OK` or `DeadlineExceeded`.
    pub code: String,
    /// The message, if the code is not `OK`.
    pub message: String,
    /// The answer as JSON.
    pub resp: Value,
    /// The fault that the proxy injected.
    pub injected: Option<String>,
    /// Whether the caller went away before the driver had answered.
    pub abandoned: bool,
    /// Why the answer could not be read.
    pub unreadable: Option<Unreadable>,
}

/// Why a driver may change mounts for a call that is not recorded.
#[derive(Debug)]
pub struct Excuse {
    journal: Journal,
    call: u64,
    answer: Option<DirectAnswer>,
}

impl Excuse {
    /// Records what the driver has answered.
    pub fn answered(&mut self, answer: DirectAnswer) {
        self.answer = Some(answer);
    }
}

impl Drop for Excuse {
    fn drop(&mut self) {
        // Earlier changes are drained first, and count as explained.
        self.journal.change(|state| {
            state.flights.remove(&self.call);
            let (volume, paths) = Default::default();
            let answer = self.answer.take();
            let call = DirectCall { id: self.call, edge: event::Edge::End, volume, paths, answer };
            state.push(Event::DirectCall(call));
        });
    }
}

/// An edge of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// It reached the socket.
    Start,
    /// Its answer left the socket.
    End,
}

impl Journal {
    /// An empty journal. Without a witness, mounts are only what the node says.
    pub fn new(symbols: Symbols, witness: Option<Box<dyn Witness>>) -> Self {
        let masks = Masks::default();
        let state = State {
            symbols: symbols.clone(),
            masks: masks.clone(),
            started: Instant::now(),
            lines: Vec::new(),
            forgotten: 0,
            looked: 0,
            teller: Teller::new(symbols.clone()),
            kernel: Kernel::new(witness),
            announcements: None,
            own: Own::default(),
            flights: BTreeMap::new(),
            things: None,
            unexplained: Unexplained::recording(&symbols.root().to_string_lossy()),
            node_is_dead: false,
            is_by_hand: false,
            next_call: 1,
            gathered: Gathered::default(),
            follows_node: false,
            kept: None,
        };
        Self { symbols, masks, state: Arc::new(Mutex::new(state)), length: watch::Sender::new(0) }
    }

    /// An empty journal for another node: with the same names and secrets, and its own paths.
    pub fn beside(&self, layout: Layout, witness: Box<dyn Witness>) -> Self {
        let beside = Self::new(self.symbols.on(layout), Some(witness));
        beside.state().masks = self.masks.clone();
        Self { masks: self.masks.clone(), ..beside }
    }

    /// The milliseconds on the clock of its lines.
    pub fn milliseconds(&self) -> f64 {
        self.state().started.elapsed().as_secs_f64() * 1e3
    }

    /// The names that its stories use.
    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// The secrets that no text made from this journal shows. The lines themselves are as they were said.
    pub fn masks(&self) -> &Masks {
        &self.masks
    }

    /// Looks for a secret in the error of a call that is not recorded.
    pub(crate) fn look_for_secrets(&self, method: &str, message: &str) {
        if let Some(key) = self.masks().confided_in(message) {
            self.state().gathered.leaked_secrets.insert((method.to_owned(), key));
        }
    }

    /// Looks for a secret in what the driver answered to a call that is not recorded.
    pub(crate) fn look_for_secrets_in_context(&self, method: &str, answer: &Value) {
        self.state().look_at_context(method, answer);
    }

    /// The calls that answered a context with a secret that the driver was given, each with the secret's key.
    pub fn secrets_in_contexts(&self) -> Vec<(String, String)> {
        self.state().gathered.secrets_in_contexts.iter().cloned().collect()
    }

    /// The calls whose error repeated a secret that the driver was given, each with the secret's key.
    pub fn leaked_secrets(&self) -> Vec<(String, String)> {
        self.state().gathered.leaked_secrets.iter().cloned().collect()
    }

    /// Keeps each line in a file as well from now on, as soon as it is made: a process that is killed leaves
    /// what it saw. Paths in it are real, and secrets are not in it.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn keep(&self, path: &Path, limits: Option<Limits>) -> Result<(), ReportError> {
        self.state().kept = Some(Kept::create(path, limits)?);
        Ok(())
    }

    /// Which process of the sandbox is the node, the driver or the harness. The starter of a process keeps it up to
    /// date.
    pub fn with_actors<T>(&self, change: impl FnOnce(&mut Actors) -> T) -> T {
        change(&mut self.state().kernel.actors)
    }

    /// Changes mounts while node and driver are dead. Kernels before 6.14 name no process for a change, and it would be
    /// taken for the node's.
    pub fn act<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Acting<'a>(&'a Journal);
        impl Drop for Acting<'_> {
            fn drop(&mut self) {
                self.0.set_acting(false);
            }
        }
        self.set_acting(true);
        let _acting = Acting(self);
        work()
    }

    fn set_acting(&self, acts: bool) {
        // What is pending belongs to what was before.
        self.change(|_| {});
        self.with_actors(|actors| actors.harness_acts = acts);
    }

    /// Leaves out what is mounted below a directory from now on: another node's, which has a journal of its own.
    pub fn leave_out(&self, directory: &Path) {
        self.state().kernel.leave_out(directory);
    }

    /// The mount points of node and driver that still exist, the latest first.
    pub fn mounted(&self) -> Vec<PathBuf> {
        self.change(|_| {});
        self.state().kernel.mounted()
    }

    /// Takes each caller of a method that only a node calls for the node, from now on: another process than before is a
    /// restarted node.
    pub fn follow_node(&self) {
        self.state().follows_node = true;
    }

    /// Notes who is about to make a call.
    pub(crate) fn called_by(&self, method: &str, caller: Option<i32>) {
        let Some(caller) = caller.filter(|_| self.state().follows_node && witnessed::is_changing(method))
        else {
            return;
        };
        match self.with_actors(|actors| actors.node.replace(caller)) {
            Some(before) if before == caller => {}
            before => {
                before.into_iter().for_each(|_| self.process(Role::Node, Lifecycle::Exit, None));
                self.process(Role::Node, Lifecycle::Start, None);
            }
        }
    }

    /// Records anything that has no method of its own here.
    pub fn record(&self, event: Event) {
        self.change(|state| state.push(event));
    }

    /// Hears a node that has started from now on.
    pub fn listen_to(&self, announcements: Box<dyn Announcements>) {
        self.change(|state| state.announcements = Some(announcements));
    }

    /// Records what is pending. Returns whether there is a node that may announce more.
    pub fn catch_up(&self) -> bool {
        let mut listens = false;
        self.change(|state| listens = state.announcements.is_some());
        listens
    }

    /// Records what the case does.
    pub fn step(&self, action: &str, on: &str) {
        let step = Step { action: action.to_owned(), on: on.to_owned(), at: None };
        self.change(|state| {
            state.compare_own();
            state.push(Event::Case(step));
        });
    }

    /// From now on the case or the user changes the node's files by hand, too, and no change is suspected.
    pub fn touched_by_hand(&self) {
        self.change(|state| {
            state.compare_own();
            state.is_by_hand = true;
        });
    }

    /// Records a change of a pod, by its name.
    pub fn pod(&self, pod: &str, to: PodPhase) {
        self.record(Event::Pod(PodChange { pod: pod.to_owned(), to }));
    }

    /// Records a change of an API object.
    pub fn api(&self, change: ApiChange) {
        self.record(Event::Api(change));
    }

    /// Records the start or the end of a process.
    pub fn process(&self, who: Role, edge: Lifecycle, status: Option<String>) {
        self.change(|state| state.process(who, edge, status));
    }

    /// Records that a call has reached the socket, and returns the id to end it with.
    pub fn rpc_start(&self, method: &str, req: Value, deadline: Option<Duration>) -> u64 {
        let mut call = 0;
        self.change(|state| {
            call = state.next_call;
            state.next_call += 1;
            state.compare_own();
            let mut flight = Flight::new(method, &req, &state.symbols);
            flight.around = state.look_around(&flight);
            state.flights.insert(call, flight);
            let deadline_s = deadline.map(|deadline| deadline.as_secs_f64());
            state.push(Event::RpcStart(RpcStart { id: call, method: method.to_owned(), req, deadline_s }));
        });
        call
    }

    /// Records that the answer of a call is about to leave the socket.
    pub fn rpc_end(&self, call: u64, outcome: Outcome) {
        self.change(|state| {
            let Some(flight) = state.flights.remove(&call) else { return };
            state.note_appeared(&flight);
            let end = RpcEnd {
                id: call,
                method: flight.method.clone(),
                code: outcome.code,
                message: outcome.message,
                dur_ms: flight.started.elapsed().as_secs_f64() * 1e3,
                resp: outcome.resp,
                injected: outcome.injected,
                abandoned: outcome.abandoned,
                unreadable: outcome.unreadable,
            };
            let changed = state.own.accept();
            // A call that was abandoned goes on.
            let touched = match outcome.abandoned {
                true => Vec::new(),
                false => state.touched(&flight, &end, changed),
            };
            if let Some(around) = &flight.around {
                let began = around.lines() - state.forgotten;
                state.gathered.in_the_way.ended(around, &end, flight.is_block, &state.lines, began);
            }
            if end.is_from_the_driver()
                && let Some(key) = state.masks.confided_in(&end.message)
            {
                state.gathered.leaked_secrets.insert((end.method.clone(), key));
            }
            state.look_at_context(&end.method, &end.resp);
            touched.into_iter().for_each(|touched| state.push(Event::Touched(touched)));
            state.push(Event::RpcEnd(end));
        });
    }

    /// The files of the loop devices that appeared during calls to the driver.
    pub fn backings(&self) -> BTreeSet<PathBuf> {
        self.state().gathered.backings.clone()
    }

    /// Files at the paths of failed calls, with the process that made them: a line each, with real paths.
    pub fn in_the_way(&self) -> Vec<String> {
        self.state().gathered.in_the_way.found()
    }

    /// The call to the driver during which a loop device or a process appeared.
    pub fn appeared(&self, thing: Thing) -> Option<Appeared> {
        self.state().gathered.appeared.get(&thing).cloned()
    }

    /// Takes what a driver does for a call that is in no trace for work with a reason, until the excuse is dropped: a
    /// case may ask the driver itself.
    pub fn excuse(&self, method: &str, req: &Value) -> Excuse {
        let mut call = 0;
        self.change(|state| {
            call = state.next_call;
            state.next_call += 1;
            state.flights.insert(call, Flight::new(method, req, &state.symbols));
            let request = Request::of(req);
            let paths = witnessed::changed_paths(method, request).unwrap_or_default();
            let (volume, paths) =
                (request.volume_id().to_owned(), paths.into_iter().map(str::to_owned).collect());
            let edge = event::Edge::Start;
            state.push(Event::DirectCall(DirectCall { id: call, edge, volume, paths, answer: None }));
        });
        Excuse { journal: self.clone(), call, answer: None }
    }

    /// Records an effect that a node announces, after a look at the kernel. Returns whether the kernel shows it.
    pub fn effect(&self, said: Announcement) -> bool {
        let mut is_confirmed = false;
        self.change(|state| is_confirmed = state.effect(said));
        is_confirmed
    }

    /// The story since the last look.
    pub fn look(&self) -> Story {
        let mut story = Story::default();
        self.change(|state| {
            state.look(false);
            let State { teller, lines, forgotten, looked, .. } = state;
            story = teller.tell(&lines[*looked - *forgotten..]);
            *looked = *forgotten + lines.len();
        });
        story
    }

    /// Everything so far, with real paths.
    pub fn trace(&self) -> Vec<TraceLine> {
        self.state().lines.clone()
    }

    /// The moment of a line, by its milliseconds since the trace began.
    pub fn moment(&self, t_ms: f64) -> Instant {
        self.state().started + Duration::from_secs_f64(t_ms.max(0.0) / 1e3)
    }

    /// Drops everything that was recorded after so many lines, for another case on the same driver and node. What is
    /// known of the kernel stays; so do the names, and the numbers of calls go on.
    pub fn rewind(&self, lines: usize) {
        self.change(|state| state.rewind(lines));
    }

    /// The number of lines, with those that were dropped.
    pub fn length(&self) -> usize {
        self.state().length()
    }

    /// The lines after the first `lines`, with real paths.
    pub fn since(&self, lines: usize) -> Vec<TraceLine> {
        self.change(|_| {});
        self.state().lines_from(lines).to_vec()
    }

    /// The same; what was recorded before is forgotten, as far as no call under way needs it. For a journal that is
    /// written for months, whose old lines are not read again.
    pub fn since_and_forget(&self, lines: usize) -> Vec<TraceLine> {
        let new = self.since(lines);
        self.state().forget(lines + new.len());
        new
    }

    /// Waits until the node has said of all that has changed that it was its own doing, or has had the time to.
    pub async fn suspects_settle(&self) {
        self.change(State::compare_own);
        self.wait(own::SOON, |journal| !journal.state().own.has_suspects()).await;
    }

    /// Strays and phantoms so far. To be asked after [`Journal::suspects_settle`]: what has changed since then is not
    /// looked at.
    pub fn irregular(&self) -> Vec<Found> {
        self.change(|state| state.look(true));
        let mut unexplained = Unexplained::recording(&self.symbols.root().to_string_lossy());
        self.state().lines.iter().flat_map(|line| unexplained.event(line)).collect()
    }

    /// How many lines there are, and how many milliseconds after the first moment that is: where a caller that keeps
    /// its own lines would write the next.
    pub fn position(&self) -> (usize, f64) {
        self.change(|_| {});
        let state = self.state();
        (state.length(), state.started.elapsed().as_secs_f64() * 1e3)
    }

    /// The number of calls of a method that have started, or ended.
    pub fn count(&self, method: &str, edge: Edge) -> usize {
        let counts = |line: &&TraceLine| match (&line.event, edge) {
            (Event::RpcStart(start), Edge::Start) => start.method == method,
            (Event::RpcEnd(end), Edge::End) => end.method == method,
            _ => false,
        };
        self.state().lines.iter().filter(counts).count()
    }

    /// Waits until so many calls of a method have started, or ended. Returns whether they did in time.
    pub async fn wait_rpc(&self, method: &str, edge: Edge, count: usize, within: Duration) -> bool {
        self.wait(within, |journal| journal.count(method, edge) >= count).await
    }

    /// Waits until something holds of the journal. Returns whether it did in time.
    pub async fn wait(&self, within: Duration, holds: impl Fn(&Self) -> bool) -> bool {
        let mut length = self.length.subscribe();
        let waiting = async {
            loop {
                length.borrow_and_update();
                if holds(self) {
                    return;
                }
                if length.changed().await.is_err() {
                    // The sender is a part of `self`, which this borrows.
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::time::timeout(within, waiting).await.is_ok()
    }

    /// Calls that are under way, oldest first, as `NodeStageVolume for 3.2 s`.
    pub fn in_flight(&self) -> Vec<String> {
        let describe = |flight: &Flight| {
            format!("{} for {:.1} s", flight.method, flight.started.elapsed().as_secs_f64())
        };
        self.state().flights.values().map(describe).collect()
    }

    /// The calls that are under way for so long, by method.
    pub fn calls_older_than(&self, least: Duration) -> BTreeSet<String> {
        let state = self.state();
        let old = state.flights.values().filter(|flight| flight.started.elapsed() >= least);
        old.map(|flight| flight.method.clone()).collect()
    }

    /// Drains the witness, makes a change, and wakes the tasks that wait for one.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let length = {
            let mut state = self.state();
            state.drain();
            change(&mut state);
            state.length() as u64
        };
        self.length.send_replace(length);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Lines are pushed whole; a panic while one was being made has lost that one only.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
