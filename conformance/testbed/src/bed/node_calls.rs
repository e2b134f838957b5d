//! Node calls that a case makes itself: the fields of their requests, the effects that are still to be undone, and the
//! mounts at their paths.
//!
//! Their paths are below the node's root but apart from those of its pods, so that no rule attributes them to the node.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::storage::PersistentSource;
use api::{AccessMode, Volume, VolumeMode};
use harness::census::process::{self, Process};
use harness::driver::Capabilities;
use harness::{facts, load, observe};
use nix::mount::{MntFlags, umount2};
use serde_json::{Value, json};

use super::{Bed, Result, StepError};

/// The time limit of work on the files of a volume, and of each call that undoes one of a case that passed.
const PATIENCE: Duration = Duration::from_secs(20);

/// The time limit of each call that undoes one of a failed case: its driver may have stopped answering.
const IMPATIENCE: Duration = Duration::from_secs(3);

/// The effects on a volume of the calls that a case made itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeUse {
    pub(crate) handle: String,
    /// The directory of its staging path and its targets.
    pub(crate) directory: PathBuf,
    /// The ControllerUnpublishVolume request, if the volume is attached.
    pub(crate) attached: Option<Value>,
    pub(crate) staged: bool,
    pub(crate) targets: BTreeSet<PathBuf>,
}

impl NodeUse {
    pub(crate) fn staging(&self) -> PathBuf {
        self.directory.join("staging")
    }
}

/// The fields that every request for a volume carries.
#[derive(Debug, Clone)]
pub(crate) struct VolumeFields {
    pub(crate) handle: String,
    pub(crate) capability: Value,
    pub(crate) context: Value,
    pub(crate) is_block: bool,
}

/// The number of a driver's kernel resources, and its memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DriverSize {
    pub descriptors: usize,
    pub threads: usize,
    pub processes: usize,
    /// Private memory, in MiB.
    pub megabytes: usize,
}

impl DriverSize {
    /// Each kind of kernel resource, with its number before and now.
    pub fn beside(&self, before: &Self) -> [(&'static str, usize, usize); 3] {
        [
            ("descriptors", before.descriptors, self.descriptors),
            ("threads", before.threads, self.threads),
            ("processes", before.processes, self.processes),
        ]
    }
}

impl Bed {
    /// Names an inline volume of calls by hand in findings and stories.
    pub(crate) fn name_inline(&self, volume: &str, handle: &str) {
        self.journal.symbols().name_volume(volume, volume, handle);
    }

    /// The time limit of a call that the case does not disturb.
    pub(crate) fn call_limit(&self) -> Duration {
        let usual = self.limit.div_f64(2.0).min(Duration::from_secs(10));
        usual.max(self.slowness(&self.journal)).min(self.limit)
    }

    /// The time limit of a call while a disk or daemon below its volume fails: a driver may wait for that for some time before
    /// it answers.
    pub(crate) fn limit_of_disturbed_call(&self) -> Duration {
        self.call_limit().max(self.limit.div_f64(2.0))
    }

    /// Counts the resources of the driver's services, and the driver's processes.
    pub(crate) fn driver_size(&self) -> Result<DriverSize> {
        let services = self.driver().try_lock().map(|driver| driver.pids()).unwrap_or_default();
        if services.is_empty() {
            return Err(StepError::Ours(vec!["the driver has no process".to_owned()]));
        }
        let ours = |error: std::io::Error| StepError::ours(&error);
        let mut processes = self.driver_processes();
        processes.retain(|process| !process.zombie);
        // A zombie counts, too: its number is in use until its parent waits for it. The processes of a control group do
        // not show it, so the zombies are looked for among all processes.
        let is_of_driver = |dead: &Process| {
            services.iter().any(|pid| dead.parent == pid.as_raw())
                || processes.iter().any(|process| process.pid == dead.parent)
        };
        let dead = process::all().iter().filter(|process| process.zombie && is_of_driver(process)).count();
        let processes = processes.len() + dead;
        let mut size = DriverSize { processes, ..DriverSize::default() };
        for pid in services {
            size.descriptors += entries_of(pid, "fd").map_err(ours)?;
            size.threads += entries_of(pid, "task").map_err(ours)?;
            size.megabytes += megabytes_of(pid).map_err(ours)?;
        }
        Ok(size)
    }

