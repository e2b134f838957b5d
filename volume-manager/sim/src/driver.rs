//! A simulated CSI driver: honest and idempotent, on the simulated kernel, reached in memory. What goes wrong
//! with it goes wrong as with real ones: calls fail before or after their work, stall, hang, break off.

mod controller;
mod service;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contracts::event::{Actor, Event, ProcessEdge, RpcEnd, RpcStart};
use csi_proto::v1;
use csi_proto::v1::node_service_capability::rpc::Type as Capability;
use csi_proto::v1::volume_capability::AccessType;
use fastrand::Rng;
use host::errno::Errno;
use host::fake::FakeKernel;
use prost::Message;
use serde_json::Value;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tonic::{Code, Response, Status};

use crate::trace::Trace;

/// Its name.
pub(crate) const NAME: &str = "sim.csi.volproof.dev";
/// Where it would listen.
pub(crate) const SOCKET: &str = "/var/lib/kubelet/plugins/sim.csi.volproof.dev/csi.sock";
/// How large its volumes are.
pub(crate) const SIZE: u64 = 1 << 30;

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
    attached: bool,
    size: u64,
    /// It was not to be grown as it was used.
    refused: bool,
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
        self.open().volumes.insert(id.to_owned(), Volume { size: SIZE, ..Volume::default() });
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

    /// What it still holds: staged and published paths, and what it has attached.
    pub(crate) fn holds(&self) -> Vec<String> {
        let inner = self.open();
        let told = |(id, volume): (&String, &Volume)| {
            let staged = volume.staged.iter().map(|at| format!("{id} staged at {}", at.display()));
            let published = volume.published.iter().map(|at| format!("{id} published at {}", at.display()));
            let attached = volume.attached.then(|| format!("{id} attached"));
            staged.chain(published).chain(attached).collect::<Vec<_>>()
        };
        inner.volumes.iter().flat_map(told).collect()
    }

    /// How large a volume is that some pod has, unless it is not to be grown as long as that is so.
    pub(crate) fn size(&self, id: &str) -> Option<u64> {
        let inner = self.open();
        let volume = inner.volumes.get(id)?;
        (!volume.published.is_empty() && !volume.refused).then_some(volume.size)
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
    let service = if method.starts_with("Controller") { "Controller" } else { "Node" };
    format!("/csi.v1.{service}/{method}")
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

    fn expand(&self, request: &v1::NodeExpandVolumeRequest) -> Result<(), Status> {
        let size = request.capacity_range.map_or(0, |range| range.required_bytes.cast_unsigned());
        self.known(&request.volume_id)?;
        let block = is_block(request.volume_capability.as_ref());
        let path = Path::new(&request.volume_path);
        if !block && !self.open().volumes[&request.volume_id].published.contains(path) {
            return Err(Status::internal("the volume is not published there"));
        }
        self.change(&request.volume_id, |volume| {
            volume.size = volume.size.max(size);
            volume.refused = false;
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

impl fmt::Debug for SimulatedDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedDriver").field("holds", &self.holds()).finish()
    }
}
