//! What every controller does in the same way: it follows objects, looks at those that a change concerns, each by one
//! task at a time, and looks again after a growing pause where that failed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::clock::{Clock, Instant};
use api::follow::{Following, News};
use api::lookup::Lookup;
use api::{ApiSource, Key, Kind, Object};
use async_trait::async_trait;
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::ReconcileError;
use crate::queue::{Outcome, Pauses, Queue};

/// The pauses of a controller that calls no driver.
pub(crate) const PAUSES: Pauses =
    Pauses { first: Duration::from_millis(100), longest: Duration::from_secs(15) };

/// The subject of one controller.
#[async_trait]
pub(crate) trait Reconciler: fmt::Debug + Send + Sync + 'static {
    /// The kinds of the objects that it follows.
    fn kinds(&self) -> &'static [Kind];

    /// The objects to look at because one has changed: `before` is missing where it is new, `after` where it is gone.
    fn affected(&self, before: Option<&Object>, after: Option<&Object>) -> Vec<Key>;

    /// Reads an object anew, and does its next step.
    async fn reconcile(&self, key: &Key) -> Result<(), ReconcileError>;
}

/// A running controller. It stops when this is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    task: AbortHandle,
}

impl Running {
    /// Starts a controller on the current runtime.
    pub(crate) fn start(
        reconciler: impl Reconciler,
        api: Arc<dyn ApiSource>,
        clock: Arc<dyn Clock>,
        pauses: Pauses,
    ) -> Self {
        let (sender, ended) = mpsc::unbounded_channel();
        let controller = Controller {
            reconciler: Arc::new(reconciler),
            api,
            clock,
            queue: Queue::new(pauses),
            unheard: BTreeSet::new(),
            known: Lookup::default(),
            missed: BTreeMap::new(),
            tasks: JoinSet::new(),
            sender,
        };
        Self { task: tokio::spawn(controller.run(ended)).abort_handle() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The end of a look at an object.
type Ended = (Key, Result<(), ReconcileError>);

#[derive(Debug)]
struct Controller<R> {
    reconciler: Arc<R>,
    api: Arc<dyn ApiSource>,
    clock: Arc<dyn Clock>,
    queue: Queue,
    /// The kinds whose objects are not all known yet. Until then nothing is looked at: news of what a look has read, and
    /// that went before its kind was followed, would never come.
    unheard: BTreeSet<Kind>,
    /// Every object of the kinds that are followed, as it was last heard of.
    known: Lookup<Key, Object>,
    /// The object that a look could not do without: the look is repeated when that appears, changes or goes.
    missed: BTreeMap<Key, BTreeSet<Key>>,
    tasks: JoinSet<()>,
    sender: mpsc::UnboundedSender<Ended>,
}

impl<R: Reconciler> Controller<R> {
    async fn run(mut self, mut ended: mpsc::UnboundedReceiver<Ended>) {
        let followed = self.reconciler.kinds();
        self.unheard.extend(followed);
        let following =
            followed.iter().map(|kind| Following::new(*kind, Arc::clone(&self.api), Arc::clone(&self.clock)));
        let mut heard: FuturesUnordered<_> = following.map(next).collect();
        loop {
            let (due, clock) = (self.queue.next_due(), Arc::clone(&self.clock));
            tokio::select! {
                // News first: a look that begins now sees what has been written.
                biased;
                Some((following, news)) = heard.next() => {
                    self.hear(following.kind(), news);
                    heard.push(next(following));
                    continue;
                }
                Some((key, result)) = ended.recv() => self.ended(key, result),
                () = std::future::ready(()), if self.queue.has_ready() && self.unheard.is_empty() => {}
                () = sleep_until(&*clock, due), if self.unheard.is_empty() => {}
                Some(_) = self.tasks.join_next() => {}
            }
            if self.unheard.is_empty() {
                self.start_ready();
            }
        }
    }

    fn hear(&mut self, kind: Kind, news: News) {
        match news {
            News::Applied(object) => {
                let key = object.key();
                let before = self.known.insert(key.clone(), object.clone());
                self.look_at(before.as_ref(), Some(&object));
                self.found(&key);
            }
            News::Deleted(object) => {
                let key = object.key();
                let before = self.known.remove(&key).unwrap_or(object);
                self.look_at(Some(&before), None);
                self.found(&key);
            }
            News::Only(there) => {
                self.unheard.remove(&kind);
                let gone = self.known.keys(|key| key.kind == kind && !there.contains(key));
                let gone: Vec<Key> = gone.into_iter().cloned().collect();
                for key in gone {
                    let before = self.known.remove(&key);
                    self.look_at(before.as_ref(), None);
                    self.found(&key);
                }
            }
        }
    }

    fn look_at(&mut self, before: Option<&Object>, after: Option<&Object>) {
        self.reconciler.affected(before, after).into_iter().for_each(|key| self.queue.add(key));
    }

    /// Repeats the looks that waited for news of an object.
    fn found(&mut self, object: &Key) {
        let waiting = self.missed.remove(object).unwrap_or_default();
        waiting.into_iter().for_each(|key| self.queue.add(key));
    }

    fn ended(&mut self, key: Key, result: Result<(), ReconcileError>) {
        if let Err(failure) = &result {
            tracing::debug!(object = %key.name, error = api::error::chain(failure), "will be tried again");
            if let Some(missed) = failure.missed() {
                self.missed.entry(missed).or_default().insert(key.clone());
            }
        }
        let outcome = match &result {
            Ok(()) => Outcome::Done,
            Err(failure) if failure.is_infeasible() => Outcome::Infeasible,
            Err(_) => Outcome::Failed,
        };
        self.queue.ended(key, outcome, self.clock.now());
    }

    fn start_ready(&mut self) {
        while let Some(key) = self.queue.next(self.clock.now()) {
            let (reconciler, sender) = (Arc::clone(&self.reconciler), self.sender.clone());
            self.tasks.spawn(async move {
                let result = reconciler.reconcile(&key).await;
                // The receiver is gone when the controller has been dropped.
                sender.send((key, result)).ok();
            });
        }
    }
}

async fn next(mut following: Following) -> (Following, News) {
    let news = following.next().await;
    (following, news)
}

async fn sleep_until(clock: &dyn Clock, due: Option<Instant>) {
    match due {
        Some(due) => clock.sleep_until(due).await,
        None => std::future::pending().await,
    }
}
