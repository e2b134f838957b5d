//! Pods: the fields that matter to their volumes and containers.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::environment::{Import, Variable};
use super::object::{Bytes, Meta};
use super::runtime::{Confinement, Port, Powers, Program};
use super::storage::{ClaimTemplate, FlexVolume};
use crate::names::{ContainerName, DriverName, OuterName, PodUid};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Metadata. The UID is the pod's identity.
    pub meta: Meta,
    /// The node that the pod is bound to; empty before.
    pub node: String,
    /// The service account of the pod's tokens.
    pub service_account: String,
    pub volumes: Vec<PodVolume>,
    /// First the init containers and sidecars, then the regular containers, then the ephemeral ones.
    pub containers: Vec<Container>,
    /// Limits and requests of the pod as a whole, as written: `limits.memory` and so on.
    pub resources: BTreeMap<String, String>,
    /// The security context for all containers.
    pub security: PodSecurity,
    /// `Pending`, `Running`, `Succeeded`, `Failed` or empty.
    pub phase: String,
    /// The pod's addresses, for its hosts file and variables.
    pub ips: Vec<String>,
    pub host_ips: Vec<String>,
    /// Whether the pod uses the network of its node.
    pub host_network: bool,
    /// The requested host name; empty for the pod's name.
    pub hostname: String,
    /// A host name that overrides all others, even if it is empty.
    pub hostname_override: Option<String>,
    /// The requested subdomain; empty for none.
    pub subdomain: String,
    /// Whether containers have variables for no service but the API's (`enableServiceLinks: false`).
    pub without_services: bool,
    /// Further lines for the hosts file.
    pub host_aliases: Vec<HostAlias>,
    /// Whether the pod has a user namespace of its own.
    pub user_namespace: bool,
    /// Whether the pod is in the PID namespace of its node.
    pub host_pid: bool,
    /// Whether the pod is in the IPC namespace of its node.
    pub host_ipc: bool,
    /// Whether the containers share one PID namespace.
    pub shares_processes: bool,
    /// The seconds that the containers have to end.
    pub termination_grace: Option<i64>,
    /// Whether the priority class is `system-node-critical`.
    pub node_critical: bool,
    pub priority: i32,
}

/// The security context of a pod, for all its containers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodSecurity {
    /// The group that owns the volumes' files.
    pub fs_group: Option<u32>,
    /// Whether the owners of a volume stay unchanged if its root directory already has the group.
    pub fs_group_on_root_mismatch: bool,
    /// The user of containers that name none.
    pub run_as_user: Option<u32>,
    pub supplemental_groups: Vec<u32>,
    /// `Merge` or `Strict`: with or without the groups that the image gives to its user; empty for the default.
    pub supplemental_groups_policy: String,
    /// The confinement of containers without one of their own.
    pub confinement: Confinement,
    /// The SELinux label of containers that name none.
    pub selinux: Option<Box<SeLinuxOptions>>,
    /// Whether each file of a volume is labelled, instead of the whole volume by a mount option.
    pub selinux_recursive: bool,
}

/// The parts of an SELinux label; an empty part is the system's default.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct SeLinuxOptions {
    pub user: String,
    pub role: String,
    /// The type, the third part of a label.
    #[serde(rename = "type")]
    pub kind: String,
    pub level: String,
}

/// An address in the hosts file, with its names.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostAlias {
    pub ip: String,
    pub names: Vec<String>,
}

/// The time in which a container runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ContainerKind {
    /// Ends before the next container starts.
    Init,
    /// Starts among the init containers and runs until the pod ends: an init container with `restartPolicy: Always`.
    Sidecar,
    /// Starts after the init containers.
    #[default]
    Regular,
    /// Is added to a pod that runs, to inspect it.
    Ephemeral,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Container {
    pub name: String,
    pub kind: ContainerKind,
    /// The volumes that the container has as directories.
    pub mounts: Vec<VolumeMount>,
    /// The volumes that the container has as devices.
    pub devices: Vec<VolumeDevice>,
    /// The user, where it differs from the pod's.
    pub run_as_user: Option<u32>,
    pub selinux: Option<Box<SeLinuxOptions>>,
    pub privileged: bool,
    /// Further privileges in the container's security context.
    pub powers: Powers,
    /// The confinement, where it differs from the pod's.
    pub confinement: Confinement,
    pub program: Program,
    pub ports: Vec<Port>,
    /// The preStop hook, in the API's JSON.
    pub pre_stop: Option<String>,
    /// For an ephemeral container: the container whose PID namespace it joins; empty for none.
    pub target: String,
    pub ephemeral_storage_limit: Option<Bytes>,
    /// Limits and requests as written, for the downward API: `limits.cpu` and so on.
    pub resources: BTreeMap<String, String>,
    /// The path of the termination message; empty for none.
    pub termination_message_path: String,
    /// `File` or `FallbackToLogsOnError`: the source of the termination message.
    pub termination_message_policy: String,
    /// `envFrom`: config maps and secrets, each key of which is a variable.
    pub imports: Vec<Import>,
    /// `env`: single variables, in order.
    pub environment: Vec<Variable>,
}

