//! Snapshots and clones.

use std::collections::{BTreeMap, BTreeSet};

use super::contents::{
    PendingRestores, content_of, judge_content_deletion, judge_snapshot_deletion, newly_deleted,
};
use super::{change_by_controller, started};
use crate::event::{Event, TraceLine, Verb};
use crate::object::{ApiObject, Claim, Content, PersistentVolume, Snapshot, SnapshotContent};
use crate::rule::{Books, Check, Checked, Report, Rule, Witness};

/// The beginning of the names that a snapshotter asks for; the rest is the identity of a snapshot.
const NAME: &str = "snapshot-";

pub(in super::super) static ANNOUNCED_BEFORE_TAKEN: Rule = Rule {
    id: "INV-097",
    sentence: "a driver is asked for a snapshot only when its content has the annotation for it and the finalizer",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::Each(|books, line, report| {
        let Some(start) = started(line, "CreateSnapshot") else { return };
        let Some(uid) = start.request().name().strip_prefix(NAME) else { return };
        let Some((name, content)) = content_of::<SnapshotContent>(books, uid) else { return };
        report.tried();
        if !content.is_announced() {
            report.broken(&start.method, "asked for a snapshot that is written nowhere", name);
        }
    }),
};

pub(in super::super) static CONTENT_OUTLIVES_SNAPSHOT: Rule = Rule {
    id: "INV-098",
    sentence: "the content of a snapshot that is to be deleted stays until the driver has deleted the snapshot",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::With(|| Box::new(Taken::default())),
};

/// The snapshots that the driver has.
#[derive(Default)]
struct Taken {
    /// The identities of those that are asked for.
    asked: BTreeMap<u64, String>,
    /// The handles of those that are being deleted.
    going: BTreeMap<u64, String>,
    /// The identities of those that were taken, by handle.
    taken: BTreeMap<String, String>,
}

impl Check for Taken {
    fn event(&mut self, books: &Books, line: &TraceLine, report: &mut Report) {
        match &line.event {
            Event::RpcStart(start) => match start.method.as_str() {
                "CreateSnapshot" => {
                    let uid = start.request().name().strip_prefix(NAME).unwrap_or_default();
                    self.asked.insert(start.id, uid.to_owned());
                }
                "DeleteSnapshot" => {
                    self.going.insert(start.id, start.request().snapshot_id().to_owned());
                }
                _ => {}
            },
            Event::RpcEnd(end) => {
                let (asked, going) = (self.asked.remove(&end.id), self.going.remove(&end.id));
                if let Some(uid) = asked.filter(|_| end.code == "OK") {
                    self.taken.insert(end.response().taken_snapshot().to_owned(), uid);
                }
                if let Some(handle) = going.filter(|_| matches!(end.code.as_str(), "OK" | "NotFound")) {
                    self.taken.remove(&handle);
                }
            }
            Event::Api(change) if change.verb == Verb::Delete => {
                let cause = "the content of a snapshot was gone before the snapshot";
                judge_content_deletion::<SnapshotContent>(books, change, &self.taken, cause, report);
            }
            _ => {}
        }
    }
}

pub(in super::super) static NOT_WHILE_RESTORED: Rule = Rule {
    id: "INV-099",
    sentence: "a snapshot is not deleted while a claim that was there before is made from it",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::With(|| Box::new(NotWhileRestored::default())),
};

#[derive(Default)]
struct NotWhileRestored(PendingRestores);

impl Check for NotWhileRestored {
    fn event(&mut self, books: &Books, line: &TraceLine, report: &mut Report) {
        match &line.event {
            Event::Api(change) => {
                if let Some(snapshot) = newly_deleted::<Snapshot>(books, change) {
                    self.0.insert(snapshot.uid().to_owned(), restored(books, &change.object));
                }
            }
            Event::RpcStart(start) if start.method == "DeleteSnapshot" => {
                let call = (start.method.as_str(), start.request().snapshot_id());
                let cause = "deleted while a claim was made from it";
                judge_snapshot_deletion::<SnapshotContent>(books, call, &self.0, cause, report);
            }
            _ => {}
        }
    }
}

/// The claims that are being made from a snapshot, with their identities.
pub(super) fn restored(books: &Books, snapshot: &str) -> BTreeSet<(String, String)> {
    let Some((namespace, name)) = snapshot.split_once('/') else { return BTreeSet::new() };
    let from = |(object, claim): &(&str, Claim)| {
        object.split_once('/').is_some_and(|(of, _)| of == namespace)
            && claim.source_snapshot() == Some(name)
            && claim.is_pending()
    };
    let claims = books.objects().filter(from);
    claims.map(|(name, claim)| (name.to_owned(), claim.uid().to_owned())).collect()
}

