//! The trace of a simulation: all events in order, checked against the contracts as they are written.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use api::Severity;
use api::names::PodUid;
use contracts::event::{
    Actor, Client, Edge, Effect, EffectKind, Emitted, Event, Mount, MountDel, OperationEdge, Recovered,
    StateChange, TraceLine, UnknownWord, WaitReturned,
};
use contracts::rule::{Rest, Violation};
use host::MountEntry;
use host::fake::FakeKernel;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry;
use volume_manager::Notice;
use volume_manager::operation::OperationName;

use crate::faults::KernelFaults;
use crate::script::Scenario;
use crate::views::Judges;

/// The trace under construction. Clones are the same trace.
#[derive(Clone)]
pub(crate) struct Trace(Arc<Mutex<Inner>>);

struct Inner {
    kernel: FakeKernel,
    root: String,
    started: Instant,
    lines: Vec<TraceLine>,
    judges: Judges,
    violations: Vec<Violation>,
    notices: Option<UnboundedReceiver<Notice>>,
    /// The receiver of the first operation after a start.
    scanning: Option<KernelFaults>,
    mounts: BTreeMap<u64, MountEntry>,
    /// The kernel's number of mount changes at the last look.
    looked_at: Option<u64>,
}

impl Trace {
    /// An empty trace of what happens below `root`.
    pub(crate) fn new(kernel: FakeKernel, root: &Path, scenario: &Scenario) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            kernel,
            root: root.display().to_string(),
            started: Instant::now(),
            lines: Vec::new(),
            judges: Judges::of(scenario),
            violations: Vec::new(),
            notices: None,
            scanning: None,
            mounts: BTreeMap::new(),
            looked_at: None,
        })))
    }

    /// Follows the notices of a newly started manager. Each is recorded when it is sent, even if nothing else
    /// happens.
    pub(crate) fn listen(&self, manager: Option<(UnboundedReceiver<Notice>, KernelFaults)>) {
        let mut inner = self.open();
        inner.catch_up();
        (inner.notices, inner.scanning) = manager.unzip();
        let trace = self.clone();
        tokio::spawn(std::future::poll_fn(move |context| trace.open().follow(context)));
    }

    /// Records an event, after all notices that precede it.
    pub(crate) fn record(&self, event: Event) {
        let mut inner = self.open();
        inner.catch_up();
        inner.push(event);
    }

    /// Records the changes of the mount table since the last look, as made by `by`.
    pub(crate) fn look_at_mounts(&self, by: Actor) {
        let mut inner = self.open();
        inner.catch_up();
        inner.look_at_mounts(by);
    }

    /// Checks what must have happened once everything has settled.
    pub(crate) fn rest(&self, rest: &Rest) {
        let mut inner = self.open();
        inner.catch_up();
        let broken = inner.judges.rest(rest);
        inner.violations.extend(broken);
    }

    /// Whether a contract was broken so far.
    pub(crate) fn is_violated(&self) -> bool {
        let mut inner = self.open();
        inner.catch_up();
        !inner.violations.is_empty()
    }

    /// The contracts that were broken so far.
    pub(crate) fn violations(&self) -> Vec<Violation> {
        let mut inner = self.open();
        inner.catch_up();
        inner.violations.clone()
    }

    /// The simulated time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.open().started.elapsed()
    }

    /// The number of events.
    pub(crate) fn len(&self) -> usize {
        self.open().lines.len()
    }

    /// The time of the last event.
    pub(crate) fn last_ms(&self) -> Option<f64> {
        self.open().lines.last().map(|line| line.t_ms)
    }

    /// The lines so far.
    pub(crate) fn lines(&self) -> Vec<TraceLine> {
        self.open().lines.clone()
    }

    /// Records the effects that hosts announce in this thread, as long as the guard lives.
    pub(crate) fn hear_effects(&self) -> tracing::subscriber::DefaultGuard {
        tracing::subscriber::set_default(registry().with(Effects(self.clone())))
    }

    fn open(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace({} lines)", self.len())
    }
}

impl Inner {
    /// The manager sends notices of its state before it acts on it, so they are recorded first.
    fn catch_up(&mut self) {
        while let Some(notice) = self.notices.as_mut().and_then(|notices| notices.try_recv().ok()) {
            self.hear(notice);
        }
    }

