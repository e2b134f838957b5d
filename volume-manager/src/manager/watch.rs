//! Follows the objects that decisions rest on, one task per kind, each change an event.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::api::{ApiSource, Kind};
use crate::clock::Clock;
use crate::event::Event;

/// The kinds that are followed: drivers and the node itself, because decisions rest on them; claims and
/// volumes, to look again at once at pods that failed on them; attachments, for why they fail.
pub(super) const FOLLOWED: [Kind; 5] =
    [Kind::CsiDriver, Kind::Node, Kind::Claim, Kind::Volume, Kind::Attachment];

/// How long to wait before following again what could not be followed.
const AGAIN: Duration = Duration::from_secs(1);

/// Follows one kind for ever. A stream that ends is begun again, with everything that exists.
pub(super) async fn follow(
    kind: Kind,
    api: Arc<dyn ApiSource>,
    clock: Arc<dyn Clock>,
    sender: mpsc::UnboundedSender<Event>,
) {
    loop {
        match api.watch(kind).await {
            Ok(mut watch) => {
                while let Some(change) = watch.recv().await {
                    if sender.send(Event::Api(kind, change)).is_err() {
                        return;
                    }
                }
            }
            Err(error) => {
                tracing::debug!(%kind, error = crate::error::chain(&error), "cannot follow");
            }
        }
        clock.sleep(AGAIN).await;
    }
}
