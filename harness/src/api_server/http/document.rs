//! The objects that the node and the controllers see, as documents of the API. Touches nothing.

use api::names::Namespaced;
use api::snapshot::{ContentSource, Snapshot, SnapshotContent, SnapshotSource};
use api::storage::{CsiSource, FsGroupPolicy, Requirement};
use api::{
    Attachment, Claim, Class, ConfigMap, CsiDriver, CsiNode, Meta, Node, Notification, Object,
    PersistentSource, Pod, Secret, Service, Volume, VolumeSource,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::resource::Resource;

mod groups;

/// An object as clients see it. `kept` has the fields that a client has written and the store does not model.
pub(super) fn of(object: &Object, kept: Option<&Value>) -> Value {
    let resource = Resource::of_kind(object.kind());
    let mut document = kept.cloned().unwrap_or_else(|| json!({}));
    let rendered = match object {
        // The client's own document of a pod has more fields than the store's.
        Object::Pod(pod) if kept.is_some() => {
            let phase = text(&pod.phase).unwrap_or("Pending");
            json!({ "spec": { "nodeName": pod.node }, "status": { "phase": phase } })
        }
        Object::Pod(pod) => pod_body(pod),
        Object::Claim(claim) => claim_body(claim),
        Object::Volume(volume) => volume_body(volume),
        Object::Class(class) => class_body(class),
        Object::CsiDriver(driver) => driver_body(driver),
        Object::Node(node) => node_body(node),
        Object::Attachment(attachment) => attachment_body(attachment),
        Object::CsiNode(node) => csi_node_body(node),
        Object::Secret(secret) => secret_body(secret),
        Object::ConfigMap(map) => config_map_body(map),
        Object::Service(service) => service_body(service),
        Object::AttributesClass(class) => {
            json!({ "driverName": class.driver, "parameters": class.parameters })
        }
        Object::Snapshot(snapshot) => snapshot_body(snapshot),
        Object::SnapshotContent(content) => content_body(content),
        Object::SnapshotClass(class) => json!({
            "driver": class.driver, "parameters": class.parameters, "deletionPolicy": class.deletion,
        }),
        Object::GroupSnapshot(group) => groups::group_body(group),
        Object::GroupSnapshotContent(content) => groups::content_body(content),
        Object::GroupSnapshotClass(class) => json!({
            "driver": class.driver, "parameters": class.parameters, "deletionPolicy": class.deletion,
        }),
        Object::Notification(event) => event_body(event),
    };
    lay_over(&mut document, rendered);
    document["apiVersion"] = resource.api_version().into();
    document["kind"] = resource.kind.into();
    lay_over(&mut document["metadata"], metadata(object.meta()));
    for (field, is_empty) in [
        ("labels", object.meta().labels.is_empty()),
        ("annotations", object.meta().annotations.is_empty()),
        ("finalizers", object.meta().finalizers.is_empty()),
    ] {
        if is_empty && let Some(metadata) = document["metadata"].as_object_mut() {
            metadata.remove(field);
        }
    }
    document
}

/// Lays the store's fields over those that a client has written; maps such as labels are replaced as a whole.
fn lay_over(document: &mut Value, rendered: Value) {
    const WHOLE: [&str; 7] = [
        "labels",
        "annotations",
        "data",
        "binaryData",
        "attachmentMetadata",
        "volumeAttributes",
        "parameters",
    ];
    match (document, rendered) {
        (Value::Object(document), Value::Object(rendered)) => {
            for (key, value) in rendered {
                match WHOLE.contains(&key.as_str()) {
                    true => drop(document.insert(key, value)),
                    false => lay_over(document.entry(key).or_insert(Value::Null), value),
                }
            }
        }
        (document, rendered) => *document = rendered,
    }
}

fn metadata(meta: &Meta) -> Value {
    let owners = meta.owners.iter().map(|owner| {
        json!({
            "apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid,
            "controller": owner.controller, "blockOwnerDeletion": owner.block_deletion,
        })
    });
    let owners: Vec<Value> = owners.collect();
    let mut metadata =
        json!({ "name": meta.name, "uid": meta.uid, "resourceVersion": meta.resource_version });
    set(&mut metadata, "namespace", Some(&meta.namespace).filter(|name| !name.is_empty()));
    set(&mut metadata, "creationTimestamp", meta.created.as_ref());
    set(&mut metadata, "deletionTimestamp", meta.deleted.as_ref());
    set(&mut metadata, "deletionGracePeriodSeconds", meta.deletion_grace);
    set(&mut metadata, "labels", Some(&meta.labels).filter(|labels| !labels.is_empty()));
    set(&mut metadata, "annotations", Some(&meta.annotations).filter(|all| !all.is_empty()));
    set(&mut metadata, "finalizers", Some(&meta.finalizers).filter(|all| !all.is_empty()));
    set(&mut metadata, "ownerReferences", Some(owners).filter(|all| !all.is_empty()));
    metadata
}

/// Fields that are not set are not there, and not null.
fn set(object: &mut Value, key: &str, value: Option<impl serde::Serialize>) {
    if let Some(value) = value {
        object[key] = json!(value);
    }
}

fn text(of: &str) -> Option<&str> {
    Some(of).filter(|text| !text.is_empty())
}

fn pod_body(pod: &Pod) -> Value {
    let volume = |volume: &api::PodVolume| {
        let mut body = json!({ "name": volume.name });
        match (&volume.source, pod.claim(volume)) {
            (VolumeSource::Claim { read_only, .. }, Some(claim)) => {
                body["persistentVolumeClaim"] = json!({ "claimName": claim, "readOnly": read_only });
            }
            (VolumeSource::Ephemeral { .. }, _) => body["ephemeral"] = json!({}),
            _ => body["emptyDir"] = json!({}),
        }
        body
    };
    let container = |container: &api::Container| {
        let mounts =
            container.mounts.iter().map(|mount| json!({ "name": mount.volume, "mountPath": mount.path }));
        let devices = container
            .devices
            .iter()
            .map(|device| json!({ "name": device.volume, "devicePath": device.path }));
        json!({
            "name": container.name,
            "image": "volproof",
            "volumeMounts": mounts.collect::<Vec<_>>(),
            "volumeDevices": devices.collect::<Vec<_>>(),
        })
    };
    let mut spec = json!({
        "containers": pod.containers.iter().map(container).collect::<Vec<_>>(),
        "volumes": pod.volumes.iter().map(volume).collect::<Vec<_>>(),
    });
    set(&mut spec, "nodeName", text(&pod.node));
    set(&mut spec, "serviceAccountName", text(&pod.service_account));
    json!({ "spec": spec, "status": { "phase": text(&pod.phase).unwrap_or("Pending") } })
}

fn claim_body(claim: &Claim) -> Value {
    let (wanted, is) = (&claim.spec, &claim.status);
    let mut spec = json!({
        "accessModes": modes(&wanted.access_modes),
        "volumeMode": wanted.mode.to_string(),
        "resources": { "requests": { "storage": wanted.request.to_string() } },
    });
    set(&mut spec, "volumeName", text(&wanted.volume));
    set(&mut spec, "volumeAttributesClassName", text(&wanted.attributes_class));
    set(&mut spec, "storageClassName", wanted.class.as_ref());
    let source = wanted.data_source.as_ref();
    set(&mut spec, "dataSource", source.map(|source| json!({ "kind": source.kind, "name": source.name })));
    let conditions = is.conditions.iter().map(
        |condition| json!({ "type": condition.kind, "status": condition.status, "message": condition.message }),
    );
    let mut status = json!({ "phase": format!("{:?}", is.phase) });
    if !is.capacity.is_zero() {
        status["capacity"] = json!({ "storage": is.capacity.to_string() });
        status["accessModes"] = modes(&wanted.access_modes).into();
    }
    set(&mut status, "conditions", Some(conditions.collect::<Vec<_>>()).filter(|all| !all.is_empty()));
    set(&mut status, "allocatedResources", is.allocated.map(|size| json!({ "storage": size.to_string() })));
    set(&mut status, "allocatedResourceStatuses", text(&is.resize).map(|word| json!({ "storage": word })));
    json!({ "spec": spec, "status": status })
}

fn modes(modes: &[api::AccessMode]) -> Vec<String> {
    modes.iter().map(|mode| format!("{mode:?}")).collect()
}

fn volume_body(volume: &Volume) -> Value {
    let mut spec = json!({
        "accessModes": modes(&volume.access_modes),
        "capacity": { "storage": volume.capacity.to_string() },
        "persistentVolumeReclaimPolicy": text(&volume.reclaim).unwrap_or("Retain"),
    });
    set(&mut spec, "volumeMode", volume.mode.map(|mode| mode.to_string()));
    set(&mut spec, "storageClassName", text(&volume.class));
    set(&mut spec, "volumeAttributesClassName", text(&volume.attributes_class));
    set(&mut spec, "mountOptions", Some(&volume.mount_options).filter(|options| !options.is_empty()));
    let claim = volume.claim.as_ref().map(|reference| {
        let Namespaced { namespace, name } = &reference.claim;
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name, "uid": reference.uid })
    });
    set(&mut spec, "claimRef", claim);
    let affinity = volume.affinity.as_ref().map(|affinity| {
        let terms = affinity
            .terms
            .iter()
            .map(|term| json!({ "matchExpressions": term.iter().map(requirement).collect::<Vec<_>>() }));
        json!({ "required": { "nodeSelectorTerms": terms.collect::<Vec<_>>() } })
    });
    set(&mut spec, "nodeAffinity", affinity);
    match &volume.source {
        PersistentSource::Csi(csi) => spec["csi"] = csi_source(csi),
        PersistentSource::Nfs { server, path, read_only } => {
            spec["nfs"] = json!({ "server": server, "path": path, "readOnly": read_only });
        }
        PersistentSource::HostPath { path, kind } => spec["hostPath"] = json!({ "path": path, "type": kind }),
        PersistentSource::Local { path, .. } => spec["local"] = json!({ "path": path }),
        PersistentSource::FlexVolume(flex) => spec["flexVolume"] = json!({ "driver": flex.driver }),
        PersistentSource::Other { .. } => {}
    }
    json!({ "spec": spec, "status": { "phase": text(&volume.phase).unwrap_or("Available") } })
}