    /// Records notices until another manager is followed.
    fn follow(&mut self, context: &mut std::task::Context<'_>) -> Poll<()> {
        while let Some(notices) = &mut self.notices {
            match notices.poll_recv(context) {
                Poll::Ready(Some(notice)) => self.hear(notice),
                Poll::Ready(None) => self.notices = None,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(())
    }

    fn hear(&mut self, notice: Notice) {
        if matches!(notice, Notice::Started { .. })
            && let Some(faults) = self.scanning.take()
        {
            faults.scanned();
        }
        if let Some(event) = event_of(notice) {
            self.push(event);
        }
    }

    fn push(&mut self, event: Event) {
        let line = TraceLine {
            seq: self.lines.len() as u64 + 1,
            t_ms: self.started.elapsed().as_secs_f64() * 1000.0,
            event,
        };
        self.violations.extend(self.judges.event(&line));
        self.lines.push(line);
    }

    fn look_at_mounts(&mut self, by: Actor) {
        let changes = Some(self.kernel.mount_changes());
        if self.looked_at == changes {
            return;
        }
        self.looked_at = changes;
        let table = self.kernel.mount_table();
        let below = |entry: &&MountEntry| entry.mount_point.starts_with(&self.root);
        let now: BTreeMap<u64, MountEntry> =
            table.entries().iter().filter(below).map(|entry| (entry.id, entry.clone())).collect();
        let before = std::mem::take(&mut self.mounts);
        for (id, entry) in before.iter().filter(|(id, _)| !now.contains_key(id)) {
            let target = entry.mount_point.display().to_string();
            self.push(Event::MountDel(MountDel {
                target,
                id: *id,
                by,
                seen_by: "simulation".to_owned(),
                unnamed: false,
            }));
        }
        for (id, entry) in &now {
            match before.get(id) {
                None => self.push(Event::MountAdd(self.mount(entry, by))),
                Some(old) if old != entry => self.push(Event::MountChg(self.mount(entry, by))),
                Some(_) => {}
            }
        }
        self.mounts = now;
    }

    fn mount(&self, entry: &MountEntry, by: Actor) -> Mount {
        let rdev = self
            .kernel
            .metadata(&entry.mount_point)
            .ok()
            .and_then(|found| found.kind.is_device().then(|| found.rdev.to_string()));
        Mount {
            target: entry.mount_point.display().to_string(),
            root: entry.root.display().to_string(),
            fstype: entry.fs_type.clone(),
            source: entry.source.to_string_lossy().into_owned(),
            opts: entry.options.join(","),
            super_opts: entry.super_options.join(","),
            dev: entry.dev.to_string(),
            rdev,
            propagation: String::new(),
            id: entry.id,
            by,
            seen_by: "simulation".to_owned(),
            unnamed: false,
        }
    }
}

/// A notice of the manager as an event of the trace.
fn event_of(notice: Notice) -> Option<Event> {
    let edge = |name: OperationName, volume: String, pod: Option<PodUid>, edge: Edge, error| {
        Event::Operation(OperationEdge {
            name: word(name.as_str()),
            volume,
            pod: pod.map(|pod| pod.to_string()).unwrap_or_default(),
            edge,
            error,
        })
    };
    Some(match notice {
        Notice::State { world, key, from, to } => {
            Event::State(StateChange { world: word(&world), key, from, to })
        }
        Notice::Started { name, volume, pod } => edge(name, volume.to_string(), pod, Edge::Start, None),
        Notice::Ended { name, volume, pod, error } => edge(name, volume.to_string(), pod, Edge::End, error),
        Notice::Emitted(event) => Event::Event(Emitted {
            obj: format!("{}/{}", event.about.kind.as_str().to_lowercase(), event.about.name),
            kind: if event.severity == Severity::Normal { "Normal" } else { "Warning" }.to_owned(),
            reason: format!("{:?}", event.reason),
            message: event.message,
            by: Client::Node,
        }),
        Notice::Knows(known) => Event::Recovered(Recovered { what: word(known.as_str()) }),
        Notice::Waited { what, pod, error } => Event::Wait(WaitReturned {
            what: word(&what),
            pod: pod.to_string(),
            err: error.unwrap_or_default(),
        }),
        Notice::InUse(_) => return None,
    })
}

/// A word of the manager of this binary.
fn word<T: FromStr<Err = UnknownWord>>(text: &str) -> T {
    text.parse().expect("the manager speaks the words of its trace")
}

/// Records the effects that hosts announce.
struct Effects(Trace);

impl<S: tracing::Subscriber> Layer<S> for Effects {
    fn enabled(&self, metadata: &tracing::Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target() == host::effect::TARGET
    }

    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut take = |name: &str| fields.0.remove(name);
        let (effect, path, source) = (take("effect"), take("path"), take("source").or_else(|| take("to")));
        let effect = Effect {
            effect: word(&effect.unwrap_or_default()),
            path: path.unwrap_or_default(),
            source,
            fields: fields.0,
            confirmed: true,
        };
        let mounts = matches!(
            effect.effect,
            EffectKind::Mount | EffectKind::Bind | EffectKind::Umount | EffectKind::Remount
        );
        self.0.record(Event::Effect(effect));
        if mounts {
            self.0.look_at_mounts(Actor::Node);
        }
    }
}

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}