/// A volume in a container, as a directory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeMount {
    /// The name of the volume in the pod.
    pub volume: String,
    /// The path in the container.
    pub path: String,
    /// Whether the mount is read-only in the container.
    pub read_only: bool,
    /// `Enabled`, `IfPossible` or `Disabled`; empty for the default.
    pub recursive_read_only: String,
    /// The path in the volume that is mounted; empty for the volume's root.
    pub sub_path: String,
    /// `subPathExpr`: a sub-path with variables of the environment; empty for none.
    pub sub_path_expr: String,
    /// `None`, `HostToContainer` or `Bidirectional`; empty for the default.
    pub propagation: String,
}

/// A volume in a container, as a device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct VolumeDevice {
    /// The name of the volume in the pod.
    pub volume: String,
    /// The path in the container.
    pub path: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PodVolume {
    /// The name by which containers refer to the volume.
    pub name: OuterName,
    pub source: VolumeSource,
}

/// The source of a pod's volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum VolumeSource {
    Claim {
        /// The name of a claim in the pod's namespace.
        claim: String,
        /// Whether the pod has the volume read-only.
        read_only: bool,
    },
    /// A claim that is created for the pod and deleted with it; its name is `<pod>-<volume>`.
    Ephemeral { template: Box<ClaimTemplate> },
    /// A CSI volume that exists only for this pod.
    Csi(InlineCsi),
    EmptyDir {
        /// `""`, `Memory` or `HugePages…`.
        medium: String,
        size_limit: Option<Bytes>,
    },
    /// A path of the node.
    HostPath {
        path: String,
        /// The required type of the path, such as `Directory`; empty for any.
        kind: String,
    },
    /// An export of an NFS server.
    Nfs {
        server: String,
        /// The exported directory on the server.
        path: String,
        /// Whether it is mounted read-only.
        read_only: bool,
    },
    /// A volume of a program of the node's administrator.
    FlexVolume(Box<FlexVolume>),
    /// A config map as files.
    ConfigMap(Content),
    /// A secret as files.
    Secret(Content),
    /// Fields of the pod as files.
    DownwardApi {
        items: Vec<DownwardItem>,
        /// The mode of files without one of their own.
        default_mode: u32,
    },
    /// Files from several sources in one directory.
    Projected {
        sources: Vec<Projection>,
        /// The mode of files without one of their own.
        default_mode: u32,
    },
    /// The content of an image.
    Image {
        /// The image's name, such as `registry.example/models:v1`.
        reference: String,
        /// `Always`, `Never` or `IfNotPresent`; empty for the default.
        pull_policy: String,
    },
    /// A git repository. Kubernetes no longer mounts these.
    GitRepo {
        /// Its URL.
        repository: String,
    },
    /// A kind that no plugin of this manager supports.
    Other {
        /// The name of the field.
        kind: String,
    },
}

/// An inline CSI volume.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InlineCsi {
    pub driver: DriverName,
    /// The type of file system; empty for the driver's choice.
    pub fs_type: String,
    /// Whether it is published read-only.
    pub read_only: bool,
    /// The attributes for the driver, part of its `volume_context`.
    pub attributes: BTreeMap<String, String>,
    /// The secret for NodePublishVolume, in the pod's namespace.
    pub secret: Option<String>,
}

impl Default for DriverName {
    fn default() -> Self {
        Self::new("")
    }
}

