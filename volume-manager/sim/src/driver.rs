//! A simulated CSI driver: honest and idempotent, on the simulated kernel, reached in memory. What goes wrong
//! with it goes wrong as with real ones: calls fail before or after their work, stall, hang, break off.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use contracts::event::{Actor, Event, ProcessEdge, RpcEnd, RpcStart};
use csi_proto::v1::node_server::{Node, NodeServer};
use csi_proto::v1::node_service_capability::{Rpc, Type, rpc::Type as Capability};
use csi_proto::v1::volume_capability::AccessType;
use csi_proto::v1::{self, NodeServiceCapability};
use fastrand::Rng;
use host::errno::Errno;
use host::fake::FakeKernel;
use hyper_util::rt::TokioIo;
use prost::Message;
use serde_json::Value;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Response, Status};
use volume_manager::{DialError, Dialer};

use crate::trace::Trace;

/// Its name.
pub(crate) const NAME: &str = "sim.csi.volproof.dev";
/// Where it would listen.
pub(crate) const SOCKET: &str = "/var/lib/kubelet/plugins/sim.csi.volproof.dev/csi.sock";
/// How large its volumes are.
const SIZE: u64 = 1 << 30;

/// Codes after which nobody knows what happened: a driver may answer them after its work is done.
const UNKNOWN: &[Code] =
    &[Code::Cancelled, Code::DeadlineExceeded, Code::Unavailable, Code::ResourceExhausted, Code::Aborted];

/// Codes that say that nothing was done.
const FINAL: &[Code] = &[
    Code::Unknown,
    Code::InvalidArgument,
    Code::NotFound,
    Code::AlreadyExists,
    Code::PermissionDenied,
    Code::FailedPrecondition,
    Code::OutOfRange,
    Code::Unimplemented,
    Code::Internal,
    Code::DataLoss,
    Code::Unauthenticated,
];

/// The driver. Clones are the same driver.
#[derive(Clone)]
pub(crate) struct SimulatedDriver {
    kernel: FakeKernel,
    trace: Trace,
    capabilities: Arc<[Capability]>,
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    random: Rng,
    per_mille: u32,
    calls: u64,
    up: bool,
    /// Connections it serves; they end with it.
    connections: Vec<AbortHandle>,
    volumes: BTreeMap<String, Volume>,
}

#[derive(Debug, Default)]
struct Volume {
    staged: BTreeSet<PathBuf>,
    published: BTreeSet<PathBuf>,
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Work,
    Stall(Duration),
    FailBefore(Code),
    FailAfter(Code),
    HangBefore,
    HangAfter,
}

impl SimulatedDriver {
    pub(crate) fn new(
        kernel: FakeKernel,
        trace: Trace,
        capabilities: &[Capability],
        seed: u64,
        per_mille: u32,
    ) -> Self {
        let inner = Inner {
            random: Rng::with_seed(seed ^ 0xd00d),
            per_mille,
            calls: 0,
            up: true,
            connections: Vec::new(),
            volumes: BTreeMap::new(),
        };
        Self { kernel, trace, capabilities: capabilities.into(), inner: Arc::new(Mutex::new(inner)) }
    }

    /// Makes a volume with this id: a disk, with a file system unless it is to be a device.
    pub(crate) fn create(&self, id: &str, block: bool) -> Result<(), Errno> {
        self.kernel.add_disk(id, SIZE)?;
        if !block {
            self.kernel.format(&disk(id), "ext4")?;
        }
        self.open().volumes.insert(id.to_owned(), Volume::default());
        Ok(())
    }

    /// Dies: every call in flight breaks off where it stands.
    pub(crate) fn kill(&self) {
        let connections = {
            let mut inner = self.open();
            inner.up = false;
            std::mem::take(&mut inner.connections)
        };
        for connection in connections {
            connection.abort();
        }
        self.edge("kill");
    }

    /// Starts again; what it had mounted is still there, and it knows it.
    pub(crate) fn start(&self) {
        self.open().up = true;
        self.edge("start");
    }

    /// Nothing goes wrong with it any more.
    pub(crate) fn heal(&self) {
        self.open().per_mille = 0;
    }

