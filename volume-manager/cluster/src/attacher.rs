//! The attacher: does what the attachments of one driver ask for (docs/behaviour/09-controllers.md, section 3).
//!
//! An attachment that is to be made is published to its node by the driver's controller service, and one that is
//! being deleted is unpublished before its finalizer goes. As long as a volume has an attachment, a finalizer
//! keeps the volume's object: without it, the attacher would not know what to detach.

mod decide;
mod task;

use std::sync::Arc;
use std::time::Duration;

use api::clock::Clock;
use api::timely::Timely;
use api::{ApiSource, Key, Kind, Object};
use async_trait::async_trait;

use crate::queue::Pauses;
use crate::reconciler::{Reconciler, Running};
use crate::{AttachService, ReconcileError};
use decide::Asked;
use task::AttachReconciler;

/// The longest pause before what failed is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The driver of an attacher, and the attacher's settings.
#[derive(Debug, Clone)]
pub struct AttacherConfig {
    pub driver: String,
    /// Whether its controller publishes volumes. If not, a volume counts as attached without a call.
    pub publishes: bool,
    /// Whether it can publish a volume for reading only.
    pub publishes_read_only: bool,
    /// Whether the driver distinguishes one writer on a node from many.
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
    _running: Running,
}

impl Attacher {
    /// Starts an attacher on the current runtime.
    pub fn start(
        config: AttacherConfig,
        api: Arc<dyn ApiSource>,
        clock: Arc<dyn Clock>,
        service: Arc<dyn AttachService>,
    ) -> Self {
        let api = Timely::shared(api, Arc::clone(&clock));
        let pauses = Pauses { first: config.first_pause, longest: LONGEST_PAUSE };
        let reconciler = AttachReconciler::new(config, Arc::clone(&api), service);
        Self { _running: Running::start(reconciler, api, clock, pauses) }
    }
}

#[async_trait]
impl Reconciler for AttachReconciler {
    fn kinds(&self) -> &'static [Kind] {
        &[Kind::Attachment, Kind::Volume, Kind::CsiNode]
    }

    fn affected(&self, before: Option<&Object>, after: Option<&Object>) -> Vec<Key> {
        self.attached.replace_attachment(before, after);
        match (before, after) {
            (before, Some(Object::Attachment(attachment))) if attachment.attacher == self.config.driver => {
                let before = before.and_then(|before| match before {
                    Object::Attachment(before) => Some(before),
                    _ => None,
                });
                // A change that the attacher itself wrote, such as an error, is no reason to look again.
                match before.is_none_or(|before| Asked::of(before) != Asked::of(attachment)) {
                    true => vec![Key::cluster(Kind::Attachment, &attachment.meta.name)],
                    false => Vec::new(),
                }
            }
            // It may have been the last one that kept its volume.
            (Some(Object::Attachment(gone)), None) => vec![Key::cluster(Kind::Volume, &gone.volume)],
            (_, Some(Object::Volume(volume)))
                if volume.meta.is_deleting() && volume.meta.has_finalizer(&self.finalizer) =>
            {
                vec![Key::cluster(Kind::Volume, &volume.meta.name)]
            }
            _ => Vec::new(),
        }
    }

    async fn reconcile(&self, key: &Key) -> Result<(), ReconcileError> {
        match key.kind {
            Kind::Volume => self.release(&key.name).await,
            _ => self.serve(&key.name).await,
        }
    }
}
