//! Orders the manager's notices before its actions: no call leaves the node, and no effect is announced, before
//! the journal has every earlier notice.
//!
//! Notices, calls and effects travel through different sockets. Before a connection to a driver is made, and
//! before an effect is announced, a barrier is sent behind all earlier notices, and the harness answers when it
//! has recorded them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot};
use volume_manager::Notice;

use super::protocol::Heard;

/// Waits until all earlier notices are recorded. Clones are the same barrier.
#[derive(Debug, Clone)]
pub(super) struct Barrier {
    requests: mpsc::UnboundedSender<oneshot::Sender<()>>,
    waiting: Arc<Mutex<BTreeMap<u64, oneshot::Sender<()>>>>,
}

/// The receiving end of a barrier's requests.
pub(super) type Requests = mpsc::UnboundedReceiver<oneshot::Sender<()>>;

impl Barrier {
    pub(super) fn new() -> (Self, Requests) {
        let (requests, receiver) = mpsc::unbounded_channel();
        (Self { requests, waiting: Arc::default() }, receiver)
    }

    /// Returns when every notice that was sent before is in the journal.
    pub(super) async fn pass(&self) {
        let (done, passed) = oneshot::channel();
        if self.requests.send(done).is_ok() {
            // An error means that the harness has ended; this process ends next.
            let _ = passed.await;
        }
    }

    /// Passes the barrier from a thread that is not the runtime's.
    pub(super) fn pass_blocking(&self) {
        let (done, passed) = oneshot::channel();
        if self.requests.send(done).is_ok() {
            // As above.
            let _ = passed.blocking_recv();
        }
    }

    /// The harness has recorded everything before barrier `number`.
    pub(super) fn passed(&self, number: u64) {
        if let Some(done) = self.waiting().remove(&number) {
            // The waiting call may have been dropped.
            let _ = done.send(());
        }
    }

    /// Forwards notices and barriers in their order.
    pub(super) async fn forward(
        self,
        mut requests: Requests,
        mut notices: mpsc::UnboundedReceiver<Notice>,
        heard: mpsc::UnboundedSender<Heard>,
    ) {
        // Without a harness the next read of an order ends this process.
        let send = |message| _ = heard.send(message);
        let mut number = 0;
        loop {
            tokio::select! {
                biased;
                Some(notice) = notices.recv() => send(Heard::Notice(notice)),
                Some(done) = requests.recv() => {
                    while let Ok(notice) = notices.try_recv() {
                        send(Heard::Notice(notice));
                    }
                    number += 1;
                    self.waiting().insert(number, done);
                    send(Heard::Barrier(number));
                }
                else => return,
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<u64, oneshot::Sender<()>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
