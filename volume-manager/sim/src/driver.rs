//! A simulated CSI driver: correct and idempotent, on the simulated kernel, called in memory. It fails as real
//! drivers do: calls fail before or after their work, stall, hang or break off.

mod call;
mod controller;
mod fate;
mod groups;
mod making;
mod service;
mod snapshots;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contracts::event::{Event, Lifecycle, ProcessEdge, Role};
use csi_proto::v1;
use csi_proto::v1::node_service_capability::rpc::Type as Capability;
use csi_proto::v1::volume_capability::AccessType;
use host::errno::Errno;
use host::fake::FakeKernel;
use tokio::task::AbortHandle;
use tonic::Status;

use self::fate::Fates;
use crate::crash::Crash;
use crate::script::{Scenario, Tokens};
use crate::trace::Trace;

pub(crate) const NAME: &str = "sim.csi.volproof.dev";
/// Its socket, which is never opened.
pub(crate) const SOCKET: &str = "/var/lib/kubelet/plugins/sim.csi.volproof.dev/csi.sock";
/// The size of new volumes.
pub(crate) const SIZE: u64 = 1 << 30;

/// The driver. Clones are the same driver.
#[derive(Clone)]
pub(crate) struct SimulatedDriver {
    kernel: FakeKernel,
    trace: Trace,
    capabilities: Arc<[Capability]>,
    tokens: Option<Tokens>,
    /// Whether its volumes are for one node at a time.
    one_node: bool,
    crash: Crash,
    /// Decides when the controllers crash.
    controllers: Crash,
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    fates: Fates,
    calls: u64,
    up: bool,
    /// Tasks of its connections and of calls whose caller has gone; they end with the driver.
    tasks: Vec<AbortHandle>,
    /// Volumes with a call under way that excludes others.
    at_work: BTreeSet<String>,
    volumes: BTreeMap<String, Volume>,
    snapshots: BTreeMap<String, Snapshot>,
    /// The snapshots of each group.
    groups: BTreeMap<String, Vec<String>>,
    /// The ids of volumes and snapshots by the names that they were asked for with.
    ids: BTreeMap<String, String>,
    /// The number of volumes and snapshots made so far.
    made: u64,
}

#[derive(Debug, Default)]
struct Volume {
    staged: BTreeSet<PathBuf>,
    published: BTreeSet<PathBuf>,
    /// The nodes that it is attached to.
    attached: BTreeSet<String>,
    size: u64,
    /// Expansion was refused while the volume was in use.
    refused: bool,
    /// Its size for the controller; no node may expand it beyond that.
    granted: u64,
    attributes: BTreeMap<String, String>,
    /// It is gone for all but a node that still has it mounted.
    deleted: bool,
}

#[derive(Debug)]
struct Snapshot {
    source: String,
    size: u64,
    /// The group that it is part of; empty if none.
    group: String,
    /// The number of further calls that are answered with "not ready".
    calls_until_ready: u32,
}

impl SimulatedDriver {
    pub(crate) fn new(
        kernel: FakeKernel,
        trace: Trace,
        scenario: &Scenario,
        crash: Crash,
        controllers: Crash,
    ) -> Self {
        let inner = Inner {
            fates: Fates::new(scenario.seed, scenario.driver_faults),
            calls: 0,
            up: true,
            tasks: Vec::new(),
            at_work: BTreeSet::new(),
            volumes: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            groups: BTreeMap::new(),
            ids: BTreeMap::new(),
            made: 0,
        };
        let capabilities = scenario.capabilities.clone().into();
        let (tokens, one_node) = (scenario.tokens, scenario.one_node);
        let inner = Arc::new(Mutex::new(inner));
        Self { kernel, trace, capabilities, tokens, one_node, crash, controllers, inner }
    }

    /// Creates a volume with this id: a disk, with a filesystem unless it is a block volume.
    pub(crate) fn create(&self, id: &str, block: bool) -> Result<(), Errno> {
        self.kernel.add_disk(id, SIZE)?;
        if !block {
            self.kernel.format(&disk(id), "ext4")?;
        }
        let volume = Volume { size: SIZE, granted: u64::MAX, ..Volume::default() };
        self.open().volumes.insert(id.to_owned(), volume);
        Ok(())
    }

    /// Kills the driver: every call under way breaks off.
    pub(crate) fn kill(&self) {
        let tasks = {
            let mut inner = self.open();
            inner.up = false;
            inner.at_work.clear();
            std::mem::take(&mut inner.tasks)
        };
        tasks.iter().for_each(AbortHandle::abort);
        self.edge(Lifecycle::Kill);
    }

    /// Starts the driver again; it knows what it had mounted.
    pub(crate) fn start(&self) {
        self.open().up = true;
        self.edge(Lifecycle::Start);
    }

    /// Ends all faults of the driver.
    pub(crate) fn heal(&self) {
        self.open().fates.heal();
    }

    /// The stages, publishes and attachments that it still has.
    pub(crate) fn holds(&self) -> Vec<String> {
        let inner = self.open();
        let mounts_of = |(id, volume): (&String, &Volume)| {
            let staged = volume.staged.iter().map(|at| format!("{id} staged at {}", at.display()));
            let published = volume.published.iter().map(|at| format!("{id} published at {}", at.display()));
            let attached = volume.attached.iter().map(|node| format!("{id} attached to {node}"));
            staged.chain(published).chain(attached).collect::<Vec<_>>()
        };
        inner.volumes.iter().flat_map(mounts_of).collect()
    }

