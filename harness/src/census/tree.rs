//! The files of one file system, without entering what is mounted on it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Adds every file and directory below `top`. Not entered, and not even looked at, is what lies at one of
/// the `mounted` paths: it is another file system, and may not answer.
pub(super) fn collect(top: &Path, mounted: &BTreeSet<&Path>, files: &mut BTreeSet<PathBuf>) {
    let mut open = vec![top.to_owned()];
    while let Some(dir) = open.pop() {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            // The kind comes with the directory's entry; nothing is asked of the file itself.
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_dir && !mounted.contains(path.as_path()) {
                open.push(path.clone());
            }
            files.insert(path);
        }
    }
}
