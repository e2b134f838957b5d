//! API objects as rules read them: the one place that names their fields.
//!
//! A trace has an object as JSON, in the shape of Kubernetes and with the fields that rules need. A change may have fewer of
//! them than the object: the [`Books`](crate::rule::Books) merge them. A view is an object of one kind, which reads a missing
//! field as empty; where a rule asks whether the trace has the field, its method returns an `Option`.

use serde_json::Value;

use crate::event::{ApiChange, Event, ObjectKind, TraceLine};
use crate::json::texts;

mod attachment;
mod claim;
mod node;
mod snapshot;
#[cfg(test)]
mod tests;
mod volume;

pub use snapshot::Content;
pub use volume::{ClaimReference, Requirement, SecretReference};

/// The view of one kind, and the metadata that all kinds have.
pub trait ApiObject<'a>: Copy {
    const KIND: ObjectKind;

    fn of(json: &'a Value) -> Self;

    /// The object as it stands in the trace.
    fn json(self) -> &'a Value;

    /// The UID; empty if the trace does not have it.
    fn uid(self) -> &'a str {
        self.known_uid().unwrap_or_default()
    }

    /// The UID, if the trace has it.
    fn known_uid(self) -> Option<&'a str> {
        metadata(self)["uid"].as_str()
    }

    fn is_being_deleted(self) -> bool {
        !metadata(self)["deletionTimestamp"].is_null()
    }

    /// `None` if the trace does not have the list.
    fn finalizers(self) -> Option<impl Iterator<Item = &'a str>> {
        texts(&metadata(self)["finalizers"])
    }

    /// Whether there is a finalizer with this beginning.
    fn has_finalizer(self, prefix: &str) -> bool {
        self.finalizers().into_iter().flatten().any(|finalizer| finalizer.starts_with(prefix))
    }

    fn has_annotation(self, name: &str) -> bool {
        metadata(self)["annotations"][name].is_string()
    }

    /// The objects with which this one is deleted; `None` if the trace does not have the list.
    fn owners(self) -> Option<impl Iterator<Item = Owner<'a>>> {
        Some(metadata(self)["ownerReferences"].as_array()?.iter().map(Owner))
    }
}

fn metadata<'a>(object: impl ApiObject<'a>) -> &'a Value {
    &object.json()["metadata"]
}

/// The reference of an object to its owner.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a>(&'a Value);

impl<'a> Owner<'a> {
    pub fn uid(self) -> Option<&'a str> {
        self.0["uid"].as_str()
    }

    /// Whether the owner has made the object and manages it.
    pub fn is_controller(self) -> bool {
        self.0["controller"] == true
    }
}

macro_rules! views {
    ($($(#[$about:meta])* $name:ident of $kind:ident,)*) => { $(
        $(#[$about])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name<'a>(&'a Value);

        impl<'a> ApiObject<'a> for $name<'a> {
            const KIND: ObjectKind = ObjectKind::$kind;

            fn of(json: &'a Value) -> Self {
                Self(json)
            }

            fn json(self) -> &'a Value {
                self.0
            }
        }
    )* };
}

views! {
    PersistentVolume of Volume,
    /// A PersistentVolumeClaim.
    Claim of Claim,
    /// A VolumeAttachment.
    Attachment of Attachment,
    CsiDriver of CsiDriver,
    Node of Node,
    Pod of Pod,
    /// A VolumeSnapshot.
    Snapshot of Snapshot,
    /// A VolumeSnapshotContent.
    SnapshotContent of SnapshotContent,
    /// A VolumeGroupSnapshot.
    GroupSnapshot of GroupSnapshot,
    /// A VolumeGroupSnapshotContent.
    GroupSnapshotContent of GroupSnapshotContent,
}

impl ApiChange {
    /// The object as far as the change has its fields, if it is of this kind.
    pub fn of<'a, T: ApiObject<'a>>(&'a self) -> Option<T> {
        (self.kind == T::KIND).then(|| T::of(&self.body))
    }
}

impl TraceLine {
    /// The change of an object of this kind, if the line is one.
    pub fn change_of<'a, T: ApiObject<'a>>(&'a self) -> Option<(&'a ApiChange, T)> {
        match &self.event {
            Event::Api(change) => Some((change, change.of()?)),
            _ => None,
        }
    }
}

/// The number of bytes in a quantity of Kubernetes; `None` for one that is not a whole number of bytes.
fn bytes(quantity: &str) -> Option<u64> {
    const UNITS: &[(&str, u64)] = &[
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("Pi", 1 << 50),
        ("Ei", 1 << 60),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
        ("P", 1_000_000_000_000_000),
        ("E", 1_000_000_000_000_000_000),
    ];
    let unit = UNITS.iter().find_map(|(unit, size)| Some((quantity.strip_suffix(unit)?, *size)));
    let (number, size) = unit.unwrap_or((quantity, 1));
    number.parse::<u64>().ok()?.checked_mul(size)
}
