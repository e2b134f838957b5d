//! What can go wrong at the door, and the questions whose answers steer a clean-up. Touches nothing.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::errno;

/// The result of a question to, or an order for, a host.
pub type Result<T, E = HostError> = std::result::Result<T, E>;

/// Why the kernel, or a tool in its stead, did not do as asked.
///
/// The text names the object and not the cause: printers walk [`std::error::Error::source`].
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A system call about one path failed.
    #[error("cannot {action} `{}`", path.display())]
    Os {
        /// What was tried.
        action: Action,
        /// What it was tried on.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A system call that joins two paths failed.
    #[error("cannot {action} `{}` on `{}`", from.display(), to.display())]
    Pair {
        /// What was tried.
        action: Action,
        /// What would have been mounted, bound, linked or renamed.
        from: PathBuf,
        /// Where it would have gone.
        to: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A command that stands for a system call failed.
    #[error(transparent)]
    Tool(Box<ToolError>),
    /// A removal that stays on one file system met another one.
    #[error("cannot delete directory `{}`: it is a mount point", path.display())]
    IsMountPoint {
        /// The mount point that stood in the way.
        path: PathBuf,
    },
    /// A clean-up unmounted once and found the path mounted still.
    #[error("failed to cleanup mount point `{}`", path.display())]
    StillMounted {
        /// The path that has another mount below the one taken away.
        path: PathBuf,
    },
    /// A path that has to stay below a directory left it, or met a symbolic link on its way.
    #[error("`{}` does not stay below `{}`", sub.display(), base.display())]
    Escape {
        /// The directory nothing may leave.
        base: PathBuf,
        /// The path below it, as it was asked for.
        sub: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The mount table could not be understood.
    #[error("cannot understand the mount table")]
    MountTable(#[from] crate::mount_table::ParseError),
    /// The walk over a tree was told to stop.
    #[error("stopped before the end of `{}`", path.display())]
    Stopped {
        /// The tree's root.
        path: PathBuf,
    },
    /// No tool grows a file system of this type.
    #[error("cannot grow `{}`: resize of format {fs_type} is not supported", device.display())]
    CannotGrow {
        /// The device it is on.
        device: PathBuf,
        /// Its type.
        fs_type: String,
    },
    /// The container that has to run a plugin's mounts cannot be used.
    #[error(transparent)]
    Container(Box<dyn std::error::Error + Send + Sync>),
}

/// What users are told where every word names a path, or where there are too many words.
pub(crate) const SEE_LOG: &str = "the node's log says why";

impl HostError {
    /// A failed call about one path.
    pub fn os(action: Action, path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        Self::Os { action, path: path.as_ref().to_owned(), source: source.into() }
    }

    /// A failed call about two paths.
    pub fn pair(
        action: Action,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        source: impl Into<io::Error>,
    ) -> Self {
        let (from, to) = (from.as_ref().to_owned(), to.as_ref().to_owned());
        Self::Pair { action, from, to, source: source.into() }
    }

    /// Why, without a path of the node: for users.
    pub fn reason(&self) -> String {
        match (self, self.errno()) {
            (_, Some(number)) => io::Error::from_raw_os_error(number).to_string(),
            (Self::Tool(error), None) => error.reason(),
            (_, None) => SEE_LOG.to_owned(),
        }
    }

    /// The error number the kernel gave, if it was the kernel that answered.
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

    /// The path exists, and what is mounted there no longer answers: unmount without asking further.
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

    /// There is nothing at the path (ENOENT).
    pub fn is_not_found(&self) -> bool {
        self.errno() == Some(errno::ENOENT)
    }

    /// A part of the path is no directory (ENOTDIR).
    pub fn is_not_a_directory(&self) -> bool {
        self.errno() == Some(errno::ENOTDIR)
    }

    /// What is there is no file, or none that is read as a whole (EISDIR, ENXIO, ELOOP, EFBIG).
    pub fn is_no_file(&self) -> bool {
        const OTHERS: [i32; 4] = [errno::EISDIR, errno::ENXIO, errno::ELOOP, errno::EFBIG];
        self.errno().is_some_and(|number| OTHERS.contains(&number))
    }

    /// Something still uses what was to go (EBUSY).
    pub fn is_busy(&self) -> bool {
        self.errno() == Some(errno::EBUSY)
    }

    /// There is something at the path already (EEXIST).
    pub fn is_exists(&self) -> bool {
        self.errno() == Some(errno::EEXIST)
    }

    /// A directory that was to go has entries (ENOTEMPTY; some file systems say EEXIST).
    pub fn is_not_empty(&self) -> bool {
        matches!(self.errno(), Some(errno::ENOTEMPTY | errno::EEXIST))
    }

    /// The caller may not look (EACCES, EPERM), as root on an NFS export with root_squash.
    pub fn is_permission_denied(&self) -> bool {
        matches!(self.errno(), Some(errno::EACCES | errno::EPERM))
    }

    /// A path left the directory it had to stay in, or met a symbolic link.
    pub fn is_escape(&self) -> bool {
        matches!(self, Self::Escape { .. })
    }
}

impl From<ToolError> for HostError {
    fn from(error: ToolError) -> Self {
        Self::Tool(Box::new(error))
    }
}

/// A command that failed, with all it said.
///
/// The text is the kubelet's, word for word, since drivers' logs and operators' searches know it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} failed: {status}\nMounting command: {program}\nMounting arguments: {arguments}\nOutput: {output}"
)]
pub struct ToolError {
    /// `mount`, `umount`, `fsck`, …: what was tried.
    pub what: String,
    /// Why it counts as failed, such as `exit status 32`.
    pub status: String,
    /// The exit code, if the command ended by itself.
    pub code: Option<i32>,
    /// The program that was run.
    pub program: String,
    /// Its arguments, joined by blanks, sensitive options masked.
    pub arguments: String,
    /// What it wrote, both streams in one.
    pub output: String,
}

impl ToolError {
    /// What it wrote, without the paths it was given.
    fn reason(&self) -> String {
        let mut paths: Vec<&str> =
            self.arguments.split(' ').filter(|argument| argument.starts_with('/')).collect();
        // One may be the beginning of another.
        paths.sort_by_key(|path| std::cmp::Reverse(path.len()));
        let said = paths.into_iter().fold(self.output.clone(), |said, path| said.replace(path, "<path>"));
        let lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
        let said: Vec<String> = [format!("{} failed", self.what), self.status.clone()]
            .into_iter()
            .chain(lines.map(str::to_owned))
            .collect();
        said.join(": ")
    }
}

/// What was tried, as the words between "cannot" and the path.
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
