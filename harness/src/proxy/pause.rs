//! How a proxy spends time, and what it hides. Its clock can be told to skip, as a node's can.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use csi_proto::v1::NodeGetCapabilitiesResponse;
use csi_proto::v1::node_service_capability::Type;
use prost::Message;
use tokio::sync::watch;
use tonic::Response;
use volume_manager::clock::{AdvancingClock, Clock, Instant};

/// The pauses of all calls of one proxy.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    clock: AdvancingClock,
    held: AtomicUsize,
    /// Whether no call is passed on just now.
    shut: watch::Sender<bool>,
    hidden: Mutex<BTreeSet<String>>,
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

    /// Returns when calls are passed on.
    pub(super) async fn door(&self) {
        // The sender is borrowed here, so it cannot be gone.
        drop(self.shut.subscribe().wait_for(|shut| !*shut).await);
    }

    pub(super) fn shut(&self, shut: bool) {
        self.shut.send_replace(shut);
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

    /// An answer to `method` without what is hidden.
    pub(super) fn without_hidden(&self, method: &str, answer: Response<Bytes>) -> Response<Bytes> {
        let hidden = self.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        if method != "NodeGetCapabilities" || hidden.is_empty() {
            return answer;
        }
        answer.map(|message| match NodeGetCapabilitiesResponse::decode(message.clone()) {
            Ok(mut told) => {
                told.capabilities.retain(|capability| match &capability.r#type {
                    Some(Type::Rpc(rpc)) => !hidden.contains(rpc.r#type().as_str_name()),
                    None => true,
                });
                Bytes::from(told.encode_to_vec())
            }
            // What is no such message is the node's to complain of.
            Err(_) => message,
        })
    }
}