fn requirement(requirement: &Requirement) -> Value {
    json!({ "key": requirement.key, "operator": requirement.operator, "values": requirement.values })
}

fn csi_source(csi: &CsiSource) -> Value {
    let secret = |of: &Option<Box<Namespaced>>| {
        of.as_ref().map(|of| json!({ "namespace": of.namespace, "name": of.name }))
    };
    let mut source = json!({ "driver": csi.driver, "volumeHandle": csi.handle });
    set(&mut source, "fsType", text(&csi.fs_type));
    set(&mut source, "readOnly", Some(true).filter(|_| csi.read_only));
    set(&mut source, "volumeAttributes", Some(&csi.attributes).filter(|all| !all.is_empty()));
    set(&mut source, "controllerPublishSecretRef", secret(&csi.controller_publish_secret));
    set(&mut source, "nodeStageSecretRef", secret(&csi.node_stage_secret));
    set(&mut source, "nodePublishSecretRef", secret(&csi.node_publish_secret));
    set(&mut source, "controllerExpandSecretRef", secret(&csi.controller_expand_secret));
    set(&mut source, "nodeExpandSecretRef", secret(&csi.node_expand_secret));
    source
}

fn class_body(class: &Class) -> Value {
    let mut body = json!({
        "provisioner": class.provisioner,
        "reclaimPolicy": text(&class.reclaim).unwrap_or("Delete"),
        "allowVolumeExpansion": class.allow_expansion,
        "volumeBindingMode": if class.wait_for_consumer { "WaitForFirstConsumer" } else { "Immediate" },
    });
    set(&mut body, "parameters", Some(&class.parameters).filter(|all| !all.is_empty()));
    set(&mut body, "mountOptions", Some(&class.mount_options).filter(|all| !all.is_empty()));
    let topologies = class.allowed_topologies.iter().map(|term| json!({ "matchLabelExpressions": term }));
    let topologies: Vec<Value> = topologies.collect();
    set(&mut body, "allowedTopologies", Some(topologies).filter(|all| !all.is_empty()));
    body
}

