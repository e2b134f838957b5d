//! Group snapshots as documents of the API.

use api::group_snapshot::{GroupContentSource, GroupMember, GroupSource};
use api::names::Namespaced;
use api::storage::Requirement;
use api::{GroupSnapshot, GroupSnapshotContent};
use serde_json::{Value, json};

use super::{set, text};

pub(super) fn group_body(group: &GroupSnapshot) -> Value {
    let source = match &group.source {
        GroupSource::Claims(selector) => {
            let expression =
                |one: &Requirement| json!({ "key": one.key, "operator": one.operator, "values": one.values });
            let expressions: Vec<Value> = selector.iter().map(expression).collect();
            json!({ "selector": { "matchExpressions": expressions } })
        }
        GroupSource::Content(content) => json!({ "volumeGroupSnapshotContentName": content }),
    };
    let mut spec = json!({ "source": source });
    set(&mut spec, "volumeGroupSnapshotClassName", group.class.as_ref());
    let is = &group.status;
    let mut status = json!({ "readyToUse": is.ready });
    set(&mut status, "boundVolumeGroupSnapshotContentName", text(&is.content));
    set(&mut status, "error", is.error.as_ref().map(|message| json!({ "message": message })));
    json!({ "spec": spec, "status": status })
}

pub(super) fn content_body(content: &GroupSnapshotContent) -> Value {
    let source = match &content.source {
        GroupContentSource::Volumes(volumes) => json!({ "volumeHandles": volumes }),
        GroupContentSource::Group { group, snapshots } => json!({ "groupSnapshotHandles": {
            "volumeGroupSnapshotHandle": group, "volumeSnapshotHandles": snapshots,
        } }),
    };
    let Namespaced { namespace, name } = &content.group;
    let mut reference = json!({ "kind": "VolumeGroupSnapshot", "namespace": namespace, "name": name });
    set(&mut reference, "uid", text(&content.group_uid));
    let mut spec = json!({
        "driver": content.driver,
        "deletionPolicy": text(&content.deletion).unwrap_or("Delete"),
        "source": source,
        "volumeGroupSnapshotRef": reference,
    });
    set(&mut spec, "volumeGroupSnapshotClassName", text(&content.class));
    let is = &content.status;
    let member = |member: &GroupMember| {
        json!({
            "volumeHandle": member.volume, "snapshotHandle": member.snapshot, "readyToUse": member.ready,
            "restoreSize": member.restore_size.map(|size| size.0),
        })
    };
    let members: Vec<Value> = is.members.iter().map(member).collect();
    let mut status = json!({ "readyToUse": is.ready, "volumeSnapshotInfoList": members });
    set(&mut status, "volumeGroupSnapshotHandle", text(&is.handle));
    set(&mut status, "error", is.error.as_ref().map(|message| json!({ "message": message })));
    json!({ "spec": spec, "status": status })
}
