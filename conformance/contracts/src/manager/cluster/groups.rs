//! Group snapshots. Only those are judged that a controller has a content for: a case takes others itself.

use std::collections::{BTreeMap, BTreeSet};

use super::contents::{
    PendingRestores, content_of, judge_content_deletion, judge_snapshot_deletion, newly_deleted,
};
use super::copies::restored;
use super::started;
use crate::event::{Event, RpcEnd, TraceLine, Verb};
use crate::object::{ApiObject, Content, GroupSnapshot, GroupSnapshotContent, Snapshot};
use crate::rule::{Books, Check, Checked, Report, Rule, Witness};

/// The beginning of the names that a group snapshotter asks for; the rest is the identity of a group snapshot.
const NAME: &str = "groupsnapshot-";

const CREATE: &str = "CreateVolumeGroupSnapshot";
const DELETE: &str = "DeleteVolumeGroupSnapshot";

/// The identity of the group snapshot that a call is for.
fn uid<'a>(books: &'a Books, end: &RpcEnd) -> Option<&'a str> {
    let call = books.calls.get(&end.id).filter(|call| call.method == CREATE)?;
    let uid = call.request().name().strip_prefix(NAME)?;
    content_of::<GroupSnapshotContent>(books, uid).map(|_| uid)
}

pub(in super::super) static ANNOUNCED_BEFORE_TAKEN: Rule = Rule {
    id: "INV-102",
    sentence: "a driver is asked for a group snapshot only when its content has the annotation for it and the finalizer",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::Each(|books, line, report| {
        let Some(start) = started(line, CREATE) else { return };
        let Some(uid) = start.request().name().strip_prefix(NAME) else { return };
        let Some((name, content)) = content_of::<GroupSnapshotContent>(books, uid) else { return };
        report.tried();
        if !content.is_announced() {
            report.broken(&start.method, "asked for a group snapshot that is written nowhere", name);
        }
    }),
};

pub(in super::super) static CONTENT_OUTLIVES_GROUP: Rule = Rule {
    id: "INV-103",
    sentence: "the content of a group snapshot that is to be deleted stays until the driver has deleted the group",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::With(|| Box::new(Taken::default())),
};

/// The identities of the group snapshots that the driver has, by handle.
#[derive(Default)]
struct Taken(BTreeMap<String, String>);

impl Check for Taken {
    fn event(&mut self, books: &Books, line: &TraceLine, report: &mut Report) {
        match &line.event {
            Event::RpcEnd(end) => {
                if let Some(uid) = uid(books, end).filter(|_| end.code == "OK") {
                    self.0.insert(end.response().taken_group().to_owned(), uid.to_owned());
                }
                let deletion = books.calls.get(&end.id).filter(|call| call.method == DELETE);
                if let Some(call) = deletion.filter(|_| end.code == "OK") {
                    self.0.remove(call.request().group_id());
                }
            }
            Event::Api(change) if change.verb == Verb::Delete => {
                let cause = "the content of a group snapshot was gone before the group";
                judge_content_deletion::<GroupSnapshotContent>(books, change, &self.0, cause, report);
            }
            _ => {}
        }
    }
}

pub(in super::super) static MEMBER_GOES_WITH_ITS_GROUP: Rule = Rule {
    id: "INV-104",
    sentence: "a snapshot that the driver took as a part of a group is not deleted alone",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::With(|| Box::new(Members::default())),
};

/// The handles of the snapshots of groups.
#[derive(Default)]
struct Members(BTreeSet<String>);

impl Check for Members {
    fn event(&mut self, books: &Books, line: &TraceLine, report: &mut Report) {
        match &line.event {
            Event::RpcEnd(end) if end.code == "OK" && uid(books, end).is_some() => {
                report.tried();
                self.0.extend(end.response().members().map(str::to_owned));
            }
            Event::RpcStart(start) if start.method == "DeleteSnapshot" => {
                let handle = start.request().snapshot_id();
                if self.0.contains(handle) {
                    report.broken(&start.method, "a snapshot of a group was deleted alone", handle);
                }
            }
            _ => {}
        }
    }
}

pub(in super::super) static NOT_WHILE_RESTORED: Rule = Rule {
    id: "INV-105",
    sentence: "a group snapshot is not deleted while a claim that was there before is made from one of its snapshots",
    witnesses: &[Witness::Rpc, Witness::Api],
    check: Checked::With(|| Box::new(NotWhileRestored::default())),
};

#[derive(Default)]
struct NotWhileRestored(PendingRestores);

impl Check for NotWhileRestored {
    fn event(&mut self, books: &Books, line: &TraceLine, report: &mut Report) {
        match &line.event {
            Event::Api(change) => {
                if let Some(group) = newly_deleted::<GroupSnapshot>(books, change) {
                    let members = members(books, group.uid());
                    let claims = members.flat_map(|member| restored(books, member)).collect();
                    self.0.insert(group.uid().to_owned(), claims);
                }
            }
            Event::RpcStart(start) if start.method == DELETE => {
                let call = (start.method.as_str(), start.request().group_id());
                let cause = "deleted while a claim was made from one of its snapshots";
                judge_snapshot_deletion::<GroupSnapshotContent>(books, call, &self.0, cause, report);
            }
            _ => {}
        }
    }
}

