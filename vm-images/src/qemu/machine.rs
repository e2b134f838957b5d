//! Guests of one kind, each started the quickest way there is.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::{Boot, Guest, GuestError};
use crate::protocol::Told;

/// The time for a guest to boot unless another is chosen: it is slow under emulation and on a busy machine.
pub const WITHIN: Duration = Duration::from_secs(120);

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
    pub fn new(boot: Boot, keep: &std::path::Path) -> Self {
        let key = boot.disks.is_empty().then(|| boot.snapshot_key().ok()).flatten();
        Self { snapshot: key.map(|key| keep.join(format!("snapshot-{key}"))), boot, making: Mutex::new(()) }
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
