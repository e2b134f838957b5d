//! Following the objects of a kind for ever, across all failures of the stream.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::clock::{Clock, Instant};
use crate::{ApiSource, Change, Key, Kind, Object, Watch};

/// The pause after a failed watch.
const AGAIN: Duration = Duration::from_secs(1);

/// News about the objects of a kind.
#[derive(Debug)]
pub enum News {
    /// An object exists, is new, or has changed.
    Applied(Object),
    /// An object was deleted; this is its last version.
    Deleted(Object),
    /// These objects exist and no others. All other known ones were deleted while the stream was interrupted.
    Only(BTreeSet<Key>),
}

/// A kind that is followed. A stream that ends is begun again, with everything that exists.
#[derive(Debug)]
pub struct Following {
    kind: Kind,
    api: Arc<dyn ApiSource>,
    clock: Arc<dyn Clock>,
    watch: Option<Watch>,
    /// The objects that the stream has named so far, until it has named all.
    named: BTreeSet<Key>,
    all_named: bool,
    /// When to begin again.
    again: Option<Instant>,
}

impl Following {
    /// Begins with the first call of [`next`](Self::next).
    pub fn new(kind: Kind, api: Arc<dyn ApiSource>, clock: Arc<dyn Clock>) -> Self {
        Self { kind, api, clock, watch: None, named: BTreeSet::new(), all_named: false, again: None }
    }

    /// The kind that is followed.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The next news. The future may be dropped at any time without losing any.
    pub async fn next(&mut self) -> News {
        loop {
            let Some(watch) = &mut self.watch else {
                self.begin().await;
                continue;
            };
            match watch.recv().await {
                Some(Change::Applied(object)) => {
                    if !self.all_named {
                        self.named.insert(object.key());
                    }
                    return News::Applied(object);
                }
                Some(Change::Deleted(object)) => {
                    self.named.remove(&object.key());
                    return News::Deleted(object);
                }
                Some(Change::Synced) => {
                    self.all_named = true;
                    return News::Only(std::mem::take(&mut self.named));
                }
                None => {
                    self.watch = None;
                    self.again = Some(self.clock.now() + AGAIN);
                }
            }
        }
    }

    /// Sends all news as events, until the receiver is dropped.
    pub async fn send_to<T>(mut self, events: mpsc::UnboundedSender<T>, event: impl Fn(Kind, News) -> T) {
        while events.send(event(self.kind, self.next().await)).is_ok() {}
    }

    async fn begin(&mut self) {
        if let Some(again) = self.again {
            self.clock.sleep_until(again).await;
        }
        match self.api.watch(self.kind).await {
            Ok(watch) => {
                self.watch = Some(watch);
                (self.named, self.all_named) = (BTreeSet::new(), false);
            }
            Err(error) => {
                tracing::debug!(kind = %self.kind, error = crate::error::chain(&error), "cannot follow");
                self.again = Some(self.clock.now() + AGAIN);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::clock::TokioClock;
    use crate::testing::OneObject;
    use crate::{Meta, Node, Resource};

    #[tokio::test]
    async fn object_deleted_before_the_sync_is_not_listed() {
        let (sender, watch) = mpsc::unbounded_channel();
        let following = Following::new(Kind::Node, Arc::new(OneObject::default()), TokioClock::shared());
        let mut following = Following { watch: Some(watch), ..following };
        let node = |name| Node { meta: Meta::named("", name), ..Node::default() }.into_object();
        let applied = ["gone", "there"].map(|name| Change::Applied(node(name)));
        for change in applied.into_iter().chain([Change::Deleted(node("gone")), Change::Synced]) {
            sender.send(change).unwrap();
        }
        let only = loop {
            if let News::Only(there) = following.next().await {
                break there;
            }
        };
        assert_eq!(only, BTreeSet::from([node("there").key()]));
    }
}
