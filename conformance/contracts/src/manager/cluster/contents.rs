//! VolumeSnapshotContents and VolumeGroupSnapshotContents, for the rules that judge both alike.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::ApiChange;
use crate::object::{ApiObject, Claim, Content};
use crate::rule::{Books, Report};

/// By the UID of a deleted snapshot: the names and UIDs of the claims that were being restored from it at its deletion.
pub(super) type PendingRestores = BTreeMap<String, BTreeSet<(String, String)>>;

/// The content of the snapshot with this UID.
pub(super) fn content_of<'a, C: Content<'a>>(books: &'a Books, uid: &str) -> Option<(&'a str, C)> {
    books.objects::<C>().find(|(_, content)| content.snapshot_uid() == uid)
}

/// Reports a content that is deleted while the driver still has its snapshot. `uids` has the UID of each snapshot that
/// the driver has, by handle.
pub(super) fn judge_content_deletion<'a, C: Content<'a>>(
    books: &'a Books,
    change: &ApiChange,
    uids: &BTreeMap<String, String>,
    cause: &'static str,
    report: &mut Report,
) {
    if change.kind != C::KIND {
        return;
    }
    let content = books.object::<C>(&change.object).filter(|content| content.is_deleted_at_driver());
    let Some(content) = content else { return };
    report.tried();
    if let Some((handle, _)) = uids.iter().find(|(_, taken)| *taken == content.snapshot_uid()) {
        report.broken("", cause, handle.as_str());
    }
}

/// Reports a call that deletes a snapshot from which a claim is still being restored.
pub(super) fn judge_snapshot_deletion<'a, C: Content<'a>>(
    books: &'a Books,
    (method, handle): (&str, &str),
    restores: &PendingRestores,
    cause: &'static str,
    report: &mut Report,
) {
    let content = books.objects::<C>().find(|(_, content)| content.handle() == handle);
    let Some((_, content)) = content else { return };
    let Some(claims) = restores.get(content.snapshot_uid()) else { return };
    report.tried();
    if let Some((claim, _)) = claims.iter().find(|claim| is_pending(books, claim)) {
        report.broken(method, cause, claim.as_str());
    }
}

/// The object, if a change is the first that marks it as being deleted.
pub(super) fn newly_deleted<'a, T: ApiObject<'a>>(books: &'a Books, change: &'a ApiChange) -> Option<T> {
    let object = change.of::<T>().filter(|object| object.is_being_deleted())?;
    let before = books.object::<T>(&change.object);
    (!before.is_some_and(T::is_being_deleted)).then_some(object)
}

/// Whether the claim with this name and UID is still pending: another claim may have the name now.
fn is_pending(books: &Books, (name, uid): &(String, String)) -> bool {
    books.object::<Claim>(name).is_some_and(|claim| claim.uid() == uid && claim.is_pending())
}
