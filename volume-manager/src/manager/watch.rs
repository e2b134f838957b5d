//! Follows API objects, one task per kind; each change is sent as an event.

use std::sync::Arc;

use api::clock::Clock;
use api::follow::Following;
use api::{ApiSource, Kind};
use tokio::sync::mpsc;

use crate::event::Event;

/// Kinds that are followed: drivers and the node because plans depend on them; claims and volumes to resolve
/// pods again that failed on them; attachments for the text of attach errors.
pub(super) const FOLLOWED: [Kind; 5] =
    [Kind::CsiDriver, Kind::Node, Kind::Claim, Kind::Volume, Kind::Attachment];

/// Follows one kind until the event loop has ended.
pub(super) async fn follow(
    kind: Kind,
    api: Arc<dyn ApiSource>,
    clock: Arc<dyn Clock>,
    sender: mpsc::UnboundedSender<Event>,
) {
    let mut following = Following::new(kind, api, clock);
    while sender.send(Event::Api(kind, following.next().await)).is_ok() {}
}
