//! Each field is read from an object as Kubernetes writes it, so that a name that is misspelt in a view fails here.

use serde_json::{Value, json};

use super::*;
use crate::event::{Client, Verb};

fn finalizers<'a>(object: impl ApiObject<'a>) -> Option<Vec<&'a str>> {
    object.finalizers().map(Iterator::collect)
}

#[test]
fn metadata_is_read_from_any_kind() {
    let json = json!({ "metadata": {
        "uid": "u",
        "deletionTimestamp": "now",
        "finalizers": ["external-attacher/d"],
        "annotations": { "x": "y", "empty": null },
        "ownerReferences": [{ "uid": "o", "controller": true }, { "uid": "p" }],
    } });
    let pod = Pod::of(&json);
    assert_eq!((pod.uid(), pod.known_uid(), pod.is_being_deleted()), ("u", Some("u"), true));
    assert_eq!(finalizers(pod), Some(vec!["external-attacher/d"]));
    assert!(pod.has_finalizer("external-attacher/") && !pod.has_finalizer("attacher"));
    assert!(pod.has_annotation("x") && !pod.has_annotation("empty"));
    let owners: Option<Vec<_>> =
        pod.owners().map(|all| all.map(|owner| (owner.uid(), owner.is_controller())).collect());
    assert_eq!(owners, Some(vec![(Some("o"), true), (Some("p"), false)]));
}

#[test]
fn missing_fields_are_empty() {
    let pod = Pod::of(&Value::Null);
    assert_eq!((pod.uid(), pod.known_uid(), pod.is_being_deleted()), ("", None, false));
    assert_eq!((finalizers(pod), pod.owners().is_some()), (None, false));
    let volume = PersistentVolume::of(&Value::Null);
    assert_eq!((volume.handle(), volume.csi_handle(), volume.capacity()), ("", None, None));
    assert_eq!(volume.names_secret(SecretReference::NodeStage), None);
    assert_eq!((volume.host_paths().count(), volume.node_affinity().is_some()), (0, false));
    let claim = Claim::of(&Value::Null);
    assert_eq!((claim.volume_name(), claim.source_snapshot(), claim.phase()), (None, None, ""));
    assert_eq!((claim.allocated_bytes(), claim.pending_node_size()), (Some(0), None));
    assert_eq!((Node::of(&Value::Null).volumes_in_use(), Node::of(&Value::Null).labels()), (None, None));
    assert!(CsiDriver::of(&Value::Null).requires_attach() && !Node::of(&Value::Null).is_lost());
}

#[test]
fn persistent_volume_is_read() {
    let json = json!({
        "metadata": {
            "annotations": { "pv.kubernetes.io/provisioned-by": "d" },
            "finalizers": ["kubernetes.io/pv-protection"],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
            "volumeMode": "Block",
            "capacity": { "storage": "1Ki" },
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": { "namespace": "n", "name": "c", "uid": "u" },
            "nodeAffinity": [[{ "key": "zone", "operator": "In", "values": ["a", "b"] }], []],
            "local": { "path": "/local" },
            "hostPath": { "path": "/host" },
            "csi": {
                "driver": "d",
                "volumeHandle": "v",
                "fsType": "ext4",
                "volumeAttributes": { "a": "b" },
                "nodeStageSecretRef": { "name": "s" },
                "nodePublishSecretRef": null,
            },
        },
        "status": { "phase": "Bound" },
    });
    let volume = PersistentVolume::of(&json);
    assert_eq!((volume.handle(), volume.csi_handle()), ("v", Some("v")));
    assert_eq!((volume.driver(), volume.fs_type()), ("d", "ext4"));
    assert_eq!(Value::Object(volume.attributes()), json!({ "a": "b" }));
    assert_eq!(volume.names_secret(SecretReference::NodeStage), Some(true));
    assert_eq!(volume.names_secret(SecretReference::NodePublish), Some(false));
    assert_eq!(volume.names_secret(SecretReference::NodeExpand), None);
    assert!(volume.host_paths().eq(["/local", "/host"]));
    assert!(volume.access_modes().eq(["ReadWriteOnce", "ReadOnlyMany"]));
    assert_eq!(volume.capacity(), Some(1024));
    assert_eq!((volume.claim_reference().name().as_str(), volume.claim_reference().uid()), ("n/c", "u"));
    assert!(volume.is_block() && volume.is_bound() && volume.is_to_be_deleted());
    assert!(volume.is_provisioned() && volume.is_protected());
    let terms: Vec<_> = volume.node_affinity().into_iter().flatten().collect();
    assert_eq!(terms.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0]);
    let zone = terms[0][0];
    assert_eq!((zone.key(), zone.operator()), ("zone", "In"));
    assert!(zone.values().eq(["a", "b"]));
}

#[test]
fn secret_for_expansion_is_read() {
    let json = json!({ "spec": { "csi": { "nodeExpandSecretRef": { "name": "s" } } } });
    assert_eq!(PersistentVolume::of(&json).names_secret(SecretReference::NodeExpand), Some(true));
}

