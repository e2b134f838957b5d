//! Objects as Kubernetes shapes them, as far as rules read them. Touches nothing.

use serde_json::{Value, json};
use volume_manager::api::{Object, PersistentSource, Pod, Volume};

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
                "requiresRepublish": driver.requires_republish },
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
    body["metadata"] =
        json!({ "uid": meta.uid, "finalizers": meta.finalizers, "deletionTimestamp": meta.deleted });
    body
}

fn pod_body(pod: &Pod) -> Value {
    let claims: Vec<String> = protection::claims(pod).collect();
    json!({ "spec": { "nodeName": pod.node, "claims": claims }, "status": { "phase": pod.phase } })
}

fn volume_body(volume: &Volume) -> Value {
    let mut spec = json!({
        "accessModes": modes(&volume.access_modes),
        "volumeMode": volume.mode.map(|mode| mode.to_string()),
        "capacity": { "storage": volume.capacity.to_string() },
        "mountOptions": volume.mount_options,
    });
    if let PersistentSource::Csi(csi) = &volume.source {
        spec["csi"] = json!({
            "driver": csi.driver, "volumeHandle": csi.handle, "fsType": csi.fs_type,
            "volumeAttributes": csi.attributes, "readOnly": csi.read_only,
        });
    }
    json!({ "spec": spec, "status": { "phase": volume.phase } })
}

fn modes(modes: &[volume_manager::api::AccessMode]) -> Vec<String> {
    modes.iter().map(|mode| format!("{mode:?}")).collect()
}
