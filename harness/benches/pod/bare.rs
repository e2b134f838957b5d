//! The bare loop: a trace, done again with as little as possible around each step. Volumes go in and out at once, as
//! far as the manager does that.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use contracts::event::{EffectKind, Event, TraceLine};
use csi_proto::v1::node_client::NodeClient;
use csi_proto::v1::volume_capability::access_mode::Mode;
use csi_proto::v1::volume_capability::{AccessMode, AccessType, MountVolume};
use csi_proto::v1::{
    NodeGetCapabilitiesRequest, NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest,
    NodeUnstageVolumeRequest, VolumeCapability,
};
use futures::future::try_join_all;
use measure::ProcessTime;
use serde_json::Value;
use tonic::transport::Channel;
use volume_manager::ClientStyle;

use super::arm::Round;

/// Something the manager did, without what led to it.
#[derive(Debug, Clone)]
enum Act {
    Capabilities(NodeGetCapabilitiesRequest),
    Stage(NodeStageVolumeRequest),
    Publish(NodePublishVolumeRequest),
    Unpublish(NodeUnpublishVolumeRequest),
    Unstage(NodeUnstageVolumeRequest),
    MakeDirectory(PathBuf),
    Write(PathBuf),
    Remove(PathBuf),
}

/// The way in and the way out of pods.
#[derive(Debug)]
pub(crate) struct Bare {
    connection: Connection,
    way_in: Way,
    way_out: Way,
}

/// The acts of pods as a whole, and those of each volume.
#[derive(Debug, Default)]
struct Way {
    pods: Vec<Act>,
    volumes: Vec<Vec<Act>>,
}

/// The connections that a style makes: the kubelet's has one for each call.
#[derive(Debug, Clone)]
enum Connection {
    Kept(NodeClient<Channel>),
    EachCall(PathBuf),
}

impl Bare {
    /// Repeats the trace of pods with bare calls to the driver's own socket. In the lean style it asks for no
    /// capabilities, over one connection.
    pub(crate) fn of(trace: &[TraceLine], socket: &Path, style: ClientStyle) -> Result<Bare> {
        let connection = match style {
            ClientStyle::Lean => Connection::Kept(NodeClient::new(harness::proxy::connect(socket)?)),
            ClientStyle::Kubelet => Connection::EachCall(socket.to_owned()),
        };
        let is_made = |act: &Act| style == ClientStyle::Kubelet || !matches!(act, Act::Capabilities(_));
        let acts: Vec<Act> = trace.iter().filter_map(act).filter(is_made).collect();
        let turn = acts.iter().position(|act| matches!(act, Act::Unpublish(_)));
        let turn = turn.context("cannot find the way out: the trace has no NodeUnpublishVolume")?;
        let keys: Vec<[PathBuf; 2]> = acts.iter().filter_map(Act::directories).collect();
        let (way_in, way_out) = acts.split_at(turn);
        Ok(Bare { connection, way_in: Way::of(way_in, &keys), way_out: Way::of(way_out, &keys) })
    }

    /// In and out once.
    pub(crate) async fn round(&self) -> Result<Round> {
        let (begin, cpu) = (Instant::now(), ProcessTime::now());
        perform(&self.way_in.pods, &self.connection).await?;
        self.way_in.perform(&self.connection).await?;
        let (way_in, cpu_in) = (begin.elapsed(), cpu.elapsed());
        let (begin, cpu) = (Instant::now(), ProcessTime::now());
        self.way_out.perform(&self.connection).await?;
        perform(&self.way_out.pods, &self.connection).await?;
        Ok(Round { way_in, way_out: begin.elapsed(), cpu: cpu_in + cpu.elapsed() })
    }
}

impl Way {
    /// `keys`: the directories of each volume.
    fn of(acts: &[Act], keys: &[[PathBuf; 2]]) -> Self {
        let mut way = Self { pods: Vec::new(), volumes: vec![Vec::new(); keys.len()] };
        let mut questions = 0;
        for act in acts {
            let volume = match act {
                // Each volume asks as often as every other.
                Act::Capabilities(_) => {
                    questions += 1;
                    Some(questions % keys.len())
                }
                _ => keys.iter().position(|key| key.iter().any(|directory| act.is_below(directory))),
            };
            match volume {
                Some(volume) => way.volumes[volume].push(act.clone()),
                None => way.pods.push(act.clone()),
            }
        }
        way
    }

    async fn perform(&self, connection: &Connection) -> Result<()> {
        try_join_all(self.volumes.iter().map(|acts| perform(acts, connection))).await.map(drop)
    }
}

async fn perform(acts: &[Act], connection: &Connection) -> Result<()> {
    for act in acts {
        act.perform(connection).await?;
    }
    Ok(())
}

impl Connection {
    fn client(&self) -> Result<NodeClient<Channel>> {
        Ok(match self {
            Self::Kept(client) => client.clone(),
            Self::EachCall(socket) => NodeClient::new(harness::proxy::connect(socket)?),
        })
    }
}

