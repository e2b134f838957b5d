//! Objects as Kubernetes shapes them, as far as rules read them. Touches nothing.

use serde_json::{Value, json};
use volume_manager::api::storage::FsGroupPolicy;
use volume_manager::api::{Object, PersistentSource, Pod, PodVolume, Volume, VolumeSource};
use volume_manager::names::Namespaced;

use super::protection;

/// The fields of an object that a rule may read, where Kubernetes has them.
pub(super) fn of(object: &Object) -> Value {
    let mut body = match object {
        Object::Pod(pod) => pod_body(pod),
        Object::Claim(claim) => json!({
            "spec": { "accessModes": modes(&claim.spec.access_modes), "volumeName": claim.spec.volume,
                "volumeMode": claim.spec.mode.to_string(), "resources": { "requests": { "storage": claim.spec.request.to_string() } } },
            "status": { "phase": format!("{:?}", claim.status.phase), "capacity": { "storage": claim.status.capacity.to_string() },
                "allocatedResourceStatuses": { "storage": claim.status.resize } },
        }),
        Object::Volume(volume) => volume_body(volume),
        Object::CsiDriver(driver) => json!({
            "spec": { "attachRequired": driver.attach_required, "podInfoOnMount": driver.pod_info,
                "requiresRepublish": driver.requires_republish,
                "fsGroupPolicy": driver.fs_group_policy.map(policy) },
        }),
        Object::Node(node) => json!({
            "spec": { "taints": node.taints.iter().map(|taint| json!({ "key": taint.key, "effect": taint.effect })).collect::<Vec<_>>() },
            "status": {
                "volumesInUse": node.volumes_in_use,
                "volumesAttached": node.volumes_attached.iter().map(|volume| json!({ "name": volume.name })).collect::<Vec<_>>(),
                "conditions": [{ "type": "Ready", "status": if node.ready { "True" } else { "False" } }],
            },
        }),
        Object::Attachment(attachment) => json!({
            "spec": { "attacher": attachment.attacher, "nodeName": attachment.node,
                "source": { "persistentVolumeName": attachment.volume } },
            "status": { "attached": attachment.attached, "attachmentMetadata": attachment.metadata },
        }),
        Object::CsiNode(node) => json!({
            "spec": { "drivers": node.drivers.iter().map(|driver| json!({ "name": driver.name, "nodeID": driver.node_id })).collect::<Vec<_>>() },
        }),
        // Their content is nobody's business, and may be secret.
        Object::Secret(_) | Object::ConfigMap(_) | Object::Class(_) | Object::Notification(_) => json!({}),
    };
    let meta = object.meta();
    let owners = meta.owners.iter().map(|owner| json!({ "uid": owner.uid, "controller": owner.controller }));
    body["metadata"] = json!({
        "uid": meta.uid, "labels": meta.labels, "finalizers": meta.finalizers,
        "deletionTimestamp": meta.deleted, "ownerReferences": owners.collect::<Vec<_>>(),
    });
    body
}

fn policy(policy: FsGroupPolicy) -> &'static str {
    match policy {
        FsGroupPolicy::None => "None",
        FsGroupPolicy::File => "File",
        FsGroupPolicy::ReadWriteOnceWithFsType => "ReadWriteOnceWithFSType",
    }
}

fn pod_body(pod: &Pod) -> Value {
    let claims: Vec<String> = protection::claims(pod).collect();
    let (mounted, devices) = (pod.mounted(), pod.devices());
    let is_used = |volume: &PodVolume| mounted.contains(&volume.name) || devices.contains(&volume.name);
    let is_ephemeral = |volume: &PodVolume| matches!(volume.source, VolumeSource::Ephemeral { .. });
    let used = claims_of(pod, is_used);
    let unused: Vec<_> = claims.iter().filter(|claim| !used.contains(claim)).collect();
    json!({
        "spec": { "nodeName": pod.node, "claims": claims, "unused": unused,
            "ephemeral": claims_of(pod, is_ephemeral) },
        "status": { "phase": pod.phase },
    })
}

/// The names of the claims behind some of a pod's volumes.
fn claims_of(pod: &Pod, which: impl Fn(&PodVolume) -> bool) -> Vec<String> {
    pod.volumes
        .iter()
        .filter(|volume| which(volume))
        .filter_map(|volume| protection::claim(pod, volume))
        .collect()
}

fn volume_body(volume: &Volume) -> Value {
    let mut spec = json!({
        "accessModes": modes(&volume.access_modes),
        "volumeMode": volume.mode.map(|mode| mode.to_string()),
        "capacity": { "storage": volume.capacity.to_string() },
        "mountOptions": volume.mount_options,
        "nodeAffinity": volume.affinity.as_ref().map(|affinity| &affinity.terms),
    });
    match &volume.source {
        PersistentSource::Csi(csi) => {
            let secret = |of: &Option<Namespaced>| of.as_ref().map(|of| json!({ "name": of.name }));
            spec["csi"] = json!({
                "driver": csi.driver, "volumeHandle": csi.handle, "fsType": csi.fs_type,
                "volumeAttributes": csi.attributes, "readOnly": csi.read_only,
                "nodeStageSecretRef": secret(&csi.node_stage_secret),
                "nodePublishSecretRef": secret(&csi.node_publish_secret),
                "nodeExpandSecretRef": secret(&csi.node_expand_secret),
            });
        }
        PersistentSource::Local { path, .. } => spec["local"] = json!({ "path": path }),
        PersistentSource::HostPath { path, .. } => spec["hostPath"] = json!({ "path": path }),
        PersistentSource::Nfs { .. } | PersistentSource::Other { .. } => {}
    }
    json!({ "spec": spec, "status": { "phase": volume.phase } })
}

fn modes(modes: &[volume_manager::api::AccessMode]) -> Vec<String> {
    modes.iter().map(|mode| format!("{mode:?}")).collect()
}
