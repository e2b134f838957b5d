//! Volumes and pods as a case describes them. Touches nothing.

use std::collections::BTreeMap;

use api::environment::Variable;
use api::pod::{PodSecurity, VolumeDevice, VolumeMount};
use api::runtime::Powers;
use api::{Container, Meta, Pod, PodVolume, VolumeSource};
use harness::api_server::ContentSource;
use harness::node::CRITICAL;

/// A volume as a case wants it.
#[derive(Debug, Clone)]
pub(crate) struct VolumeSpec {
    pub(crate) name: String,
    pub(crate) block: bool,
    pub(crate) shared: bool,
    /// For pods on several nodes at once.
    pub(crate) on_all_nodes: bool,
    /// Made by the driver of the other node.
    pub(crate) on_other_node: bool,
    pub(crate) single_pod: bool,
    /// The type of its file system, if the case does not leave that to the manifest.
    pub(crate) fs_type: Option<String>,
    pub(crate) mount_options: Vec<String>,
    /// The group in the annotation of its persistent volume.
    pub(crate) gid: Option<u32>,
    /// The size, if it is not the manifest's.
    pub(crate) size: Option<u64>,
    pub(crate) source: Option<ContentSource>,
    /// Whether a daemon of the driver's own is to serve it through FUSE.
    pub(crate) fuse: bool,
}

/// A pod as a case wants it.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodSpec {
    pub(crate) name: String,
    pub(crate) on_other_node: bool,
    pub(crate) mounts: Vec<MountSpec>,
    pub(crate) security: PodSecurity,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) ips: Vec<String>,
    /// The environment of its only container.
    pub(crate) environment: Vec<Variable>,
    pub(crate) resources: BTreeMap<String, String>,
    pub(crate) privileged: bool,
    pub(crate) read_only_root: bool,
    pub(crate) last_words: String,
    /// The pod's hostname, if it differs from its name.
    pub(crate) hostname: Option<String>,
    pub(crate) without_services: bool,
    pub(crate) critical: bool,
}

/// A volume in a pod.
#[derive(Debug, Clone)]
pub(crate) struct MountSpec {
    pub(crate) volume: String,
    /// The source of the volume; `None` for the claim of the same name.
    pub(crate) source: Option<VolumeSource>,
    /// Whether the claim is used read-only.
    pub(crate) read_only: bool,
    pub(crate) device: bool,
    pub(crate) mount: VolumeMount,
}

/// The name of each pod's one container.
pub(crate) const CONTAINER: &str = "main";

impl VolumeSpec {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            block: false,
            shared: false,
            on_all_nodes: false,
            on_other_node: false,
            single_pod: false,
            fs_type: None,
            mount_options: vec![],
            gid: None,
            size: None,
            source: None,
            fuse: false,
        }
    }
}

impl PodSpec {
    /// The pod: one container that uses all its volumes.
    pub(super) fn pod(&self) -> Pod {
        let (devices, mounts): (Vec<&MountSpec>, Vec<_>) = self.mounts.iter().partition(|mount| mount.device);
        let container = Container {
            name: CONTAINER.to_owned(),
            mounts: mounts.into_iter().map(|mount| mount.mount.clone()).collect(),
            devices: devices.into_iter().map(MountSpec::device).collect(),
            environment: self.environment.clone(),
            resources: self.resources.clone(),
            privileged: self.privileged,
            powers: Powers { read_only_root: self.read_only_root, ..Powers::default() },
            termination_message_path: self.last_words.clone(),
            ..Container::default()
        };
        let mut meta = Meta::named("default", &self.name);
        meta.labels.clone_from(&self.labels);
        // A volume may have several mounts in the container.
        let volumes: BTreeMap<&str, PodVolume> =
            self.mounts.iter().map(|mount| (mount.volume.as_str(), mount.of_pod())).collect();
        Pod {
            meta,
            service_account: "default".to_owned(),
            volumes: volumes.into_values().collect(),
            containers: vec![container],
            security: self.security.clone(),
            ips: self.ips.clone(),
            hostname_override: self.hostname.clone(),
            without_services: self.without_services,
            phase: "Pending".to_owned(),
            priority: if self.critical { CRITICAL } else { 0 },
            ..Pod::default()
        }
    }
}

impl MountSpec {
    /// A volume at a path of the container.
    pub(crate) fn new(volume: &str, source: Option<VolumeSource>, path: &str) -> Self {
        let (volume, path) = (volume.to_owned(), path.to_owned());
        let mount = VolumeMount { volume: volume.clone(), path, ..VolumeMount::default() };
        Self { volume, source, read_only: false, device: false, mount }
    }

    fn of_pod(&self) -> PodVolume {
        let claim = || VolumeSource::Claim { claim: self.volume.clone(), read_only: self.read_only };
        let source = self.source.clone().unwrap_or_else(claim);
        PodVolume { name: self.volume.as_str().into(), source }
    }

    fn device(&self) -> VolumeDevice {
        VolumeDevice { volume: self.volume.clone(), path: self.mount.path.clone() }
    }
}