fn driver_body(driver: &CsiDriver) -> Value {
    let tokens = driver
        .tokens
        .iter()
        .map(|token| json!({ "audience": token.audience, "expirationSeconds": token.expiration }));
    let modes: Vec<String> = driver.lifecycle_modes.iter().map(|mode| format!("{mode:?}")).collect();
    let mut spec = json!({
        "attachRequired": driver.attach_required,
        "podInfoOnMount": driver.pod_info,
        "requiresRepublish": driver.requires_republish,
        "seLinuxMount": driver.selinux_mount,
        "volumeLifecycleModes": modes,
    });
    let policy = driver.fs_group_policy.map(|policy| match policy {
        FsGroupPolicy::None => "None",
        FsGroupPolicy::File => "File",
        FsGroupPolicy::ReadWriteOnceWithFsType => "ReadWriteOnceWithFSType",
    });
    set(&mut spec, "fsGroupPolicy", policy);
    set(&mut spec, "tokenRequests", Some(tokens.collect::<Vec<_>>()).filter(|all| !all.is_empty()));
    json!({ "spec": spec })
}

fn snapshot_body(snapshot: &Snapshot) -> Value {
    let source = match &snapshot.source {
        SnapshotSource::Claim(claim) => json!({ "persistentVolumeClaimName": claim }),
        SnapshotSource::Content(content) => json!({ "volumeSnapshotContentName": content }),
    };
    let mut spec = json!({ "source": source });
    set(&mut spec, "volumeSnapshotClassName", snapshot.class.as_ref());
    let is = &snapshot.status;
    let mut status = json!({ "readyToUse": is.ready });
    set(&mut status, "boundVolumeSnapshotContentName", text(&is.content));
    set(&mut status, "restoreSize", is.restore_size.map(|size| size.to_string()));
    set(&mut status, "error", is.error.as_ref().map(|message| json!({ "message": message })));
    json!({ "spec": spec, "status": status })
}

