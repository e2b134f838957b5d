//! PersistentVolumes, and their references to claims and requirements on nodes.

use serde_json::{Map, Value};

use super::{ApiObject, PersistentVolume, bytes};
use crate::json::{object, text, texts};

/// The finalizer that keeps a persistent volume while a claim is bound to it.
const PROTECTION: &str = "kubernetes.io/pv-protection";
/// The annotation with the name of the provisioner that has made the volume.
const PROVISIONER: &str = "pv.kubernetes.io/provisioned-by";

impl<'a> PersistentVolume<'a> {
    /// The id of the volume at its CSI driver; empty for any other volume.
    pub fn handle(self) -> &'a str {
        self.csi_handle().unwrap_or_default()
    }

    /// The id of the volume at its CSI driver; `None` for any other volume.
    pub fn csi_handle(self) -> Option<&'a str> {
        self.csi()["volumeHandle"].as_str()
    }

    /// The name of the CSI driver.
    pub fn driver(self) -> &'a str {
        text(self.csi(), "driver")
    }

    pub fn fs_type(self) -> &'a str {
        text(self.csi(), "fsType")
    }

    /// The attributes from the driver's answer to CreateVolume.
    pub fn attributes(self) -> Map<String, Value> {
        object(&self.csi()["volumeAttributes"])
    }

    /// Whether the volume names a secret for a call; `None` if the trace does not show it.
    pub fn names_secret(self, reference: SecretReference) -> Option<bool> {
        let field = match reference {
            SecretReference::NodeStage => "nodeStageSecretRef",
            SecretReference::NodePublish => "nodePublishSecretRef",
            SecretReference::NodeExpand => "nodeExpandSecretRef",
        };
        self.csi().get(field).map(|secret| !secret.is_null())
    }

    /// The directories of the machine that a local or a host path volume names.
    pub fn host_paths(self) -> impl Iterator<Item = &'a str> {
        let paths = ["local", "hostPath"].map(|source| text(&self.spec()[source], "path"));
        paths.into_iter().filter(|path| !path.is_empty())
    }

    pub fn access_modes(self) -> impl Iterator<Item = &'a str> {
        texts(&self.spec()["accessModes"]).into_iter().flatten()
    }

    pub fn is_block(self) -> bool {
        self.spec()["volumeMode"] == "Block"
    }

    /// The size in bytes, if the trace has it.
    pub fn capacity(self) -> Option<u64> {
        bytes(text(&self.spec()["capacity"], "storage"))
    }

    /// The terms of which a node has to meet one, as lists of requirements; `None` if any node reaches the volume.
    pub fn node_affinity(self) -> Option<impl Iterator<Item = Vec<Requirement<'a>>>> {
        let terms = self.spec()["nodeAffinity"].as_array()?.iter().filter_map(Value::as_array);
        Some(terms.map(|term| term.iter().map(Requirement).collect()))
    }

    pub fn claim_reference(self) -> ClaimReference<'a> {
        ClaimReference(&self.spec()["claimRef"])
    }

    pub fn is_bound(self) -> bool {
        self.0["status"]["phase"] == "Bound"
    }

    /// Whether the reclaim policy is Delete: the volume is deleted when its claim is gone.
    pub fn is_to_be_deleted(self) -> bool {
        self.spec()["persistentVolumeReclaimPolicy"] == "Delete"
    }

    /// Whether a provisioner has made the volume.
    pub fn is_provisioned(self) -> bool {
        self.has_annotation(PROVISIONER)
    }

    /// Whether the object has to stay while a claim is bound to it.
    pub fn is_protected(self) -> bool {
        self.has_finalizer(PROTECTION)
    }

    fn spec(self) -> &'a Value {
        &self.0["spec"]
    }

    fn csi(self) -> &'a Value {
        &self.spec()["csi"]
    }
}

/// The secret of a volume for one of the node's calls.
#[derive(Debug, Clone, Copy)]
pub enum SecretReference {
    NodeStage,
    NodePublish,
    NodeExpand,
}

/// The claim that a volume is given to.
#[derive(Debug, Clone, Copy)]
pub struct ClaimReference<'a>(&'a Value);

impl<'a> ClaimReference<'a> {
    /// The `namespace/name` of the claim, by which a trace names it.
    pub fn name(self) -> String {
        format!("{}/{}", text(self.0, "namespace"), text(self.0, "name"))
    }

    /// The UID of the claim; empty before the volume is bound to it.
    pub fn uid(self) -> &'a str {
        text(self.0, "uid")
    }
}

/// A requirement on the labels of a node.
#[derive(Debug, Clone, Copy)]
pub struct Requirement<'a>(&'a Value);

impl<'a> Requirement<'a> {
    /// The key of the label.
    pub fn key(self) -> &'a str {
        text(self.0, "key")
    }

    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    pub fn operator(self) -> &'a str {
        text(self.0, "operator")
    }

    pub fn values(self) -> impl Iterator<Item = &'a str> {
        texts(&self.0["values"]).into_iter().flatten()
    }
}
