//! A directory of the simulated kernel: a name is found as fast among many as among few, as in the kernel's cache of
//! names. Touches nothing real.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};

use rustc_hash::FxBuildHasher;

use super::tree::Ino;
use crate::file::FileKind;

/// The names in a directory, each with its inode.
#[derive(Debug, Default)]
pub(super) struct Directory {
    names: HashMap<OsString, Ino, FxBuildHasher>,
    subdirectories: u64,
}

impl Directory {
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Number of directories in it.
    pub(super) fn subdirectories(&self) -> u64 {
        self.subdirectories
    }

    pub(super) fn get(&self, name: &OsStr) -> Option<Ino> {
        self.names.get(name).copied()
    }

    /// Adds a name, which must be free.
    pub(super) fn insert(&mut self, name: &OsStr, ino: Ino, kind: FileKind) {
        self.names.insert(name.to_owned(), ino);
        self.subdirectories += u64::from(kind == FileKind::Directory);
    }

    /// Takes out a name, which must be there, of a file of this kind.
    pub(super) fn remove(&mut self, name: &OsStr, kind: FileKind) {
        self.names.remove(name);
        self.subdirectories -= u64::from(kind == FileKind::Directory);
    }

    /// All names, sorted.
    pub(super) fn sorted(&self) -> Vec<(&OsStr, Ino)> {
        let mut names: Vec<_> = self.names.iter().map(|(name, ino)| (name.as_os_str(), *ino)).collect();
        names.sort_unstable();
        names
    }
}
