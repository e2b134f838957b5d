//! The way back: objects as Kubernetes shapes them, for traces of what became of them.

use serde_json::{Value, json};

use crate::names::Namespaced;
use crate::snapshot::{ContentSource, SnapshotSource};
use crate::storage::FsGroupPolicy;
use crate::{AccessMode, Object, PersistentSource, Pod, Volume, VolumeSource};

/// The fields of an object by which a trace can be judged, where Kubernetes has them.
pub fn shape(object: &Object) -> Value {
    let mut body = match object {
        Object::Pod(pod) => pod_body(pod),
        Object::Claim(claim) => json!({
            "spec": {
                "accessModes": modes(&claim.spec.access_modes),
                "volumeName": claim.spec.volume,
                "volumeMode": claim.spec.mode.to_string(),
                "volumeAttributesClassName": claim.spec.attributes_class,
                "dataSource": claim.spec.data_source.as_ref().map(|source| json!({
                    "kind": source.kind, "name": source.name,
                })),
                "resources": { "requests": { "storage": claim.spec.request.to_string() } },
            },
            "status": {
                "phase": format!("{:?}", claim.status.phase),
                "capacity": { "storage": claim.status.capacity.to_string() },
                "allocatedResources": { "storage": claim.status.allocated.map(|size| size.to_string()) },
                "allocatedResourceStatuses": { "storage": claim.status.resize },
                "currentVolumeAttributesClassName": claim.status.attributes_class,
                "modifyVolumeStatus": claim.status.modifying.as_ref().map(|modifying| json!({
                    "targetVolumeAttributesClassName": modifying.target,
                    "status": format!("{:?}", modifying.progress),
                })),
            },
        }),
        Object::Volume(volume) => volume_body(volume),
        Object::CsiDriver(driver) => json!({ "spec": {
            "attachRequired": driver.attach_required,
            "podInfoOnMount": driver.pod_info,
            "requiresRepublish": driver.requires_republish,
            "fsGroupPolicy": driver.fs_group_policy.map(policy),
        } }),
        Object::Node(node) => json!({
            "spec": {
                "taints": list(&node.taints, |taint| json!({ "key": taint.key, "effect": taint.effect })),
            },
            "status": {
                "volumesInUse": node.volumes_in_use,
                "volumesAttached": list(&node.volumes_attached, |volume| json!({ "name": volume.name })),
                "conditions": [{ "type": "Ready", "status": if node.ready { "True" } else { "False" } }],
            },
        }),
        Object::Attachment(attachment) => json!({
            "spec": {
                "attacher": attachment.attacher,
                "nodeName": attachment.node,
                "source": { "persistentVolumeName": attachment.volume },
            },
            "status": { "attached": attachment.attached, "attachmentMetadata": attachment.metadata },
        }),
        Object::CsiNode(node) => json!({ "spec": {
            "drivers": list(&node.drivers, |driver| json!({ "name": driver.name, "nodeID": driver.node_id })),
        } }),
        Object::Snapshot(snapshot) => json!({
            "spec": { "volumeSnapshotClassName": snapshot.class, "source": match &snapshot.source {
                SnapshotSource::Claim(claim) => json!({ "persistentVolumeClaimName": claim }),
                SnapshotSource::Content(content) => json!({ "volumeSnapshotContentName": content }),
            } },
            "status": {
                "boundVolumeSnapshotContentName": snapshot.status.content,
                "readyToUse": snapshot.status.ready,
                "restoreSize": snapshot.status.restore_size.map(|size| size.to_string()),
            },
        }),
        Object::SnapshotContent(content) => json!({
            "spec": {
                "driver": content.driver,
                "deletionPolicy": content.deletion,
                "source": match &content.source {
                    ContentSource::Volume(handle) => json!({ "volumeHandle": handle }),
                    ContentSource::Snapshot(handle) => json!({ "snapshotHandle": handle }),
                },
                "volumeSnapshotRef": {
                    "namespace": content.snapshot.namespace,
                    "name": content.snapshot.name,
                    "uid": content.snapshot_uid,
                },
            },
            "status": { "snapshotHandle": content.status.handle, "readyToUse": content.status.ready },
        }),
        Object::GroupSnapshot(group) => json!({
            "spec": { "volumeGroupSnapshotClassName": group.class },
            "status": {
                "boundVolumeGroupSnapshotContentName": group.status.content,
                "readyToUse": group.status.ready,
            },
        }),
        Object::GroupSnapshotContent(content) => json!({
            "spec": {
                "driver": content.driver,
                "deletionPolicy": content.deletion,
                "volumeGroupSnapshotRef": {
                    "namespace": content.group.namespace,
                    "name": content.group.name,
                    "uid": content.group_uid,
                },
            },
            "status": { "volumeGroupSnapshotHandle": content.status.handle, "readyToUse": content.status.ready },
        }),
        // No rule depends on their content, and it may be secret.
        Object::Secret(_)
        | Object::ConfigMap(_)
        | Object::Class(_)
        | Object::AttributesClass(_)
        | Object::SnapshotClass(_)
        | Object::GroupSnapshotClass(_)
        | Object::Service(_)
        | Object::Notification(_) => json!({}),
    };
    let meta = object.meta();
    body["metadata"] = json!({
        "uid": meta.uid,
        "labels": meta.labels,
        "finalizers": meta.finalizers,
        "deletionTimestamp": meta.deleted,
        "annotations": annotations(object),
        "ownerReferences":
            list(&meta.owners, |owner| json!({ "uid": owner.uid, "controller": owner.controller })),
    });
    body
}

