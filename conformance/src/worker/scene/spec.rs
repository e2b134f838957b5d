//! Volumes and pods as a case describes them. Touches nothing.

use harness::api::pod::{VolumeDevice, VolumeMount};
use harness::api::{Container, Meta, Pod, PodVolume, VolumeSource};

/// A volume as a case wants it.
#[derive(Debug, Clone)]
pub(crate) struct VolumeSpec {
    pub(crate) name: String,
    pub(crate) block: bool,
    pub(crate) shared: bool,
}

/// A pod as a case wants it.
#[derive(Debug, Clone)]
pub(crate) struct PodSpec {
    pub(crate) name: String,
    pub(crate) mounts: Vec<MountSpec>,
}

/// A volume in a pod.
#[derive(Debug, Clone)]
pub(crate) struct MountSpec {
    pub(crate) volume: String,
    pub(crate) path: String,
    pub(crate) device: bool,
    pub(crate) read_only: bool,
}

impl VolumeSpec {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), block: false, shared: false }
    }
}

impl PodSpec {
    /// The pod: one container that uses all its volumes, which carry the names of their claims.
    pub(super) fn pod(&self) -> Pod {
        let (devices, mounts): (Vec<&MountSpec>, Vec<_>) = self.mounts.iter().partition(|mount| mount.device);
        let container = Container {
            name: "main".to_owned(),
            mounts: mounts.into_iter().map(MountSpec::mounted).collect(),
            devices: devices.into_iter().map(MountSpec::device).collect(),
            ..Container::default()
        };
        Pod {
            meta: Meta::named("default", &self.name),
            service_account: "default".to_owned(),
            volumes: self.mounts.iter().map(MountSpec::of_pod).collect(),
            containers: vec![container],
            phase: "Pending".to_owned(),
            ..Pod::default()
        }
    }
}

impl MountSpec {
    fn of_pod(&self) -> PodVolume {
        let source = VolumeSource::Claim { claim: self.volume.clone(), read_only: self.read_only };
        PodVolume { name: self.volume.as_str().into(), source }
    }

    fn mounted(&self) -> VolumeMount {
        let (volume, path) = (self.volume.clone(), self.path.clone());
        VolumeMount { volume, path, read_only: self.read_only, ..VolumeMount::default() }
    }

    fn device(&self) -> VolumeDevice {
        VolumeDevice { volume: self.volume.clone(), path: self.path.clone() }
    }
}
