//! The calls that a cluster's controllers would make: the driver's volumes.
//!
//! They go straight to the driver's socket: only what the node says is recorded by the proxy.

use std::collections::BTreeMap;

use csi_proto::v1;
use csi_proto::v1::controller_client::ControllerClient;
use csi_proto::v1::volume_capability::access_mode::Mode;
use csi_proto::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use harness::driver::Driver;
use harness::manifest::{Manifest, ManifestError, Secrets, Sensitive};
use harness::proxy::{self, ProxyError};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

/// A driver, as its cluster's controllers see it.
#[derive(Debug, Clone)]
pub(crate) struct Controller {
    channel: Channel,
    manifest: Manifest,
    secrets: BTreeMap<String, Sensitive<String>>,
    /// Where the node is, for volumes that are not everywhere.
    topology: BTreeMap<String, String>,
}

/// Why a call of the controllers failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControllerError {
    #[error("cannot reach the controller service")]
    Connect(#[from] ProxyError),
    #[error("{method} failed")]
    Call {
        method: &'static str,
        #[source]
        status: Answer,
    },
    #[error("CreateVolume answered OK, but names no volume")]
    NoVolume,
    #[error("no volume is left of those that `existing` names")]
    NoneLeft,
    #[error("cannot read the secrets")]
    Secrets(#[from] ManifestError),
}

/// A status that was not OK, without the transport's details.
#[derive(Debug, thiserror::Error)]
#[error("{:?}: {}", .0.code(), .0.message())]
pub(crate) struct Answer(Status);

impl ControllerError {
    /// The code the driver answered with, if it was the driver that answered.
    pub(crate) fn code(&self) -> Option<Code> {
        match self {
            Self::Call { status, .. } => Some(status.0.code()),
            _ => None,
        }
    }
}

/// A volume the driver made.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) handle: String,
    pub(crate) context: BTreeMap<String, String>,
    pub(crate) mode: Mode,
    pub(crate) block: bool,
    pub(crate) fs_type: String,
    pub(crate) bytes: u64,
}

type Result<T> = std::result::Result<T, ControllerError>;

impl Controller {
    /// Connects to a driver that is up.
    pub(crate) fn of(driver: &Driver) -> Result<Self> {
        let manifest = driver.manifest().clone();
        let socket = manifest.controller_socket.as_deref().unwrap_or(driver.socket());
        let channel = proxy::connect(socket)?;
        let secrets = Secrets::load(manifest.secrets.provision.as_deref())?;
        let topology = driver.capabilities().topology.clone();
        Ok(Self { channel, secrets, topology, manifest })
    }

    /// `CreateVolume`.
    pub(crate) async fn create(&self, name: &str, block: bool, mode: Mode) -> Result<Made> {
        let fs_type = self.manifest.volume.fs_types.first().cloned().unwrap_or_default();
        let bytes = self.manifest.volume_size();
        let here = v1::Topology { segments: self.topology.clone() };
        let topology = match self.topology.is_empty() {
            true => None,
            false => Some(v1::TopologyRequirement { requisite: vec![here.clone()], preferred: vec![here] }),
        };
        let request = v1::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(v1::CapacityRange { required_bytes: bytes.cast_signed(), limit_bytes: 0 }),
            volume_capabilities: vec![capability(block, mode, &fs_type)],
            parameters: self.manifest.volume.parameters.clone(),
            secrets: self.secrets(),
            accessibility_requirements: topology,
            ..Default::default()
        };
        let answer = self.controller().create_volume(self.request(request)).await;
        let volume = called("CreateVolume", answer)?.volume.ok_or(ControllerError::NoVolume)?;
        let made = (volume.capacity_bytes.cast_unsigned()).max(bytes);
        Ok(Made {
            handle: volume.volume_id,
            context: volume.volume_context,
            mode,
            block,
            fs_type,
            bytes: made,
        })
    }

    /// A volume that exists already, for a driver that makes none.
    pub(crate) fn existing(&self, number: usize, block: bool, mode: Mode) -> Result<Made> {
        let handle = self.manifest.volume.existing.get(number).ok_or(ControllerError::NoneLeft)?.clone();
        let fs_type = self.manifest.volume.fs_types.first().cloned().unwrap_or_default();
        let bytes = self.manifest.volume_size();
        Ok(Made { handle, context: BTreeMap::new(), mode, block, fs_type, bytes })
    }

    /// `DeleteVolume`.
    pub(crate) async fn delete(&self, handle: &str) -> Result<()> {
        let request = v1::DeleteVolumeRequest { volume_id: handle.to_owned(), secrets: self.secrets() };
        called("DeleteVolume", self.controller().delete_volume(self.request(request)).await)?;
        Ok(())
    }

    /// `ListVolumes`, all pages: the handles in the driver's own books.
    pub(crate) async fn list(&self) -> Result<Vec<String>> {
        let mut handles = Vec::new();
        let mut starting_token = String::new();
        loop {
            let request = v1::ListVolumesRequest { max_entries: 0, starting_token };
            let page = called("ListVolumes", self.controller().list_volumes(self.request(request)).await)?;
            handles.extend(page.entries.into_iter().filter_map(|entry| Some(entry.volume?.volume_id)));
            if page.next_token.is_empty() {
                return Ok(handles);
            }
            starting_token = page.next_token;
        }
    }

    fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel.clone())
    }

    fn secrets(&self) -> BTreeMap<String, String> {
        self.secrets.iter().map(|(key, value)| (key.clone(), value.reveal().clone())).collect()
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.manifest.call_timeout());
        request
    }
}

/// What a pod's use of a volume is called in CSI.
fn capability(block: bool, mode: Mode, fs_type: &str) -> v1::VolumeCapability {
    let access_type = match block {
        true => AccessType::Block(BlockVolume {}),
        false => AccessType::Mount(MountVolume { fs_type: fs_type.to_owned(), ..Default::default() }),
    };
    let access_mode = Some(AccessMode { mode: mode.into() });
    v1::VolumeCapability { access_mode, access_type: Some(access_type) }
}

fn called<T>(method: &'static str, answer: std::result::Result<tonic::Response<T>, Status>) -> Result<T> {
    match answer {
        Ok(response) => Ok(response.into_inner()),
        Err(status) => Err(ControllerError::Call { method, status: Answer(status) }),
    }
}
