//! Waiting for directories to change, instead of polling them. Uses inotify.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Watches any number of directories. A change is reported without its directory and name: list the directories after
/// adding them, and again after each change.
#[derive(Debug)]
pub struct DirWatch {
    events: AsyncFd<OwnedFd>,
}

impl DirWatch {
    /// A watch without directories.
    pub fn new() -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        // SAFETY: the descriptor is owned by the `AsyncFd` itself, which never gives it away, so it stays
        // open and the same for as long as it is registered.
        let events = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE)? };
        Ok(Self { events })
    }

    /// Adds a directory: names that are created in it, removed from it or renamed count as changes. It may be added
    /// again.
    pub fn add(&self, dir: &Path) -> io::Result<()> {
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        inotify::add_watch(self.events.get_ref(), dir, flags)?;
        Ok(())
    }

    /// Waits for a change since the last return of this function. Cancel safe.
    pub async fn changed(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.events.readable().await?;
            let mut buffer = [0_u8; 4096];
            let read = ready.try_io(|fd| Ok(rustix::io::read(fd.get_ref(), &mut buffer)?));
            match read {
                Ok(Ok(_)) => return self.drain(),
                Ok(Err(error)) => return Err(error),
                // Nothing can be read any more: wait again.
                Err(_) => {}
            }
        }
    }

    /// Reads all pending events: many changes count as one.
    fn drain(&self) -> io::Result<()> {
        let mut buffer = [0_u8; 4096];
        loop {
            match rustix::io::read(self.events.get_ref(), &mut buffer) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error == rustix::io::Errno::AGAIN => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn create_rename_and_remove_are_each_reported_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut watch = DirWatch::new().unwrap();
        watch.add(dir.path()).unwrap();
        let file = dir.path().join("a.sock");
        std::fs::write(&file, "").unwrap();
        std::fs::write(dir.path().join("b.sock"), "").unwrap();
        watch.changed().await.unwrap();
        std::fs::rename(&file, dir.path().join("c.sock")).unwrap();
        watch.changed().await.unwrap();
        std::fs::remove_file(dir.path().join("c.sock")).unwrap();
        watch.changed().await.unwrap();
        assert!(!is_ready(watch.changed()), "nothing has changed since");
    }

    fn is_ready(future: impl Future) -> bool {
        let mut future = std::pin::pin!(future);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        future.as_mut().poll(&mut context).is_ready()
    }

    #[tokio::test]
    async fn adding_a_file_is_enotdir() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = DirWatch::new().unwrap().add(file.path()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTDIR));
    }
}
