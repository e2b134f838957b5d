//! Where else something is mounted: from the kernel's list of mounts, of which only the new ones are asked what they
//! show. Touches nothing.
//!
//! A pod's end asks this for each of its volumes, and reading the whole table takes longer the more volumes the
//! node has. Kernels without the list (before 6.8) have to be read all the same; but then as often as there is
//! somebody who asks after the last reading has begun, and not once for each.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;

use super::{mount_point, statmount};
use crate::error::Result;
use crate::mount_table::{DeviceNumber, MountTable};

/// What was seen last of the mounts of one namespace, for all who ask for them.
#[derive(Debug, Default)]
pub(super) struct Mounts {
    /// How many looks at them were begun.
    begun: AtomicU64,
    last: Mutex<Look>,
}

/// One look at all mounts.
#[derive(Debug, Default)]
struct Look {
    /// Which one it was. None was the first.
    number: u64,
    seen: Seen,
}

#[derive(Debug, Clone)]
enum Seen {
    /// Their unique ids, which no other mount will ever have, and the devices of what they show, which never
    /// change.
    Devices(Arc<[(u64, DeviceNumber)]>),
    /// What a kernel shows that has no such ids.
    Table(MountTable),
}

impl Default for Seen {
    fn default() -> Self {
        Self::Devices(Arc::default())
    }
}

/// Where else what `path` shows is mounted.
pub(super) fn references(mounts: &Mounts, path: &Path) -> Result<Vec<PathBuf>> {
    let found = match mounts.seen()? {
        Seen::Devices(devices) => among(&devices, path),
        Seen::Table(table) => return Ok(table.references(path)),
    };
    match found {
        Ok(found) => Ok(found),
        // It is gone, or one of them may not be looked at: the table leaves out nothing.
        Err(_) => Ok(mount_point::table()?.references(path)),
    }
}

/// Those of the mounts that show the same as `path`.
fn among(devices: &[(u64, DeviceNumber)], path: &Path) -> Result<Vec<PathBuf>, Errno> {
    let own = statmount::shown_at(path)?;
    let root = own.root_at(path);
    let mut found = Vec::new();
    for (id, _) in devices.iter().filter(|(id, device)| *device == own.dev && *id != own.id) {
        match statmount::shown_by(*id) {
            Ok(other) if other.root == root => found.push(other.mount_point),
            // One that has gone since shows nothing.
            Ok(_) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

impl Mounts {
    /// All mounts, as they were at some moment after this was called. Whoever waits for a look that somebody else
    /// has begun meanwhile needs none of his own.
    fn seen(&self) -> Result<Seen> {
        self.seen_since(self.begun.load(Ordering::SeqCst))
    }

    /// The same for somebody who has asked when so many looks had been begun.
    fn seen_since(&self, asked: u64) -> Result<Seen> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.number <= asked {
            let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
            *last = Look { number, seen: last.seen.look_again()? };
        }
        Ok(last.seen.clone())
    }
}

impl Seen {
    fn look_again(&self) -> Result<Self> {
        match self.devices() {
            Ok(devices) => Ok(Self::Devices(devices)),
            Err(_) => Ok(Self::Table(mount_point::table()?)),
        }
    }

    /// The mounts there are now. Those that were seen before are not asked again: ids are given in order.
    fn devices(&self) -> Result<Arc<[(u64, DeviceNumber)]>, Errno> {
        let mut before = match self {
            Self::Devices(devices) => devices.iter().peekable(),
            Self::Table(_) => [].iter().peekable(),
        };
        let mut now = Vec::new();
        for id in statmount::list()? {
            while before.next_if(|(earlier, _)| *earlier < id).is_some() {}
            match before.next_if(|(same, _)| *same == id) {
                Some(known) => now.push(*known),
                None => match statmount::device_of(id) {
                    Ok(device) => now.push((id, device)),
                    // It has gone since.
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
    fn one_look_is_enough_for_all_who_have_waited_for_it() {
        let mounts = Mounts::default();
        let looks_after = |asked| {
            mounts.seen_since(asked).unwrap();
            mounts.begun.load(Ordering::SeqCst)
        };
        assert_eq!(looks_after(0), 1);
        assert_eq!(looks_after(0), 1, "who asked before it began gets what it saw");
        assert_eq!(looks_after(1), 2, "what it saw may be older than the question");
        mounts.seen().unwrap();
        assert_eq!(mounts.begun.load(Ordering::SeqCst), 3);
    }

    /// What older kernels are asked instead, asked here as well.
    #[test]
    fn the_table_has_the_same_mounts_as_the_list() {
        let Ok(devices) = Seen::default().devices() else { return eprintln!("skipped: no listmount here") };
        let scratch = tempfile::tempdir().unwrap();
        let (proc, scratch) = (Path::new("/proc"), scratch.path());
        let table = mount_point::table().unwrap();
        for path in [proc, scratch] {
            assert_eq!(among(&devices, path), Ok(table.references(path)), "{}", path.display());
        }
    }
}
