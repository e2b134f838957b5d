//! Errors of a host's calls, and the predicates on them that a clean-up needs. Touches nothing.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::errno;

pub type Result<T, E = HostError> = std::result::Result<T, E>;

/// A failed system call or tool.
///
/// The text names the object and leaves the cause out: printers walk [`std::error::Error::source`].
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A system call about one path failed.
    #[error("cannot {action} `{}`", path.display())]
    Os { action: Action, path: PathBuf, source: io::Error },
    /// A system call that joins two paths failed.
    #[error("cannot {action} `{}` on `{}`", from.display(), to.display())]
    Pair {
        action: Action,
        /// The mount's source, or the path to bind, link or rename.
        from: PathBuf,
        to: PathBuf,
        source: io::Error,
    },
    /// A command that runs in place of a system call failed.
    #[error(transparent)]
    Tool(Box<ToolError>),
    /// A removal limited to one file system met the mount point `path`.
    #[error("cannot delete directory `{}`: it is a mount point", path.display())]
    IsMountPoint { path: PathBuf },
    /// A clean-up unmounted `path` once and found another mount below that one.
    #[error("failed to cleanup mount point `{}`", path.display())]
    StillMounted { path: PathBuf },
    /// `sub` led out of `base`, or met a symbolic link on its way.
    #[error("`{}` does not stay below `{}`", sub.display(), base.display())]
    Escape {
        base: PathBuf,
        /// The path as it was asked for, relative to `base`.
        sub: PathBuf,
        source: io::Error,
    },
    #[error("cannot parse the mount table")]
    MountTable(#[from] crate::mount_table::ParseError),
    /// The caller stopped the walk over the tree at `path`.
    #[error("stopped before the end of `{}`", path.display())]
    Stopped { path: PathBuf },
    /// No tool grows a file system of this type.
    #[error("cannot grow `{}`: resize of format {fs_type} is not supported", device.display())]
    CannotGrow { device: PathBuf, fs_type: String },
    /// The container that a plugin's mounts run in cannot be used.
    #[error(transparent)]
    Container(Box<dyn std::error::Error + Send + Sync>),
}

/// Replaces a cause that users are not shown, since it has paths of the node or is too long.
pub(crate) const SEE_LOG: &str = "the node's log says why";

impl HostError {
    pub fn os(action: Action, path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        Self::Os { action, path: path.as_ref().to_owned(), source: source.into() }
    }

    pub fn pair(
        action: Action,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        source: impl Into<io::Error>,
    ) -> Self {
        let (from, to) = (from.as_ref().to_owned(), to.as_ref().to_owned());
        Self::Pair { action, from, to, source: source.into() }
    }

    /// The cause without any path of the node: for users.
    pub fn reason(&self) -> String {
        match (self, self.errno()) {
            (_, Some(number)) => io::Error::from_raw_os_error(number).to_string(),
            (Self::Tool(error), None) => error.reason(),
            (_, None) => SEE_LOG.to_owned(),
        }
    }

    /// The kernel's error number; `None` if the error is not the kernel's.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Os { source, .. } | Self::Pair { source, .. } | Self::Escape { source, .. } => {
                source.raw_os_error()
            }
            Self::Tool(_)
            | Self::IsMountPoint { .. }
            | Self::StillMounted { .. }
            | Self::MountTable(_)
            | Self::Stopped { .. }
            | Self::CannotGrow { .. }
            | Self::Container(_) => None,
        }
    }

    /// The path exists and the file system mounted there no longer answers: unmount without looking further.
    ///
    /// The kubelet's `IsCorruptedMnt`: ENOTCONN, ESTALE, EIO, EACCES, EHOSTDOWN, EWOULDBLOCK, ENODEV.
    pub fn is_corrupted_mount(&self) -> bool {
        const CORRUPTED: [i32; 7] = [
            errno::ENOTCONN,
            errno::ESTALE,
            errno::EIO,
            errno::EACCES,
            errno::EHOSTDOWN,
            errno::EAGAIN,
            errno::ENODEV,
        ];
        self.errno().is_some_and(|number| CORRUPTED.contains(&number))
    }

    /// The path does not exist (ENOENT).
    pub fn is_not_found(&self) -> bool {
        self.errno() == Some(errno::ENOENT)
    }

    /// A part of the path is no directory (ENOTDIR).
    pub fn is_not_a_directory(&self) -> bool {
        self.errno() == Some(errno::ENOTDIR)
    }

    /// The path is not a regular file, or the file is too long to be read at once (EISDIR, ENXIO, ELOOP, EFBIG).
    pub fn is_no_file(&self) -> bool {
        const OTHERS: [i32; 4] = [errno::EISDIR, errno::ENXIO, errno::ELOOP, errno::EFBIG];
        self.errno().is_some_and(|number| OTHERS.contains(&number))
    }

    /// The mount, device or directory is still in use (EBUSY).
    pub fn is_busy(&self) -> bool {
        self.errno() == Some(errno::EBUSY)
    }

    /// The path exists already (EEXIST).
    pub fn is_exists(&self) -> bool {
        self.errno() == Some(errno::EEXIST)
    }

    /// The directory to remove has entries (ENOTEMPTY; some file systems say EEXIST).
    pub fn is_not_empty(&self) -> bool {
        matches!(self.errno(), Some(errno::ENOTEMPTY | errno::EEXIST))
    }

    /// Access is denied (EACCES, EPERM), for example to root on an NFS export with root_squash.
    pub fn is_permission_denied(&self) -> bool {
        matches!(self.errno(), Some(errno::EACCES | errno::EPERM))
    }

    pub fn is_escape(&self) -> bool {
        matches!(self, Self::Escape { .. })
    }
}

