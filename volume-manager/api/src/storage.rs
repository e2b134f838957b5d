//! Claims, volumes, classes, drivers and attachments.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::object::{Bytes, Meta};
use crate::names::{DriverName, Namespaced, VolumeHandle};

/// An access mode of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AccessMode {
    /// One node reads and writes.
    ReadWriteOnce,
    ReadOnlyMany,
    /// Many nodes read and write.
    ReadWriteMany,
    /// One pod reads and writes.
    ReadWriteOncePod,
}

/// A directory or a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum VolumeMode {
    /// Mounted as a directory.
    #[default]
    Filesystem,
    /// Handed over as a device.
    Block,
}

impl std::fmt::Display for VolumeMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Filesystem => "Filesystem",
            Self::Block => "Block",
        })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Claim {
    pub meta: Meta,
    pub spec: ClaimSpec,
    pub status: ClaimStatus,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClaimSpec {
    /// The access modes that its pods need.
    pub access_modes: Vec<AccessMode>,
    pub request: Bytes,
    /// The volume it is bound to; empty if none yet.
    pub volume: String,
    /// A directory or a device.
    pub mode: VolumeMode,
    /// The class; `None` is the default one, empty is none.
    pub class: Option<String>,
    /// The class of attributes that its volume is to have; empty for the driver's own.
    pub attributes_class: String,
    /// The claim or snapshot it starts as a copy of.
    pub data_source: Option<DataSource>,
    /// The labels that its volume must have; `None` where any will do.
    pub selector: Option<Vec<Requirement>>,
}

/// The source of a new volume's data.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DataSource {
    /// `PersistentVolumeClaim` or `VolumeSnapshot`.
    pub kind: String,
    pub name: String,
}

/// The template of an ephemeral claim.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClaimTemplate {
    /// Labels of the claim.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the claim.
    pub annotations: BTreeMap<String, String>,
    /// The requested volume.
    pub spec: ClaimSpec,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ClaimPhase {
    /// No volume is bound to the claim.
    #[default]
    Pending,
    /// A volume is bound to the claim.
    Bound,
    /// The claim's volume is gone.
    Lost,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClaimStatus {
    pub phase: ClaimPhase,
    /// The capacity; zero if unknown.
    pub capacity: Bytes,
    /// The size of an expansion under way.
    pub allocated: Option<Bytes>,
    /// The progress of an expansion, such as `NodeResizePending`; empty if none is under way.
    pub resize: String,
    pub conditions: Vec<Condition>,
    /// The class of attributes that its volume has; empty for the driver's own.
    pub attributes_class: String,
    /// The change of attributes that is under way.
    pub modifying: Option<Modifying>,
}

/// A change of a volume's attributes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modifying {
    /// The class of attributes that the volume is changed to.
    pub target: String,
    pub progress: ModifyProgress,
}

/// The progress of a change of attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModifyProgress {
    /// The target does not exist yet, or is another driver's.
    Pending,
    /// The driver is asked, and its outcome is not known.
    InProgress,
    /// The driver has refused it for good.
    Infeasible,
}

/// A condition of a claim.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    /// `Resizing`, `FileSystemResizePending`, `NodeResizeError`, …
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// For people.
    pub message: String,
}

/// A persistent volume.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Volume {
    pub meta: Meta,
    /// The size, in bytes.
    pub capacity: Bytes,
    /// The access modes in their order: CSI gets the first one.
    pub access_modes: Vec<AccessMode>,
    /// The claim it is bound to.
    pub claim: Option<ClaimReference>,
    pub mount_options: Vec<String>,
    /// A directory or a device; an object without it is refused.
    pub mode: Option<VolumeMode>,
    /// The nodes from which the volume is accessible.
    pub affinity: Option<NodeAffinity>,
    pub source: PersistentSource,
    /// `Retain` or `Delete`.
    pub reclaim: String,
    /// The class it was made from.
    pub class: String,
    /// The class of attributes that it has; empty for the driver's own.
    pub attributes_class: String,
    /// `Available`, `Bound`, `Released` or `Failed`.
    pub phase: String,
}

/// The claim a volume is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimReference {
    pub claim: Namespaced,
    pub uid: String,
}

/// The source of a persistent volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum PersistentSource {
    /// With a CSI driver.
    Csi(Box<CsiSource>),
    /// On an NFS server.
    Nfs {
        server: String,
        /// The exported directory on the server.
        path: String,
        /// Whether it is mounted read-only.
        read_only: bool,
    },
    /// A path of the node that the pod runs on.
    HostPath {
        path: String,
        /// The required type; empty for any.
        kind: String,
    },
    /// A path or device of one node.
    Local {
        path: String,
        /// The file system to make on a device that has none; empty for the default.
        fs_type: String,
    },
    /// With a program of the node's administrator.
    FlexVolume(Box<FlexVolume>),
    /// A kind this manager has no plugin for.
    Other {
        /// The name of the field.
        kind: String,
    },
}

/// A volume that a program of the node's administrator mounts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlexVolume {
    /// The driver, as `vendor/name`.
    pub driver: String,
    /// The file system type; empty for the driver's default.
    pub fs_type: String,
    pub read_only: bool,
    /// The options that the driver gets beside facts about volume and pod.
    pub options: BTreeMap<String, String>,
    /// The secret whose entries the driver gets.
    pub secret: Option<String>,
    /// The namespace of the secret; empty for the pod's.
    pub secret_namespace: String,
}

impl Default for PersistentSource {
    fn default() -> Self {
        Self::Other { kind: String::new() }
    }
}