#[test]
fn claim_is_read() {
    let json = json!({
        "metadata": { "finalizers": ["kubernetes.io/pvc-protection"] },
        "spec": { "volumeName": "pv", "dataSource": { "kind": "VolumeSnapshot", "name": "s" } },
        "status": {
            "phase": "Bound",
            "capacity": { "storage": "1Gi" },
            "allocatedResources": { "storage": "2Gi" },
            "allocatedResourceStatuses": { "storage": "ControllerResizeInProgress" },
            "modifyVolumeStatus": { "status": "InProgress" },
        },
    });
    let claim = Claim::of(&json);
    assert_eq!((claim.volume_name(), claim.source_snapshot()), (Some("pv"), Some("s")));
    assert_eq!((claim.phase(), claim.is_bound(), claim.is_pending()), ("Bound", true, false));
    assert_eq!((claim.capacity(), claim.allocated_bytes()), (Some(1 << 30), Some(2 << 30)));
    assert!(claim.is_controller_resizing() && claim.is_being_modified() && claim.is_protected());
    assert_eq!(claim.pending_node_size(), None);
    let json = json!({ "status": {
        "phase": "Pending",
        "allocatedResources": { "storage": "2Gi" },
        "allocatedResourceStatuses": { "storage": "NodeResizePending" },
    } });
    let claim = Claim::of(&json);
    assert_eq!((claim.is_pending(), claim.pending_node_size()), (true, Some("2Gi")));
}

#[test]
fn attachment_and_driver_are_read() {
    let json = json!({
        "spec": { "nodeName": "node-1", "source": { "persistentVolumeName": "pv" } },
        "status": { "attached": true, "attachmentMetadata": { "a": "b" } },
    });
    let attachment = Attachment::of(&json);
    assert_eq!((attachment.volume_name(), attachment.node()), (Some("pv"), "node-1"));
    assert!(attachment.is_attached());
    assert_eq!(Value::Object(attachment.metadata()), json!({ "a": "b" }));
    let json = json!({ "spec": { "attachRequired": false, "fsGroupPolicy": "File" } });
    let driver = CsiDriver::of(&json);
    assert_eq!((driver.requires_attach(), driver.fs_group_policy()), (false, "File"));
}

#[test]
fn node_is_read() {
    let json = json!({
        "metadata": { "labels": { "zone": "a", "other": null } },
        "status": {
            "volumesInUse": ["x", "y"],
            "volumesAttached": [{ "name": "x" }],
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    });
    let node = Node::of(&json);
    assert_eq!(node.volumes_in_use(), Some(["x", "y"].into()));
    assert!(node.volumes_attached().eq(["x"]));
    assert_eq!(node.labels(), Some([("zone", "a")].into()));
    assert!(!node.is_lost());
    for lost in [
        json!({ "spec": { "taints": [{ "key": "node.kubernetes.io/out-of-service" }] } }),
        json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } }),
    ] {
        assert!(Node::of(&lost).is_lost(), "{lost}");
    }
    let disk = json!({ "status": { "conditions": [{ "type": "DiskPressure", "status": "False" }] } });
    assert!(!Node::of(&disk).is_lost());
}

#[test]
fn pod_is_read() {
    let json = json!({ "spec": {
        "nodeName": "node-1", "claims": ["a", "b", "c"], "unused": ["b"], "ephemeral": ["c"],
    } });
    let pod = Pod::of(&json);
    assert!(pod.is_scheduled() && !Pod::of(&Value::Null).is_scheduled());
    assert!(pod.claims().eq(["a", "b", "c"]));
    assert!(pod.unused_claims().eq(["b"]));
    assert!(pod.ephemeral_claims().eq(["c"]));
}

#[test]
fn contents_are_read() {
    let snapshot = json!({
        "metadata": {
            "annotations": { "snapshot.storage.kubernetes.io/volumesnapshot-being-created": "yes" },
            "finalizers": ["snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"],
        },
        "spec": { "deletionPolicy": "Delete", "volumeSnapshotRef": { "uid": "s" } },
        "status": { "snapshotHandle": "h" },
    });
    let group = json!({
        "metadata": {
            "annotations": { "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-created": "yes" },
            "finalizers": ["groupsnapshot.storage.kubernetes.io/volumegroupsnapshotcontent-bound-protection"],
        },
        "spec": { "deletionPolicy": "Retain", "volumeGroupSnapshotRef": { "uid": "g" } },
        "status": { "volumeGroupSnapshotHandle": "i" },
    });
    let (snapshot, group) = (SnapshotContent::of(&snapshot), GroupSnapshotContent::of(&group));
    assert_eq!((snapshot.snapshot_uid(), snapshot.handle()), ("s", "h"));
    assert_eq!((group.snapshot_uid(), group.handle()), ("g", "i"));
    assert!(snapshot.is_announced() && group.is_announced());
    assert!(snapshot.is_deleted_at_driver() && !group.is_deleted_at_driver());
}

#[test]
fn change_is_of_its_kind_only() {
    let body = json!({ "spec": { "volumeName": "pv" } });
    let (verb, kind, by) = (Verb::Update, ObjectKind::Claim, Client::Node);
    let change = ApiChange { verb, kind, object: "n/c".to_owned(), by, body };
    assert_eq!(change.of().and_then(Claim::volume_name), Some("pv"));
    assert!(change.of::<Pod>().is_none());
    let line = TraceLine { seq: 1, t_ms: 0.0, event: Event::Api(change) };
    assert_eq!(line.change_of().and_then(|(_, claim)| Claim::volume_name(claim)), Some("pv"));
    assert!(line.change_of::<PersistentVolume>().is_none());
}

#[test]
fn quantities_are_bytes() {
    for (quantity, size) in [
        ("12", Some(12)),
        ("1Ki", Some(1024)),
        ("2k", Some(2000)),
        ("1Ti", Some(1 << 40)),
        ("1M", Some(1_000_000)),
    ] {
        assert_eq!(bytes(quantity), size, "{quantity}");
    }
    for unreadable in ["", "1.5Gi", "-1", "99999999Ei"] {
        assert_eq!(bytes(unreadable), None, "{unreadable}");
    }
}
