//! Guests of one kind, each started the quickest way there is.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use super::{Boot, Guest, GuestError};
use crate::protocol::Told;

/// The time for a guest to boot unless another is chosen: it is slow under emulation and on a busy machine.
pub const WITHIN: Duration = Duration::from_secs(120);

/// What the names of snapshots begin with.
const SNAPSHOT: &str = "snapshot-";

/// The number of snapshots of other kinds, such as other kernels, that stay beside a new one.
const KEPT: usize = 3;

/// A kind of guest: its boot settings, and the snapshot of a booted one.
#[derive(Debug)]
pub struct Machine {
    boot: Boot,
    /// `None` if guests have disks, which a snapshot does not contain.
    snapshot: Option<PathBuf>,
    /// Held while the snapshot is made, so that it is made once.
    making: Mutex<()>,
}

impl Machine {
    /// Guests like `boot`, kept in the directory `keep`.
    pub fn new(boot: Boot, keep: &Path) -> Self {
        let key = boot.disks.is_empty().then(|| boot.snapshot_key().ok()).flatten();
        Self { snapshot: key.map(|key| keep.join(format!("{SNAPSHOT}{key}"))), boot, making: Mutex::new(()) }
    }

    /// The files and settings of a guest.
    pub fn boot(&self) -> &Boot {
        &self.boot
    }

    /// A guest that has booted: out of the snapshot, which the first one makes, else by a cold boot.
    pub fn start(&self, unwanted: &dyn Fn() -> bool) -> Result<(Guest, Told), GuestError> {
        let Some(snapshot) = &self.snapshot else { return self.cold(unwanted) };
        {
            let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
            if !snapshot.exists() {
                let (guest, _) = self.cold(unwanted)?;
                // Without one every guest boots, and nothing else changes.
                if guest.save(snapshot).is_err() {
                    return self.cold(unwanted);
                }
                tidy(snapshot);
            }
        }
        match Guest::restore(&self.boot, snapshot, unwanted) {
            Err(GuestError::Unwanted) => Err(GuestError::Unwanted),
            Err(_) => {
                // A snapshot that fails once would fail every time.
                let _ = fs::remove_file(snapshot);
                self.cold(unwanted)
            }
            restored => restored,
        }
    }

    /// A guest by a cold boot, even if a snapshot is kept.
    pub fn cold(&self, unwanted: &dyn Fn() -> bool) -> Result<(Guest, Told), GuestError> {
        let within = self.boot.within;
        let (mut guest, hello) = Guest::boot(&self.boot, within, unwanted)?;
        guest.set_clock(within, unwanted)?;
        Ok((guest, hello))
    }
}

/// Removes the oldest snapshots beside one that was just made: each version of a kernel or of volproof has its own. A run
/// whose snapshot is removed boots its guests. A failed removal is ignored: it only costs space.
fn tidy(made: &Path) {
    let beside = made.parent().and_then(|directory| fs::read_dir(directory).ok());
    let mut others: Vec<(SystemTime, PathBuf)> = beside
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(SNAPSHOT) && entry.path() != made)
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    others.sort();
    let excess = others.len().saturating_sub(KEPT);
    others.iter().take(excess).for_each(|(_, path)| drop(fs::remove_file(path)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_snapshots_are_removed_beside_a_new_one() {
        let directory = tempfile::tempdir().unwrap();
        let make = |name: &str, age: u64| {
            let file = fs::File::create(directory.path().join(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(age)).unwrap();
        };
        make("disk", 0);
        (1..=6).for_each(|n| make(&format!("snapshot-{n}"), n));
        tidy(&directory.path().join("snapshot-1"));
        let entries = fs::read_dir(directory.path()).unwrap().flatten();
        let mut left: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left, ["disk", "snapshot-1", "snapshot-4", "snapshot-5", "snapshot-6"]);
    }
}