/// A config map or a secret as files.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Content {
    pub name: String,
    /// The selected keys and their files; empty for all keys.
    pub items: Vec<KeyFile>,
    /// The mode of files without one of their own.
    pub default_mode: u32,
    /// Whether the object or one of its keys may be missing.
    pub optional: bool,
}

/// A key as a file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct KeyFile {
    pub key: String,
    /// The file, relative to the volume.
    pub path: String,
    pub mode: Option<u32>,
}

/// A field of the pod, or a resource of a container, as a file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DownwardItem {
    /// The file, relative to the volume.
    pub path: String,
    /// A field of the pod, such as `metadata.labels`; empty for a resource.
    pub field: String,
    /// A resource, such as `limits.cpu`; empty for a field.
    pub resource: String,
    /// The container whose resource it is.
    pub container: String,
    /// The unit in which the amount of the resource is written; empty for one.
    pub divisor: String,
    pub mode: Option<u32>,
}

/// A source of a projected volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Projection {
    Secret(Content),
    ConfigMap(Content),
    /// Fields of the pod.
    DownwardApi {
        items: Vec<DownwardItem>,
    },
    /// A token of the pod's service account.
    ServiceAccountToken {
        /// The audience that accepts the token; empty for the API server.
        audience: String,
        /// Lifetime in seconds.
        expiration: i64,
        /// The file, relative to the volume.
        path: String,
    },
    /// A kind that this manager does not project.
    Other {
        /// The name of the field.
        kind: String,
    },
}

impl Pod {
    /// The largest amount that the pod's containers use at one time. Init containers run one after the other, each
    /// beside the sidecars that started before it; then the regular containers and all sidecars run together.
    pub fn most_used(&self, used: impl Fn(&Container) -> u64) -> u64 {
        let (mut together, mut sidecars, mut starting) = (0_u64, 0_u64, 0_u64);
        for container in &self.containers {
            let amount = used(container);
            match container.kind {
                ContainerKind::Regular => together = together.saturating_add(amount),
                ContainerKind::Sidecar => {
                    sidecars = sidecars.saturating_add(amount);
                    starting = starting.max(sidecars);
                }
                ContainerKind::Init => starting = starting.max(sidecars.saturating_add(amount)),
                ContainerKind::Ephemeral => {}
            }
        }
        together.saturating_add(sidecars).max(starting)
    }

    pub fn uid(&self) -> PodUid {
        PodUid::new(&self.meta.uid)
    }

    /// Whether the pod has ended and will never use its volumes again.
    pub fn is_over(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }

    /// The names of the volumes that some container has as a directory.
    pub fn mounted(&self) -> BTreeSet<OuterName> {
        self.containers.iter().flat_map(|c| &c.mounts).map(|m| OuterName::new(&m.volume)).collect()
    }

    /// The names of the volumes that some container has as a device.
    pub fn devices(&self) -> BTreeSet<OuterName> {
        self.containers.iter().flat_map(|c| &c.devices).map(|d| OuterName::new(&d.volume)).collect()
    }

    /// The name of the claim of a volume. The claim of a generic ephemeral volume is named after pod and volume.
    pub fn claim(&self, volume: &PodVolume) -> Option<String> {
        match &volume.source {
            VolumeSource::Claim { claim, .. } => Some(claim.clone()),
            VolumeSource::Ephemeral { .. } => Some(format!("{}-{}", self.meta.name, volume.name)),
            _ => None,
        }
    }

    /// The names of the claims of all volumes.
    pub fn claims(&self) -> impl Iterator<Item = String> {
        self.volumes.iter().filter_map(|volume| self.claim(volume))
    }

    /// The names of the claims of the volumes that some container uses.
    pub fn claims_of_containers(&self) -> impl Iterator<Item = String> {
        let (mounted, devices) = (self.mounted(), self.devices());
        let used =
            self.volumes.iter().filter(move |v| mounted.contains(&v.name) || devices.contains(&v.name));
        used.filter_map(|volume| self.claim(volume))
    }

    /// The user that all containers have; `None` if they differ, or one has no user.
    pub fn common_user(&self) -> Option<u32> {
        let mut users = self.containers.iter().map(|c| c.run_as_user.or(self.security.run_as_user));
        let first = users.next()??;
        users.all(|user| user == Some(first)).then_some(first)
    }

    pub fn container(&self, name: &ContainerName) -> Option<&Container> {
        self.containers.iter().find(|container| container.name == name.as_str())
    }
}
