//! The contents of snapshots and of group snapshots, which rules judge alike.

use super::{ApiObject, GroupSnapshotContent, SnapshotContent};
use crate::json::text;

/// A VolumeSnapshotContent or a VolumeGroupSnapshotContent.
pub trait Content<'a>: ApiObject<'a> {
    /// The annotation of a content whose snapshot was asked for, with an answer that is not known.
    const BEING_CREATED: &'static str;
    /// The finalizer of a content whose snapshot the driver may have.
    const PROTECTION: &'static str;

    /// The UID of the snapshot or the group snapshot that the content is of.
    fn snapshot_uid(self) -> &'a str;

    /// The id at the driver.
    fn handle(self) -> &'a str;

    /// Whether the deletion policy is Delete: the driver's snapshot is deleted before the content.
    fn is_deleted_at_driver(self) -> bool {
        self.json()["spec"]["deletionPolicy"] == "Delete"
    }

    /// Whether the content says that its snapshot is being created, and is kept.
    fn is_announced(self) -> bool {
        self.has_annotation(Self::BEING_CREATED) && self.has_finalizer(Self::PROTECTION)
    }
}

impl<'a> Content<'a> for SnapshotContent<'a> {
    const BEING_CREATED: &'static str = "snapshot.storage.kubernetes.io/volumesnapshot-being-created";
    const PROTECTION: &'static str = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";

    fn snapshot_uid(self) -> &'a str {
        text(&self.0["spec"]["volumeSnapshotRef"], "uid")
    }

    fn handle(self) -> &'a str {
        text(&self.0["status"], "snapshotHandle")
    }
}

impl<'a> Content<'a> for GroupSnapshotContent<'a> {
    const BEING_CREATED: &'static str =
        "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-created";
    const PROTECTION: &'static str =
        "groupsnapshot.storage.kubernetes.io/volumegroupsnapshotcontent-bound-protection";

    fn snapshot_uid(self) -> &'a str {
        text(&self.0["spec"]["volumeGroupSnapshotRef"], "uid")
    }

    fn handle(self) -> &'a str {
        text(&self.0["status"], "volumeGroupSnapshotHandle")
    }
}
