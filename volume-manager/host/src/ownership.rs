//! Parameters and progress of an ownership walk. Touches nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::file::{FileKind, Metadata};

/// The change that a walk makes to each entry of a tree (06 §8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnershipChange {
    /// New group of every entry. The owner stays.
    pub gid: u32,
    /// Whether pods get the volume read-only: then its files become at least 0440 instead of 0660.
    pub read_only: bool,
}

impl OwnershipChange {
    /// New mode of an entry. Links have none; directories become setgid and executable by owner and group.
    pub fn mode_of(&self, kind: FileKind, mode: u32) -> Option<u32> {
        let wanted = mode | if self.read_only { 0o440 } else { 0o660 };
        match kind {
            FileKind::Symlink => None,
            FileKind::Directory => Some(wanted | 0o2110),
            _ => Some(wanted),
        }
    }

    /// Whether the root shows that an earlier walk finished (policy OnRootMismatch). A walk changes the root last.
    pub fn root_matches(&self, root: &Metadata) -> bool {
        let required = if self.read_only { 0o550 } else { 0o770 };
        root.is_dir() && root.gid == self.gid && root.mode & 0o2000 != 0 && root.mode & required == required
    }
}

/// Counter and stop flag of a walk, shared between the walk and its caller.
#[derive(Debug, Clone, Default)]
pub struct WalkProgress {
    shared: Arc<(AtomicU64, AtomicBool)>,
}

impl WalkProgress {
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of entries changed so far.
    pub fn entries(&self) -> u64 {
        self.shared.0.load(Ordering::Relaxed)
    }

    /// Makes the walk end before its next entry, with [`crate::HostError::Stopped`].
    pub fn stop(&self) {
        self.shared.1.store(true, Ordering::Relaxed);
    }

    /// Whether a host is to end the walk.
    pub fn is_stopped(&self) -> bool {
        self.shared.1.load(Ordering::Relaxed)
    }

    /// Counts one entry. For hosts.
    pub fn count(&self) {
        self.shared.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount_table::DeviceNumber;

    #[test]
    fn modes_are_widened_and_never_narrowed() {
        let write = OwnershipChange { gid: 7, read_only: false };
        let read = OwnershipChange { gid: 7, read_only: true };
        assert_eq!(write.mode_of(FileKind::File, 0o604), Some(0o664));
        assert_eq!(write.mode_of(FileKind::Directory, 0o755), Some(0o2775));
        assert_eq!(read.mode_of(FileKind::File, 0o600), Some(0o640));
        assert_eq!(read.mode_of(FileKind::Directory, 0o1777), Some(0o3777));
        assert_eq!(write.mode_of(FileKind::Symlink, 0o777), None);
    }

    #[test]
    fn root_matches_only_with_group_setgid_and_all_bits() {
        let change = OwnershipChange { gid: 7, read_only: false };
        let root = |mode, gid| Metadata {
            kind: FileKind::Directory,
            mode,
            uid: 0,
            gid,
            dev: DeviceNumber::default(),
            ino: 1,
            born: None,
            rdev: DeviceNumber::default(),
            nlink: 2,
            size: 0,
        };
        assert!(change.root_matches(&root(0o2775, 7)));
        assert!(!change.root_matches(&root(0o775, 7)), "setgid is missing");
        assert!(!change.root_matches(&root(0o2755, 7)), "the group may not write");
        assert!(!change.root_matches(&root(0o2775, 8)), "another group");
        let read_only = OwnershipChange { read_only: true, ..change };
        assert!(read_only.root_matches(&root(0o2755, 7)));
    }
}
