//! The attacher: does what the attachments of one driver ask for (docs/behaviour/09-controllers.md, section 3).
//!
//! An attachment that is to be made is published to its node by the driver's controller service, and one that is
//! being deleted is unpublished before its finalizer goes. As long as a volume has an attachment, a finalizer
//! keeps the volume's object: without it, nobody would know what to detach.

mod decide;
mod task;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::clock::{Clock, Instant};
use api::follow::{Following, News};
use api::timely::Timely;
use api::{ApiSource, Attachment, CsiNode, Key, Kind, Object, Resource, Volume};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::ControllerService;
use crate::queue::{Pauses, Queue};
use decide::Asked;
use task::{Hands, Trouble};

/// The longest pause before what failed is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Which driver an attacher serves, and how.
#[derive(Debug, Clone)]
pub struct AttacherConfig {
    pub driver: String,
    /// Whether its controller publishes volumes. If not, a volume counts as attached without a call.
    pub publishes: bool,
    /// Whether it can publish a volume for reading only.
    pub publishes_read_only: bool,
    /// Whether it tells one writer on a node from many.
    pub fine_modes: bool,
    /// The limit of each call.
    pub call_limit: Duration,
    /// The pause after a first failure. It doubles with each one that follows.
    pub first_pause: Duration,
}

impl AttacherConfig {
    /// An attacher with the limits that the external attacher has by default.
    pub fn new(driver: impl Into<String>) -> Self {
        Self {
            driver: driver.into(),
            publishes: true,
            publishes_read_only: false,
            fine_modes: false,
            call_limit: Duration::from_secs(15),
            first_pause: Duration::from_secs(1),
        }
    }
}

/// A running attacher. It stops when this is dropped.
#[derive(Debug)]
pub struct Attacher {
    task: AbortHandle,
}

impl Attacher {
    /// Starts an attacher on the current runtime.
    pub fn start(
        config: AttacherConfig,
        api: Arc<dyn ApiSource>,
        clock: Arc<dyn Clock>,
        service: Arc<dyn ControllerService>,
    ) -> Self {
        let api = Timely::shared(api, Arc::clone(&clock));
        let pauses = Pauses { first: config.first_pause, longest: LONGEST_PAUSE };
        let (sender, ended) = mpsc::unbounded_channel();
        let worker = Worker {
            finalizer: decide::finalizer(&config.driver),
            hands: Arc::new(Hands::new(config, api, service)),
            clock,
            queue: Queue::new(pauses),
            attachments: BTreeMap::new(),
            missed: BTreeMap::new(),
            tasks: JoinSet::new(),
            sender,
        };
        Self { task: tokio::spawn(worker.run(ended)).abort_handle() }
    }
}

impl Drop for Attacher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The end of a look at an object.
type Ended = (Key, Result<(), Trouble>);

struct Worker {
    hands: Arc<Hands>,
    finalizer: String,
    clock: Arc<dyn Clock>,
    queue: Queue,
    /// The attachments of the driver, by name, and the volume of each.
    attachments: BTreeMap<String, Arc<Attachment>>,
    /// What an object could not be looked at without: it is, when that appears.
    missed: BTreeMap<Key, Key>,
    tasks: JoinSet<()>,
    sender: mpsc::UnboundedSender<Ended>,
}

impl Worker {
    async fn run(mut self, mut ended: mpsc::UnboundedReceiver<Ended>) {
        let follow = |kind| Following::new(kind, Arc::clone(&self.hands.api), Arc::clone(&self.clock));
        let mut attachments = follow(Kind::Attachment);
        let mut volumes = follow(Kind::Volume);
        let mut nodes = follow(Kind::CsiNode);
        loop {
            let (due, clock) = (self.queue.next_due(), Arc::clone(&self.clock));
            tokio::select! {
                biased;
                Some((key, result)) = ended.recv() => self.ended(key, result),
                news = attachments.next() => self.attachment(news),
                news = volumes.next() => self.volume(news),
                news = nodes.next() => self.appeared::<CsiNode>(news),
                () = sleep_until(&*clock, due) => {}
                Some(_) = self.tasks.join_next() => {}
            }
            self.start_ready();
        }
    }

    fn attachment(&mut self, news: News) {
        match news {
            News::Applied(object) => {
                let Some(attachment) = Attachment::from_object(object) else { return };
                if attachment.attacher != self.hands.config.driver {
                    return;
                }
                let name = attachment.meta.name.clone();
                let before = self.attachments.insert(name.clone(), Arc::clone(&attachment));
                // What the attacher itself wrote, errors above all, is no reason to look again.
                if before.is_none_or(|before| Asked::of(&before) != Asked::of(&attachment)) {
                    self.queue.add(Key::cluster(Kind::Attachment, &name));
                }
            }
            News::Deleted(object) => self.forget(&object.key().name),
            News::Only(there) => {
                let gone = self
                    .attachments
                    .keys()
                    .filter(|name| !there.contains(&Key::cluster(Kind::Attachment, *name)));
                let gone: Vec<String> = gone.cloned().collect();
                gone.iter().for_each(|name| self.forget(name));
            }
        }
    }

    fn forget(&mut self, name: &str) {
        if let Some(attachment) = self.attachments.remove(name) {
            // It may have been the last one that kept its volume.
            self.queue.add(Key::cluster(Kind::Volume, &attachment.volume));
        }
    }

    fn volume(&mut self, news: News) {
        if let News::Applied(Object::Volume(volume)) = &news
            && volume.meta.is_deleting()
            && volume.meta.finalizers.contains(&self.finalizer)
        {
            self.queue.add(Key::cluster(Kind::Volume, &volume.meta.name));
        }
        self.appeared::<Volume>(news);
    }

    /// Looks again at what an object was missed for.
    fn appeared<R: Resource>(&mut self, news: News) {
        let News::Applied(object) = news else { return };
        let appeared = object.key();
        let waiting = self.missed.iter().filter(|(_, missed)| **missed == appeared);
        let waiting: Vec<Key> = waiting.map(|(key, _)| key.clone()).collect();
        for key in waiting {
            self.missed.remove(&key);
            self.queue.add(key);
        }
    }

    fn ended(&mut self, key: Key, result: Result<(), Trouble>) {
        if let Err(trouble) = &result {
            tracing::debug!(object = %key.name, error = api::error::chain(trouble), "will be tried again");
            if let Some(missed) = trouble.missed() {
                self.missed.insert(key.clone(), missed);
            }
        }
        self.queue.ended(key, result.is_ok(), self.clock.now());
    }

    fn start_ready(&mut self) {
        while let Some(key) = self.queue.next(self.clock.now()) {
            let (hands, sender) = (Arc::clone(&self.hands), self.sender.clone());
            self.tasks.spawn(async move {
                let result = match key.kind {
                    Kind::Volume => hands.release(&key.name).await,
                    _ => hands.serve(&key.name).await,
                };
                // Who would hear of it is gone with the attacher.
                sender.send((key, result)).ok();
            });
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("queue", &self.queue).finish_non_exhaustive()
    }
}

async fn sleep_until(clock: &dyn Clock, due: Option<Instant>) {
    match due {
        Some(due) => clock.sleep_until(due).await,
        None => std::future::pending().await,
    }
}