fn content_body(content: &SnapshotContent) -> Value {
    let source = match &content.source {
        ContentSource::Volume(handle) => json!({ "volumeHandle": handle }),
        ContentSource::Snapshot(handle) => json!({ "snapshotHandle": handle }),
    };
    let Namespaced { namespace, name } = &content.snapshot;
    let mut reference = json!({ "kind": "VolumeSnapshot", "namespace": namespace, "name": name });
    set(&mut reference, "uid", text(&content.snapshot_uid));
    let mut spec = json!({
        "driver": content.driver,
        "deletionPolicy": text(&content.deletion).unwrap_or("Delete"),
        "source": source,
        "volumeSnapshotRef": reference,
    });
    set(&mut spec, "volumeSnapshotClassName", text(&content.class));
    set(&mut spec, "sourceVolumeMode", content.source_mode.map(|mode| mode.to_string()));
    json!({ "spec": spec })
}

fn node_body(node: &Node) -> Value {
    let amounts = json!({ "cpu": "2", "memory": "4Gi", "pods": "110", "ephemeral-storage": "10Gi" });
    let attached = node
        .volumes_attached
        .iter()
        .map(|volume| json!({ "name": volume.name, "devicePath": volume.device_path }));
    let taints = node.taints.iter().map(
        |taint| json!({ "key": taint.key, "value": taint.value, "effect": text(&taint.effect).unwrap_or("NoExecute") }),
    );
    let taints: Vec<Value> = taints.collect();
    let mut spec = Map::new();
    if !taints.is_empty() {
        spec.insert("taints".to_owned(), taints.into());
    }
    json!({ "spec": spec, "status": {
        "addresses": [
            { "type": "InternalIP", "address": "127.0.0.1" },
            { "type": "Hostname", "address": node.meta.name },
        ],
        "allocatable": amounts,
        "capacity": amounts,
        "conditions": [{ "type": "Ready", "status": if node.ready { "True" } else { "False" } }],
        "nodeInfo": node_info(),
        "volumesInUse": node.volumes_in_use,
        "volumesAttached": attached.collect::<Vec<_>>(),
    } })
}

