//! The host on the real kernel. Each change is announced from the thread that made it.
//!
//! Work runs on tokio's blocking threads, since a server that does not answer may hold it for ever. Only the files of the
//! node itself have no such server ([`fence::Fence::is_own`]), and mounts of local file systems in them
//! ([`references::Mounts::is_local`]): a look or a change there is a few short system calls, and takes less time where it is
//! than the way to another thread and back.
//!
//! A thread may have a mount namespace of its own: the code here reads `/proc/thread-self` and never
//! `/proc/self`, and blocking threads inherit the namespace of the runtime's thread that starts them.
//!
//! A call to a server that never answers keeps its thread for ever, and tokio has 512 of them. So listing a
//! directory does not stat its entries.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::blocking::blocking;
use crate::door::{Bind, Host, OpenedBeneath, Propagation, Removal};
use crate::error::{Action, HostError, Result};
use crate::file::{DirEntry, FsStats, Metadata, Usage};
use crate::format::{CheckOutcome, DiskContent, Grow, MakeFilesystem};
use crate::mount_table::{MountEntry, MountTable};
use crate::options::{MountOptions, MountSpec};
use crate::ownership::{OwnershipChange, WalkProgress};

use self::fence::{Fence, Place};

mod beneath;
pub(crate) mod command;
mod disk;
mod fence;
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
    fence: Fence,
    mounts: Arc<references::Mounts>,
    /// The roots of other nodes on this kernel.
    others: Arc<[PathBuf]>,
}

impl LinuxHost {
    /// The machine as seen from the calling thread's mount namespace.
    pub fn new() -> Self {
        Self::default()
    }

    /// The machine of a node whose tree is below `root`. Changes in the tree follow no link in it: a link on the way is
    /// ELOOP.
    pub fn of_node(root: &Path) -> Self {
        Self { fence: Fence::around(root), ..Self::default() }
    }

    /// This machine without the mounts below the roots of other nodes: in a cluster each node has a machine of its own.
    #[must_use]
    pub fn beside(self, others: &[PathBuf]) -> Self {
        Self { others: others.into(), ..self }
    }

    /// Looks at a path, unless it is the node's own and was looked at here.
    async fn look<T: Send + 'static>(&self, own: Option<T>, path: &Path, work: fn(&Path) -> T) -> T {
        match own {
            Some(seen) => seen,
            None if self.is_local_mount(path) => work(path),
            None => {
                let path = path.to_owned();
                blocking(move || work(&path)).await
            }
        }
    }

    /// Whether a mount of a local file system is at a path to which neither a link nor a mount leads.
    fn is_local_mount(&self, path: &Path) -> bool {
        self.fence.is_own_mount_point(path) && self.mounts.is_local(path)
    }

    /// Whether there is no mount at a path of the node's own that is there: so much is known when it is opened.
    fn no_mount_at_own(&self, path: &Path, action: Action) -> Option<Result<bool>> {
        let opened = self.fence.open_own(path, OFlags::PATH)?;
        Some(opened.map(|_| false).map_err(|error| HostError::os(action, path, error)))
    }

    /// Reads what is at a path: here if it is the node's own.
    async fn read<T: Send + 'static>(
        &self,
        path: &Path,
        flags: OFlags,
        work: fn(&Path, Result<OwnedFd, Errno>) -> T,
    ) -> T {
        if let Some(opened) = self.fence.open_own(path, flags) {
            return work(path, opened);
        }
        let path = path.to_owned();
        blocking(move || work(&path, file::open(&path, flags))).await
    }

    /// Changes what is at a path: here if its place is the node's own.
    async fn change<T: Send + 'static>(
        &self,
        path: &Path,
        own: Option<Result<Place, Errno>>,
        work: impl FnOnce(&Path, Result<Place, Errno>) -> T + Send + 'static,
    ) -> T {
        if let Some(place) = own {
            return work(path, place);
        }
        let (fence, path) = (self.fence.clone(), path.to_owned());
        blocking(move || work(&path, fence.place(&path))).await
    }

    /// [`Self::new`] in the form that the manager takes.
    pub fn shared() -> Arc<dyn Host> {
        Arc::new(Self::new())
    }
}

