//! Pods, as far as their volumes go.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::environment::{Import, Variable};
use super::object::{Bytes, Meta};
use super::runtime::{Confinement, Port, Powers, Program};
use super::storage::ClaimTemplate;
use crate::names::{ContainerName, DriverName, OuterName, PodUid};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Metadata. The UID is the pod's identity.
    pub meta: Meta,
    /// The node it is bound to.
    pub node: String,
    /// The service account tokens are made for.
    pub service_account: String,
    pub volumes: Vec<PodVolume>,
    /// Its containers of all kinds: init, then regular, then ephemeral.
    pub containers: Vec<Container>,
    /// Limits and requests of all its containers together, as written: `limits.memory` and so on.
    pub resources: BTreeMap<String, String>,
    /// The security context of all its containers.
    pub security: PodSecurity,
    /// `Pending`, `Running`, `Succeeded`, `Failed` or empty.
    pub phase: String,
    /// Its addresses, for its hosts file.
    pub ips: Vec<String>,
    pub host_ips: Vec<String>,
    /// Whether it uses the network of its node.
    pub host_network: bool,
    /// The host name it asked for.
    pub hostname: String,
    /// The host name that overrides all others, even if it is empty.
    pub hostname_override: Option<String>,
    /// The subdomain it asked for.
    pub subdomain: String,
    /// Whether its containers have variables of the API's service only (`enableServiceLinks: false`).
    pub without_services: bool,
    /// Addresses it wants in its hosts file, with their names.
    pub host_aliases: Vec<HostAlias>,
    /// Whether it runs in a user namespace of its own.
    pub user_namespace: bool,
    /// Whether it sees the processes of its node.
    pub host_pid: bool,
    /// Whether it shares memory with its node.
    pub host_ipc: bool,
    /// Whether its containers see each other's processes.
    pub shares_processes: bool,
    /// Seconds it is given to end.
    pub termination_grace: Option<i64>,
    /// Whether its priority class is `system-node-critical`.
    pub node_critical: bool,
}

/// The security context of a pod, for all its containers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodSecurity {
    /// The group volumes are given to.
    pub fs_group: Option<u32>,
    /// Whether a volume whose root already has the group is left alone.
    pub fs_group_on_root_mismatch: bool,
    /// The user containers run as unless they say otherwise.
    pub run_as_user: Option<u32>,
    pub supplemental_groups: Vec<u32>,
    /// `Merge` or `Strict`: whether the image adds groups of its user; empty for the default.
    pub supplemental_groups_policy: String,
    /// The confinement of containers without one of their own.
    pub confinement: Confinement,
    /// The SELinux label containers run with unless they say otherwise.
    pub selinux: Option<SeLinuxOptions>,
    /// Whether labels are set by walking the volume and never by a mount option.
    pub selinux_recursive: bool,
}

/// Parts of an SELinux label; empty ones come from the system's defaults.
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

/// A line of `hostAliases`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostAlias {
    pub ip: String,
    pub names: Vec<String>,
}

/// When a container runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ContainerKind {
    /// Before the others, to its end.
    Init,
    /// Before the others, and on beside them: an init container that is always restarted.
    Sidecar,
    /// For the life of the pod.
    #[default]
    Regular,
    /// Added later, to look at the others.
    Ephemeral,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Container {
    pub name: String,
    /// When it runs.
    pub kind: ContainerKind,
    /// The volumes it sees as directories.
    pub mounts: Vec<VolumeMount>,
    /// The volumes it sees as devices.
    pub devices: Vec<VolumeDevice>,
    /// The user it runs as.
    pub run_as_user: Option<u32>,
    pub selinux: Option<SeLinuxOptions>,
    /// Whether the container is privileged.
    pub privileged: bool,
    /// The privileges of its own security context.
    pub powers: Powers,
    /// The confinement, where it differs from the pod's.
    pub confinement: Confinement,
    pub program: Program,
    pub ports: Vec<Port>,
    /// The preStop hook, in the API's JSON.
    pub pre_stop: Option<String>,
    /// The container whose processes it sees, if it is an ephemeral one; empty for none.
    pub target: String,
    /// The most ephemeral storage it may use.
    pub ephemeral_storage_limit: Option<Bytes>,
    /// Its resource limits and requests as written, for the downward API (`limits.cpu` and so on).
    pub resources: BTreeMap<String, String>,
    /// The path of its termination message; empty for none.
    pub termination_message_path: String,
    /// `File` or `FallbackToLogsOnError`: where they are looked for.
    pub termination_message_policy: String,
    /// Objects whose keys are all variables of the container.
    pub imports: Vec<Import>,
    /// Its own variables, in order.
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
    /// Whether it is read-only there.
    pub read_only: bool,
    /// `Enabled`, `IfPossible` or `Disabled`; empty for the default.
    pub recursive_read_only: String,
    /// The directory of the volume; empty for its root.
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
    /// Its name, which containers refer to.
    pub name: OuterName,
    pub source: VolumeSource,
}

