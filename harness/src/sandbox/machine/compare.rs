//! Finds the changes in a layer by comparing it with the directory below it. Reads both, changes nothing.

use std::fmt;
use std::fs::{self, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::layer::Layer;

/// A file or a directory of the machine that is another than before, as the sandbox sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub path: PathBuf,
    pub change: Change,
}

/// A difference from the machine's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A new file of this size in bytes.
    MadeFile(u64),
    /// A new symbolic link to this path.
    MadeLink(PathBuf),
    /// A new directory with its content.
    MadeDirectory,
    /// The content was written.
    Written,
    /// Something else is at its place.
    Replaced,
    /// The file was removed.
    Removed,
    /// Mode or owner were changed: the old and the new ones.
    Attributes(String, String),
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.change {
            Change::MadeFile(bytes) => write!(f, "made the file `{path}` ({bytes} bytes)"),
            Change::MadeLink(to) => write!(f, "made the link `{path}` to `{}`", to.display()),
            Change::MadeDirectory => write!(f, "made the directory `{path}`"),
            Change::Written => write!(f, "wrote to `{path}`"),
            Change::Replaced => write!(f, "replaced `{path}`"),
            Change::Removed => write!(f, "removed `{path}`"),
            Change::Attributes(from, to) => write!(f, "changed `{path}` from {from} to {to}"),
        }
    }
}

/// The changes in a layer. The content of a new directory is not listed.
pub(super) fn written(layer: &Layer) -> Vec<Written> {
    let held = |fd: &dyn AsRawFd| PathBuf::from(format!("/proc/self/fd/{}/.", fd.as_raw_fd()));
    let (upper, lower) = (held(&layer.upper), held(&layer.lower));
    let mut found = Vec::new();
    let mut add = |path: &Path, change: Change| {
        // Joined with an empty path a directory would end in a slash.
        let path = if path.as_os_str().is_empty() { layer.at.clone() } else { layer.at.join(path) };
        found.push(Written { path, change });
    };
    if let (Ok(now), Ok(before)) = (fs::metadata(&upper), fs::metadata(&lower))
        && let Some(change) = mode_changed(&now, &before)
    {
        add(Path::new(""), change);
    }
    let mut open = vec![PathBuf::new()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(upper.join(&dir)).into_iter().flatten().flatten() {
            let path = dir.join(entry.file_name());
            // A file may go while we look: the driver still runs.
            let Ok(now) = fs::symlink_metadata(upper.join(&path)) else { continue };
            let before = fs::symlink_metadata(lower.join(&path)).ok();
            match change(&now, before.as_ref(), &upper.join(&path), &lower.join(&path)) {
                Some(change) => {
                    let whole = matches!(change, Change::MadeDirectory | Change::Replaced | Change::Removed);
                    add(&path, change);
                    if !whole && now.is_dir() {
                        open.push(path);
                    }
                }
                None if now.is_dir() => open.push(path),
                None => {}
            }
        }
    }
    found
}

/// The difference of a file, if any: a file that was only opened for writing, and so copied, has none.
fn change(now: &Metadata, before: Option<&Metadata>, upper: &Path, lower: &Path) -> Option<Change> {
    let is_whiteout = now.file_type().is_char_device() && now.rdev() == 0;
    match before {
        _ if is_whiteout => before.map(|_| Change::Removed),
        None if now.is_dir() => Some(Change::MadeDirectory),
        None if now.is_symlink() => Some(Change::MadeLink(fs::read_link(upper).unwrap_or_default())),
        None => Some(Change::MadeFile(now.len())),
        Some(before) if before.file_type() != now.file_type() => Some(Change::Replaced),
        Some(before) if now.is_dir() => match is_opaque(upper) {
            true => Some(Change::Replaced),
            false => attributes_changed(now, before),
        },
        Some(_) if now.is_symlink() => {
            (fs::read_link(upper).ok() != fs::read_link(lower).ok()).then_some(Change::Replaced)
        }
        Some(before) => {
            let stamp = |metadata: &Metadata| {
                (metadata.len(), metadata.mtime(), metadata.mtime_nsec(), metadata.rdev())
            };
            match stamp(now) == stamp(before) {
                true => attributes_changed(now, before),
                false => Some(Change::Written),
            }
        }
    }
}

fn attributes_changed(now: &Metadata, before: &Metadata) -> Option<Change> {
    if (now.uid(), now.gid()) != (before.uid(), before.gid()) {
        let owner = |metadata: &Metadata| format!("owner {}:{}", metadata.uid(), metadata.gid());
        return Some(Change::Attributes(owner(before), owner(now)));
    }
    mode_changed(now, before)
}

fn mode_changed(now: &Metadata, before: &Metadata) -> Option<Change> {
    let mode = |metadata: &Metadata| format!("mode {:o}", metadata.mode() & 0o7777);
    (mode(now) != mode(before)).then(|| Change::Attributes(mode(before), mode(now)))
}

/// Whether a directory hides all that was in it before.
fn is_opaque(upper: &Path) -> bool {
    ["trusted.overlay.opaque", "user.overlay.opaque"].iter().any(|name| {
        let mut value = [0_u8; 1];
        rustix::fs::lgetxattr(upper, *name, &mut value).is_ok_and(|length| &value[..length] == b"y")
    })
}
