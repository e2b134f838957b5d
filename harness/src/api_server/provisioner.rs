//! The provisioner: calls CreateVolume of the driver, and binds a claim to the new volume.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::names::Namespaced;
use api::storage::{ClaimReference, ClaimSpec, ClaimStatus, CsiSource, NodeAffinity, Requirement};
use api::{
    AccessMode, ApiError, Bytes, Claim, ClaimPhase, Key, Meta, PersistentSource, Resource, Secret, Sensitive,
    Volume, VolumeMode,
};
use csi_proto::v1;
use csi_proto::v1::controller_client::ControllerClient;
use tonic::Status;
use tonic::transport::Channel;

use super::{ApiServer, NAMESPACE};
use crate::driver::Capabilities;
use crate::manifest::{self, ExistingVolume, Manifest, ManifestError, Secrets};
use crate::proxy::{explained, is_not_now, repeated, within};

/// The time limit for the controllers to release the objects of a deleted volume.
const RELEASE: Duration = Duration::from_secs(10);

/// The time for which a call is repeated while the driver puts it off.
const PUT_OFF_LIMIT: Duration = Duration::from_secs(2);

/// A volume to be provisioned, as its claim describes it.
#[derive(Debug, Clone)]
pub struct VolumeRequest {
    /// The name of its claim, and its symbol in stories.
    pub name: String,
    /// In bytes.
    pub size: u64,
    /// Whether it is a block volume.
    pub block: bool,
    /// The access modes. The node passes the first one to the driver.
    pub access_modes: Vec<AccessMode>,
    /// The type of its file system; empty for the driver's choice.
    pub fs_type: String,
    pub mount_options: Vec<String>,
    /// `readOnly` of the volume's CSI source. No call of a node depends on it.
    pub read_only: bool,
    /// The source of the copy.
    pub source: Option<ContentSource>,
    /// Whether it is made with the manifest's parameters for a FUSE volume, too.
    pub fuse: bool,
}

/// The source of a new volume, by the driver's id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentSource {
    Snapshot(String),
    Volume(String),
}

impl VolumeRequest {
    /// A file system volume for one node, with the manifest's size, file system type and mount options.
    pub fn new(name: &str, manifest: &Manifest) -> Self {
        Self {
            name: name.to_owned(),
            size: manifest.volume_size(),
            block: false,
            access_modes: vec![AccessMode::ReadWriteOnce],
            fs_type: manifest.volume.fs_types.first().cloned().unwrap_or_default(),
            mount_options: manifest.volume.mount_options.clone(),
            read_only: false,
            source: None,
            fuse: false,
        }
    }
}

impl ContentSource {
    fn message(&self) -> v1::VolumeContentSource {
        use v1::volume_content_source::{SnapshotSource, Type, VolumeSource};
        let kind = match self.clone() {
            Self::Snapshot(snapshot_id) => Type::Snapshot(SnapshotSource { snapshot_id }),
            Self::Volume(volume_id) => Type::Volume(VolumeSource { volume_id }),
        };
        v1::VolumeContentSource { r#type: Some(kind) }
    }
}

/// A volume with a claim that is bound to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provisioned {
    /// The name of its claim.
    pub claim: String,
    /// The name of its persistent volume.
    pub volume: String,
    /// The driver's name for it.
    pub handle: String,
}

/// Makes a call, and repeats it for up to [`PUT_OFF_LIMIT`] while the driver puts it off.
async fn call_repeatedly<T>(call: impl AsyncFn() -> Result<T, Status>) -> Result<T, Status> {
    let begun = Instant::now();
    let is_put_off = |answer: &Result<T, Status>| answer.as_ref().is_err_and(is_not_now);
    repeated(
        async || call().await.map_err(explained),
        |answer| is_put_off(answer) && begun.elapsed() < PUT_OFF_LIMIT,
    )
    .await
}

