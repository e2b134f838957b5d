//! A driver that does nearly nothing, records each call, and answers by its script.

#![expect(clippy::disallowed_methods, reason = "a driver has hands of its own, and no host")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::clock::{Clock as _, TokioClock};
use async_trait::async_trait;
use csi_proto::v1::node_server::{Node, NodeServer};
use csi_proto::v1::node_service_capability::rpc::Type as Capability;
use csi_proto::v1::node_service_capability::{Rpc, Type};
use csi_proto::v1::*;
use plugin_api::{Connection, DialError, Dialer};
use prost::Message;
use tonic::{Code, Request, Response, Status};

use crate::pipe;

/// The recorded lines in order, with the bench's root as `$R`.
#[derive(Debug, Clone)]
pub struct Story {
    root: String,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Story {
    pub fn new(root: &Path) -> Self {
        Self { root: root.display().to_string(), lines: Arc::default() }
    }

    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn push(&self, line: impl AsRef<str>) {
        let line = self.symbolic(line.as_ref());
        self.lines().push(line);
    }

    pub fn symbolic(&self, text: &str) -> String {
        let hash = api::names::VolumeHandle::new("h").hashed();
        text.replace(&self.root, "$R").replace(&hash, "$H")
    }

    /// Everything since the last look.
    pub fn take(&self) -> String {
        std::mem::take(&mut *self.lines()).into_iter().map(|line| line + "\n").collect()
    }
}

/// The answer to a call.
#[derive(Debug, Clone)]
pub enum Answer {
    /// The default: the call works.
    Work,
    Fail(Code),
    /// Fails with this message.
    Say(Code, String),
    /// Does its work, then fails.
    DoAndFail(Code),
    /// The call never ends.
    Hang,
    /// Works, after some time.
    Late(Duration),
    /// The connection breaks in the middle.
    Break,
}

#[derive(Debug, Default)]
struct State {
    capabilities: BTreeSet<i32>,
    answers: BTreeMap<&'static str, VecDeque<Answer>>,
    /// Whether requests are written down in full.
    verbose: bool,
    connections: usize,
    down: bool,
    /// The target of a published device's link.
    device: Option<std::path::PathBuf>,
    stats: NodeGetVolumeStatsResponse,
    info: NodeGetInfoResponse,
}

#[derive(Debug, Clone)]
pub struct ScriptedDriver {
    story: Story,
    state: Arc<Mutex<State>>,
}

impl ScriptedDriver {
    pub fn new(story: Story) -> Self {
        Self { story, state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn can(&self, capabilities: &[Capability]) {
        self.can_all(capabilities.iter().map(|capability| *capability as i32));
    }

    /// Sets its capabilities by numbers, known or unknown.
    pub fn can_all(&self, capabilities: impl IntoIterator<Item = i32>) {
        self.state().capabilities = capabilities.into_iter().collect();
    }

    /// The next calls of a method are answered so.
    pub fn answer(&self, method: &'static str, answers: &[Answer]) {
        self.state().answers.entry(method).or_default().extend(answers.iter().cloned());
    }

    pub fn fail(&self, method: &'static str, code: Code) {
        self.answer(method, &[Answer::Fail(code)]);
    }

    /// Records later requests in full.
    pub fn tell_all(&self) {
        self.state().verbose = true;
    }

    /// Whether the driver has stopped listening.
    pub fn set_down(&self, down: bool) {
        self.state().down = down;
    }

    /// The number of connections so far.
    pub fn connections(&self) -> usize {
        self.state().connections
    }

    /// Publishes later devices as a link to this one.
    pub fn set_device(&self, device: &Path) {
        self.state().device = Some(device.to_owned());
    }

    pub fn set_info(&self, info: NodeGetInfoResponse) {
        self.state().info = info;
    }

    pub fn set_stats(&self, stats: NodeGetVolumeStatsResponse) {
        self.state().stats = stats;
    }

    /// Records the call, does its work unless the script says otherwise, and answers.
    async fn called<Q: Message>(
        &self,
        method: &'static str,
        request: Request<Q>,
        work: impl FnOnce(),
    ) -> Result<(), Status> {
        let has_deadline = request.metadata().contains_key("grpc-timeout");
        assert!(has_deadline, "{method} came without a deadline");
        let (answer, verbose) = {
            let mut state = self.state();
            (state.answers.get_mut(method).and_then(VecDeque::pop_front), state.verbose)
        };
        let mut line = format!("call {method}");
        if verbose && method != "NodeGetCapabilities" {
            let bytes = request.into_inner().encode_to_vec();
            let json = csi_proto::json::request(&format!("/csi.v1.Node/{method}"), &bytes);
            line.push_str(&format!(" {}", json.expect("it was a request of that method")));
        }
        self.story.push(line);
        let fail = |code| Status::new(code, "on order");
        match answer {
            None | Some(Answer::Work) => {
                work();
                Ok(())
            }
            Some(Answer::Fail(code)) => Err(fail(code)),
            Some(Answer::Say(code, message)) => Err(Status::new(code, message)),
            Some(Answer::DoAndFail(code)) => {
                work();
                Err(fail(code))
            }
            Some(Answer::Hang) => std::future::pending().await,
            Some(Answer::Late(time)) => {
                TokioClock.sleep(time).await;
                work();
                Ok(())
            }
            Some(Answer::Break) => panic!("the driver dies here on order"),
        }
    }

    /// Says whether the volume's record is where it must be when a call arrives.
    fn see_record(&self, target: &str) {
        let dir = Path::new(target).parent().expect("targets have parents");
        let seen = if dir.join("vol_data.json").exists() { "with" } else { "without" };
        self.story.push(format!("     {seen} a record beside the target"));
    }
}

#[async_trait]
impl Dialer for ScriptedDriver {
    async fn dial(&self, endpoint: &Path) -> Result<Connection, DialError> {
        {
            let mut state = self.state();
            if state.down {
                return Err(pipe::refused(endpoint));
            }
            state.connections += 1;
        }
        let (pipe, _) = pipe::serve(NodeServer::new(self.clone()));
        pipe.connection(endpoint).await
    }
}

#[async_trait]
impl Node for ScriptedDriver {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Result<Response<NodeStageVolumeResponse>, Status> {
        let path = request.get_ref().staging_target_path.clone();
        assert!(Path::new(&path).is_dir(), "the staging directory exists before the call");
        self.called("NodeStageVolume", request, || {
            if !path.contains("volumeDevices") {
                self.see_record(&path);
            }
        })
        .await?;
        Ok(Response::new(NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        self.called("NodeUnstageVolume", request, || {}).await?;
        Ok(Response::new(NodeUnstageVolumeResponse {}))
    }

    /// Makes the target: a directory, or for a device a link to one.
    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let path = request.get_ref().target_path.clone();
        let parent = Path::new(&path).parent().expect("targets have parents");
        assert!(parent.is_dir(), "the target's parent exists before the call");
        self.called("NodePublishVolume", request, || {
            if path.contains("volumeDevices") {
                let device = self.state().device.clone().unwrap_or_else(|| "/dev/null".into());
                let _ = std::os::unix::fs::symlink(device, &path);
            } else {
                self.see_record(&path);
                let _ = std::fs::create_dir(&path);
            }
        })
        .await?;
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let path = request.get_ref().target_path.clone();
        self.called("NodeUnpublishVolume", request, || {
            let _ = std::fs::remove_dir(&path);
            let _ = std::fs::remove_file(&path);
        })
        .await?;
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        self.called("NodeGetVolumeStats", request, || {}).await?;
        Ok(Response::new(self.state().stats.clone()))
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        self.called("NodeExpandVolume", request, || {}).await?;
        Ok(Response::new(NodeExpandVolumeResponse { capacity_bytes: 1 }))
    }

    async fn node_get_capabilities(
        &self,
        request: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        self.called("NodeGetCapabilities", request, || {}).await?;
        let capability =
            |number: &i32| NodeServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: *number })) };
        let capabilities = self.state().capabilities.iter().map(capability).collect();
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(
        &self,
        request: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        self.called("NodeGetInfo", request, || {}).await?;
        Ok(Response::new(self.state().info.clone()))
    }
}