/// Clones the arguments and runs the function on a blocking thread.
macro_rules! on_blocking_thread {
    ($work:path $(, $argument:expr)*) => {
        blocking({
            let arguments = ($($argument.to_owned()),*);
            move || on_blocking_thread!(@call $work, arguments $(, $argument)*)
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
        on_blocking_thread!(mount::mount, spec)
    }

    async fn bind(&self, bind: &Bind) -> Result<()> {
        on_blocking_thread!(mount::bind, bind)
    }

    async fn bind_opened(&self, opened: &OpenedBeneath, target: &Path) -> Result<()> {
        on_blocking_thread!(beneath::bind_opened, opened, target)
    }

    async fn remount_bind(&self, _source: &Path, target: &Path, options: &MountOptions) -> Result<()> {
        on_blocking_thread!(mount::remount_bind, target, options)
    }

    async fn set_propagation(&self, target: &Path, propagation: Propagation, recursive: bool) -> Result<()> {
        let target = target.to_owned();
        blocking(move || mount::set_propagation(&target, propagation, recursive)).await
    }

    async fn unmount(&self, target: &Path) -> Result<()> {
        // The kernel may wait for a dead server long after the caller has dropped this future. From then on the
        // thread must not announce the unmount: `unmount_forced` does.
        let caller = Caller::default();
        let (target, gone) = (target.to_owned(), Arc::clone(&caller.gone));
        blocking(move || mount::unmount(&target, || gone.load(Ordering::Relaxed))).await
    }

    async fn unmount_forced(&self, target: &Path) -> Result<()> {
        on_blocking_thread!(mount::unmount_forced, target)
    }

    async fn mount_table(&self) -> Result<MountTable> {
        blocking(mount_point::table).await
    }

    async fn mount_of(&self, path: &Path) -> Result<MountEntry> {
        let own = self.fence.is_own(path).then(|| mount_point::mount_of(path));
        self.look(own, path, mount_point::mount_of).await
    }

    async fn references(&self, path: &Path) -> Result<Vec<PathBuf>> {
        let mut found = if self.fence.is_own(path) || self.is_local_mount(path) {
            references::references(&self.mounts, path)?
        } else {
            let (mounts, path) = (Arc::clone(&self.mounts), path.to_owned());
            blocking(move || references::references(&mounts, &path)).await?
        };
        found.retain(|reference| !self.others.iter().any(|root| reference.starts_with(root)));
        Ok(found)
    }

    async fn is_likely_mount_point(&self, path: &Path) -> Result<bool> {
        self.look(self.no_mount_at_own(path, Action::Stat), path, mount_point::is_likely).await
    }

    async fn is_mount_point(&self, path: &Path) -> Result<bool> {
        self.look(self.no_mount_at_own(path, Action::Resolve), path, mount_point::is_certain).await
    }

    async fn make_dir_all(&self, path: &Path, mode: u32) -> Result<()> {
        if let Some(made) = file::make_own_dir_all(&self.fence, path, mode) {
            return made;
        }
        let (fence, path) = (self.fence.clone(), path.to_owned());
        blocking(move || file::make_dir_all(&fence, &path, mode)).await
    }

    async fn make_dir(&self, path: &Path, mode: u32) -> Result<()> {
        let own = self.fence.own_place(path);
        self.change(path, own, move |path, place| file::make_dir(path, place, mode)).await
    }

    async fn remove_dir(&self, path: &Path) -> Result<()> {
        self.change(path, self.fence.own_place(path), file::remove_dir).await
    }

    async fn remove_file(&self, path: &Path) -> Result<()> {
        self.change(path, self.fence.own_place(path), file::remove_file).await
    }

    async fn remove_tree(&self, path: &Path, removal: Removal) -> Result<()> {
        let (fence, path) = (self.fence.clone(), path.to_owned());
        blocking(move || walk::remove::remove_tree(&fence, &path, removal)).await
    }

    async fn read_dir(&self, path: &Path) -> Result<Vec<DirEntry>> {
        self.read(path, file::LIST, file::read_dir).await
    }

    async fn read_file(&self, path: &Path) -> Result<Vec<u8>> {
        self.read(path, file::READ, file::read_file).await
    }

    async fn read_end(&self, path: &Path, most: u64) -> Result<Vec<u8>> {
        let path = path.to_owned();
        blocking(move || file::read_end(&path, most)).await
    }

    async fn write_file(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
        if let Some(opened) = self.fence.open_or_make_own(path, file::WRITE, file::permissions(mode)) {
            return file::write_file(path, opened, bytes);
        }
        let bytes = bytes.to_owned();
        self.change(path, None, move |path, place| {
            file::write_file(path, place.and_then(|place| file::open_at(&place, file::WRITE, mode)), &bytes)
        })
        .await
    }

    async fn create_file(&self, path: &Path, mode: u32) -> Result<()> {
        let own = self.fence.own_place(path);
        self.change(path, own, move |path, place| file::create_file(path, place, mode)).await
    }

    async fn symlink(&self, target: &Path, link: &Path) -> Result<()> {
        on_blocking_thread!(file::symlink, self.fence, target, link)
    }

    async fn read_link(&self, path: &Path) -> Result<PathBuf> {
        let own = self.fence.is_own(path).then(|| file::read_link(path));
        self.look(own, path, file::read_link).await
    }

    async fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        on_blocking_thread!(file::rename, from, to)
    }

    async fn metadata(&self, path: &Path) -> Result<Metadata> {
        let own = self.fence.open_own(path, OFlags::PATH).map(|opened| file::metadata_of(path, opened));
        self.look(own, path, |path| file::metadata(path)).await
    }

    async fn symlink_metadata(&self, path: &Path) -> Result<Metadata> {
        let own = self.fence.open_own(path, OFlags::PATH | OFlags::NOFOLLOW);
        let own = own.map(|opened| file::metadata_of(path, opened));
        self.look(own, path, file::symlink_metadata).await
    }

    async fn access(&self, path: &Path) -> Result<()> {
        let own = self.fence.open_own(path, OFlags::PATH);
        let own =
            own.map(|opened| opened.map(drop).map_err(|error| HostError::os(Action::Access, path, error)));
        self.look(own, path, file::access).await
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
        let own = self.fence.resolve_own(path);
        let own = own.map(|found| found.map_err(|error| HostError::os(Action::Resolve, path, error)));
        self.look(own, path, file::canonicalize).await
    }

    async fn statfs(&self, path: &Path) -> Result<FsStats> {
        on_blocking_thread!(file::statfs, path)
    }

    async fn disk_usage(&self, path: &Path) -> Result<Usage> {
        on_blocking_thread!(walk::usage::disk_usage, path)
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
        on_blocking_thread!(beneath::open_beneath, base, sub)
    }

    async fn make_dirs_beneath(&self, base: &Path, sub: &Path, mode: u32) -> Result<()> {
        on_blocking_thread!(beneath::make_dirs_beneath, base, sub, mode)
    }

    async fn lock_device(&self, path: &Path) -> Result<PathBuf> {
        on_blocking_thread!(loop_device::lock, path)
    }

    async fn find_lock(&self, path: &Path) -> Result<Option<PathBuf>> {
        on_blocking_thread!(loop_device::find, path)
    }

    async fn unlock_device(&self, device: &Path) -> Result<()> {
        on_blocking_thread!(loop_device::unlock, device)
    }

    async fn device_opened(&self, path: &Path) -> Result<bool> {
        on_blocking_thread!(disk::is_opened, path)
    }

    async fn device_size(&self, path: &Path) -> Result<u64> {
        on_blocking_thread!(disk::size, path)
    }

    async fn probe_device(&self, device: &Path) -> Result<DiskContent> {
        on_blocking_thread!(disk::probe, device)
    }

    async fn check_device(&self, device: &Path) -> Result<CheckOutcome> {
        on_blocking_thread!(disk::check, device)
    }

    async fn make_filesystem(&self, make: &MakeFilesystem) -> Result<()> {
        on_blocking_thread!(disk::make, make)
    }

    async fn grow_filesystem(&self, grow: &Grow) -> Result<()> {
        on_blocking_thread!(disk::grow, grow)
    }

    async fn run_at(&self, program: &Path, arguments: &[String], target: &Path) -> Result<String> {
        on_blocking_thread!(mount::run_at, program, arguments, target)
    }

    async fn selinux_enabled(&self) -> bool {
        blocking(probe::selinux_enabled).await
    }

    async fn tmpfs_takes_noswap(&self) -> bool {
        blocking(probe::tmpfs_takes_noswap).await
    }
}

/// Sets `gone` when the caller's future is dropped.
#[derive(Default)]
struct Caller {
    gone: Arc<AtomicBool>,
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
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
