//! Group snapshots. Their kinds are custom resources, so their shapes are written down here
//! (docs/behaviour/12-copies.md).

use api::group_snapshot::{
    GroupContentSource, GroupContentStatus, GroupMember, GroupSnapshotStatus, GroupSource,
};
use api::names::Namespaced;
use api::object::Meta;
use api::{Bytes, GroupSnapshot, GroupSnapshotClass, GroupSnapshotContent};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;

use super::snapshot::{ClassFields, Custom, ErrorFields, SnapshotReference, deletion};
use super::{Bad, storage};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GroupSpec {
    source: SourceFields,
    volume_group_snapshot_class_name: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SourceFields {
    selector: Option<LabelSelector>,
    volume_group_snapshot_content_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "a strict reader has to know every field that there may be")]
pub(super) struct GroupStatusFields {
    bound_volume_group_snapshot_content_name: Option<String>,
    creation_time: Option<String>,
    ready_to_use: Option<bool>,
    error: Option<ErrorFields>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContentSpec {
    volume_group_snapshot_ref: SnapshotReference,
    deletion_policy: String,
    driver: String,
    volume_group_snapshot_class_name: Option<String>,
    source: ContentSourceFields,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContentSourceFields {
    volume_handles: Option<Vec<String>>,
    group_snapshot_handles: Option<HandlesFields>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HandlesFields {
    volume_group_snapshot_handle: String,
    volume_snapshot_handles: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "a strict reader has to know every field that there may be")]
pub(super) struct ContentStatusFields {
    volume_group_snapshot_handle: Option<String>,
    creation_time: Option<String>,
    ready_to_use: Option<bool>,
    error: Option<ErrorFields>,
    volume_snapshot_info_list: Option<Vec<MemberFields>>,
    /// The list of versions before v1.
    volume_snapshot_handle_pair_list: Option<Vec<MemberFields>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "a strict reader has to know every field that there may be")]
struct MemberFields {
    volume_handle: Option<String>,
    snapshot_handle: Option<String>,
    creation_time: Option<i64>,
    ready_to_use: Option<bool>,
    restore_size: Option<i64>,
}

pub(super) fn group(custom: Custom<GroupSpec, GroupStatusFields>, meta: Meta) -> Result<GroupSnapshot, Bad> {
    let source = custom.spec.source;
    let source = match (source.selector, source.volume_group_snapshot_content_name) {
        (Some(selector), None) => GroupSource::Claims(storage::selector(selector)),
        (None, Some(content)) => GroupSource::Content(content),
        (_, content) => {
            let given = content.map(|content| format!("a selector and {content}")).unwrap_or_default();
            return Err(Bad::new("a source, which is one selector or one content,", given));
        }
    };
    let status = custom.status.unwrap_or_default();
    Ok(GroupSnapshot {
        meta,
        source,
        class: custom.spec.volume_group_snapshot_class_name,
        status: GroupSnapshotStatus {
            content: status.bound_volume_group_snapshot_content_name.unwrap_or_default(),
            ready: status.ready_to_use.unwrap_or_default(),
            error: status.error.and_then(|error| error.message),
        },
    })
}

pub(super) fn content(
    custom: Custom<ContentSpec, ContentStatusFields>,
    meta: Meta,
) -> Result<GroupSnapshotContent, Bad> {
    let spec = custom.spec;
    let source = match (spec.source.volume_handles, spec.source.group_snapshot_handles) {
        (Some(volumes), None) => GroupContentSource::Volumes(volumes),
        (None, Some(handles)) => GroupContentSource::Group {
            group: handles.volume_group_snapshot_handle,
            snapshots: handles.volume_snapshot_handles,
        },
        (volumes, _) => {
            let given = volumes.unwrap_or_default().join(" and ");
            return Err(Bad::new("a source, which is volumes or one group,", given));
        }
    };
    let status = custom.status.unwrap_or_default();
    let listed = status.volume_snapshot_info_list.or(status.volume_snapshot_handle_pair_list);
    let reference = spec.volume_group_snapshot_ref;
    Ok(GroupSnapshotContent {
        meta,
        group: Namespaced::new(reference.namespace.unwrap_or_default(), reference.name.unwrap_or_default()),
        group_uid: reference.uid.unwrap_or_default(),
        driver: spec.driver,
        class: spec.volume_group_snapshot_class_name.unwrap_or_default(),
        deletion: deletion(spec.deletion_policy)?,
        source,
        status: GroupContentStatus {
            handle: status.volume_group_snapshot_handle.unwrap_or_default(),
            ready: status.ready_to_use.unwrap_or_default(),
            members: listed.unwrap_or_default().into_iter().map(member).collect(),
            error: status.error.and_then(|error| error.message),
        },
    })
}

fn member(fields: MemberFields) -> GroupMember {
    GroupMember {
        volume: fields.volume_handle.unwrap_or_default(),
        snapshot: fields.snapshot_handle.unwrap_or_default(),
        ready: fields.ready_to_use.unwrap_or_default(),
        restore_size: fields.restore_size.and_then(|size| u64::try_from(size).ok()).map(Bytes),
    }
}

pub(super) fn class(class: ClassFields, meta: Meta) -> Result<GroupSnapshotClass, Bad> {
    Ok(GroupSnapshotClass {
        meta,
        driver: class.driver,
        parameters: class.parameters.unwrap_or_default(),
        deletion: deletion(class.deletion_policy)?,
    })
}
