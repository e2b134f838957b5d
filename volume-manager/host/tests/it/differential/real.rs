//! Operations on the real kernel, by system calls of the test's own.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use host::{MountTable, Propagation};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::operation::{DIRS, Operation};

pub(crate) struct Real {
    root: PathBuf,
    holds: VecDeque<File>,
    _scratch: tempfile::TempDir,
}

impl Real {
    pub(crate) fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        mount_tmpfs(&root).unwrap();
        furnish(&root).unwrap();
        Self { root, holds: VecDeque::new(), _scratch: scratch }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn table(&self) -> MountTable {
        MountTable::parse(&fs::read("/proc/thread-self/mountinfo").unwrap()).unwrap()
    }

    pub(crate) fn apply(&mut self, operation: &Operation) -> Result<(), i32> {
        self.done(operation).map_err(|errno| errno as i32)
    }

    fn done(&mut self, operation: &Operation) -> Result<(), Errno> {
        let at = |path: &str| if path.is_empty() { self.root.clone() } else { self.root.join(path) };
        match operation {
            Operation::Tmpfs(path) => {
                mount_tmpfs(&at(path))?;
                furnish(&at(path))
            }
            Operation::Bind { from, to, recursive } => {
                let flags = if *recursive { MsFlags::MS_BIND | MsFlags::MS_REC } else { MsFlags::MS_BIND };
                call(Some(&at(from)), &at(to), flags)
            }
            Operation::Move { from, to } => call(Some(&at(from)), &at(to), MsFlags::MS_MOVE),
            Operation::Propagate { path, kind, recursive } => {
                let flag = match kind {
                    Propagation::Shared => MsFlags::MS_SHARED,
                    Propagation::Private => MsFlags::MS_PRIVATE,
                    Propagation::Slave => MsFlags::MS_SLAVE,
                    Propagation::Unbindable => MsFlags::MS_UNBINDABLE,
                };
                call(None, &at(path), if *recursive { flag | MsFlags::MS_REC } else { flag })
            }
            Operation::Unmount { path, lazy } => {
                let lazy = if *lazy { MntFlags::MNT_DETACH } else { MntFlags::empty() };
                umount2(&at(path), lazy | MntFlags::UMOUNT_NOFOLLOW)
            }
            Operation::ReadOnly(path) => {
                let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
                call(None, &at(path), flags)
            }
            Operation::Hold(path) => {
                let file = OpenOptions::new().read(true).custom_flags(nix::libc::O_PATH).open(at(path));
                self.holds.push_back(file.map_err(number)?);
                Ok(())
            }
            Operation::Release => {
                self.holds.pop_front();
                Ok(())
            }
            Operation::MakeDir(path) => fs::create_dir(at(path)).map_err(number),
            Operation::RemoveDir(path) => fs::remove_dir(at(path)).map_err(number),
            Operation::RemoveFile(path) => fs::remove_file(at(path)).map_err(number),
            Operation::Rename { from, to } => fs::rename(at(from), at(to)).map_err(number),
        }
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        self.holds.clear();
        // Repeated, since the root itself may be covered by other mounts.
        while umount2(&self.root, MntFlags::MNT_DETACH).is_ok() {}
    }
}

fn call(source: Option<&Path>, target: &Path, flags: MsFlags) -> Result<(), Errno> {
    mount(source, target, None::<&str>, flags, None::<&str>)
}

fn mount_tmpfs(target: &Path) -> Result<(), Errno> {
    mount(Some("tmpfs"), target, Some("tmpfs"), MsFlags::empty(), None::<&str>)
}

fn furnish(dir: &Path) -> Result<(), Errno> {
    for name in DIRS {
        fs::create_dir(dir.join(name)).map_err(number)?;
    }
    fs::write(dir.join("f"), b"").map_err(number)
}

fn number(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap())
}
