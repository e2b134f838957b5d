//! The contents of snapshots and of group snapshots, for the rules that judge both alike.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{has_finalizer, is_deleting};
use crate::event::{ApiChange, ObjectKind};
use crate::rule::books::text;
use crate::rule::{Books, Report};

/// The claims that were being made from something when it was deleted, by its identity.
pub(super) type Restored = BTreeMap<String, BTreeSet<(String, String)>>;

/// A kind of contents, and its fields that name the snapshot or the group snapshot.
pub(super) struct Contents {
    pub(super) kind: ObjectKind,
    /// The reference in the spec.
    pub(super) reference: &'static str,
    /// The driver's handle in the status.
    pub(super) handle: &'static str,
}

impl Contents {
    /// The content for this identity.
    pub(super) fn find<'a>(&self, books: &'a Books, uid: &str) -> Option<(&'a str, &'a Value)> {
        books.objects_of(self.kind).find(|(_, body)| self.uid(body) == uid)
    }

    fn uid<'a>(&self, body: &'a Value) -> &'a str {
        text(&body["spec"][self.reference], "uid")
    }

    /// Reports a content that is gone although the driver has what it stands for; `taken` has identities by handle.
    pub(super) fn judge_gone(
        &self,
        books: &Books,
        change: &ApiChange,
        taken: &BTreeMap<String, String>,
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
        let uid = self.uid(body);
        if let Some((handle, _)) = taken.iter().find(|(_, taken)| *taken == uid) {
            report.broken("", cause, handle.as_str());
        }
    }

    /// Reports a call that deletes what is still being restored.
    pub(super) fn judge_deletion(
        &self,
        books: &Books,
        (method, handle): (&str, &str),
        restored: &Restored,
        cause: &'static str,
        report: &mut Report,
    ) {
        let mut contents = books.objects_of(self.kind);
        let content = contents.find(|(_, body)| text(&body["status"], self.handle) == handle);
        let Some((_, content)) = content else { return };
        let Some(claims) = restored.get(self.uid(content)) else { return };
        report.tried();
        if let Some((claim, _)) = claims.iter().find(|claim| is_waiting(books, claim)) {
            report.broken(method, cause, claim.as_str());
        }
    }
}

/// Whether a content says that the driver is asked for it, and is kept.
pub(super) fn is_announced(body: &Value, annotation: &str, finalizer: &str) -> bool {
    body["metadata"]["annotations"][annotation].is_string() && has_finalizer(body, finalizer)
}

/// Whether a change is the first that marks an object of this kind as being deleted.
pub(super) fn is_new_deletion(books: &Books, change: &ApiChange, kind: ObjectKind) -> bool {
    let is_marked = change.kind == kind && is_deleting(&change.body);
    is_marked && !books.object(change.kind, &change.object).is_some_and(is_deleting)
}

/// Whether a claim that was being made is still being made.
fn is_waiting(books: &Books, (name, uid): &(String, String)) -> bool {
    let claim = books.object(ObjectKind::Claim, name);
    claim.is_some_and(|claim| {
        text(&claim["metadata"], "uid") == uid && text(&claim["status"], "phase") == "Pending"
    })
}
