//! Node calls that a case makes itself: the fields of their requests, their effects that are still to be undone, and the
//! mounts at their paths.
//!
//! Their paths are below the node's root and apart from those of its pods, so that no rule takes them for the node's.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::storage::PersistentSource;
use api::{AccessMode, Volume, VolumeMode};
use harness::census::process::{self, Process};
use harness::driver::Capabilities;
use harness::observe;
use nix::mount::{MntFlags, umount2};
use serde_json::{Value, json};

use super::{Bed, Result, StepError};

/// The time for the kernel to read, to write or to unmount.
const PATIENCE: Duration = Duration::from_secs(20);

/// The time for a driver to undo the effects of a failed case.
const IMPATIENCE: Duration = Duration::from_secs(3);

/// A volume as a case uses it with calls of its own, and how far it got.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeUse {
    pub(crate) handle: String,
    /// The directory of its staging path and its targets.
    pub(crate) directory: PathBuf,
    /// The request that detaches it, if it is attached.
    pub(crate) attached: Option<Value>,
    pub(crate) staged: bool,
    pub(crate) targets: BTreeSet<PathBuf>,
}

impl NodeUse {
    pub(crate) fn staging(&self) -> PathBuf {
        self.directory.join("staging")
    }
}

/// The fields that each request for a volume carries.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) handle: String,
    pub(crate) capability: Value,
    pub(crate) context: Value,
    pub(crate) is_block: bool,
}

/// Counts of a driver's kernel resources, and its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriverSize {
    pub descriptors: usize,
    pub threads: usize,
    pub processes: usize,
    /// Private memory, in MiB.
    pub megabytes: usize,
}

impl Bed {
    /// The time limit of an undisturbed call.
    pub(crate) fn patience_of_a_call(&self) -> Duration {
        let usual = self.limit.div_f64(2.0).min(Duration::from_secs(10));
        usual.max(self.slowness(&self.journal)).min(self.limit)
    }

    /// Counts the resources of the driver's process, and the processes beside it.
    pub(crate) fn driver_size(&self) -> Result<DriverSize> {
        let pid = self.driver().try_lock().ok().and_then(|driver| driver.pid());
        let pid = pid.ok_or_else(|| StepError::Ours(vec!["the driver has no process".to_owned()]))?;
        let count = |what: &str| std::fs::read_dir(format!("/proc/{pid}/{what}")).map(Iterator::count);
        let ours = |error: std::io::Error| StepError::ours(&error);
        let mut processes = self.driver_processes();
        processes.retain(|process| !process.zombie);
        // Zombies count, too: a process that its parent has not waited for keeps its number for ever. A control
        // group does not list them.
        let is_of_driver = |dead: &Process| {
            dead.parent == pid.as_raw() || processes.iter().any(|process| process.pid == dead.parent)
        };
        let dead = process::all().iter().filter(|process| process.zombie && is_of_driver(process)).count();
        let processes = processes.len() + dead;
        let (descriptors, threads) = (count("fd").map_err(ours)?, count("task").map_err(ours)?);
        let megabytes = megabytes_of(pid).map_err(ours)?;
        Ok(DriverSize { descriptors, threads, processes, megabytes })
    }

    /// The number of files and directories below the driver's state directory.
    pub(crate) fn driver_files(&self) -> Result<usize> {
        let mut todo = vec![self.layout.driver_state()];
        let mut found = 0;
        while let Some(directory) = todo.pop() {
            // A directory that is removed meanwhile does not count.
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

    /// The fields that a node would send.
    pub(crate) fn asked_of(&self, volume: &str) -> Result<Asked> {
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
            Some(AccessMode::ReadWriteOncePod) if self.tells_writers_apart() => "SINGLE_NODE_SINGLE_WRITER",
            Some(AccessMode::ReadWriteOnce) if self.tells_writers_apart() => "SINGLE_NODE_MULTI_WRITER",
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
        Ok(Asked { handle, capability, context, is_block })
    }

    /// Whether the driver distinguishes volumes for one pod from volumes for several pods of a node.
    pub(crate) fn tells_writers_apart(&self) -> bool {
        self.abilities.says.node_can("SINGLE_NODE_MULTI_WRITER")
    }

    /// The capabilities that the driver reports.
    pub(crate) fn says(&self) -> &Capabilities {
        &self.abilities.says
    }

    /// Whether volumes may grow while a pod has them.
    pub(crate) fn grows_online(&self) -> bool {
        self.says().plugin.contains("ONLINE")
    }

    /// The directory of the staging path and the targets of a volume.
    pub(crate) fn node_use_directory(&self, volume: &str) -> PathBuf {
        self.layout.root().join("by-hand").join(volume)
    }

    /// Undoes the node calls that a case has left, as a node would that knows of them. After a failed case it
    /// removes all leftovers without reporting them.
    pub(super) async fn undo_node_calls(&self, failed: bool) -> Vec<String> {
        let uses = self.made.node_uses.take();
        let mut left = Vec::new();
        // A driver that has stopped to answer is not waited for long.
        let limit = if failed { IMPATIENCE } else { PATIENCE };
        if tokio::time::timeout(limit, self.ask_to_undo(&uses, &mut left)).await.is_err() {
            left.push(format!("node calls of the case were not undone within {} s", limit.as_secs()));
        }
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

    async fn ask_to_undo(&self, uses: &Uses, left: &mut Vec<String>) {
        for (volume, used) in uses {
            for (method, request) in undoing(used) {
                match self.call(method, request).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(status)) => left.push(format!("{method} of {volume}: {}", status.message())),
                    Err(_) => left.push(format!("{method} of {volume} was not answered")),
                }
            }
        }
    }
}

/// The private memory of a process. Shared pages depend on other users of the machine.
fn megabytes_of(pid: nix::unistd::Pid) -> std::io::Result<usize> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let own = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = own.and_then(|own| own.trim().trim_end_matches(" kB").parse::<usize>().ok());
    Ok(kilobytes.unwrap_or(0) / 1024)
}

type Uses = BTreeMap<String, NodeUse>;

/// The calls that undo the effects, the last one first.
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
        // Another may have gone with it.
        let _ = umount2(&mount.target, MntFlags::MNT_DETACH);
    }
}

/// Removes a directory, but nothing that is still mounted in it.
fn remove_below(directory: &Path) {
    let is_free = |mounts: &[observe::Mount]| !mounts.iter().any(|mount| mount.target.starts_with(directory));
    if observe::snapshot().is_ok_and(|mounts| is_free(&mounts)) {
        drop(std::fs::remove_dir_all(directory));
    }
}

/// Has a thread of its own do what the kernel may never answer.
pub(crate) async fn in_time<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    match tokio::time::timeout(PATIENCE, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(panicked)) => Err(StepError::ours(&panicked)),
        Err(_) => {
            Err(StepError::Broken(vec![format!("{what} did not end within {} s.", PATIENCE.as_secs())]))
        }
    }
}