impl From<ToolError> for HostError {
    fn from(error: ToolError) -> Self {
        Self::Tool(Box::new(error))
    }
}

/// A command that failed, with its output.
///
/// The text is the kubelet's, word for word: operators search for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} failed: {status}\nMounting command: {program}\nMounting arguments: {arguments}\nOutput: {output}"
)]
pub struct ToolError {
    /// `mount`, `umount`, `fsck`, …
    pub what: String,
    /// Such as `exit status 32`.
    pub status: String,
    /// `None` if a signal ended the command.
    pub code: Option<i32>,
    pub program: String,
    /// Joined by blanks, sensitive options masked.
    pub arguments: String,
    /// Both streams, in the order they were written.
    pub output: String,
}

impl ToolError {
    /// The command's output in one line, with `<path>` for each path among its arguments.
    fn reason(&self) -> String {
        let mut paths: Vec<&str> =
            self.arguments.split(' ').filter(|argument| argument.starts_with('/')).collect();
        // Longest first: a path may be the beginning of another.
        paths.sort_by_key(|path| std::cmp::Reverse(path.len()));
        let mut output = self.output.clone();
        for path in paths {
            output = output.replace(path, "<path>");
        }
        let failed = [format!("{} failed", self.what), self.status.clone()];
        let lines = output.lines().map(str::trim).filter(|line| !line.is_empty());
        let parts: Vec<String> = failed.into_iter().chain(lines.map(str::to_owned)).collect();
        parts.join(": ")
    }
}

/// The attempted call. Displays as the words between "cannot" and the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Mount,
    Bind,
    Remount,
    Propagate,
    Unmount,
    ReadMountTable,
    MakeDir,
    RemoveDir,
    RemoveFile,
    RemoveTree,
    ReadDir,
    Read,
    Write,
    Create,
    Link,
    ReadLink,
    Rename,
    Stat,
    Access,
    Chmod,
    Chown,
    Resolve,
    StatFs,
    Open,
    LockDevice,
    UnlockDevice,
    FindLock,
    Measure,
    Run,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mount => "mount",
            Self::Bind => "bind",
            Self::Remount => "remount",
            Self::Propagate => "change the propagation of",
            Self::Unmount => "unmount",
            Self::ReadMountTable => "read the mount table from",
            Self::MakeDir => "make directory",
            Self::RemoveDir => "remove directory",
            Self::RemoveFile => "remove",
            Self::RemoveTree => "remove all of",
            Self::ReadDir => "read directory",
            Self::Read => "read",
            Self::Write => "write",
            Self::Create => "create",
            Self::Link => "link",
            Self::ReadLink => "read link",
            Self::Rename => "rename",
            Self::Stat => "stat",
            Self::Access => "access",
            Self::Chmod => "change the mode of",
            Self::Chown => "change the owner of",
            Self::Resolve => "resolve",
            Self::StatFs => "ask for the file system of",
            Self::Open => "open",
            Self::LockDevice => "attach a loop device to",
            Self::UnlockDevice => "detach",
            Self::FindLock => "look for the loop device of",
            Self::Measure => "measure",
            Self::Run => "run",
        })
    }
}