/// The reason that a volume cannot be provisioned or deleted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProvisionError {
    /// CreateVolume failed.
    #[error("cannot make the volume `{name}`")]
    Create {
        /// The claim's name.
        name: String,
        #[source]
        source: Status,
    },
    /// DeleteVolume failed.
    #[error("cannot delete the volume `{name}`")]
    Delete {
        /// The claim's name.
        name: String,
        #[source]
        source: Status,
    },
    /// The driver's answer holds no volume.
    #[error("cannot use the answer to CreateVolume for `{name}`: it holds no volume")]
    Empty {
        /// The claim's name.
        name: String,
    },
    /// The driver has no CreateVolume, and no `existing` volume of the manifest is left with these access modes.
    #[error(
        "cannot have the volume `{name}`: the driver has no CreateVolume, and no `existing` volume of the manifest \
         is left for it"
    )]
    UsedUp {
        /// The claim's name.
        name: String,
    },
    /// No claim or CSI volume of this name exists.
    #[error("cannot find the volume `{name}`")]
    Unknown {
        /// The claim's name.
        name: String,
    },
    /// An object could not be written.
    #[error("cannot write the objects of the volume `{name}`")]
    Api {
        /// The claim's name.
        name: String,
        /// The API server's answer.
        #[source]
        source: ApiError,
    },
    /// The driver has deleted the volume, but a controller or a pod keeps its claim or PersistentVolume.
    #[error("the {} `{}` of the deleted volume `{name}` is kept", key.kind, key.name)]
    Kept {
        /// The claim's name.
        name: String,
        key: Key,
    },
    /// A secret could not be read.
    #[error("cannot read the driver's secrets")]
    Secrets(#[source] ManifestError),
}

/// Provisions and deletes volumes of one driver, with their claims and PersistentVolumes.
#[derive(Debug)]
pub struct Provisioner {
    api: ApiServer,
    channel: Channel,
    manifest: Manifest,
    capabilities: Capabilities,
    existing: Mutex<Vec<ExistingVolume>>,
    tag: String,
}

impl Provisioner {
    /// A provisioner whose calls go through `channel`.
    pub fn new(api: ApiServer, channel: Channel, manifest: Manifest, capabilities: Capabilities) -> Self {
        // Reversed: `take_existing` searches from the end, and so takes them in the manifest's order.
        let existing = Mutex::new(manifest.volume.existing.iter().rev().cloned().collect());
        Self { api, channel, manifest, capabilities, existing, tag: String::new() }
    }

    /// Appends `tag` to the names in CreateVolume: a driver that outlives a case must not answer the next case's
    /// CreateVolume with the volume of the earlier case.
    #[must_use]
    pub fn tagged(self, tag: String) -> Self {
        Self { tag, ..self }
    }

    /// Sets the suffix of names for later volumes.
    pub fn set_tag(&mut self, tag: String) {
        self.tag = tag;
    }

    /// The suffix of volume names.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// Creates a volume, or takes an existing one of the manifest if the driver has no CreateVolume, and binds a new
    /// claim to it.
    ///
    /// # Errors
    /// When there is no volume, or an object cannot be written.
    pub async fn provision(&self, wanted: &VolumeRequest) -> Result<Provisioned, ProvisionError> {
        let mut wanted = wanted.clone();
        let (made, secrets) = match self.capabilities.controller_can("CREATE_DELETE_VOLUME") {
            true => (self.create(&wanted).await?, None),
            false => self.take_existing(&mut wanted)?,
        };
        let names = Provisioned {
            claim: wanted.name.clone(),
            volume: self.volume_name(&wanted.name),
            handle: made.volume_id.clone(),
        };
        self.api.journal().symbols().name_volume(&wanted.name, &names.volume, &names.handle);
        self.bind(&wanted, &names, made, secrets.as_ref())?;
        Ok(names)
    }