impl Act {
    /// The directories of the volume that is published here: that of its staging path, and that of its target.
    fn directories(&self) -> Option<[PathBuf; 2]> {
        let Self::Publish(publish) = self else { return None };
        let above = |path: &str| Path::new(path).parent().map(Path::to_owned);
        Some([above(&publish.staging_target_path)?, above(&publish.target_path)?])
    }

    fn is_below(&self, directory: &Path) -> bool {
        let path = match self {
            Self::Capabilities(_) => return false,
            Self::Stage(request) => Path::new(&request.staging_target_path),
            Self::Unstage(request) => Path::new(&request.staging_target_path),
            Self::Publish(request) => Path::new(&request.target_path),
            Self::Unpublish(request) => Path::new(&request.target_path),
            Self::MakeDirectory(path) | Self::Write(path) | Self::Remove(path) => path,
        };
        path.starts_with(directory)
    }

    async fn perform(&self, connection: &Connection) -> Result<()> {
        match self.clone() {
            Act::Capabilities(request) => _ = connection.client()?.node_get_capabilities(request).await?,
            Act::Stage(request) => _ = connection.client()?.node_stage_volume(request).await?,
            Act::Publish(request) => _ = connection.client()?.node_publish_volume(request).await?,
            Act::Unpublish(request) => _ = connection.client()?.node_unpublish_volume(request).await?,
            Act::Unstage(request) => _ = connection.client()?.node_unstage_volume(request).await?,
            Act::MakeDirectory(path) => made(fs::create_dir(&path), &path)?,
            Act::Write(path) => made(fs::write(&path, VOLUME_DATA), &path)?,
            Act::Remove(path) => removed(&path)?,
        }
        Ok(())
    }
}

/// About what the manager writes beside a volume.
const VOLUME_DATA: &[u8] = &[b'x'; 256];

fn made(result: io::Result<()>, path: &Path) -> Result<()> {
    match result {
        // Some directories stay when a pod has gone.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("cannot make `{}`", path.display()))
        }
        _ => Ok(()),
    }
}

fn removed(path: &Path) -> Result<()> {
    let result = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            bail!("cannot remove `{}`: {error}", path.display())
        }
        _ => Ok(()),
    }
}

/// The call or mount of a line to repeat; `None` for a line that only reports.
fn act(line: &TraceLine) -> Option<Act> {
    match &line.event {
        Event::RpcStart(start) => call(&start.method, &start.req),
        Event::Effect(effect) => {
            let path = PathBuf::from(&effect.path);
            match effect.effect {
                EffectKind::Mkdir => Some(Act::MakeDirectory(path)),
                EffectKind::Write => Some(Act::Write(path)),
                EffectKind::Remove | EffectKind::Rmdir | EffectKind::Unlink => Some(Act::Remove(path)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn call(method: &str, request: &Value) -> Option<Act> {
    let text = |field: &str| request[field].as_str().unwrap_or_default().to_owned();
    Some(match method {
        "NodeGetCapabilities" => Act::Capabilities(NodeGetCapabilitiesRequest {}),
        "NodeStageVolume" => Act::Stage(NodeStageVolumeRequest {
            volume_id: text("volumeId"),
            staging_target_path: text("stagingTargetPath"),
            volume_capability: Some(capability(&request["volumeCapability"])),
            volume_context: map(&request["volumeContext"]),
            ..Default::default()
        }),
        "NodePublishVolume" => Act::Publish(NodePublishVolumeRequest {
            volume_id: text("volumeId"),
            staging_target_path: text("stagingTargetPath"),
            target_path: text("targetPath"),
            volume_capability: Some(capability(&request["volumeCapability"])),
            volume_context: map(&request["volumeContext"]),
            ..Default::default()
        }),
        "NodeUnpublishVolume" => Act::Unpublish(NodeUnpublishVolumeRequest {
            volume_id: text("volumeId"),
            target_path: text("targetPath"),
        }),
        "NodeUnstageVolume" => Act::Unstage(NodeUnstageVolumeRequest {
            volume_id: text("volumeId"),
            staging_target_path: text("stagingTargetPath"),
        }),
        _ => return None,
    })
}

fn capability(json: &Value) -> VolumeCapability {
    let mode =
        json["accessMode"]["mode"].as_str().and_then(Mode::from_str_name).unwrap_or(Mode::SingleNodeWriter);
    let fs_type = json["mount"]["fsType"].as_str().unwrap_or_default().to_owned();
    VolumeCapability {
        access_mode: Some(AccessMode { mode: mode.into() }),
        access_type: Some(AccessType::Mount(MountVolume { fs_type, ..Default::default() })),
    }
}

fn map(json: &Value) -> BTreeMap<String, String> {
    let fields = json.as_object().into_iter().flatten();
    fields.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}
