//! Memory file systems of limited size, as guards.

use std::path::Path;

use nix::mount::MsFlags;

use crate::filesystem::{MountError, Mounted};
use crate::guard::{CloseError, Guard};

/// A mounted tmpfs. What is in it goes with it.
#[derive(Debug)]
pub struct Tmpfs {
    mounted: Mounted,
}

impl Tmpfs {
    /// Mounts a file system of at most this many bytes at a directory that exists.
    pub fn mount(target: &Path, bytes: u64) -> Result<Tmpfs, MountError> {
        let options = format!("size={bytes},mode=0755");
        let mounted = Mounted::mount("tmpfs", Path::new("volproof"), target, MsFlags::empty(), &options)?;
        Ok(Tmpfs { mounted })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.mounted.target()
    }
}

impl Guard for Tmpfs {
    fn close(self) -> Result<(), CloseError> {
        self.mounted.close()
    }
}