    /// What it still holds: staged and published paths.
    pub(crate) fn holds(&self) -> Vec<String> {
        let inner = self.open();
        let told = |(id, volume): (&String, &Volume)| {
            let staged = volume.staged.iter().map(|at| format!("{id} staged at {}", at.display()));
            let published = volume.published.iter().map(|at| format!("{id} published at {}", at.display()));
            staged.chain(published).collect::<Vec<_>>()
        };
        inner.volumes.iter().flat_map(told).collect()
    }

    fn edge(&self, edge: &str) {
        self.trace.record(Event::Process(ProcessEdge {
            who: "driver".to_owned(),
            edge: edge.to_owned(),
            status: None,
        }));
    }

    fn open(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One call from its first byte to its last.
    async fn call<Q: Message, R: Message + Default>(
        &self,
        method: &'static str,
        request: &Q,
        work: impl FnOnce(&Self) -> Result<R, Status>,
    ) -> Result<Response<R>, Status> {
        let (id, fate) = {
            let mut inner = self.open();
            inner.calls += 1;
            (inner.calls, inner.fate(method))
        };
        let begun = Instant::now();
        let req = csi_proto::json::request(&path(method), &request.encode_to_vec()).unwrap_or(Value::Null);
        self.trace.record(Event::RpcStart(RpcStart { id, method: method.to_owned(), req, deadline_s: None }));
        // A call that breaks off has an end, too: its caller sees it as unavailable.
        let mut end = End { driver: self, id, method, begun, told: false };
        let answer = self.meet(fate, work).await;
        self.trace.look_at_mounts(Actor::Driver);
        end.tell(answer.as_ref().map(Message::encode_to_vec));
        answer.map(Response::new)
    }

    async fn meet<R>(&self, fate: Fate, work: impl FnOnce(&Self) -> Result<R, Status>) -> Result<R, Status> {
        match fate {
            Fate::Work => work(self),
            Fate::Stall(time) => {
                tokio::time::sleep(time).await;
                work(self)
            }
            Fate::FailBefore(code) => Err(Status::new(code, "as ordered")),
            Fate::FailAfter(code) => {
                work(self)?;
                Err(Status::new(code, "as ordered, after the work"))
            }
            Fate::HangBefore => std::future::pending().await,
            Fate::HangAfter => {
                work(self)?;
                self.trace.look_at_mounts(Actor::Driver);
                std::future::pending().await
            }
        }
    }
}

impl Inner {
    fn fate(&mut self, method: &str) -> Fate {
        if self.per_mille == 0 || self.random.u32(..1000) >= self.per_mille {
            return Fate::Work;
        }
        let undo = method.contains("Un");
        let pick = |random: &mut Rng, codes: &[Code]| codes[random.usize(..codes.len())];
        match self.random.u32(..12) {
            0..4 => Fate::FailBefore(pick(&mut self.random, UNKNOWN)),
            4..6 => Fate::FailBefore(pick(&mut self.random, FINAL)),
            6..8 => Fate::FailAfter(pick(&mut self.random, UNKNOWN)),
            // A driver that fails for certain has done nothing; but undoing twice must be possible.
            8 if undo => Fate::FailAfter(pick(&mut self.random, FINAL)),
            8 => Fate::FailBefore(pick(&mut self.random, FINAL)),
            9 => Fate::HangBefore,
            10 => Fate::HangAfter,
            _ => Fate::Stall(Duration::from_millis(self.random.u64(1..30_000))),
        }
    }
}

/// The end of a call, told once, also when the call is dropped.
struct End<'a> {
    driver: &'a SimulatedDriver,
    id: u64,
    method: &'static str,
    begun: Instant,
    told: bool,
}

impl End<'_> {
    fn tell(&mut self, answer: Result<Vec<u8>, &Status>) {
        self.told = true;
        let (code, message, resp) = match answer {
            Ok(bytes) => {
                let resp = csi_proto::json::response(&path(self.method), &bytes).unwrap_or(Value::Null);
                ("OK".to_owned(), String::new(), resp)
            }
            Err(status) => (code_name(status.code()), status.message().to_owned(), Value::Null),
        };
        self.driver.trace.record(Event::RpcEnd(RpcEnd {
            id: self.id,
            method: self.method.to_owned(),
            code,
            message,
            dur_ms: self.begun.elapsed().as_secs_f64() * 1000.0,
            resp,
            injected: None,
        }));
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        if !self.told {
            self.driver.trace.look_at_mounts(Actor::Driver);
            self.tell(Err(&Status::unavailable("broken off")));
        }
    }
}