    /// The number of files and directories below the driver's state directory.
    pub(crate) fn driver_files(&self) -> Result<usize> {
        let mut todo = vec![self.layout.driver_state()];
        let mut found = 0;
        while let Some(directory) = todo.pop() {
            // The driver may have removed the directory meanwhile.
            let Ok(entries) = std::fs::read_dir(&directory) else { continue };
            for entry in entries.flatten() {
                found += 1;
                todo.extend(entry.file_type().is_ok_and(|kind| kind.is_dir()).then(|| entry.path()));
            }
        }
        match found {
            0 => Err(StepError::Ours(vec!["the driver's directory is empty".to_owned()])),
            found => Ok(found),
        }
    }

    /// The fields of a volume that a node would send in its requests.
    pub(crate) fn volume_fields(&self, volume: &str) -> Result<VolumeFields> {
        let made = self.made.volumes.borrow().get(volume).map(|made| made.volume.clone()).unwrap_or_default();
        let object = self.api_server.get::<Volume>("", &made);
        let object = object.ok_or_else(|| StepError::Ours(vec![format!("there is no volume `{volume}`")]))?;
        let PersistentSource::Csi(source) = &object.source else {
            return Err(StepError::Ours(vec![format!("`{volume}` is no volume of the driver")]));
        };
        let is_block = object.mode == Some(VolumeMode::Block);
        let access = match object.access_modes.first() {
            Some(AccessMode::ReadWriteMany) => "MULTI_NODE_MULTI_WRITER",
            Some(AccessMode::ReadOnlyMany) => "MULTI_NODE_READER_ONLY",
            Some(AccessMode::ReadWriteOncePod) if self.distinguishes_writers() => "SINGLE_NODE_SINGLE_WRITER",
            Some(AccessMode::ReadWriteOnce) if self.distinguishes_writers() => "SINGLE_NODE_MULTI_WRITER",
            _ => "SINGLE_NODE_WRITER",
        };
        let mut capability = json!({ "accessMode": { "mode": access } });
        match is_block {
            true => capability["block"] = json!({}),
            false => {
                capability["mount"] = json!({ "fsType": source.fs_type, "mountFlags": object.mount_options });
            }
        }
        let (handle, context) = (source.handle.to_string(), json!(source.attributes));
        Ok(VolumeFields { handle, capability, context, is_block })
    }

    /// Whether the driver distinguishes volumes for one pod from volumes for several pods of a node.
    pub(crate) fn distinguishes_writers(&self) -> bool {
        self.capabilities().node_can("SINGLE_NODE_MULTI_WRITER")
    }

    /// The capabilities that the driver reports.
    pub(crate) fn capabilities(&self) -> &Capabilities {
        &self.abilities.says
    }

    /// Whether the driver expands a volume while it is published.
    pub(crate) fn grows_online(&self) -> bool {
        self.capabilities().plugin.contains("ONLINE")
    }

    /// The directory of the staging path and the targets of a volume.
    pub(crate) fn node_use_directory(&self, volume: &str) -> PathBuf {
        self.layout.root().join("by-hand").join(volume)
    }

    /// Undoes the node calls whose effects a case has left, and returns the errors. After a failed case it also
    /// unmounts what is left, and returns none.
    pub(super) async fn undo_node_calls(&self, failed: bool) -> Vec<String> {
        let uses = self.made.node_uses.take();
        let mut left = Vec::new();
        self.call_undo(&uses, if failed { IMPATIENCE } else { PATIENCE }, &mut left).await;
        for used in uses.values() {
            if failed {
                unmount_below(&used.directory);
            }
            remove_below(&used.directory);
        }
        if failed {
            left.clear();
        }
        drop(std::fs::remove_dir(self.layout.root().join("by-hand")));
        left
    }

