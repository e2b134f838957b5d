//! Attributes of files: mode, owner, times, and the length.

use std::io;
use std::time::SystemTime;

use fuser::{FileHandle, INodeNo, TimeOrNow};
use rustix::fs::{AtFlags, Mode, Timespec, Timestamps};

use super::Mirror;

/// Attributes that a call wants to change.
pub(super) struct Wanted {
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) atime: WantedTime,
    pub(super) mtime: WantedTime,
}

pub(super) struct WantedTime(pub(super) Option<TimeOrNow>);

impl WantedTime {
    fn is_some(&self) -> bool {
        self.0.is_some()
    }

    fn spec(&self) -> Timespec {
        // utimensat takes both orders in place of the nanoseconds.
        let order = |number: i64| Timespec { tv_sec: 0, tv_nsec: number as _ };
        match self.0 {
            None => order(libc::UTIME_OMIT),
            Some(TimeOrNow::Now) => order(libc::UTIME_NOW),
            Some(TimeOrNow::SpecificTime(time)) => {
                let since_epoch = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                Timespec { tv_sec: since_epoch.as_secs() as _, tv_nsec: since_epoch.subsec_nanos() as _ }
            }
        }
    }
}

impl Mirror {
    pub(super) fn set_length(&self, inode: INodeNo, fh: Option<FileHandle>, length: u64) -> io::Result<()> {
        match fh {
            Some(fh) => self.handle(fh)?.file.set_len(length),
            None => self.shared.inodes.open(inode, libc::O_WRONLY)?.set_len(length),
        }
    }

    pub(super) fn set_attributes(&self, inode: INodeNo, wanted: &Wanted) -> io::Result<()> {
        let (file, _) = self.shared.inodes.get(inode)?;
        // `file` was opened with O_PATH, and fchmod, fchown and futimens do not take such a descriptor.
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&*file));
        if let Some(mode) = wanted.mode {
            rustix::fs::chmod(&path, Mode::from_raw_mode(mode))?;
        }
        if wanted.uid.is_some() || wanted.gid.is_some() {
            std::os::unix::fs::chown(&path, wanted.uid, wanted.gid)?;
        }
        if wanted.atime.is_some() || wanted.mtime.is_some() {
            let times =
                Timestamps { last_access: wanted.atime.spec(), last_modification: wanted.mtime.spec() };
            rustix::fs::utimensat(rustix::fs::CWD, &path, &times, AtFlags::empty())?;
        }
        Ok(())
    }
}
