//! The files of one file system, without those of mounts on it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Adds every file and directory below `top`. A `mounted` path is added, but neither entered nor opened: it shows
/// another file system, which may hang.
pub(super) fn collect(top: &Path, mounted: &BTreeSet<&Path>, files: &mut BTreeSet<PathBuf>) {
    let mut pending = vec![top.to_owned()];
    while let Some(dir) = pending.pop() {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            // The kind comes with the directory's entry: a stat of the file could hang.
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_dir && !mounted.contains(path.as_path()) {
                pending.push(path.clone());
            }
            files.insert(path);
        }
    }
}