    /// Makes the calls, up to the first that is not answered within the limit. A call may be refused if nothing is mounted at
    /// its path: what it would undo may have failed.
    async fn call_undo(&self, uses: &Uses, limit: Duration, left: &mut Vec<String>) {
        for (volume, used) in uses {
            for (method, request) in undoing(used) {
                let path = request["targetPath"].as_str().or(request["stagingTargetPath"].as_str());
                let path = path.map(PathBuf::from);
                let is_undone = |path: &Path| mounts_at(path).is_ok_and(|mounts| mounts.is_empty());
                match tokio::time::timeout(limit, self.call(method, request)).await {
                    Ok(Ok(Ok(_))) => {}
                    Ok(Ok(Err(_))) if path.as_deref().is_some_and(is_undone) => {}
                    Ok(Ok(Err(status))) => left.push(format!("{method} of {volume}: {}", status.message())),
                    Ok(Err(_)) | Err(_) => {
                        return left.push(format!("{method} of {volume} was not answered"));
                    }
                }
            }
        }
    }
}

/// The number of entries in a directory of a process below `/proc`.
fn entries_of(pid: nix::unistd::Pid, directory: &str) -> std::io::Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{pid}/{directory}"))?.count())
}

/// The private memory of a process, in MiB. Shared pages are left out: their number depends on other processes.
fn megabytes_of(pid: nix::unistd::Pid) -> std::io::Result<usize> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let own = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = own.and_then(|own| own.trim().trim_end_matches(" kB").parse::<usize>().ok());
    Ok(kilobytes.unwrap_or(0) / 1024)
}

type Uses = BTreeMap<String, NodeUse>;

/// The calls that undo the effects on a volume, the last effect first.
fn undoing(used: &NodeUse) -> Vec<(&'static str, Value)> {
    let unpublish = used
        .targets
        .iter()
        .map(|target| ("NodeUnpublishVolume", json!({ "volumeId": used.handle, "targetPath": target })));
    let unstage = used.staged.then(|| {
        ("NodeUnstageVolume", json!({ "volumeId": used.handle, "stagingTargetPath": used.staging() }))
    });
    let detach = used.attached.clone().map(|request| ("ControllerUnpublishVolume", request));
    unpublish.chain(unstage).chain(detach).collect()
}

/// The options of each mount exactly at a path, the first at the bottom.
pub(crate) fn mounts_at(path: &Path) -> Result<Vec<String>> {
    let mounts = observe::snapshot().map_err(|error| StepError::ours(&error))?;
    let there = mounts.into_iter().filter(|mount| mount.target == path);
    Ok(there.map(|mount| format!("{},{}", mount.opts, mount.super_opts)).collect())
}

fn unmount_below(directory: &Path) {
    let Ok(mounts) = observe::snapshot() else { return };
    let below = mounts.iter().rev().filter(|mount| mount.target.starts_with(directory));
    for mount in below {
        // An error is ignored: an earlier detach may have taken this mount along.
        let _ = umount2(&mount.target, MntFlags::MNT_DETACH);
    }
}

/// Removes a directory, unless something is still mounted in it.
fn remove_below(directory: &Path) {
    let is_free = |mounts: &[observe::Mount]| !mounts.iter().any(|mount| mount.target.starts_with(directory));
    if observe::snapshot().is_ok_and(|mounts| is_free(&mounts)) {
        drop(std::fs::remove_dir_all(directory));
    }
}

/// Does blocking work on a thread of its own, and waits for it at most for [`PATIENCE`], longer on a machine that is
/// overloaded: a call to the kernel may hang.
pub(crate) async fn in_time<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    // A guest does not show how busy its machine is, nor that it emulates the guest.
    let limit = if facts::in_guest() { PATIENCE * 3 } else { PATIENCE };
    match load::within(limit, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(panicked)) => Err(StepError::ours(&panicked)),
        Err(late) if late.is_cut_short => Err(StepError::Environment(vec![late.to_string()])),
        Err(_) => Err(StepError::Broken(vec![format!("{name} did not end within {} s.", limit.as_secs())])),
    }
}
