//! Writes that touch some fields of an object and leave the others to their owners.
//!
//! Each is typed: what the manager and its controllers may change is exactly what has a variant here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Key;
use super::node::{AttachedVolume, CsiNodeDriver};
use super::object::{Bytes, Meta};
use super::storage::{AttachmentError, Condition};
use crate::names::VolumeName;

/// A write to some fields of one object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Patch {
    /// The object.
    pub key: Key,
    /// If not empty, the write is refused as a conflict unless this is the stored version.
    pub resource_version: String,
    /// What to change.
    pub body: PatchBody,
}

impl Patch {
    /// A write that wins over whatever was written meanwhile.
    pub fn of(key: Key, body: PatchBody) -> Self {
        Self { key, resource_version: String::new(), body }
    }

    /// A write that is refused if the object changed since it was read.
    pub fn of_version(key: Key, read: &Meta, body: PatchBody) -> Self {
        Self { key, resource_version: read.resource_version.clone(), body }
    }
}

/// What a [`Patch`] changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum PatchBody {
    /// The volumes a node says it uses.
    VolumesInUse(Vec<VolumeName>),
    /// The volumes the controller says are attached to a node.
    VolumesAttached(Vec<AttachedVolume>),
    /// Labels and annotations of any object: a value sets, `None` removes.
    Metadata { labels: BTreeMap<String, Option<String>>, annotations: BTreeMap<String, Option<String>> },
    /// The finalizers of any object, all of them.
    Finalizers(Vec<String>),
    /// The status of a claim.
    ClaimStatus(ClaimStatusPatch),
    /// The status of an attachment.
    AttachmentStatus {
        /// Whether it is attached.
        attached: bool,
        /// What the driver said.
        metadata: BTreeMap<String, String>,
        /// Why attaching failed.
        attach_error: Option<AttachmentError>,
        /// Why detaching failed.
        detach_error: Option<AttachmentError>,
    },
    /// What a persistent volume can hold.
    Capacity(Bytes),
    /// The drivers of a node.
    CsiNodeDrivers(Vec<CsiNodeDriver>),
    /// The phase of a pod and why it has it.
    PodPhase {
        phase: String,
        /// One word for machines.
        reason: String,
        /// The text.
        message: String,
    },
}

/// A write to the status of a claim. What is `None` stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClaimStatusPatch {
    /// What it can hold.
    pub capacity: Option<Bytes>,
    /// What it is being grown to.
    pub allocated: Option<Bytes>,
    /// How far growing has come; empty when it is over.
    pub resize: Option<String>,
    /// All its conditions.
    pub conditions: Option<Vec<Condition>>,
}
