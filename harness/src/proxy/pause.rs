//! The delays of a proxy, its door, and the fields that it hides. Its clock can be advanced like a node's.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::clock::{AdvancingClock, Clock, Instant};
use bytes::Bytes;
use csi_proto::v1::node_service_capability::Type;
use csi_proto::v1::{NodeGetCapabilitiesResponse, NodePublishVolumeRequest};
use prost::Message;
use tokio::sync::watch;
use tonic::Response;

use crate::journal::{Edge, Journal};

/// The pauses of all calls of one proxy.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    clock: AdvancingClock,
    held: AtomicUsize,
    door: watch::Sender<Door>,
    /// The edge of a call that shuts the door.
    trap: Mutex<Option<Trap>>,
    hidden: Mutex<BTreeSet<String>>,
}

/// Whether calls are passed on just now.
#[derive(Debug, Default)]
struct Door {
    shut: bool,
    /// The number of times that the call that shut the door was let in while the door stayed shut.
    let_in: u64,
}

/// Shuts the door at the moment in which the last of a number of calls has begun or ended.
#[derive(Debug)]
struct Trap {
    method: String,
    edge: Edge,
    count: usize,
}

/// Counts a call as held for as long as this lives, also when its caller goes away.
struct Held<'a>(&'a AtomicUsize);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pauses {
    /// Even the shortest sleep lasts until the timer's next tick, so that none is no sleep of zero.
    pub(super) async fn pause(&self, millis: u64) {
        if millis > 0 {
            let _held = self.hold();
            self.clock.sleep(Duration::from_millis(millis)).await;
        }
    }

    /// Now, on the clock that pauses are taken on.
    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Never returns. Ends when the caller goes away: then this future is dropped.
    pub(super) async fn hang(&self) {
        let _held = self.hold();
        std::future::pending().await
    }

    /// Returns when a call of `method` may go on. NodeGetInfo never waits, since it changes nothing. The call that has shut
    /// the door passes the number that [`Self::spring`] returned.
    pub(super) async fn door(&self, method: &str, sprung: Option<u64>) {
        if method == "NodeGetInfo" {
            return;
        }
        let mut door = self.door.subscribe();
        // The sender is borrowed here, so it cannot be gone.
        let passes = |door: &Door| !door.shut || sprung.is_some_and(|before| door.let_in > before);
        drop(door.wait_for(passes).await);
    }

    pub(super) fn shut(&self) {
        self.door.send_modify(|door| door.shut = true);
    }

    /// Opens the door, and takes back what would shut it.
    pub(super) fn open(&self) {
        self.trap().take();
        self.door.send_modify(|door| door.shut = false);
    }

    /// Lets the call in that has shut the door, and no later one.
    pub(super) fn let_in(&self) {
        self.door.send_modify(|door| door.let_in += 1);
    }

    pub(super) fn shut_at(&self, method: &str, edge: Edge, count: usize) {
        *self.trap() = Some(Trap { method: method.to_owned(), edge, count });
    }

    /// A call has begun or ended, and the journal knows. If that has shut the door, returns how many calls were let in
    /// before.
    pub(super) fn spring(&self, journal: &Journal) -> Option<u64> {
        let mut trap = self.trap();
        let is_due = |trap: &mut Trap| journal.count(&trap.method, trap.edge) >= trap.count;
        trap.take_if(is_due)?;
        self.shut();
        Some(self.door.borrow().let_in)
    }

    fn trap(&self) -> MutexGuard<'_, Option<Trap>> {
        // A poisoned lock is ignored: the value is set and taken as a whole.
        self.trap.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    fn hold(&self) -> Held<'_> {
        self.held.fetch_add(1, Ordering::Relaxed);
        Held(&self.held)
    }

    pub(super) fn hide(&self, names: impl IntoIterator<Item = String>) {
        self.hidden.lock().unwrap_or_else(PoisonError::into_inner).extend(names);
    }

    /// The request without a staging path, if this proxy hides from the node that the driver stages.
    pub(super) fn without_staging(&self, method: &str, message: Bytes) -> Bytes {
        let hidden = self.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        if method != "NodePublishVolume" || !hidden.contains("STAGE_UNSTAGE_VOLUME") {
            return message;
        }
        match NodePublishVolumeRequest::decode(message.clone()) {
            Ok(mut request) => {
                // The kubelet names one for block volumes in any case.
                request.staging_target_path.clear();
                Bytes::from(request.encode_to_vec())
            }
            // The driver answers to a message that cannot be decoded.
            Err(_) => message,
        }
    }

    /// An answer to `method` without the hidden fields.
    pub(super) fn without_hidden(&self, method: &str, mut answer: Response<Bytes>) -> Response<Bytes> {
        let hidden = self.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        if method != "NodeGetCapabilities" || hidden.is_empty() {
            return answer;
        }
        // They say what the message said before.
        answer.extensions_mut().clear();
        answer.map(|message| match NodeGetCapabilitiesResponse::decode(message.clone()) {
            Ok(mut response) => {
                response.capabilities.retain(|capability| match &capability.r#type {
                    Some(Type::Rpc(rpc)) => !hidden.contains(rpc.r#type().as_str_name()),
                    None => true,
                });
                Bytes::from(response.encode_to_vec())
            }
            // The node reports a message that it cannot decode.
            Err(_) => message,
        })
    }
}
