//! The real kernel. All of its work is done on tokio's blocking threads, and each change is announced from
//! the thread that made it.
//!
//! A thread may have a mount namespace of its own: everything here asks `/proc/thread-self` and never
//! `/proc/self`, and blocking threads inherit the namespace of the runtime's thread that starts them.
//!
//! A call to a server that never answers keeps its thread, and tokio has 512 of them: so many dead servers
//! would be too many, which is why nothing here looks at what it only has to list.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;

use crate::blocking::blocking;
use crate::door::{Bind, Host, OpenedBeneath, Propagation, Removal};
use crate::error::Result;
use crate::file::{DirEntry, FsStats, Metadata, Usage};
use crate::format::{CheckOutcome, DiskContent, Grow, MakeFilesystem};
use crate::mount_table::{MountEntry, MountTable};
use crate::options::{MountOptions, MountSpec};
use crate::ownership::{OwnershipChange, WalkProgress};

mod beneath;
pub(crate) mod command;
mod disk;
mod file;
mod loop_device;
mod mount;
mod mount_point;
mod probe;
mod references;
mod statmount;
mod systemd;
mod walk;

/// The machine this process runs on.
#[derive(Debug, Clone, Default)]
pub struct LinuxHost {
    mounts: Arc<references::Mounts>,
}

impl LinuxHost {
    /// The machine as the calling thread sees it, and the threads of its mount namespace.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, as the manager wants it.
    pub fn shared() -> Arc<dyn Host> {
        Arc::new(Self::new())
    }
}

/// One line a method: own the arguments, then do it over there.
macro_rules! there {
    ($work:path $(, $argument:expr)*) => {
        blocking({
            let arguments = ($($argument.to_owned()),*);
            move || there!(@call $work, arguments $(, $argument)*)
        }).await
    };
    (@call $work:path, $arguments:ident, $a:expr) => { $work(&$arguments) };
    (@call $work:path, $arguments:ident, $a:expr, $b:expr) => { $work(&$arguments.0, &$arguments.1) };
    (@call $work:path, $arguments:ident, $a:expr, $b:expr, $c:expr) => {
        $work(&$arguments.0, &$arguments.1, &$arguments.2)
    };
}

#[async_trait]
impl Host for LinuxHost {
    async fn mount(&self, spec: &MountSpec) -> Result<()> {
        there!(mount::mount, spec)
    }

    async fn bind(&self, bind: &Bind) -> Result<()> {
        there!(mount::bind, bind)
    }

    async fn bind_opened(&self, opened: &OpenedBeneath, target: &Path) -> Result<()> {
        there!(beneath::bind_opened, opened, target)
    }

    async fn remount_bind(&self, _source: &Path, target: &Path, options: &MountOptions) -> Result<()> {
        there!(mount::remount_bind, target, options)
    }

    async fn set_propagation(&self, target: &Path, propagation: Propagation, recursive: bool) -> Result<()> {
        let target = target.to_owned();
        blocking(move || mount::set_propagation(&target, propagation, recursive)).await
    }

    async fn unmount(&self, target: &Path) -> Result<()> {
        // The kernel may wait for a server, and nobody for the kernel: what happens then is not this call's any more.
        let given_up = GivenUp::default();
        let (target, mute) = (target.to_owned(), Arc::clone(&given_up.0));
        blocking(move || mount::unmount(&target, || mute.load(Ordering::Relaxed))).await
    }

    async fn unmount_forced(&self, target: &Path) -> Result<()> {
        there!(mount::unmount_forced, target)
    }

    async fn mount_table(&self) -> Result<MountTable> {
        blocking(mount_point::table).await
    }

    async fn mount_of(&self, path: &Path) -> Result<MountEntry> {
        there!(mount_point::mount_of, path)
    }

    async fn references(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let (mounts, path) = (Arc::clone(&self.mounts), path.to_owned());
        blocking(move || references::references(&mounts, &path)).await
    }

    async fn is_likely_mount_point(&self, path: &Path) -> Result<bool> {
        there!(mount_point::is_likely, path)
    }

    async fn is_mount_point(&self, path: &Path) -> Result<bool> {
        there!(mount_point::is_certain, path)
    }

    async fn make_dir_all(&self, path: &Path, mode: u32) -> Result<()> {
        let path = path.to_owned();
        blocking(move || file::make_dir_all(&path, mode)).await
    }

    async fn make_dir(&self, path: &Path, mode: u32) -> Result<()> {
        let path = path.to_owned();
        blocking(move || file::make_dir(&path, mode)).await
    }

    async fn remove_dir(&self, path: &Path) -> Result<()> {
        there!(file::remove_dir, path)
    }

    async fn remove_file(&self, path: &Path) -> Result<()> {
        there!(file::remove_file, path)
    }