/// A volume of a CSI driver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CsiSource {
    pub driver: DriverName,
    /// The driver's own name for it.
    pub handle: VolumeHandle,
    /// The type of file system; empty for the driver's choice.
    pub fs_type: String,
    /// For the controller only: no request of a node depends on it.
    pub read_only: bool,
    /// Handed to the driver.
    pub attributes: BTreeMap<String, String>,
    pub controller_publish_secret: Option<Box<Namespaced>>,
    pub node_stage_secret: Option<Box<Namespaced>>,
    pub node_publish_secret: Option<Box<Namespaced>>,
    pub controller_expand_secret: Option<Box<Namespaced>>,
    pub node_expand_secret: Option<Box<Namespaced>>,
}

impl Default for VolumeHandle {
    fn default() -> Self {
        Self::new("")
    }
}

/// The nodes that reach a volume.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeAffinity {
    /// Terms are alternatives; a term holds if all its requirements hold.
    pub terms: Vec<Vec<Requirement>>,
}

/// A requirement on a node's labels.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Requirement {
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    pub operator: String,
    /// The values to compare with.
    pub values: Vec<String>,
}

impl NodeAffinity {
    /// Whether a node with these labels reaches the volume.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let holds = |term: &Vec<Requirement>| !term.is_empty() && term.iter().all(|r| r.matches(labels));
        self.terms.iter().any(holds)
    }
}

impl Requirement {
    /// Whether labels are as required.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let label = labels.get(&self.key);
        let compared = || {
            let label: i64 = label?.parse().ok()?;
            let [value] = self.values.as_slice() else { return None };
            Some(label.cmp(&value.parse().ok()?))
        };
        match self.operator.as_str() {
            "In" => label.is_some_and(|label| self.values.contains(label)),
            "NotIn" => label.is_none_or(|label| !self.values.contains(label)),
            "Exists" => label.is_some(),
            "DoesNotExist" => label.is_none(),
            "Gt" => compared() == Some(std::cmp::Ordering::Greater),
            "Lt" => compared() == Some(std::cmp::Ordering::Less),
            _ => false,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Class {
    pub meta: Meta,
    /// The driver that makes its volumes.
    pub provisioner: String,
    /// Handed to the driver.
    pub parameters: BTreeMap<String, String>,
    /// `Retain` or `Delete`.
    pub reclaim: String,
    /// Options of the mounts of its volumes.
    pub mount_options: Vec<String>,
    /// Whether claims of the class may be expanded.
    pub allow_expansion: bool,
    /// Whether a volume is made only once a pod wants it.
    pub wait_for_consumer: bool,
    /// The places where its volumes may be made: in one of these, each key has one of its values. Empty: anywhere.
    pub allowed_topologies: Vec<Vec<AllowedValues>>,
}

/// The values that a topology key may have.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AllowedValues {
    pub key: String,
    pub values: Vec<String>,
}

/// A class of attributes that a volume can change to while it is used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttributesClass {
    pub meta: Meta,
    pub driver: String,
    /// Handed to the driver.
    pub parameters: BTreeMap<String, String>,
}

/// The spec of a CSIDriver object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CsiDriver {
    /// Metadata. The name is the driver's.
    pub meta: Meta,
    /// Whether volumes are attached before they are staged.
    pub attach_required: bool,
    /// Whether publish calls carry the pod.
    pub pod_info: bool,
    /// When the node changes ownership; `None` is an object without the field.
    pub fs_group_policy: Option<FsGroupPolicy>,
    /// `Persistent`, `Ephemeral` or both.
    pub lifecycle_modes: Vec<LifecycleMode>,
    /// Tokens publish calls carry.
    pub tokens: Vec<DriverToken>,
    /// Whether tokens go with the secrets rather than the context.
    pub token_in_secrets: bool,
    /// Whether volumes of running pods are published again from time to time.
    pub requires_republish: bool,
    /// Whether the driver takes `-o context=`.
    pub selinux_mount: bool,
    /// Seconds between questions for the node's limit; `None` for only at registration.
    pub allocatable_period: Option<u64>,
}

impl Default for CsiDriver {
    /// An object in which nothing was written.
    fn default() -> Self {
        Self {
            meta: Meta::default(),
            attach_required: true,
            pod_info: false,
            fs_group_policy: Some(FsGroupPolicy::ReadWriteOnceWithFsType),
            lifecycle_modes: vec![LifecycleMode::Persistent],
            tokens: Vec::new(),
            token_in_secrets: false,
            requires_republish: false,
            selinux_mount: false,
            allocatable_period: None,
        }
    }
}

/// When the node changes the ownership of a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FsGroupPolicy {
    /// The node never changes it.
    None,
    /// Whenever a pod has a group.
    File,
    /// If the volume has a type of file system and one node writes it.
    #[default]
    ReadWriteOnceWithFsType,
}

/// The lifecycle mode of a CSI volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LifecycleMode {
    /// From a claim.
    #[default]
    Persistent,
    /// Inline in a pod.
    Ephemeral,
}

/// A token that a driver asks for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DriverToken {
    /// The audience that accepts the token.
    pub audience: String,
    /// Seconds it lasts; `None` for the server's choice.
    pub expiration: Option<i64>,
}

/// An attachment of a volume to a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attachment {
    pub meta: Meta,
    /// The driver's name.
    pub attacher: String,
    pub node: String,
    /// The name of the PersistentVolume.
    pub volume: String,
    /// Whether the driver has attached it.
    pub attached: bool,
    /// The driver's `publish_context`, which the node passes on in its calls.
    pub metadata: BTreeMap<String, String>,
    /// Why attaching failed last.
    pub attach_error: Option<AttachmentError>,
    /// Why detaching failed last.
    pub detach_error: Option<AttachmentError>,
}

/// Why attaching or detaching failed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AttachmentError {
    pub message: String,
    /// The gRPC code.
    pub code: Option<i32>,
}