/// The snapshots of a group.
fn members<'a>(books: &'a Books, group: &str) -> impl Iterator<Item = &'a str> {
    let is_member = move |(_, snapshot): &(&str, Snapshot)| {
        snapshot.owners().into_iter().flatten().any(|owner| owner.uid() == Some(group))
    };
    books.objects().filter(is_member).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps, passes_over};

    const BEING_CREATED: &str = GroupSnapshotContent::BEING_CREATED;
    const PROTECTION: &str = GroupSnapshotContent::PROTECTION;

    fn content(change: &str) -> String {
        format!("api update VolumeGroupSnapshotContent c controller {change}\n")
    }

    const BOUND: &str = r#"api create VolumeGroupSnapshotContent c controller {"spec":{"deletionPolicy":"Delete","volumeGroupSnapshotRef":{"namespace":"n","name":"g","uid":"1"}}}
    "#;
    const TAKEN: &str = r#"calls CreateVolumeGroupSnapshot {"name":"groupsnapshot-1","sourceVolumeIds":["v"]} {"groupSnapshot":{"groupSnapshotId":"h","snapshots":[{"snapshotId":"m","groupSnapshotId":"h"}]}} OK
    "#;
    const DELETED: &str = "calls DeleteVolumeGroupSnapshot {\"groupSnapshotId\":\"h\"} {} OK\n";

    #[test]
    fn group_is_announced_before_it_is_taken() {
        let rule = &ANNOUNCED_BEFORE_TAKEN;
        let kept = content(&format!("{{\"metadata\":{{\"finalizers\":[\"{PROTECTION}\"]}}}}"));
        let announced =
            content(&format!("{{\"metadata\":{{\"annotations\":{{\"{BEING_CREATED}\":\"yes\"}}}}}}"));
        keeps(rule, &[BOUND, &kept, &announced, TAKEN].concat(), &[]);
        let cause = "asked for a group snapshot that is written nowhere";
        breaks(rule, cause, &[BOUND, &kept, TAKEN].concat(), &[]);
        breaks(rule, cause, &[BOUND, &announced, TAKEN].concat(), &[]);
        passes_over(rule, TAKEN, &[]);
    }

    #[test]
    fn content_outlives_its_group() {
        let rule = &CONTENT_OUTLIVES_GROUP;
        let gone = "api delete VolumeGroupSnapshotContent c controller\n";
        keeps(rule, &[BOUND, TAKEN, DELETED, gone].concat(), &[]);
        let cause = "the content of a group snapshot was gone before the group";
        breaks(rule, cause, &[BOUND, TAKEN, gone].concat(), &[]);
    }

    #[test]
    fn member_is_not_deleted_alone() {
        let rule = &MEMBER_GOES_WITH_ITS_GROUP;
        let of = |id: &str| format!("calls DeleteSnapshot {{\"snapshotId\":\"{id}\"}} {{}} OK\n");
        keeps(rule, &[BOUND, TAKEN, &of("x"), DELETED].concat(), &[]);
        breaks(rule, "a snapshot of a group was deleted alone", &[BOUND, TAKEN, &of("m")].concat(), &[]);
        passes_over(rule, &[TAKEN, &of("m")].concat(), &[]);
    }

    #[test]
    fn group_waits_for_the_claims_made_from_its_snapshots() {
        let rule = &NOT_WHILE_RESTORED;
        let claim = |phase: &str| {
            format!(
                "api update PersistentVolumeClaim n/c case {{\"metadata\":{{\"uid\":\"9\"}},\"spec\":{{\"dataSource\":{{\"kind\":\"VolumeSnapshot\",\"name\":\"s\"}}}},\"status\":{{\"phase\":\"{phase}\"}}}}\n"
            )
        };
        let member = r#"api create VolumeSnapshot n/s controller {"metadata":{"ownerReferences":[{"uid":"1"}]}}
        "#;
        let going = r#"api update VolumeGroupSnapshot n/g case {"metadata":{"uid":"1","deletionTimestamp":"now"}}
        "#;
        let handle = content("{\"status\":{\"volumeGroupSnapshotHandle\":\"h\"}}");
        let (waits, bound) = (claim("Pending"), claim("Bound"));
        keeps(rule, &[BOUND, &handle, member, &waits, going, &bound, DELETED].concat(), &[]);
        keeps(rule, &[BOUND, &handle, member, going, &waits, DELETED].concat(), &[]);
        let cause = "deleted while a claim was made from one of its snapshots";
        breaks(rule, cause, &[BOUND, &handle, member, &waits, going, DELETED].concat(), &[]);
    }
}
