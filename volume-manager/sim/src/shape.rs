//! Objects as Kubernetes shapes them, as far as rules read them.

use serde_json::{Value, json};
use volume_manager::api::storage::FsGroupPolicy;
use volume_manager::api::{Object, PersistentSource, Pod, PodVolume, Volume, VolumeSource};
use volume_manager::names::Namespaced;

/// The fields of an object that a rule may read, where Kubernetes has them.
pub(crate) fn of(object: &Object) -> Value {
    let mut body = match object {
        Object::Pod(pod) => pod_body(pod),
        Object::Claim(claim) => json!({
            "spec": { "volumeName": claim.spec.volume },
            "status": {
                "phase": format!("{:?}", claim.status.phase),
                "capacity": { "storage": claim.status.capacity.to_string() },
            },
        }),
        Object::Volume(volume) => volume_body(volume),
        Object::CsiDriver(driver) => json!({ "spec": {
            "attachRequired": driver.attach_required,
            "fsGroupPolicy": driver.fs_group_policy.map(policy),
        } }),
        Object::Node(node) => {
            let attached = node.volumes_attached.iter().map(|volume| json!({ "name": volume.name }));
            json!({ "status": {
                "volumesInUse": node.volumes_in_use,
                "volumesAttached": attached.collect::<Vec<_>>(),
            } })
        }
        Object::Attachment(attachment) => json!({
            "spec": {
                "nodeName": attachment.node,
                "source": { "persistentVolumeName": attachment.volume },
            },
            "status": { "attached": attachment.attached, "attachmentMetadata": attachment.metadata },
        }),
        _ => json!({}),
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
    let (mounted, devices) = (pod.mounted(), pod.devices());
    let is_used = |volume: &PodVolume| mounted.contains(&volume.name) || devices.contains(&volume.name);
    let is_ephemeral = |volume: &PodVolume| matches!(volume.source, VolumeSource::Ephemeral { .. });
    let used = claims(pod, is_used);
    let mut unused = claims(pod, |volume| !is_used(volume));
    unused.retain(|claim| !used.contains(claim));
    json!({ "spec": {
        "nodeName": pod.node, "claims": claims(pod, |_| true),
        "unused": unused, "ephemeral": claims(pod, is_ephemeral),
    } })
}

/// The names of the claims behind some of a pod's volumes.
fn claims(pod: &Pod, which: impl Fn(&PodVolume) -> bool) -> Vec<String> {
    let name = |volume: &PodVolume| match &volume.source {
        VolumeSource::Claim { claim, .. } => Some(claim.clone()),
        VolumeSource::Ephemeral { .. } => Some(format!("{}-{}", pod.meta.name, volume.name)),
        _ => None,
    };
    pod.volumes.iter().filter(|volume| which(volume)).filter_map(name).collect()
}

fn volume_body(volume: &Volume) -> Value {
    let mut spec = json!({
        "accessModes": volume.access_modes.iter().map(|mode| format!("{mode:?}")).collect::<Vec<_>>(),
        "volumeMode": volume.mode.map(|mode| mode.to_string()),
        "nodeAffinity": volume.affinity.as_ref().map(|affinity| &affinity.terms),
    });
    if let PersistentSource::Csi(csi) = &volume.source {
        let secret = |named: &Option<Namespaced>| named.as_ref().map(|named| json!({ "name": named.name }));
        spec["csi"] = json!({
            "driver": csi.driver, "volumeHandle": csi.handle, "fsType": csi.fs_type,
            "volumeAttributes": csi.attributes,
            "nodeStageSecretRef": secret(&csi.node_stage_secret),
            "nodePublishSecretRef": secret(&csi.node_publish_secret),
            "nodeExpandSecretRef": secret(&csi.node_expand_secret),
        });
    }
    json!({ "spec": spec })
}
