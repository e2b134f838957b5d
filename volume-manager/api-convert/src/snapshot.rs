//! Snapshots. Their kinds are custom resources, so their shapes are written down here
//! (docs/behaviour/12-copies.md).

use std::collections::BTreeMap;

use api::names::Namespaced;
use api::object::Meta;
use api::snapshot::{ContentSource, ContentStatus, SnapshotSource, SnapshotStatus};
use api::storage::VolumeMode;
use api::{Bytes, Snapshot, SnapshotClass, SnapshotContent};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::Bad;

/// A custom resource: its own fields below `spec` and `status`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "a strict reader has to know every field that there may be")]
pub(super) struct Custom<Spec, Status> {
    api_version: Option<String>,
    kind: Option<String>,
    metadata: Option<ObjectMeta>,
    pub(super) spec: Spec,
    pub(super) status: Option<Status>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SnapshotSpec {
    source: SourceFields,
    volume_snapshot_class_name: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SourceFields {
    persistent_volume_claim_name: Option<String>,
    volume_snapshot_content_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "a strict reader has to know every field that there may be")]
pub(super) struct SnapshotStatusFields {
    bound_volume_snapshot_content_name: Option<String>,
    creation_time: Option<String>,
    ready_to_use: Option<bool>,
    restore_size: Option<Quantity>,
    error: Option<ErrorFields>,
    volume_group_snapshot_name: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "a strict reader has to know every field that there may be")]
pub(super) struct ErrorFields {
    time: Option<String>,
    pub(super) message: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContentSpec {
    volume_snapshot_ref: SnapshotReference,
    deletion_policy: String,
    driver: String,
    volume_snapshot_class_name: Option<String>,
    source: ContentSourceFields,
    source_volume_mode: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "a strict reader has to know every field that there may be")]
pub(super) struct SnapshotReference {
    api_version: Option<String>,
    kind: Option<String>,
    field_path: Option<String>,
    resource_version: Option<String>,
    pub(super) name: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) uid: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContentSourceFields {
    volume_handle: Option<String>,
    snapshot_handle: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "a strict reader has to know every field that there may be")]
pub(super) struct ContentStatusFields {
    snapshot_handle: Option<String>,
    creation_time: Option<i64>,
    ready_to_use: Option<bool>,
    restore_size: Option<i64>,
    error: Option<ErrorFields>,
    volume_group_snapshot_handle: Option<String>,
}

/// A class has its fields beside its metadata.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "a strict reader has to know every field that there may be")]
pub(super) struct ClassFields {
    api_version: Option<String>,
    kind: Option<String>,
    metadata: Option<ObjectMeta>,
    pub(super) driver: String,
    pub(super) parameters: Option<BTreeMap<String, String>>,
    pub(super) deletion_policy: String,
}

pub(super) fn snapshot(
    custom: Custom<SnapshotSpec, SnapshotStatusFields>,
    meta: Meta,
) -> Result<Snapshot, Bad> {
    let source = custom.spec.source;
    let source = match (source.persistent_volume_claim_name, source.volume_snapshot_content_name) {
        (Some(claim), None) => SnapshotSource::Claim(claim),
        (None, Some(content)) => SnapshotSource::Content(content),
        (claim, content) => {
            let given = [claim, content].into_iter().flatten().collect::<Vec<_>>().join(" and ");
            return Err(Bad::new("a source, which is one claim or one content,", given));
        }
    };
    let status = custom.status.unwrap_or_default();
    let restore_size = status.restore_size.as_ref().map(super::quantity).transpose()?;
    Ok(Snapshot {
        meta,
        source,
        class: custom.spec.volume_snapshot_class_name,
        status: SnapshotStatus {
            content: status.bound_volume_snapshot_content_name.unwrap_or_default(),
            ready: status.ready_to_use.unwrap_or_default(),
            restore_size,
            group: status.volume_group_snapshot_name.unwrap_or_default(),
            error: status.error.and_then(|error| error.message),
        },
    })
}

pub(super) fn content(
    custom: Custom<ContentSpec, ContentStatusFields>,
    meta: Meta,
) -> Result<SnapshotContent, Bad> {
    let spec = custom.spec;
    let source = match (spec.source.volume_handle, spec.source.snapshot_handle) {
        (Some(volume), None) => ContentSource::Volume(volume),
        (None, Some(snapshot)) => ContentSource::Snapshot(snapshot),
        (volume, snapshot) => {
            let given = [volume, snapshot].into_iter().flatten().collect::<Vec<_>>().join(" and ");
            return Err(Bad::new("a source, which is one volume or one snapshot,", given));
        }
    };
    let status = custom.status.unwrap_or_default();
    let reference = spec.volume_snapshot_ref;
    let source_mode = match spec.source_volume_mode.as_deref() {
        None => None,
        Some("Filesystem") => Some(VolumeMode::Filesystem),
        Some("Block") => Some(VolumeMode::Block),
        Some(other) => return Err(Bad::new("a volume mode", other)),
    };
    Ok(SnapshotContent {
        meta,
        snapshot: Namespaced::new(
            reference.namespace.unwrap_or_default(),
            reference.name.unwrap_or_default(),
        ),
        snapshot_uid: reference.uid.unwrap_or_default(),
        driver: spec.driver,
        class: spec.volume_snapshot_class_name.unwrap_or_default(),
        deletion: deletion(spec.deletion_policy)?,
        source,
        source_mode,
        status: ContentStatus {
            handle: status.snapshot_handle.unwrap_or_default(),
            ready: status.ready_to_use.unwrap_or_default(),
            restore_size: status.restore_size.and_then(|size| u64::try_from(size).ok()).map(Bytes),
            group: status.volume_group_snapshot_handle.unwrap_or_default(),
            error: status.error.and_then(|error| error.message),
        },
    })
}

pub(super) fn class(class: ClassFields, meta: Meta) -> Result<SnapshotClass, Bad> {
    Ok(SnapshotClass {
        meta,
        driver: class.driver,
        parameters: class.parameters.unwrap_or_default(),
        deletion: deletion(class.deletion_policy)?,
    })
}

pub(super) fn deletion(policy: String) -> Result<String, Bad> {
    match policy.as_str() {
        "Delete" | "Retain" => Ok(policy),
        _ => Err(Bad::new("a deletion policy, which is Delete or Retain,", policy)),
    }
}
