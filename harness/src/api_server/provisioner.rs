//! The provisioner: has the driver make a volume, and binds a claim to it.

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

/// For how long a call is made again that the driver puts off.
const PUT_OFF: Duration = Duration::from_secs(2);

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
    /// A directory for one node, as the manifest would have it.
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

/// Makes a call, and again for a moment while the driver puts it off.
async fn asked<T>(call: impl AsyncFn() -> Result<T, Status>) -> Result<T, Status> {
    let begun = Instant::now();
    let is_put_off = |answer: &Result<T, Status>| answer.as_ref().is_err_and(is_not_now);
    repeated(
        async || call().await.map_err(explained),
        |answer| is_put_off(answer) && begun.elapsed() < PUT_OFF,
    )
    .await
}

/// Why a volume cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProvisionError {
    /// The driver did not make it.
    #[error("cannot make the volume `{name}`")]
    Create {
        /// The claim's name.
        name: String,
        #[source]
        source: Status,
    },
    /// The driver did not delete it.
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
    /// The driver makes none, and the manifest names no more that exist.
    #[error(
        "cannot have the volume `{name}`: the driver has no CreateVolume, and no `existing` volume of the manifest \
         is left for it"
    )]
    UsedUp {
        /// The claim's name.
        name: String,
    },
    /// There is no such volume.
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
    /// The driver has deleted the volume, and a controller or a pod keeps an object of it.
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

/// Has volumes made by one driver.
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
        let existing = Mutex::new(manifest.volume.existing.iter().rev().cloned().collect());
        Self { api, channel, manifest, capabilities, existing, tag: String::new() }
    }

    /// Asks for volumes by names that end so: a driver that outlives a case must not take the next one's volume
    /// for the same.
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

    /// Has a volume made and binds a new claim to it.
    ///
    /// # Errors
    /// When the driver does not make it.
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

    /// Deletes a claim, its volume and what the driver made for it, and waits until the objects are gone. Pods must not
    /// use it any more.
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
            let answer = asked(async || {
                let request = within(request.clone(), self.manifest.call_timeout());
                ControllerClient::new(self.channel.clone()).delete_volume(request).await
            });
            answer.await.map_err(|source| ProvisionError::Delete { name: claim.to_owned(), source })?;
        }
        let failed = |source| ProvisionError::Api { name: claim.to_owned(), source };
        self.api.delete::<Claim>(NAMESPACE, claim).map_err(failed)?;
        self.api.delete::<Volume>("", &volume.meta.name).map_err(failed)?;
        // Another claim of the name could not be written before.
        for key in [object.key(), volume.key()] {
            let gone = tokio::time::timeout(RELEASE, self.api.wait_gone(&key)).await;
            gone.map_err(|_| ProvisionError::Kept { name: claim.to_owned(), key })?;
        }
        Ok(())
    }

    /// The parameters of a class with the driver's secrets, which become objects.
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

    /// The name that the driver is asked for.
    fn asked_name(&self, name: &str) -> String {
        format!("pvc-{name}{}", self.tag)
    }

    /// The name of the PersistentVolume. A driver that is a client of Kubernetes may look for the object by the name that
    /// it was asked for, which is the object's in a cluster.
    fn volume_name(&self, name: &str) -> String {
        match self.manifest.kubernetes {
            Some(_) => self.asked_name(name),
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
        let here = v1::Topology { segments: self.capabilities.topology.clone().into_iter().collect() };
        // A provisioner that knows no topology of a node asks for none.
        let somewhere = self.capabilities.plugin.contains("VOLUME_ACCESSIBILITY_CONSTRAINTS")
            && !here.segments.is_empty();
        let reachable = v1::TopologyRequirement { requisite: vec![here.clone()], preferred: vec![here] };
        let request = v1::CreateVolumeRequest {
            name: self.asked_name(&wanted.name),
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
            accessibility_requirements: somewhere.then_some(reachable),
            volume_content_source: wanted.source.as_ref().map(ContentSource::message),
            ..v1::CreateVolumeRequest::default()
        };
        let answer = asked(async || {
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
        let finer = self.capabilities.controller_can("SINGLE_NODE_MULTI_WRITER");
        let mode = match mode {
            AccessMode::ReadWriteOnce if finer => Mode::SingleNodeMultiWriter,
            AccessMode::ReadWriteOncePod if finer => Mode::SingleNodeSingleWriter,
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

    /// First the volume's reference to its claim, then the claim's to its volume: a node that sees the claim
    /// bound always finds the volume bound to it.
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
            source: PersistentSource::Csi(Box::new(self.source(wanted, made, secrets)?)),
            reclaim: "Delete".to_owned(),
            phase: "Bound".to_owned(),
            ..Volume::default()
        };
        self.api.create(volume).map_err(failed)?;
        let bound = |claim: &mut Claim| {
            claim.spec.volume = names.volume.clone();
            claim.status.phase = ClaimPhase::Bound;
            claim.status.capacity = capacity;
        };
        self.api.change(NAMESPACE, &wanted.name, bound).map_err(failed)?;
        Ok(())
    }

    /// `secrets` are the volume's own, instead of those for all.
    fn source(
        &self,
        wanted: &VolumeRequest,
        made: v1::Volume,
        secrets: Option<&manifest::Secrets>,
    ) -> Result<CsiSource, ProvisionError> {
        let files = secrets.unwrap_or(&self.manifest.secrets);
        let own = secrets.map_or(String::new(), |_| format!("{}-", wanted.name));
        let secret =
            |name: &str, file: &Option<PathBuf>| self.secret(&format!("{own}{name}"), file.as_deref());
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

    /// Makes a secret an object of the cluster, once, and returns its name.
    fn secret(&self, name: &str, file: Option<&Path>) -> Result<Option<Namespaced>, ProvisionError> {
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
        Ok(Some(Namespaced::new(NAMESPACE, name)))
    }

    fn secrets(&self) -> Result<BTreeMap<String, String>, ProvisionError> {
        Secrets::revealed(self.manifest.secrets.provision.as_deref()).map_err(ProvisionError::Secrets)
    }
}

fn affinity(topology: &[v1::Topology]) -> Option<NodeAffinity> {
    let term = |place: &v1::Topology| {
        let segments: BTreeMap<_, _> = place.segments.clone().into_iter().collect();
        let is = |(key, value)| Requirement { key, operator: "In".to_owned(), values: vec![value] };
        segments.into_iter().map(is).collect()
    };
    let terms: Vec<_> = topology.iter().map(term).collect();
    (!terms.is_empty()).then_some(NodeAffinity { terms })
}
