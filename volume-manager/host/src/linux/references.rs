//! Other mounts of a directory or file, and mounts that no server is behind, from the kernel's list of mount ids. Only ids
//! that are new since the last look are queried. Touches nothing, not even the path that is asked about, before it is known
//! that no server is behind it.
//!
//! When a pod ends this is called for each of its volumes, and reading the whole table takes longer the more
//! volumes the node has. Kernels before 6.8 have no such list and the table must be read; callers that wait for
//! one reading share it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;

use super::{mount_point, statmount};
use crate::error::Result;
use crate::mount_table::{DeviceNumber, MountTable};

/// The latest look at the mounts of one namespace, shared by all callers.
#[derive(Debug, Default)]
pub(super) struct Mounts {
    /// Number of looks that were begun.
    begun: AtomicU64,
    last: Mutex<Look>,
}

/// The result of one look at all mounts.
#[derive(Debug, Default)]
struct Look {
    /// From 1; 0 before the first look.
    number: u64,
    seen: Seen,
}

#[derive(Debug, Clone)]
enum Seen {
    /// Sorted by id.
    Mounts(Arc<[Known]>),
    /// On a kernel without unique ids.
    Table(MountTable),
}

/// What is kept of a mount.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// Unique, and never reused.
    id: u64,
    /// That of the file system, which never changes.
    device: DeviceNumber,
    /// Tells mount points apart. The mount may have been moved since.
    place: u64,
}

fn place_of(mount_point: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    mount_point.hash(&mut hasher);
    hasher.finish()
}

impl Default for Seen {
    fn default() -> Self {
        Self::Mounts(Arc::default())
    }
}

/// Mount points of the other mounts of the directory or file that `path` shows.
pub(super) fn references(mounts: &Mounts, path: &Path) -> Result<Vec<PathBuf>> {
    let found = match mounts.seen()? {
        Seen::Mounts(mounts) => references_among(&mounts, path),
        Seen::Table(table) => return Ok(table.references(path)),
    };
    match found {
        Ok(found) => Ok(found),
        // The path is gone, or a mount may not be queried. The table lists every mount.
        Err(_) => Ok(mount_point::table()?.references(path)),
    }
}

/// Mount points among `mounts` that show the same directory or file as `path`.
fn references_among(mounts: &[Known], path: &Path) -> Result<Vec<PathBuf>, Errno> {
    let own = statmount::shown_at(path)?;
    let root = own.root_at(path);
    let mut found = Vec::new();
    for other in mounts.iter().filter(|other| other.device == own.dev && other.id != own.id) {
        match statmount::shown_by(other.id) {
            Ok(other) if other.root == root => found.push(other.mount_point),
            // NOENT: unmounted since.
            Ok(_) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

impl Mounts {
    /// Whether one mount is at `path`, of a file system that answers for itself. The way there must be free of links and of
    /// other mounts. False if in doubt.
    pub(super) fn is_local(&self, path: &Path) -> bool {
        let Ok(Seen::Mounts(mounts)) = self.seen() else { return false };
        let place = place_of(path);
        let mut there = mounts.iter().filter(|mount| mount.place == place);
        match (there.next(), there.next()) {
            (Some(only), None) => statmount::is_local_at(only.id, path),
            _ => false,
        }
    }

    /// All mounts as of some moment after the call. A caller that waits for the lock while another begins a look
    /// uses that look.
    fn seen(&self) -> Result<Seen> {
        self.seen_since(self.begun.load(Ordering::SeqCst))
    }

    /// As [`Self::seen`], for a caller that came when this number of looks had been begun.
    fn seen_since(&self, begun: u64) -> Result<Seen> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.number <= begun {
            let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
            *last = Look { number, seen: last.seen.look_again()? };
        }
        Ok(last.seen.clone())
    }
}

impl Seen {
    fn look_again(&self) -> Result<Self> {
        match self.mounts() {
            Ok(mounts) => Ok(Self::Mounts(mounts)),
            Err(_) => Ok(Self::Table(mount_point::table()?)),
        }
    }

    /// The current mounts. Both lists are sorted by id, so a known mount is found without querying it again.
    fn mounts(&self) -> Result<Arc<[Known]>, Errno> {
        let mut before = match self {
            Self::Mounts(mounts) => mounts.iter().peekable(),
            Self::Table(_) => [].iter().peekable(),
        };
        let mut now = Vec::new();
        for id in statmount::list()? {
            while before.next_if(|earlier| earlier.id < id).is_some() {}
            match before.next_if(|same| same.id == id) {
                Some(known) => now.push(*known),
                None => match statmount::shown_by(id) {
                    Ok(new) => now.push(Known { id, device: new.dev, place: place_of(&new.mount_point) }),
                    // Unmounted since.
                    Err(Errno::NOENT) => {}
                    Err(error) => return Err(error),
                },
            }
        }
        Ok(now.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_callers_share_a_look() {
        let mounts = Mounts::default();
        let looks_after = |begun| {
            mounts.seen_since(begun).unwrap();
            mounts.begun.load(Ordering::SeqCst)
        };
        assert_eq!(looks_after(0), 1);
        assert_eq!(looks_after(0), 1, "the caller came before the first look began and shares it");
        assert_eq!(looks_after(1), 2, "the first look may be older than the call");
        mounts.seen().unwrap();
        assert_eq!(mounts.begun.load(Ordering::SeqCst), 3);
    }

    /// The fallback for older kernels is called on this kernel too.
    #[test]
    fn table_and_list_give_the_same_references() {
        let Ok(mounts) = Seen::default().mounts() else { return eprintln!("skipped: no listmount here") };
        let scratch = tempfile::tempdir().unwrap();
        let (proc, scratch) = (Path::new("/proc"), scratch.path());
        let table = mount_point::table().unwrap();
        for path in [proc, scratch] {
            assert_eq!(references_among(&mounts, path), Ok(table.references(path)), "{}", path.display());
        }
    }
}