/// The annotations by which a controller's steps can be judged; one that is missing is null.
fn annotations(object: &Object) -> Value {
    let names: &[&str] = match object {
        Object::Volume(_) => &["pv.kubernetes.io/provisioned-by"],
        Object::SnapshotContent(_) => &[
            "snapshot.storage.kubernetes.io/volumesnapshot-being-created",
            "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted",
        ],
        Object::GroupSnapshotContent(_) => &[
            "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-created",
            "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted",
        ],
        _ => &[],
    };
    names.iter().map(|name| ((*name).to_owned(), json!(object.meta().annotations.get(*name)))).collect()
}

fn list<T>(of: &[T], shape: impl Fn(&T) -> Value) -> Vec<Value> {
    of.iter().map(shape).collect()
}

fn policy(policy: FsGroupPolicy) -> &'static str {
    match policy {
        FsGroupPolicy::None => "None",
        FsGroupPolicy::File => "File",
        FsGroupPolicy::ReadWriteOnceWithFsType => "ReadWriteOnceWithFSType",
    }
}

fn pod_body(pod: &Pod) -> Value {
    let claims: Vec<String> = pod.claims().collect();
    let ephemeral = pod.volumes.iter().filter(|v| matches!(v.source, VolumeSource::Ephemeral { .. }));
    let ephemeral: Vec<_> = ephemeral.filter_map(|volume| pod.claim(volume)).collect();
    let used: Vec<_> = pod.claims_of_containers().collect();
    let unused: Vec<_> = claims.iter().filter(|claim| !used.contains(claim)).collect();
    json!({
        "spec": {
            "nodeName": pod.node,
            "claims": claims,
            "unused": unused,
            "ephemeral": ephemeral,
        },
        "status": { "phase": pod.phase },
    })
}

fn volume_body(volume: &Volume) -> Value {
    let mut spec = json!({
        "accessModes": modes(&volume.access_modes),
        "volumeMode": volume.mode.map(|mode| mode.to_string()),
        "capacity": { "storage": volume.capacity.to_string() },
        "mountOptions": volume.mount_options,
        "nodeAffinity": volume.affinity.as_ref().map(|affinity| &affinity.terms),
        "persistentVolumeReclaimPolicy": volume.reclaim,
        "claimRef": volume.claim.as_ref().map(|reference| json!({
            "namespace": reference.claim.namespace, "name": reference.claim.name, "uid": reference.uid,
        })),
    });
    match &volume.source {
        PersistentSource::Csi(csi) => {
            let secret = |of: &Option<Box<Namespaced>>| of.as_ref().map(|of| json!({ "name": of.name }));
            spec["csi"] = json!({
                "driver": csi.driver,
                "volumeHandle": csi.handle,
                "fsType": csi.fs_type,
                "volumeAttributes": csi.attributes,
                "readOnly": csi.read_only,
                "nodeStageSecretRef": secret(&csi.node_stage_secret),
                "nodePublishSecretRef": secret(&csi.node_publish_secret),
                "nodeExpandSecretRef": secret(&csi.node_expand_secret),
            });
        }
        PersistentSource::Local { path, .. } => spec["local"] = json!({ "path": path }),
        PersistentSource::HostPath { path, .. } => spec["hostPath"] = json!({ "path": path }),
        PersistentSource::Nfs { .. } | PersistentSource::FlexVolume(_) | PersistentSource::Other { .. } => {}
    }
    json!({ "spec": spec, "status": { "phase": volume.phase } })
}

fn modes(modes: &[AccessMode]) -> Vec<String> {
    modes.iter().map(|mode| format!("{mode:?}")).collect()
}