    async fn remove_tree(&self, path: &Path, removal: Removal) -> Result<()> {
        let path = path.to_owned();
        blocking(move || walk::remove::remove_tree(&path, removal)).await
    }

    async fn read_dir(&self, path: &Path) -> Result<Vec<DirEntry>> {
        there!(file::read_dir, path)
    }

    async fn read_file(&self, path: &Path) -> Result<Vec<u8>> {
        there!(file::read_file, path)
    }

    async fn read_end(&self, path: &Path, most: u64) -> Result<Vec<u8>> {
        let path = path.to_owned();
        blocking(move || file::read_end(&path, most)).await
    }

    async fn write_file(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
        let (path, bytes) = (path.to_owned(), bytes.to_owned());
        blocking(move || file::write_file(&path, &bytes, mode)).await
    }

    async fn create_file(&self, path: &Path, mode: u32) -> Result<()> {
        let path = path.to_owned();
        blocking(move || file::create_file(&path, mode)).await
    }

    async fn symlink(&self, target: &Path, link: &Path) -> Result<()> {
        there!(file::symlink, target, link)
    }

    async fn read_link(&self, path: &Path) -> Result<PathBuf> {
        there!(file::read_link, path)
    }

    async fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        there!(file::rename, from, to)
    }

    async fn metadata(&self, path: &Path) -> Result<Metadata> {
        there!(file::metadata, path)
    }

    async fn symlink_metadata(&self, path: &Path) -> Result<Metadata> {
        there!(file::symlink_metadata, path)
    }

    async fn access(&self, path: &Path) -> Result<()> {
        there!(file::access, path)
    }

    async fn chmod(&self, path: &Path, mode: u32) -> Result<()> {
        let path = path.to_owned();
        blocking(move || file::chmod(&path, mode)).await
    }

    async fn lchown(&self, path: &Path, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let path = path.to_owned();
        blocking(move || file::lchown(&path, uid, gid)).await
    }

    async fn canonicalize(&self, path: &Path) -> Result<PathBuf> {
        there!(file::canonicalize, path)
    }

    async fn statfs(&self, path: &Path) -> Result<FsStats> {
        there!(file::statfs, path)
    }

    async fn disk_usage(&self, path: &Path) -> Result<Usage> {
        there!(walk::usage::disk_usage, path)
    }

    async fn change_ownership(
        &self,
        root: &Path,
        change: OwnershipChange,
        progress: &WalkProgress,
    ) -> Result<()> {
        let (root, progress) = (root.to_owned(), progress.clone());
        // A dropped future must not leave a walk of a million files running behind it.
        let stop = StopWhenDropped(progress.clone());
        let result = blocking(move || walk::own::change_ownership(&root, change, &progress)).await;
        stop.disarm();
        result
    }

    async fn open_beneath(&self, base: &Path, sub: &Path) -> Result<OpenedBeneath> {
        there!(beneath::open_beneath, base, sub)
    }

    async fn make_dirs_beneath(&self, base: &Path, sub: &Path, mode: u32) -> Result<()> {
        there!(beneath::make_dirs_beneath, base, sub, mode)
    }

    async fn lock_device(&self, path: &Path) -> Result<PathBuf> {
        there!(loop_device::lock, path)
    }

    async fn find_lock(&self, path: &Path) -> Result<Option<PathBuf>> {
        there!(loop_device::find, path)
    }

    async fn unlock_device(&self, device: &Path) -> Result<()> {
        there!(loop_device::unlock, device)
    }

    async fn device_opened(&self, path: &Path) -> Result<bool> {
        there!(disk::is_opened, path)
    }

    async fn device_size(&self, path: &Path) -> Result<u64> {
        there!(disk::size, path)
    }

    async fn probe_device(&self, device: &Path) -> Result<DiskContent> {
        there!(disk::probe, device)
    }

    async fn check_device(&self, device: &Path) -> Result<CheckOutcome> {
        there!(disk::check, device)
    }

    async fn make_filesystem(&self, make: &MakeFilesystem) -> Result<()> {
        there!(disk::make, make)
    }

    async fn grow_filesystem(&self, grow: &Grow) -> Result<()> {
        there!(disk::grow, grow)
    }

    async fn selinux_enabled(&self) -> bool {
        blocking(probe::selinux_enabled).await
    }

    async fn tmpfs_takes_noswap(&self) -> bool {
        blocking(probe::tmpfs_takes_noswap).await
    }
}

/// Whoever waits for a call. It is true once he does not any more.
#[derive(Default)]
struct GivenUp(Arc<AtomicBool>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct StopWhenDropped(WalkProgress);

impl StopWhenDropped {
    fn disarm(self) {
        std::mem::forget(self);
    }
}

impl Drop for StopWhenDropped {
    fn drop(&mut self) {
        self.0.stop();
    }
}