    /// Deletes the driver's volume of a claim, the claim and the PersistentVolume, and waits until both objects are
    /// gone. No pod may use the claim any more.
    ///
    /// # Errors
    /// When the driver does not delete it, or an object is kept.
    pub async fn delete(&self, claim: &str) -> Result<(), ProvisionError> {
        let unknown = || ProvisionError::Unknown { name: claim.to_owned() };
        let object = self.api.get::<Claim>(NAMESPACE, claim).ok_or_else(unknown)?;
        let volume = self.api.get::<Volume>("", &object.spec.volume).ok_or_else(unknown)?;
        let PersistentSource::Csi(csi) = &volume.source else { return Err(unknown()) };
        if self.capabilities.controller_can("CREATE_DELETE_VOLUME") {
            let secrets = self.secrets()?;
            let volume_id = csi.handle.to_string();
            let request = v1::DeleteVolumeRequest { volume_id, secrets };
            let answer = call_repeatedly(async || {
                let request = within(request.clone(), self.manifest.call_timeout());
                ControllerClient::new(self.channel.clone()).delete_volume(request).await
            });
            answer.await.map_err(|source| ProvisionError::Delete { name: claim.to_owned(), source })?;
        }
        let failed = |source| ProvisionError::Api { name: claim.to_owned(), source };
        self.api.delete::<Claim>(NAMESPACE, claim).map_err(failed)?;
        self.api.delete::<Volume>("", &volume.meta.name).map_err(failed)?;
        // Until both are gone, no new claim of the same name can be written.
        for key in [object.key(), volume.key()] {
            let gone = tokio::time::timeout(RELEASE, self.api.wait_gone(&key)).await;
            gone.map_err(|_| ProvisionError::Kept { name: claim.to_owned(), key })?;
        }
        Ok(())
    }

    /// The parameters by which a storage class names the driver's secrets. Writes the secrets as objects.
    ///
    /// # Errors
    /// When a secret cannot be read.
    pub fn secret_parameters(&self) -> Result<BTreeMap<String, String>, ProvisionError> {
        let files = &self.manifest.secrets;
        let named = [
            ("provisioner", &files.provision),
            ("controller-publish", &files.controller_publish),
            ("node-stage", &files.node_stage),
            ("node-publish", &files.node_publish),
            ("controller-expand", &files.controller_expand),
            ("node-expand", &files.node_expand),
        ];
        self.parameters_of(&named)
    }

    /// The parameters by which a class of snapshots names the manifest's secret.
    ///
    /// # Errors
    /// When a file of secrets cannot be read.
    pub fn snapshot_secret_parameters(&self) -> Result<BTreeMap<String, String>, ProvisionError> {
        self.parameters_of(&[("snapshotter", &self.manifest.secrets.snapshot)])
    }

    /// The parameters by which a class of group snapshots names the manifest's secret of snapshots.
    ///
    /// # Errors
    /// When a file of secrets cannot be read.
    pub fn group_snapshot_secret_parameters(&self) -> Result<BTreeMap<String, String>, ProvisionError> {
        self.parameters_of(&[("group-snapshotter", &self.manifest.secrets.snapshot)])
    }

