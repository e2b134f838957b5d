//! Follows the objects that decisions rest on, one task per kind, each change an event.

use std::sync::Arc;

use api::clock::Clock;
use api::follow::Following;
use api::{ApiSource, Kind};
use tokio::sync::mpsc;

use crate::event::Event;

/// The kinds that are followed: drivers and the node itself, because decisions rest on them; claims and
/// volumes, to look again at once at pods that failed on them; attachments, for why they fail.
pub(super) const FOLLOWED: [Kind; 5] =
    [Kind::CsiDriver, Kind::Node, Kind::Claim, Kind::Volume, Kind::Attachment];

/// Follows one kind until nobody listens.
pub(super) async fn follow(
    kind: Kind,
    api: Arc<dyn ApiSource>,
    clock: Arc<dyn Clock>,
    sender: mpsc::UnboundedSender<Event>,
) {
    let mut following = Following::new(kind, api, clock);
    while sender.send(Event::Api(kind, following.next().await)).is_ok() {}
}
