//! tmpfs mounts of limited size, as guards.

use std::path::Path;

use nix::mount::MsFlags;

use crate::filesystem::{MountError, Mounted};
use crate::guard::{CloseError, Guard};

/// A mounted tmpfs. Its files are lost when it is closed.
#[derive(Debug)]
pub struct Tmpfs {
    mounted: Mounted,
}

impl Tmpfs {
    /// Mounts a tmpfs of at most this many bytes at an existing directory.
    pub fn mount(target: &Path, bytes: u64) -> Result<Tmpfs, MountError> {
        let options = format!("size={bytes},mode=0755");
        let mounted = Mounted::mount("tmpfs", Path::new("volproof"), target, MsFlags::empty(), &options)?;
        Ok(Tmpfs { mounted })
    }

    pub fn path(&self) -> &Path {
        self.mounted.target()
    }
}

impl Guard for Tmpfs {
    fn close(self) -> Result<(), CloseError> {
        self.mounted.close()
    }
}