/// A code in the spelling of Go, which traces use.
fn code_name(code: Code) -> String {
    match code {
        Code::Cancelled => "Canceled".to_owned(),
        Code::Ok => "OK".to_owned(),
        other => format!("{other:?}"),
    }
}

/// A method as it stands on the wire.
fn path(method: &str) -> String {
    format!("/csi.v1.Node/{method}")
}

fn disk(id: &str) -> PathBuf {
    Path::new("/dev").join(id)
}

/// What the kernel said, as a driver would pass it on.
fn failed(error: Errno) -> Status {
    Status::internal(format!("the kernel says {error:?}"))
}

impl SimulatedDriver {
    fn stage(&self, request: &v1::NodeStageVolumeRequest) -> Result<(), Status> {
        let at = PathBuf::from(&request.staging_target_path);
        let block = is_block(request.volume_capability.as_ref());
        self.known(&request.volume_id)?;
        if !block && !self.kernel.is_mount_point(&at) {
            let source = disk(&request.volume_id).display().to_string();
            self.kernel.mount(&source, &at, "ext4", &[]).map_err(failed)?;
        }
        self.change(&request.volume_id, |volume| {
            volume.staged.insert(at);
        });
        Ok(())
    }

    fn unstage(&self, request: &v1::NodeUnstageVolumeRequest) -> Result<(), Status> {
        let at = PathBuf::from(&request.staging_target_path);
        self.known(&request.volume_id)?;
        if self.open().volumes[&request.volume_id].published.is_empty() {
            if self.kernel.is_mount_point(&at) {
                self.kernel.unmount(&at, false).map_err(failed)?;
            }
            self.change(&request.volume_id, |volume| {
                volume.staged.remove(&at);
            });
            return Ok(());
        }
        Err(Status::failed_precondition("the volume is still published"))
    }

    fn publish(&self, request: &v1::NodePublishVolumeRequest) -> Result<(), Status> {
        let at = PathBuf::from(&request.target_path);
        let id = &request.volume_id;
        self.known(id)?;
        let stages = self.capabilities.contains(&Capability::StageUnstageVolume);
        if stages && self.open().volumes[id].staged.is_empty() {
            return Err(Status::failed_precondition("the volume is not staged"));
        }
        if !self.kernel.is_mount_point(&at) {
            if is_block(request.volume_capability.as_ref()) {
                self.kernel.write_file(&at, b"", 0o600).map_err(failed)?;
                self.kernel.bind(&disk(id), &at, false).map_err(failed)?;
            } else {
                self.kernel.make_dir_all(&at, 0o755).map_err(failed)?;
                if stages {
                    let staged = Path::new(&request.staging_target_path);
                    self.kernel.bind(staged, &at, false).map_err(failed)?;
                } else {
                    let source = disk(id).display().to_string();
                    self.kernel.mount(&source, &at, "ext4", &[]).map_err(failed)?;
                }
            }
            if request.readonly {
                self.kernel.remount_bind(&at, &["ro"]).map_err(failed)?;
            }
        }
        self.change(id, |volume| {
            volume.published.insert(at);
        });
        Ok(())
    }

    fn unpublish(&self, request: &v1::NodeUnpublishVolumeRequest) -> Result<(), Status> {
        let at = PathBuf::from(&request.target_path);
        self.known(&request.volume_id)?;
        if self.kernel.is_mount_point(&at) {
            self.kernel.unmount(&at, false).map_err(failed)?;
        }
        // Whichever it was, a directory or a file; that it is gone is what counts.
        let _ = self.kernel.remove_dir(&at).or_else(|_| self.kernel.remove_file(&at));
        self.change(&request.volume_id, |volume| {
            volume.published.remove(&at);
        });
        Ok(())
    }

    fn known(&self, id: &str) -> Result<(), Status> {
        if self.open().volumes.contains_key(id) {
            return Ok(());
        }
        Err(Status::not_found(format!("no volume `{id}`")))
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut Volume)) {
        if let Some(volume) = self.open().volumes.get_mut(id) {
            change(volume);
        }
    }
}

