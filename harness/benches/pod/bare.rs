//! The bare loop: a trace, done again with as little as possible around each step.

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
use serde_json::Value;
use tonic::transport::Channel;

use super::Round;

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

/// The way in and the way out of one pod.
#[derive(Debug)]
pub(crate) struct Bare {
    client: NodeClient<Channel>,
    way_in: Vec<Act>,
    way_out: Vec<Act>,
}

impl Bare {
    /// Repeats the trace of one pod with bare calls to the driver's own socket.
    pub(crate) async fn of(trace: &[TraceLine], socket: &Path) -> Result<Bare> {
        let channel = harness::proxy::connect(socket)?;
        let acts: Vec<Act> = trace.iter().filter_map(act).collect();
        let turn = acts.iter().position(|act| matches!(act, Act::Unpublish(_)));
        let turn = turn.context("cannot find the way out: the trace has no NodeUnpublishVolume")?;
        let (way_in, way_out) = acts.split_at(turn);
        Ok(Bare { client: NodeClient::new(channel), way_in: way_in.to_vec(), way_out: way_out.to_vec() })
    }

    /// The number of its calls and mounts, for people.
    pub(crate) fn describe(&self) -> String {
        let all = || self.way_in.iter().chain(&self.way_out);
        let calls = all().filter(|act| !act.is_file()).count();
        format!("{calls} calls over one connection, {} changes to the tree", all().count() - calls)
    }

    /// In and out once.
    pub(crate) async fn round(&mut self) -> Result<Round> {
        let begin = Instant::now();
        for act in &self.way_in {
            act.perform(&mut self.client).await?;
        }
        let way_in = begin.elapsed();
        let begin = Instant::now();
        for act in &self.way_out {
            act.perform(&mut self.client).await?;
        }
        Ok(Round { way_in, way_out: begin.elapsed() })
    }
}

impl Act {
    fn is_file(&self) -> bool {
        matches!(self, Act::MakeDirectory(_) | Act::Write(_) | Act::Remove(_))
    }

    async fn perform(&self, client: &mut NodeClient<Channel>) -> Result<()> {
        match self.clone() {
            Act::Capabilities(request) => _ = client.node_get_capabilities(request).await?,
            Act::Stage(request) => _ = client.node_stage_volume(request).await?,
            Act::Publish(request) => _ = client.node_publish_volume(request).await?,
            Act::Unpublish(request) => _ = client.node_unpublish_volume(request).await?,
            Act::Unstage(request) => _ = client.node_unstage_volume(request).await?,
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
