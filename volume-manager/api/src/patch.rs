//! Writes that touch some fields of an object and leave the others to their owners.
//!
//! Each is typed: what the manager and its controllers may change is exactly what has a variant here.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::group_snapshot::{GroupContentStatus, GroupSnapshotStatus};
use super::node::{AttachedVolume, CsiNodeDriver};
use super::object::{Bytes, Meta};
use super::snapshot::{ContentStatus, SnapshotStatus};
use super::storage::{AttachmentError, ClaimStatus, Condition, Modifying};
use super::{Key, Object};
use crate::names::VolumeName;

/// A write to some fields of one object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Patch {
    pub key: Key,
    /// If not empty, the write is refused as a conflict unless this is the stored version.
    pub resource_version: String,
    pub body: PatchBody,
}

impl Patch {
    /// A write that wins over any write made meanwhile.
    pub fn of(key: Key, body: PatchBody) -> Self {
        Self { key, resource_version: String::new(), body }
    }

    /// A write that is refused if the object changed since it was read.
    pub fn of_version(key: Key, read: &Meta, body: PatchBody) -> Self {
        Self { key, resource_version: read.resource_version.clone(), body }
    }
}

/// The change of a [`Patch`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum PatchBody {
    /// `volumesInUse` of a node.
    VolumesInUse(Vec<VolumeName>),
    /// `volumesAttached` of a node.
    VolumesAttached(Vec<AttachedVolume>),
    /// Labels and annotations of any object: a value sets, `None` removes.
    Metadata {
        labels: BTreeMap<String, Option<String>>,
        annotations: BTreeMap<String, Option<String>>,
    },
    /// The finalizers of any object, all of them.
    Finalizers(Vec<String>),
    ClaimStatus(ClaimStatusPatch),
    AttachmentStatus {
        /// Whether the volume is attached.
        attached: bool,
        /// The driver's `publish_context`.
        metadata: BTreeMap<String, String>,
        /// Why the last attach failed; `None` if it did not.
        attach_error: Option<AttachmentError>,
        /// Why the last detach failed; `None` if it did not.
        detach_error: Option<AttachmentError>,
    },
    /// The capacity of a persistent volume.
    Capacity(Bytes),
    /// The class of attributes that a persistent volume has.
    AttributesClass(String),
    /// The whole status of a snapshot.
    SnapshotStatus(SnapshotStatus),
    /// The whole status of a snapshot's content.
    ContentStatus(ContentStatus),
    /// The whole status of a group snapshot.
    GroupSnapshotStatus(GroupSnapshotStatus),
    /// The whole status of a group snapshot's content.
    GroupContentStatus(GroupContentStatus),
    CsiNodeDrivers(Vec<CsiNodeDriver>),
    /// The phase of a pod, with its reason.
    PodPhase {
        phase: String,
        /// One word for machines.
        reason: String,
        message: String,
    },
}

impl PatchBody {
    /// Applies the write to an object.
    ///
    /// # Errors
    /// When objects of its kind have no such field.
    pub fn apply(self, object: &mut Object) -> Result<(), &'static str> {
        match (object, self) {
            (object, Self::Metadata { labels, annotations }) => {
                let meta = object.meta_mut();
                merge(&mut meta.labels, labels);
                merge(&mut meta.annotations, annotations);
            }
            (object, Self::Finalizers(finalizers)) => object.meta_mut().finalizers = finalizers,
            (Object::Node(node), Self::VolumesInUse(volumes)) => {
                Arc::make_mut(node).volumes_in_use = volumes;
            }
            (Object::Node(node), Self::VolumesAttached(volumes)) => {
                Arc::make_mut(node).volumes_attached = volumes;
            }
            (Object::Claim(claim), Self::ClaimStatus(patch)) => patch.apply(&mut Arc::make_mut(claim).status),
            (
                Object::Attachment(attachment),
                Self::AttachmentStatus { attached, metadata, attach_error, detach_error },
            ) => {
                let attachment = Arc::make_mut(attachment);
                (attachment.attached, attachment.metadata) = (attached, metadata);
                (attachment.attach_error, attachment.detach_error) = (attach_error, detach_error);
            }
            (Object::Volume(volume), Self::Capacity(capacity)) => {
                Arc::make_mut(volume).capacity = capacity;
            }
            (Object::Volume(volume), Self::AttributesClass(class)) => {
                Arc::make_mut(volume).attributes_class = class;
            }
            (Object::Snapshot(snapshot), Self::SnapshotStatus(status)) => {
                Arc::make_mut(snapshot).status = status;
            }
            (Object::SnapshotContent(content), Self::ContentStatus(status)) => {
                Arc::make_mut(content).status = status;
            }
            (Object::GroupSnapshot(group), Self::GroupSnapshotStatus(status)) => {
                Arc::make_mut(group).status = status;
            }
            (Object::GroupSnapshotContent(content), Self::GroupContentStatus(status)) => {
                Arc::make_mut(content).status = status;
            }
            (Object::CsiNode(node), Self::CsiNodeDrivers(drivers)) => Arc::make_mut(node).drivers = drivers,
            (Object::Pod(pod), Self::PodPhase { phase, .. }) => Arc::make_mut(pod).phase = phase,
            _ => return Err("an object of this kind has no such field"),
        }
        Ok(())
    }
}

fn merge(into: &mut BTreeMap<String, String>, changes: BTreeMap<String, Option<String>>) {
    for (key, value) in changes {
        match value {
            Some(value) => _ = into.insert(key, value),
            None => _ = into.remove(&key),
        }
    }
}

/// A write to the status of a claim. What is `None` stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClaimStatusPatch {
    /// The capacity of the claim.
    pub capacity: Option<Bytes>,
    /// The size of an expansion under way.
    pub allocated: Option<Bytes>,
    /// The progress of an expansion; empty when it is over.
    pub resize: Option<String>,
    /// The whole list of conditions; `None` leaves it as it is.
    pub conditions: Option<Vec<Condition>>,
    /// The class of attributes that its volume has.
    pub attributes_class: Option<String>,
    /// The change of attributes that is under way; `Some(None)` when it is over.
    pub modifying: Option<Option<Modifying>>,
}

impl ClaimStatusPatch {
    fn apply(self, status: &mut ClaimStatus) {
        status.capacity = self.capacity.unwrap_or(status.capacity);
        status.allocated = self.allocated.or(status.allocated);
        status.resize = self.resize.unwrap_or_else(|| std::mem::take(&mut status.resize));
        status.conditions = self.conditions.unwrap_or_else(|| std::mem::take(&mut status.conditions));
        status.attributes_class =
            self.attributes_class.unwrap_or_else(|| std::mem::take(&mut status.attributes_class));
        status.modifying = self.modifying.unwrap_or_else(|| status.modifying.take());
    }
}