    fn parameters_of(
        &self,
        named: &[(&'static str, &Option<PathBuf>)],
    ) -> Result<BTreeMap<String, String>, ProvisionError> {
        let mut parameters = BTreeMap::new();
        for (name, file) in named {
            if let Some(secret) = self.secret(name, file.as_deref())? {
                let key = |end: &str| format!("csi.storage.k8s.io/{name}-secret-{end}");
                parameters.insert(key("name"), secret.name);
                parameters.insert(key("namespace"), secret.namespace);
            }
        }
        Ok(parameters)
    }

    /// The name of a volume in CreateVolume.
    fn requested_name(&self, name: &str) -> String {
        format!("pvc-{name}{}", self.tag)
    }

    /// The name of the PersistentVolume. In a cluster it is the name in CreateVolume, and a driver that is a client of
    /// Kubernetes may look for the object by that name.
    fn volume_name(&self, name: &str) -> String {
        match self.manifest.kubernetes {
            Some(_) => self.requested_name(name),
            None => format!("pv-{name}"),
        }
    }

    fn parameters(&self, wanted: &VolumeRequest) -> BTreeMap<String, String> {
        let settings = &self.manifest.volume;
        let more = wanted.fuse.then_some(&settings.fuse_parameters).into_iter().flatten();
        let all = settings.parameters.iter().chain(more);
        all.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    async fn create(&self, wanted: &VolumeRequest) -> Result<v1::Volume, ProvisionError> {
        let of_node = v1::Topology { segments: self.capabilities.topology.clone().into_iter().collect() };
        // Without the node's topology there is no requirement to make.
        let has_topology = self.capabilities.plugin.contains("VOLUME_ACCESSIBILITY_CONSTRAINTS")
            && !of_node.segments.is_empty();
        let requirement =
            v1::TopologyRequirement { requisite: vec![of_node.clone()], preferred: vec![of_node] };
        let request = v1::CreateVolumeRequest {
            name: self.requested_name(&wanted.name),
            capacity_range: Some(v1::CapacityRange {
                required_bytes: wanted.size.cast_signed(),
                limit_bytes: 0,
            }),
            volume_capabilities: wanted
                .access_modes
                .iter()
                .map(|mode| self.capability(wanted, *mode))
                .collect(),
            parameters: self.parameters(wanted),
            secrets: self.secrets()?,
            accessibility_requirements: has_topology.then_some(requirement),
            volume_content_source: wanted.source.as_ref().map(ContentSource::message),
            ..v1::CreateVolumeRequest::default()
        };
        let answer = call_repeatedly(async || {
            let request = within(request.clone(), self.manifest.call_timeout());
            ControllerClient::new(self.channel.clone()).create_volume(request).await
        });
        let answer =
            answer.await.map_err(|source| ProvisionError::Create { name: wanted.name.clone(), source })?;
        answer.into_inner().volume.ok_or_else(|| ProvisionError::Empty { name: wanted.name.clone() })
    }

    /// The next existing volume of the manifest for these access modes, with its file system type and secrets.
    fn take_existing(
        &self,
        wanted: &mut VolumeRequest,
    ) -> Result<(v1::Volume, Option<manifest::Secrets>), ProvisionError> {
        let mut existing = self.existing.lock().unwrap_or_else(PoisonError::into_inner);
        let next = existing.iter().rposition(|volume| volume.offers(&wanted.access_modes));
        let next = next.ok_or_else(|| ProvisionError::UsedUp { name: wanted.name.clone() })?;
        let ExistingVolume { handle, context, fs_type, access_modes, secrets } = existing.remove(next);
        wanted.fs_type = fs_type.unwrap_or_else(|| std::mem::take(&mut wanted.fs_type));
        // The access mode that the case wants comes first: the node passes only that one to the driver.
        let others = access_modes.into_iter().filter(|mode| !wanted.access_modes.contains(mode));
        let others: Vec<AccessMode> = others.collect();
        wanted.access_modes.extend(others);
        let volume_context = context.into_iter().collect();
        Ok((v1::Volume { volume_id: handle, volume_context, ..v1::Volume::default() }, secrets))
    }

    fn capability(&self, wanted: &VolumeRequest, mode: AccessMode) -> v1::VolumeCapability {
        use v1::volume_capability::access_mode::Mode;
        use v1::volume_capability::{AccessMode as Access, AccessType, BlockVolume, MountVolume};
        let has_single_node_modes = self.capabilities.controller_can("SINGLE_NODE_MULTI_WRITER");
        let mode = match mode {
            AccessMode::ReadWriteOnce if has_single_node_modes => Mode::SingleNodeMultiWriter,
            AccessMode::ReadWriteOncePod if has_single_node_modes => Mode::SingleNodeSingleWriter,
            AccessMode::ReadWriteOnce | AccessMode::ReadWriteOncePod => Mode::SingleNodeWriter,
            AccessMode::ReadOnlyMany => Mode::MultiNodeReaderOnly,
            AccessMode::ReadWriteMany => Mode::MultiNodeMultiWriter,
        };
        let access_type = match wanted.block {
            true => AccessType::Block(BlockVolume {}),
            false => AccessType::Mount(MountVolume {
                fs_type: wanted.fs_type.clone(),
                mount_flags: wanted.mount_options.clone(),
                ..MountVolume::default()
            }),
        };
        v1::VolumeCapability {
            access_mode: Some(Access { mode: mode.into() }),
            access_type: Some(access_type),
        }
    }

    /// Writes the claim and its PersistentVolume, and binds them to each other.
    fn bind(
        &self,
        wanted: &VolumeRequest,
        names: &Provisioned,
        made: v1::Volume,
        secrets: Option<&manifest::Secrets>,
    ) -> Result<(), ProvisionError> {
        let failed = |source| ProvisionError::Api { name: wanted.name.clone(), source };
        let mode = if wanted.block { VolumeMode::Block } else { VolumeMode::Filesystem };
        let capacity = match u64::try_from(made.capacity_bytes) {
            Ok(0) | Err(_) => Bytes(wanted.size),
            Ok(bytes) => Bytes(bytes),
        };
        let claim = Claim {
            meta: Meta::named(NAMESPACE, &wanted.name),
            spec: ClaimSpec {
                access_modes: wanted.access_modes.clone(),
                request: Bytes(wanted.size),
                mode,
                ..ClaimSpec::default()
            },
            status: ClaimStatus::default(),
        };
        let claim = self.api.create(claim).map_err(failed)?;
        let volume = Volume {
            meta: Meta::named("", &names.volume),
            capacity,
            access_modes: wanted.access_modes.clone(),
            claim: Some(ClaimReference {
                claim: Namespaced::new(NAMESPACE, &wanted.name),
                uid: claim.meta.uid.clone(),
            }),
            mount_options: wanted.mount_options.clone(),
            mode: Some(mode),
            affinity: affinity(&made.accessible_topology),
            source: PersistentSource::Csi(Box::new(self.csi_source(wanted, made, secrets)?)),
            reclaim: "Delete".to_owned(),
            phase: "Bound".to_owned(),
            ..Volume::default()
        };
        // The volume names its claim before the claim names its volume: a node that sees the claim bound always finds
        // the volume bound to it.
        self.api.create(volume).map_err(failed)?;
        let bound = |claim: &mut Claim| {
            claim.spec.volume = names.volume.clone();
            claim.status.phase = ClaimPhase::Bound;
            claim.status.capacity = capacity;
        };
        self.api.change(NAMESPACE, &wanted.name, bound).map_err(failed)?;
        Ok(())
    }

    /// The CSI source of the PersistentVolume. `secrets` replace the manifest's for a volume that has its own.
    fn csi_source(
        &self,
        wanted: &VolumeRequest,
        made: v1::Volume,
        secrets: Option<&manifest::Secrets>,
    ) -> Result<CsiSource, ProvisionError> {
        let files = secrets.unwrap_or(&self.manifest.secrets);
        let prefix = secrets.map_or(String::new(), |_| format!("{}-", wanted.name));
        let secret =
            |name: &str, file: &Option<PathBuf>| self.secret(&format!("{prefix}{name}"), file.as_deref());
        Ok(CsiSource {
            driver: self.capabilities.name.as_str().into(),
            handle: made.volume_id.into(),
            fs_type: wanted.fs_type.clone(),
            read_only: wanted.read_only,
            attributes: made.volume_context.into_iter().collect(),
            controller_publish_secret: secret("controller-publish", &files.controller_publish)?,
            node_stage_secret: secret("node-stage", &files.node_stage)?,
            node_publish_secret: secret("node-publish", &files.node_publish)?,
            controller_expand_secret: secret("controller-expand", &files.controller_expand)?,
            node_expand_secret: secret("node-expand", &files.node_expand)?,
        })
    }

    /// Writes the secret in a file as an object, unless it exists, and returns its name. `None` without a file.
    fn secret(&self, name: &str, file: Option<&Path>) -> Result<Option<Box<Namespaced>>, ProvisionError> {
        if file.is_none() {
            return Ok(None);
        }
        let name = format!("volproof-{name}");
        if self.api.get::<Secret>(NAMESPACE, &name).is_none() {
            let values = Secrets::load(file).map_err(ProvisionError::Secrets)?;
            let bytes =
                |value: manifest::Sensitive<String>| Sensitive::new(value.reveal().clone().into_bytes());
            let data = values.into_iter().map(|(key, value)| (key, bytes(value))).collect();
            let secret = Secret { meta: Meta::named(NAMESPACE, &name), data };
            self.api.create(secret).map_err(|source| ProvisionError::Api { name: name.clone(), source })?;
        }
        Ok(Some(Namespaced::new(NAMESPACE, name).into()))
    }

    fn secrets(&self) -> Result<BTreeMap<String, String>, ProvisionError> {
        Secrets::revealed(self.manifest.secrets.provision.as_deref()).map_err(ProvisionError::Secrets)
    }
}

fn affinity(topology: &[v1::Topology]) -> Option<NodeAffinity> {
    let term = |place: &v1::Topology| {
        let segments: BTreeMap<_, _> = place.segments.clone().into_iter().collect();
        let requirement = |(key, value)| Requirement { key, operator: "In".to_owned(), values: vec![value] };
        segments.into_iter().map(requirement).collect()
    };
    let terms: Vec<_> = topology.iter().map(term).collect();
    (!terms.is_empty()).then_some(NodeAffinity { terms })
}