    /// The size of a volume that a pod uses, unless its expansion was refused while in use.
    pub(crate) fn size(&self, id: &str) -> Option<u64> {
        let inner = self.open();
        let volume = inner.volumes.get(id)?;
        (!volume.published.is_empty() && !volume.refused).then_some(volume.size)
    }

    fn edge(&self, edge: Lifecycle) {
        self.trace.record(Event::Process(ProcessEdge {
            who: Role::Driver,
            edge,
            status: None,
            root: None,
            hides_driver: false,
        }));
    }

    fn open(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The device file in the staging path of a block volume.
fn staged_device(staging: &Path) -> PathBuf {
    staging.join("device")
}

fn disk(id: &str) -> PathBuf {
    Path::new("/dev").join(id)
}

/// A kernel error as the driver reports it.
fn failed(error: Errno) -> Status {
    Status::internal(format!("the kernel says {error:?}"))
}

impl SimulatedDriver {
    fn stage(&self, request: &v1::NodeStageVolumeRequest) -> Result<(), Status> {
        let at = PathBuf::from(&request.staging_target_path);
        let block = is_block(request.volume_capability.as_ref());
        self.known(&request.volume_id)?;
        if block {
            self.kernel.write_file(&staged_device(&at), b"", 0o600).map_err(failed)?;
        } else if !self.kernel.is_mount_point(&at) {
            let source = disk(&request.volume_id).display().to_string();
            self.kernel.mount(&source, &at, "ext4", &[]).map_err(failed)?;
        }
        self.revive(&at);
        self.change(&request.volume_id, |volume| {
            volume.staged.insert(at);
        });
        Ok(())
    }

    fn unstage(&self, request: &v1::NodeUnstageVolumeRequest) -> Result<(), Status> {
        let at = PathBuf::from(&request.staging_target_path);
        self.was_known(&request.volume_id)?;
        if self.open().volumes[&request.volume_id].published.is_empty() {
            if self.kernel.is_mount_point(&at) {
                self.kernel.unmount(&at, false).map_err(failed)?;
            }
            // There is none where a filesystem was staged.
            let _ = self.kernel.remove_file(&staged_device(&at));
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
        self.accept_tokens(request)?;
        if is_inline(id) {
            return self.publish_inline(request, at);
        }
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
        self.revive(&at);
        self.change(id, |volume| {
            volume.published.insert(at);
        });
        Ok(())
    }

    /// An inline volume is created by its publish and deleted by its unpublish.
    fn publish_inline(&self, request: &v1::NodePublishVolumeRequest, at: PathBuf) -> Result<(), Status> {
        if !request.staging_target_path.is_empty() {
            return Err(Status::invalid_argument("an inline volume is not staged"));
        }
        if !self.kernel.is_mount_point(&at) {
            self.kernel.make_dir_all(&at, 0o755).map_err(failed)?;
            self.kernel.mount("tmpfs", &at, "tmpfs", &[]).map_err(failed)?;
            if request.readonly {
                self.kernel.remount_bind(&at, &["ro"]).map_err(failed)?;
            }
        }
        self.revive(&at);
        self.open().volumes.entry(request.volume_id.clone()).or_default().published.insert(at);
        Ok(())
    }

    fn unpublish(&self, request: &v1::NodeUnpublishVolumeRequest) -> Result<(), Status> {
        let at = PathBuf::from(&request.target_path);
        if !is_inline(&request.volume_id) {
            self.was_known(&request.volume_id)?;
        }
        if self.kernel.is_mount_point(&at) {
            self.kernel.unmount(&at, false).map_err(failed)?;
        }
        // A directory or a file: only that it is gone counts.
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
        if size > self.open().volumes[&request.volume_id].granted {
            return Err(Status::out_of_range("the controller has not expanded the volume"));
        }
        self.change(&request.volume_id, |volume| {
            volume.size = volume.size.max(size);
            volume.refused = false;
        });
        Ok(())
    }

    /// Serves a dead mount again.
    fn revive(&self, at: &Path) {
        // Nothing is mounted where a block volume is staged.
        let _ = self.kernel.mend_filesystem(at);
    }

    fn known(&self, id: &str) -> Result<(), Status> {
        match self.open().volumes.get(id) {
            Some(volume) if !volume.deleted => Ok(()),
            _ => Err(Status::not_found(format!("no volume `{id}`"))),
        }
    }

    /// NOT_FOUND for a volume that was never made. A deleted one is known, so that nodes can undo their part of it.
    fn was_known(&self, id: &str) -> Result<(), Status> {
        match self.open().volumes.contains_key(id) {
            true => Ok(()),
            false => Err(Status::not_found(format!("no volume `{id}`"))),
        }
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut Volume)) {
        if let Some(volume) = self.open().volumes.get_mut(id) {
            change(volume);
        }
    }
}

/// Ids that were not created here: the node makes them for inline volumes.
fn is_inline(id: &str) -> bool {
    id.starts_with("csi-")
}

fn is_block(capability: Option<&v1::VolumeCapability>) -> bool {
    matches!(capability.and_then(|c| c.access_type.as_ref()), Some(AccessType::Block(_)))
}

impl fmt::Debug for SimulatedDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedDriver").field("holds", &self.holds()).finish()
    }
}
