//! How a host says what it has done: one `tracing` event for each change, after it succeeded.
//!
//! A layer in the node's process may wait inside the event until the journal has looked at the kernel, so
//! hosts emit from the thread that made the change, and hold no lock while they do.

use std::path::Path;

/// The `target` of the events.
pub const TARGET: &str = "effect";

/// A change to announce. Fields that do not apply are left out of the event.
#[derive(Debug, Clone, Copy, Default)]
pub struct Effect<'a> {
    /// `mount`, `bind`, `remount`, `umount`, `link`, `unlink`, `lock`, `unlock`, `mkdir`, `rmdir`, `write`,
    /// `remove`, `chmod`, `chown`, `rename`, `format` or `grow`.
    pub effect: &'static str,
    /// What it was done to.
    pub path: Option<&'a Path>,
    /// What is shown there now: a mount's or a bind's source, a lock's loop device. For an `unlock`, the file
    /// that was held.
    pub source: Option<&'a Path>,
    /// Where it leads or went: a link's target, a rename's new name, a new mode or owner.
    pub to: Option<&'a str>,
    /// The type of a new mount or a new file system.
    pub fs_type: Option<&'a str>,
    /// Options, secrets masked.
    pub options: Option<&'a str>,
    /// The file that an `unlock` has let go, as `DEVICE:INODE`: on one machine many nodes have files of one name.
    pub inode: Option<&'a str>,
}

impl<'a> Effect<'a> {
    /// A change of `path`.
    pub fn new(effect: &'static str, path: &'a Path) -> Self {
        Self { effect, path: Some(path), ..Self::default() }
    }

    /// With what is shown there.
    #[must_use]
    pub fn source(mut self, source: &'a Path) -> Self {
        self.source = Some(source);
        self
    }

    /// With where it leads.
    #[must_use]
    pub fn to(mut self, to: &'a str) -> Self {
        self.to = Some(to);
        self
    }

    /// With a type.
    #[must_use]
    pub fn fs_type(mut self, fs_type: Option<&'a str>) -> Self {
        self.fs_type = fs_type;
        self
    }

    /// With options.
    #[must_use]
    pub fn options(mut self, options: &'a str) -> Self {
        self.options = Some(options).filter(|options| !options.is_empty());
        self
    }

    /// With a file as the kernel knows it.
    #[must_use]
    pub fn inode(mut self, inode: Option<&'a str>) -> Self {
        self.inode = inode;
        self
    }

    /// Says it.
    pub fn announce(self) {
        let text = |path: Option<&'a Path>| path.map(Path::to_string_lossy);
        tracing::info!(
            target: TARGET,
            effect = self.effect,
            path = text(self.path).as_deref(),
            source = text(self.source).as_deref(),
            to = self.to,
            fstype = self.fs_type,
            options = self.options,
            inode = self.inode,
        );
    }
}
