//! VolumeSnapshotContents and VolumeGroupSnapshotContents, for the rules that judge both alike.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{has_finalizer, is_deleting};
use crate::event::{ApiChange, ObjectKind};
use crate::rule::books::text;
use crate::rule::{Books, Report};

/// By the UID of a deleted snapshot: the names and UIDs of the claims that were being restored from it at its deletion.
pub(super) type PendingRestores = BTreeMap<String, BTreeSet<(String, String)>>;

/// A kind of contents, and its fields that refer to the snapshot or the group snapshot.
pub(super) struct Contents {
    pub(super) kind: ObjectKind,
    /// The field of the spec with the reference to the API object.
    pub(super) reference: &'static str,
    /// The field of the status with the driver's handle.
    pub(super) handle: &'static str,
}

impl Contents {
    /// The content of the snapshot with this UID.
    pub(super) fn find<'a>(&self, books: &'a Books, uid: &str) -> Option<(&'a str, &'a Value)> {
        books.objects_of(self.kind).find(|(_, body)| self.snapshot_uid(body) == uid)
    }

    fn snapshot_uid<'a>(&self, body: &'a Value) -> &'a str {
        text(&body["spec"][self.reference], "uid")
    }

    /// Reports a content that is deleted while the driver still has its snapshot. `uids` has the UID of each snapshot that
    /// the driver has, by handle.
    pub(super) fn judge_content_deletion(
        &self,
        books: &Books,
        change: &ApiChange,
        uids: &BTreeMap<String, String>,
        cause: &'static str,
        report: &mut Report,
    ) {
        if change.kind != self.kind {
            return;
        }
        let Some(body) = books.object(change.kind, &change.object) else { return };
        if text(&body["spec"], "deletionPolicy") != "Delete" {
            return;
        }
        report.tried();
        let uid = self.snapshot_uid(body);
        if let Some((handle, _)) = uids.iter().find(|(_, taken)| *taken == uid) {
            report.broken("", cause, handle.as_str());
        }
    }

    /// Reports a call that deletes a snapshot from which a claim is still being restored.
    pub(super) fn judge_snapshot_deletion(
        &self,
        books: &Books,
        (method, handle): (&str, &str),
        restores: &PendingRestores,
        cause: &'static str,
        report: &mut Report,
    ) {
        let mut contents = books.objects_of(self.kind);
        let content = contents.find(|(_, body)| text(&body["status"], self.handle) == handle);
        let Some((_, content)) = content else { return };
        let Some(claims) = restores.get(self.snapshot_uid(content)) else { return };
        report.tried();
        if let Some((claim, _)) = claims.iter().find(|claim| is_pending(books, claim)) {
            report.broken(method, cause, claim.as_str());
        }
    }
}

/// Whether a content has the annotation that its snapshot is being created, and the finalizer that keeps it.
pub(super) fn is_marked_as_being_created(body: &Value, annotation: &str, finalizer: &str) -> bool {
    body["metadata"]["annotations"][annotation].is_string() && has_finalizer(body, finalizer)
}

/// Whether a change is the first that marks an object of this kind as being deleted.
pub(super) fn is_new_deletion(books: &Books, change: &ApiChange, kind: ObjectKind) -> bool {
    let is_marked = change.kind == kind && is_deleting(&change.body);
    is_marked && !books.object(change.kind, &change.object).is_some_and(is_deleting)
}

/// Whether the claim with this name and UID is still pending: another claim may have the name now.
fn is_pending(books: &Books, (name, uid): &(String, String)) -> bool {
    let claim = books.object(ObjectKind::Claim, name);
    claim.is_some_and(|claim| {
        text(&claim["metadata"], "uid") == uid && text(&claim["status"], "phase") == "Pending"
    })
}
