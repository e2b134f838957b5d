//! Effects: a host announces each change by one `tracing` event, after the change succeeded.
//!
//! A layer in the node's process may block inside the event until the journal has looked at the kernel. So
//! hosts emit the event from the thread that made the change, and hold no lock while they do.

use std::path::Path;

/// The `target` of the events.
pub const TARGET: &str = "effect";

/// A change to announce. Fields that are `None` are left out of the event.
#[derive(Debug, Clone, Copy, Default)]
pub struct Effect<'a> {
    /// `mount`, `bind`, `remount`, `umount`, `link`, `unlink`, `lock`, `unlock`, `mkdir`, `rmdir`, `write`,
    /// `remove`, `chmod`, `chown`, `rename`, `format` or `grow`.
    pub effect: &'static str,
    pub path: Option<&'a Path>,
    /// Source of a mount or bind, loop device of a `lock`, backing file of an `unlock`.
    pub source: Option<&'a Path>,
    /// Target of a link, new name of a `rename`, new mode or owner.
    pub to: Option<&'a str>,
    /// Type of a new mount or a new file system.
    pub fs_type: Option<&'a str>,
    /// Mount options, secrets masked.
    pub options: Option<&'a str>,
    /// Backing file of an `unlock` as `DEVICE:INODE`: several nodes of one machine may have files of one path.
    pub inode: Option<&'a str>,
}

impl<'a> Effect<'a> {
    pub fn new(effect: &'static str, path: &'a Path) -> Self {
        Self { effect, path: Some(path), ..Self::default() }
    }

    #[must_use]
    pub fn source(mut self, source: &'a Path) -> Self {
        self.source = Some(source);
        self
    }

    #[must_use]
    pub fn to(mut self, to: &'a str) -> Self {
        self.to = Some(to);
        self
    }

    #[must_use]
    pub fn fs_type(mut self, fs_type: Option<&'a str>) -> Self {
        self.fs_type = fs_type;
        self
    }

    #[must_use]
    pub fn options(mut self, options: &'a str) -> Self {
        self.options = Some(options).filter(|options| !options.is_empty());
        self
    }

    #[must_use]
    pub fn inode(mut self, inode: Option<&'a str>) -> Self {
        self.inode = inode;
        self
    }

    /// Emits the event on the calling thread.
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