fn is_block(capability: Option<&v1::VolumeCapability>) -> bool {
    matches!(capability.and_then(|c| c.access_type.as_ref()), Some(AccessType::Block(_)))
}

#[async_trait]
impl Node for SimulatedDriver {
    async fn node_stage_volume(
        &self,
        request: Request<v1::NodeStageVolumeRequest>,
    ) -> Result<Response<v1::NodeStageVolumeResponse>, Status> {
        let request = request.into_inner();
        self.call("NodeStageVolume", &request, |driver| {
            driver.stage(&request).map(|()| v1::NodeStageVolumeResponse {})
        })
        .await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<v1::NodeUnstageVolumeRequest>,
    ) -> Result<Response<v1::NodeUnstageVolumeResponse>, Status> {
        let request = request.into_inner();
        self.call("NodeUnstageVolume", &request, |driver| {
            driver.unstage(&request).map(|()| v1::NodeUnstageVolumeResponse {})
        })
        .await
    }

    async fn node_publish_volume(
        &self,
        request: Request<v1::NodePublishVolumeRequest>,
    ) -> Result<Response<v1::NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        self.call("NodePublishVolume", &request, |driver| {
            driver.publish(&request).map(|()| v1::NodePublishVolumeResponse {})
        })
        .await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<v1::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<v1::NodeUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        self.call("NodeUnpublishVolume", &request, |driver| {
            driver.unpublish(&request).map(|()| v1::NodeUnpublishVolumeResponse {})
        })
        .await
    }

    async fn node_get_volume_stats(
        &self,
        _: Request<v1::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<v1::NodeGetVolumeStatsResponse>, Status> {
        Err(Status::unimplemented("this driver measures nothing"))
    }

    async fn node_expand_volume(
        &self,
        _: Request<v1::NodeExpandVolumeRequest>,
    ) -> Result<Response<v1::NodeExpandVolumeResponse>, Status> {
        Err(Status::unimplemented("volumes of this driver do not grow"))
    }

    async fn node_get_capabilities(
        &self,
        request: Request<v1::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<v1::NodeGetCapabilitiesResponse>, Status> {
        self.call("NodeGetCapabilities", &request.into_inner(), |driver| {
            let claim = |capability: &Capability| NodeServiceCapability {
                r#type: Some(Type::Rpc(Rpc { r#type: *capability as i32 })),
            };
            let capabilities = driver.capabilities.iter().map(claim).collect();
            Ok(v1::NodeGetCapabilitiesResponse { capabilities })
        })
        .await
    }

    async fn node_get_info(
        &self,
        request: Request<v1::NodeGetInfoRequest>,
    ) -> Result<Response<v1::NodeGetInfoResponse>, Status> {
        self.call("NodeGetInfo", &request.into_inner(), |_| {
            Ok(v1::NodeGetInfoResponse { node_id: "node-1".to_owned(), ..Default::default() })
        })
        .await
    }
}

#[async_trait]
impl Dialer for SimulatedDriver {
    async fn dial(&self, endpoint: &Path) -> Result<Channel, DialError> {
        let refused = |source: Box<dyn std::error::Error + Send + Sync>| DialError {
            endpoint: endpoint.to_owned(),
            source,
        };
        let no_listener = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        if !self.open().up {
            return Err(refused(no_listener().into()));
        }
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let incoming = futures::stream::iter([Ok::<_, std::io::Error>(theirs)]);
        let server = Server::builder().add_service(NodeServer::new(self.clone()));
        let serving = tokio::spawn(server.serve_with_incoming(incoming)).abort_handle();
        {
            let mut inner = self.open();
            inner.connections.retain(|connection| !connection.is_finished());
            inner.connections.push(serving);
        }
        let mut ours = Some(ours);
        let connector = tower::service_fn(move |_| {
            let ours = ours.take();
            async move { ours.map(TokioIo::new).ok_or_else(no_listener) }
        });
        let connected = Endpoint::from_static("http://localhost").connect_with_connector(connector).await;
        connected.map_err(|error| refused(Box::new(error)))
    }
}

impl fmt::Debug for SimulatedDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedDriver").field("holds", &self.holds()).finish()
    }
}