/// The source of a pod's volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum VolumeSource {
    Claim {
        /// Its name, in the pod's namespace.
        claim: String,
        /// Whether the pod only reads it.
        read_only: bool,
    },
    /// A claim that is made for the pod and dies with it; its name is `<pod>-<volume>`.
    Ephemeral { template: Box<ClaimTemplate> },
    /// A CSI volume that exists only for this pod.
    Csi(InlineCsi),
    EmptyDir {
        /// `""`, `Memory` or `HugePages…`.
        medium: String,
        /// The most it may hold.
        size_limit: Option<Bytes>,
    },
    /// A path of the node.
    HostPath {
        path: String,
        /// The required type; empty for any.
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
    /// A config map as files.
    ConfigMap(Content),
    /// A secret as files.
    Secret(Content),
    /// Fields of the pod as files.
    DownwardApi {
        items: Vec<DownwardItem>,
        /// Mode of files that give none.
        default_mode: u32,
    },
    /// Several of these in one directory.
    Projected {
        sources: Vec<Projection>,
        /// Mode of files that give none.
        default_mode: u32,
    },
    /// The content of an image.
    Image {
        /// The image's name, such as `registry.example/models:v1`.
        reference: String,
        /// `Always`, `Never` or `IfNotPresent`; empty for the default.
        pull_policy: String,
    },
    /// A git repository, which nothing mounts any more.
    GitRepo {
        /// Its URL.
        repository: String,
    },
    /// A kind this manager has no plugin for.
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
    /// Handed to the driver.
    pub attributes: BTreeMap<String, String>,
    /// The secret of its publish call, in the pod's namespace.
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
    /// The keys wanted and their files; empty for all keys.
    pub items: Vec<KeyFile>,
    /// Mode of files that give none.
    pub default_mode: u32,
    /// Whether it may be missing.
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

/// A field as a file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DownwardItem {
    /// The file, relative to the volume.
    pub path: String,
    /// A field of the pod, such as `metadata.labels`; empty for a resource.
    pub field: String,
    /// A resource, such as `limits.cpu`; empty for a field.
    pub resource: String,
    /// The container with the resource.
    pub container: String,
    /// The divisor of the amount.
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
    /// A kind this manager does not project.
    Other {
        /// The name of the field.
        kind: String,
    },
}

impl Pod {
    /// The most of something that its containers use at any time: init containers take turns, each beside the sidecars
    /// that were started before it, and the others run together.
    pub fn most_used(&self, used: impl Fn(&Container) -> u64) -> u64 {
        let (mut together, mut sidecars, mut starting) = (0_u64, 0_u64, 0_u64);
        for container in &self.containers {
            let own = used(container);
            match container.kind {
                ContainerKind::Regular => together = together.saturating_add(own),
                ContainerKind::Sidecar => {
                    sidecars = sidecars.saturating_add(own);
                    starting = starting.max(sidecars);
                }
                ContainerKind::Init => starting = starting.max(sidecars.saturating_add(own)),
                ContainerKind::Ephemeral => {}
            }
        }
        together.saturating_add(sidecars).max(starting)
    }

    pub fn uid(&self) -> PodUid {
        PodUid::new(&self.meta.uid)
    }

    /// Names of the volumes some container mounts.
    pub fn mounted(&self) -> BTreeSet<OuterName> {
        self.containers.iter().flat_map(|c| &c.mounts).map(|m| OuterName::new(&m.volume)).collect()
    }

    /// Names of the volumes some container has as a device.
    pub fn devices(&self) -> BTreeSet<OuterName> {
        self.containers.iter().flat_map(|c| &c.devices).map(|d| OuterName::new(&d.volume)).collect()
    }

    /// The name of the claim behind one of its volumes. A generic ephemeral volume's claim is named after both.
    pub fn claim(&self, volume: &PodVolume) -> Option<String> {
        match &volume.source {
            VolumeSource::Claim { claim, .. } => Some(claim.clone()),
            VolumeSource::Ephemeral { .. } => Some(format!("{}-{}", self.meta.name, volume.name)),
            _ => None,
        }
    }

    /// The names of all claims it refers to.
    pub fn claims(&self) -> impl Iterator<Item = String> {
        self.volumes.iter().filter_map(|volume| self.claim(volume))
    }

    /// The names of the claims behind the volumes that its containers use.
    pub fn claims_of_containers(&self) -> impl Iterator<Item = String> {
        let (mounted, devices) = (self.mounted(), self.devices());
        let used =
            self.volumes.iter().filter(move |v| mounted.contains(&v.name) || devices.contains(&v.name));
        used.filter_map(|volume| self.claim(volume))
    }

    /// The user of all containers; `None` if one differs or has none.
    pub fn common_user(&self) -> Option<u32> {
        let mut users = self.containers.iter().map(|c| c.run_as_user.or(self.security.run_as_user));
        let first = users.next()??;
        users.all(|user| user == Some(first)).then_some(first)
    }

    pub fn container(&self, name: &ContainerName) -> Option<&Container> {
        self.containers.iter().find(|container| container.name == name.as_str())
    }
}
