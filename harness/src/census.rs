//! Counts what exists in a sandbox: mounts, loop devices, files and processes, with the processes that hold
//! them.
//!
//! A census is taken before a case and after it; an entry that is only in the second is a leftover. Reads
//! kernel tables and directories, changes nothing, and never asks a file system that might not answer.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::guard;
use crate::loop_device::table::{self, BoundLoop};
use crate::observe::{self, Mount, MountId, ObserveError};
use crate::sandbox::Sandbox;

mod holders;
pub mod process;
mod stuck;
mod tree;

pub use holders::{Holder, Holders, holders_of_loop, holders_of_mount};
pub use process::Process;
pub use stuck::{Stuck, stuck, stuck_in_sandbox};

/// Everything that a case can leave behind in its sandbox, at one moment.
#[derive(Debug, Clone, Default)]
pub struct Census {
    mounts: BTreeMap<MountId, Mount>,
    loops: Vec<BoundLoop>,
    files: BTreeSet<PathBuf>,
    processes: Vec<Process>,
    notes: Vec<String>,
}

impl Census {
    /// Counts what exists in this sandbox now.
    ///
    /// Files are counted below the node's root and below the directories in `more`.
    pub fn take(sandbox: &Sandbox, more: &[&Path]) -> Result<Census, ObserveError> {
        let mut census = Census::of(sandbox.devices())?;
        let root = sandbox.layout().root().to_owned();
        if sandbox.is_shared() {
            census.mounts.retain(|_, mount| mount.target.starts_with(&root));
        }
        for top in std::iter::once(root.as_path()).chain(more.iter().copied()) {
            census.count_files(top);
        }
        Ok(census)
    }

    /// Counts mounts and processes, and the loop devices whose backing files are on one of these devices.
    pub fn of(devices: &[u64]) -> Result<Census, ObserveError> {
        let table = table::bound();
        Ok(Census {
            mounts: observe::snapshot()?.into_iter().map(|mount| (mount.id, mount)).collect(),
            loops: table::lying_on(&table, |bound| devices.contains(&bound.device)),
            files: BTreeSet::new(),
            processes: process::ours(),
            notes: guard::take_notes(),
        })
    }

    /// Counts the files below a directory, too, without entering mounts below it.
    pub fn count_files(&mut self, top: &Path) {
        let mounted: BTreeSet<&Path> = self.mounts.values().map(|mount| mount.target.as_path()).collect();
        tree::collect(top, &mounted, &mut self.files);
    }

    /// The loop devices of the sandbox, the topmost of a stack first.
    pub fn loops(&self) -> &[BoundLoop] {
        &self.loops
    }

    /// The entries of this census that are not in `before`.
    ///
    /// Mounts come youngest first and loop devices topmost first: the order in which they would have to be
    /// removed.
    pub fn leftovers(&self, before: &Census) -> Vec<Leftover> {
        let mut left = Vec::new();
        for mount in self.mounts.values().rev().filter(|mount| !before.mounts.contains_key(&mount.id)) {
            left.push(Leftover::Mount { mount: mount.clone(), held: holders_of_mount(mount) });
        }
        for bound in self.loops.iter().filter(|bound| !before.loops.iter().any(|b| b.is_same(bound))) {
            left.push(Leftover::Loop { bound: bound.clone(), held: holders_of_loop(bound.number) });
        }
        for process in self.processes.iter().filter(|process| !before.processes.contains(process)) {
            left.push(Leftover::Process(process.clone()));
        }
        // A directory that is left is listed without its content.
        let mut listed: Option<&Path> = None;
        for file in self.files.difference(&before.files) {
            if listed.is_none_or(|dir| !file.starts_with(dir)) {
                left.push(Leftover::File(file.clone()));
                listed = Some(file);
            }
        }
        left.extend(self.notes.iter().cloned().map(Leftover::Note));
        left
    }
}

/// A leftover. Displayed as one line with real paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leftover {
    Mount {
        mount: Mount,
        /// The processes, mounts and devices that use it.
        held: Holders,
    },
    Loop {
        bound: BoundLoop,
        /// The processes, mounts and devices that use it.
        held: Holders,
    },
    /// A file, or a directory with its content.
    File(PathBuf),
    Process(Process),
    /// An effect that a guard of the harness could not undo.
    Note(String),
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Leftover::Mount { mount, held } => {
                let shown = mount.rdev.map(|rdev| format!("device {rdev}"));
                let shown = shown.unwrap_or_else(|| match mount.root.to_str() {
                    Some("/") => format!("{} on {}", mount.fstype, mount.source),
                    _ => format!("{} of {}", mount.root.display(), mount.source),
                });
                let word = if mount.root == Path::new("/") { "mount " } else { "bind  " };
                write!(f, "{word} {}  =  {shown}{}", mount.target.display(), Held(held))
            }
            Leftover::Loop { bound, held } => {
                write!(f, "loop   {} is loop{}{}", bound.backing.display(), bound.number, Held(held))
            }
            Leftover::File(path) => write!(f, "file   {}", path.display()),
            Leftover::Process(process) => write!(f, "process {process}"),
            Leftover::Note(note) => f.write_str(note),
        }
    }
}

/// `, held by …`, or nothing.
struct Held<'a>(&'a Holders);

impl fmt::Display for Held<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, ", held by {}", self.0) }
    }
}