pub(in super::super) static SOURCE_IS_KEPT: Rule = Rule {
    id: "INV-100",
    sentence: "a claim is not gone while a snapshot or a clone of its volume is being made",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::Each(|books, line, report| {
        let Some((change, _)) = change_by_controller::<Claim>(line) else { return };
        if change.verb != Verb::Delete {
            return;
        }
        let volume = books.object(&change.object).and_then(Claim::volume_name);
        let volume = volume.and_then(|name| books.object(name)).map(PersistentVolume::handle);
        let Some(handle) = volume.filter(|handle| !handle.is_empty()) else { return };
        report.tried();
        let copies = |method: &str| matches!(method, "CreateVolume" | "CreateSnapshot");
        let mut calls = books.calls.values().filter(|call| copies(&call.method));
        if let Some(call) = calls.find(|call| call.request().copied_volume() == handle) {
            report.broken(&call.method, "the claim was gone while its volume was copied", &change.object);
        }
    }),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps};

    const BEING_CREATED: &str = SnapshotContent::BEING_CREATED;
    const PROTECTION: &str = SnapshotContent::PROTECTION;

    fn content(change: &str) -> String {
        format!("api update VolumeSnapshotContent c controller {change}\n")
    }

    const BOUND: &str = r#"api create VolumeSnapshotContent c controller {"spec":{"deletionPolicy":"Delete","volumeSnapshotRef":{"namespace":"n","name":"s","uid":"1"}}}
    "#;
    const TAKEN: &str = r#"calls CreateSnapshot {"name":"snapshot-1","sourceVolumeId":"v"} {"snapshot":{"snapshotId":"h"}} OK
    "#;
    const DELETED: &str = "calls DeleteSnapshot {\"snapshotId\":\"h\"} {} OK\n";

    #[test]
    fn snapshot_is_announced_before_it_is_taken() {
        let rule = &ANNOUNCED_BEFORE_TAKEN;
        let kept = content(&format!("{{\"metadata\":{{\"finalizers\":[\"{PROTECTION}\"]}}}}"));
        let announced =
            content(&format!("{{\"metadata\":{{\"annotations\":{{\"{BEING_CREATED}\":\"yes\"}}}}}}"));
        keeps(rule, &[BOUND, &kept, &announced, TAKEN].concat(), &[]);
        let cause = "asked for a snapshot that is written nowhere";
        breaks(rule, cause, &[BOUND, &kept, TAKEN].concat(), &[]);
        breaks(rule, cause, &[BOUND, &announced, TAKEN].concat(), &[]);
    }

    #[test]
    fn content_outlives_its_snapshot() {
        let rule = &CONTENT_OUTLIVES_SNAPSHOT;
        let gone = "api delete VolumeSnapshotContent c controller\n";
        keeps(rule, &[BOUND, TAKEN, DELETED, gone].concat(), &[]);
        let cause = "the content of a snapshot was gone before the snapshot";
        breaks(rule, cause, &[BOUND, TAKEN, gone].concat(), &[]);
    }

    #[test]
    fn snapshot_waits_for_the_claims_made_from_it() {
        let rule = &NOT_WHILE_RESTORED;
        let claim = |phase: &str| {
            format!(
                "api update PersistentVolumeClaim n/c case {{\"metadata\":{{\"uid\":\"9\"}},\"spec\":{{\"dataSource\":{{\"kind\":\"VolumeSnapshot\",\"name\":\"s\"}}}},\"status\":{{\"phase\":\"{phase}\"}}}}\n"
            )
        };
        let going = r#"api update VolumeSnapshot n/s case {"metadata":{"uid":"1","deletionTimestamp":"now"}}
        "#;
        let handle = content("{\"status\":{\"snapshotHandle\":\"h\"}}");
        let (waits, bound) = (claim("Pending"), claim("Bound"));
        keeps(rule, &[BOUND, &handle, &waits, going, &bound, DELETED].concat(), &[]);
        keeps(rule, &[BOUND, &handle, going, &waits, DELETED].concat(), &[]);
        let cause = "deleted while a claim was made from it";
        breaks(rule, cause, &[BOUND, &handle, &waits, going, DELETED].concat(), &[]);
    }

    #[test]
    fn claim_outlives_the_copies_of_its_volume() {
        let rule = &SOURCE_IS_KEPT;
        let volume = r#"api create PersistentVolume pv controller {"spec":{"csi":{"volumeHandle":"v"}}}
        "#;
        let claim = r#"api create PersistentVolumeClaim n/c case {"spec":{"volumeName":"pv"}}
        "#;
        let gone = "api delete PersistentVolumeClaim n/c controller\n";
        keeps(rule, &[volume, claim, TAKEN, gone].concat(), &[]);
        let cause = "the claim was gone while its volume was copied";
        let cut = "starts CreateSnapshot {\"sourceVolumeId\":\"v\"}\n";
        breaks(rule, cause, &[volume, claim, cut, gone].concat(), &[]);
        let cloned = "starts CreateVolume {\"volumeContentSource\":{\"volume\":{\"volumeId\":\"v\"}}}\n";
        breaks(rule, cause, &[volume, claim, cloned, gone].concat(), &[]);
    }
}
