//! The next step for a content and the state of an answered group, a row per state.

use super::*;

/// A content of two volumes that is bound and kept.
fn content(change: impl FnOnce(&mut GroupSnapshotContent)) -> GroupSnapshotContent {
    let mut content = GroupSnapshotContent {
        group_uid: "1".to_owned(),
        deletion: "Delete".to_owned(),
        source: GroupContentSource::Volumes(volumes()),
        ..GroupSnapshotContent::default()
    };
    content.meta.finalizers.push(CONTENT.to_owned());
    change(&mut content);
    content
}

fn volumes() -> Vec<String> {
    ["v", "w"].map(str::to_owned).into()
}

fn mark(content: &mut GroupSnapshotContent, annotation: &str) {
    content.meta.annotations.insert(annotation.to_owned(), "yes".to_owned());
}

fn taken(content: &mut GroupSnapshotContent) {
    content.status.handle = "g".to_owned();
    content.status.members =
        vec![GroupMember { volume: "v".to_owned(), snapshot: "s".to_owned(), ..GroupMember::default() }];
}

fn deleted(content: &mut GroupSnapshotContent) {
    content.meta.deleted = Some("now".to_owned());
    taken(content);
    mark(content, BEING_DELETED);
}

#[test]
fn step_follows_from_state_and_deletion() {
    let by_hand = GroupContentSource::Group { group: "g".to_owned(), snapshots: vec!["s".to_owned()] };
    let group = || ("g".to_owned(), vec!["s".to_owned()]);
    let look = Step::Look(group().0, group().1);
    let delete = Step::Delete(group().0, group().1);
    let rows = [
        ("not kept yet", content(|c| c.meta.finalizers.clear()), Step::Hold),
        ("new", content(|_| {}), Step::Create(volumes())),
        ("taken, not ready", content(taken), Step::Create(volumes())),
        ("ready", content(|c| c.status.ready = true), Step::Nothing),
        (
            "ready, and the controller has crashed before it wrote that it is created",
            content(|c| {
                c.status.ready = true;
                mark(c, BEING_CREATED);
            }),
            Step::Created,
        ),
        ("not bound", content(|c| c.group_uid.clear()), Step::Nothing),
        ("written down by hand", content(|c| c.source = by_hand.clone()), look),
        ("deleted with its group snapshot", content(deleted), delete),
        (
            "deleted, and kept by its policy",
            content(|c| {
                deleted(c);
                c.deletion = "Retain".to_owned();
            }),
            Step::Release,
        ),
        (
            "deleted by the driver",
            content(|c| {
                deleted(c);
                c.status = GroupContentStatus::default();
            }),
            Step::Release,
        ),
        (
            "deleted while the driver may be taking it",
            content(|c| {
                deleted(c);
                c.status = GroupContentStatus::default();
                mark(c, BEING_CREATED);
            }),
            Step::Create(volumes()),
        ),
        (
            "deleted by a person, while its group snapshot stays",
            content(|c| {
                c.meta.deleted = Some("now".to_owned());
                c.status.ready = true;
            }),
            Step::Nothing,
        ),
    ];
    for (row, content, step) in rows {
        assert_eq!(next(&content), step, "{row}");
    }
}

#[test]
fn group_without_exactly_one_snapshot_of_each_volume_is_not_ready() {
    let group = |members: &[(&str, &str)]| {
        let member = |(volume, id): &(&str, &str)| v1::Snapshot {
            source_volume_id: (*volume).to_owned(),
            snapshot_id: (*id).to_owned(),
            ..v1::Snapshot::default()
        };
        v1::VolumeGroupSnapshot {
            group_snapshot_id: "g".to_owned(),
            snapshots: members.iter().map(member).collect(),
            ready_to_use: true,
            ..v1::VolumeGroupSnapshot::default()
        }
    };
    let rows = [
        (&[("w", "2"), ("v", "1")][..], true),
        (&[("v", "1")][..], false),
        (&[("v", "1"), ("v", "2"), ("w", "3")][..], false),
        (&[("v", "1"), ("x", "2")][..], false),
        (&[("v", "1"), ("w", "")][..], false),
    ];
    for (members, is_ready) in rows {
        let status = status(group(members), Some(&volumes()));
        assert_eq!((status.ready, status.error.is_none()), (is_ready, is_ready), "{members:?}");
        assert_eq!(status.members.len(), members.len());
    }
    assert!(super::status(group(&[("v", "1")]), None).ready, "a group that was not asked for here");
}