fn node_info() -> Value {
    let kernel = nix::sys::utsname::uname();
    let kernel =
        kernel.as_ref().map(|name| name.release().to_string_lossy().into_owned()).unwrap_or_default();
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({
        "architecture": architecture, "operatingSystem": "linux", "kernelVersion": kernel,
        "osImage": "volproof", "kubeletVersion": super::VERSION, "kubeProxyVersion": super::VERSION,
        "containerRuntimeVersion": "volproof://1", "bootID": "", "machineID": "", "systemUUID": "",
    })
}

fn attachment_body(attachment: &Attachment) -> Value {
    let error = |error: &Option<api::storage::AttachmentError>| {
        error.as_ref().map(|error| json!({ "message": error.message, "errorCode": error.code }))
    };
    let mut status = json!({ "attached": attachment.attached });
    set(&mut status, "attachmentMetadata", Some(&attachment.metadata).filter(|all| !all.is_empty()));
    set(&mut status, "attachError", error(&attachment.attach_error));
    set(&mut status, "detachError", error(&attachment.detach_error));
    json!({
        "spec": {
            "attacher": attachment.attacher,
            "nodeName": attachment.node,
            "source": { "persistentVolumeName": attachment.volume },
        },
        "status": status,
    })
}

fn csi_node_body(node: &CsiNode) -> Value {
    let drivers = node.drivers.iter().map(|driver| {
        let mut body =
            json!({ "name": driver.name, "nodeID": driver.node_id, "topologyKeys": driver.topology_keys });
        set(&mut body, "allocatable", driver.allocatable.map(|count| json!({ "count": count })));
        body
    });
    json!({ "spec": { "drivers": drivers.collect::<Vec<_>>() } })
}

fn secret_body(secret: &Secret) -> Value {
    let data = secret.data.iter().map(|(key, value)| (key.clone(), STANDARD.encode(value.reveal()).into()));
    json!({ "data": data.collect::<Map<_, _>>() })
}

fn config_map_body(map: &ConfigMap) -> Value {
    let binary = map.binary.iter().map(|(key, bytes)| (key.clone(), Value::from(STANDARD.encode(bytes))));
    let binary: Map<_, _> = binary.collect();
    let mut body = json!({ "data": map.data });
    set(&mut body, "binaryData", Some(binary).filter(|all| !all.is_empty()));
    body
}

fn service_body(service: &Service) -> Value {
    let port = |port: &api::ServicePort| {
        let mut body = json!({ "port": port.number, "protocol": port.protocol });
        set(&mut body, "name", text(&port.name));
        body
    };
    let mut spec = json!({ "ports": service.ports.iter().map(port).collect::<Vec<_>>() });
    set(&mut spec, "clusterIP", text(&service.address));
    json!({ "spec": spec })
}

fn event_body(event: &Notification) -> Value {
    let about = Resource::of_kind(event.about.kind);
    json!({
        "involvedObject": {
            "apiVersion": about.api_version(), "kind": about.kind, "namespace": event.about.namespace,
            "name": event.about.name, "uid": event.about.uid,
        },
        "type": format!("{:?}", event.severity),
        "reason": event.reason,
        "message": event.message,
        "count": 1,
        "firstTimestamp": event.meta.created,
        "lastTimestamp": event.meta.created,
        "source": { "component": "kubelet" },
    })
}
