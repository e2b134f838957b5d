//! The API objects behind a case's volumes and pods. Touches nothing.

use csi_proto::v1::volume_capability::access_mode::Mode;
use harness::api::{
    AccessMode, Bytes, Claim, ClaimPhase, ClaimReference, ClaimSpec, ClaimStatus, Container, CsiDriver, CsiSource,
    DriverName, Meta, Namespaced, OuterName, PersistentSource, Pod, PodVolume, Volume, VolumeDevice, VolumeHandle,
    VolumeMode, VolumeMount, VolumeSource,
};

use super::{MountSpec, PodSpec};
use crate::worker::controller::Made;
use crate::worker::message::Abilities;

/// Where the pods and claims of a case live.
pub(super) const NAMESPACE: &str = "default";

/// What the cluster knows of the driver.
pub(super) fn driver(abilities: &Abilities) -> CsiDriver {
    CsiDriver {
        meta: Meta::named("", &abilities.says.name),
        attach_required: abilities.attaches(),
        ..CsiDriver::default()
    }
}

/// The UID of a pod: its name is in it, so that paths can be read.
pub(super) fn uid(pod: &str) -> String {
    format!("uid-{pod}")
}

/// The PersistentVolume of a volume.
pub(super) fn inner(volume: &str) -> String {
    format!("pv-{volume}")
}

/// The claim of a volume, and the volume it is bound to.
pub(super) fn bound(name: &str, driver: &str, made: &Made, stage_secret: bool, publish_secret: bool) -> (Claim, Volume) {
    let claim_uid = format!("uid-claim-{name}");
    let mode = if made.block { VolumeMode::Block } else { VolumeMode::Filesystem };
    let access_modes = vec![access_mode(made.mode)];
    let capacity = Bytes(made.bytes);
    let secret = |wanted: bool, name: &str| wanted.then(|| Namespaced::new(NAMESPACE, name));
    let source = CsiSource {
        driver: DriverName::new(driver),
        handle: VolumeHandle::new(&made.handle),
        fs_type: if made.block { String::new() } else { made.fs_type.clone() },
        attributes: made.context.clone(),
        node_stage_secret: secret(stage_secret, STAGE_SECRET),
        node_publish_secret: secret(publish_secret, PUBLISH_SECRET),
        ..CsiSource::default()
    };
    let volume = Volume {
        meta: Meta::named("", inner(name)),
        capacity,
        access_modes: access_modes.clone(),
        claim: Some(ClaimReference { claim: Namespaced::new(NAMESPACE, name), uid: claim_uid.clone() }),
        mode: Some(mode),
        source: PersistentSource::Csi(Box::new(source)),
        reclaim: "Delete".to_owned(),
        phase: "Bound".to_owned(),
        ..Volume::default()
    };
    let claim = Claim {
        meta: Meta {
            uid: claim_uid,
            finalizers: vec!["kubernetes.io/pvc-protection".to_owned()],
            ..Meta::named(NAMESPACE, name)
        },
        spec: ClaimSpec { access_modes, request: capacity, volume: inner(name), mode, ..ClaimSpec::default() },
        status: ClaimStatus { phase: ClaimPhase::Bound, capacity, ..ClaimStatus::default() },
    };
    (claim, volume)
}

/// The name of the secret for `NodeStageVolume`.
pub(super) const STAGE_SECRET: &str = "node-stage";
/// The name of the secret for `NodePublishVolume`.
pub(super) const PUBLISH_SECRET: &str = "node-publish";

/// A pod with one container that uses all its volumes. Volumes carry the names of their claims.
pub(super) fn pod(spec: &PodSpec, node: &str) -> Pod {
    let volume = |mount: &MountSpec| PodVolume {
        name: OuterName::new(&mount.volume),
        source: VolumeSource::Claim { claim: mount.volume.clone(), read_only: mount.read_only },
    };
    let (devices, mounts): (Vec<&MountSpec>, Vec<_>) = spec.mounts.iter().partition(|mount| mount.device);
    let container = Container {
        name: "main".to_owned(),
        mounts: mounts.into_iter().map(mounted).collect(),
        devices: devices.into_iter().map(device).collect(),
        ..Container::default()
    };
    Pod {
        meta: Meta { uid: uid(&spec.name), ..Meta::named(NAMESPACE, &spec.name) },
        node: node.to_owned(),
        service_account: "default".to_owned(),
        volumes: spec.mounts.iter().map(volume).collect(),
        containers: vec![container],
        phase: "Pending".to_owned(),
        ..Pod::default()
    }
}

fn mounted(mount: &MountSpec) -> VolumeMount {
    VolumeMount {
        volume: mount.volume.clone(),
        path: mount.path.clone(),
        read_only: mount.read_only,
        ..VolumeMount::default()
    }
}

fn device(mount: &MountSpec) -> VolumeDevice {
    VolumeDevice { volume: mount.volume.clone(), path: mount.path.clone() }
}

fn access_mode(mode: Mode) -> AccessMode {
    match mode {
        Mode::MultiNodeMultiWriter => AccessMode::ReadWriteMany,
        _ => AccessMode::ReadWriteOnce,
    }
}

