//! File systems on devices: probe, check, make, then mount (07 §9). Touches a [`Host`].

use std::path::{Path, PathBuf};

use crate::door::Host;
use crate::error::{HostError, SEE_LOG};
use crate::options::{MountOptions, MountSpec, Scope};

/// What a device holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskContent {
    /// Nothing that anything knows: it may be formatted.
    Nothing,
    /// A file system (or another signature) of this type.
    FileSystem(String),
    /// A partition table: data of a kind we do not know, never to be formatted.
    Partitions,
}

impl DiskContent {
    /// The kubelet's word for it: a type, or "unknown data, probably partitions", or nothing.
    pub fn format_name(&self) -> &str {
        match self {
            Self::Nothing => "",
            Self::FileSystem(fs_type) => fs_type,
            Self::Partitions => "unknown data, probably partitions",
        }
    }
}

/// How a check ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckOutcome {
    /// Nothing to repair.
    Clean,
    /// Repaired (exit 1).
    Corrected,
    /// Errors are left (exit 4): the device must not be mounted.
    Uncorrected {
        /// What the tool wrote.
        output: String,
    },
    /// The tool could not do its work (any other exit), which does not keep the device from being mounted.
    Failed {
        /// The exit code, if it ended by itself.
        code: Option<i32>,
        /// What the tool wrote.
        output: String,
    },
    /// There is no tool.
    NoTool,
}

/// An order to make a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MakeFilesystem {
    /// Where.
    pub device: PathBuf,
    /// Which.
    pub fs_type: String,
    /// Options of the caller's, before the ones the type always gets.
    pub options: Vec<String>,
}

impl MakeFilesystem {
    /// The arguments for `mkfs.<type>`: ext3 and ext4 `-F -m0`, xfs `-f`, others none of their own.
    pub fn arguments(&self) -> Vec<String> {
        let own: &[&str] = match self.fs_type.as_str() {
            "ext3" | "ext4" => &["-F", "-m0"],
            "xfs" => &["-f"],
            _ => &[],
        };
        let own = own.iter().map(|argument| (*argument).to_owned());
        let device = self.device.to_string_lossy().into_owned();
        self.options.iter().cloned().chain(own).chain([device]).collect()
    }
}

/// An order to grow a file system to its device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grow {
    /// The device it is on.
    pub device: PathBuf,
    /// Its type; ext3, ext4, xfs and btrfs can grow.
    pub fs_type: String,
    /// Where it is mounted, which xfs and btrfs have to be told.
    pub mounted_at: PathBuf,
}

/// An order to mount a device, making a file system on it if it holds nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatAndMount {
    /// The device.
    pub device: PathBuf,
    /// Where it goes. Must exist.
    pub target: PathBuf,
    /// Which file system; empty is ext4.
    pub fs_type: String,
    /// Mount options; `defaults` is added.
    pub options: MountOptions,
    /// Options for `mkfs`.
    pub format_options: Vec<String>,
}

/// Why a device was not mounted. The kubelet's classes of mount errors.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// What is on the device cannot be found out (GetDiskFormatFailed).
    #[error("failed to get disk format of disk `{}`", device.display())]
    Probe {
        /// The device.
        device: PathBuf,
        /// Why.
        #[source]
        source: HostError,
    },
    /// It holds nothing, and was to be mounted read-only (UnformattedReadOnly).
    #[error("cannot mount unformatted disk `{}` as it is read-only", device.display())]
    UnformattedReadOnly {
        /// The device.
        device: PathBuf,
    },
    /// No file system could be made (FormatFailed).
    #[error("cannot format `{}` as {fs_type}", device.display())]
    Format {
        /// The device.
        device: PathBuf,
        /// Which file system was wanted.
        fs_type: String,
        /// Why.
        #[source]
        source: HostError,
    },
    /// The check could not be run at all.
    #[error("cannot check `{}`", device.display())]
    Check {
        /// The device.
        device: PathBuf,
        /// Why.
        #[source]
        source: HostError,
    },
    /// Errors are left after the check (HasFilesystemErrors). It was not mounted.
    #[error("'fsck' found errors on device `{}` but could not correct them: {output}", device.display())]
    HasErrors {
        /// The device.
        device: PathBuf,
        /// What the check wrote.
        output: String,
    },
    /// The device holds another file system than was asked for, and would not mount (FilesystemMismatch).
    #[error("failed to mount the volume as \"{wanted}\", it already contains {found}. Mount error")]
    Mismatch {
        /// What was asked for.
        wanted: String,
        /// What is there.
        found: String,
        /// Why it would not mount.
        #[source]
        source: HostError,
    },
    /// The mount itself failed.
    #[error("cannot mount `{}`", device.display())]
    Mount {
        /// The device.
        device: PathBuf,
        /// Why.
        #[source]
        source: HostError,
    },
}

impl FormatError {
    /// What is wrong, for somebody whom the paths of the node do not concern.
    pub fn reason(&self) -> String {
        match self {
            Self::Probe { source, .. } => format!("cannot find out what is on it: {}", source.reason()),
            Self::UnformattedReadOnly { .. } => {
                "it is not formatted, and cannot be as it is read-only".to_owned()
            }
            Self::Format { fs_type, .. } => format!("cannot format it as {fs_type}: {SEE_LOG}"),
            Self::Check { source, .. } => format!("cannot check its file system: {}", source.reason()),
            Self::HasErrors { .. } => {
                "its file system has errors that 'fsck' found but could not correct".to_owned()
            }
            Self::Mismatch { source, .. } => format!("{self}: {}", source.reason()),
            Self::Mount { source, .. } => source.reason(),
        }
    }

    /// Whether the volume's object gets an event about the wrong file system.
    pub fn is_mismatch(&self) -> bool {
        matches!(self, Self::Mismatch { .. })
    }
}

/// Mounts a device, after making or checking its file system.
pub async fn format_and_mount(host: &dyn Host, order: &FormatAndMount) -> Result<(), FormatError> {
    let device = &order.device;
    let wanted = if order.fs_type.is_empty() { "ext4" } else { &order.fs_type };
    let read_only = order.options.contains("ro");
    let content = host
        .probe_device(device)
        .await
        .map_err(|source| FormatError::Probe { device: device.clone(), source })?;
    let mut mismatch = None;
    if content == DiskContent::Nothing {
        if read_only {
            return Err(FormatError::UnformattedReadOnly { device: device.clone() });
        }
        make(host, order, wanted).await?;
    } else {
        if content.format_name() != wanted {
            tracing::warn!(device = %device.display(), wanted, found = content.format_name(),
                "the disk holds another file system than was asked for");
            mismatch = Some(content.format_name().to_owned());
        }
        if !read_only {
            check(host, device).await?;
        }
    }
    let spec = MountSpec {
        source: device.to_string_lossy().into_owned(),
        target: order.target.clone(),
        fs_type: Some(wanted.to_owned()),
        options: order.options.clone().with("defaults"),
        scope: Scope::Systemd,
    };
    host.mount(&spec).await.map_err(|source| match mismatch {
        Some(found) => FormatError::Mismatch { wanted: wanted.to_owned(), found, source },
        None => FormatError::Mount { device: device.clone(), source },
    })
}

async fn make(host: &dyn Host, order: &FormatAndMount, fs_type: &str) -> Result<(), FormatError> {
    let make = MakeFilesystem {
        device: order.device.clone(),
        fs_type: fs_type.to_owned(),
        options: order.format_options.clone(),
    };
    host.make_filesystem(&make).await.map_err(|source| FormatError::Format {
        device: order.device.clone(),
        fs_type: fs_type.to_owned(),
        source,
    })
}

async fn check(host: &dyn Host, device: &Path) -> Result<(), FormatError> {
    let outcome = host
        .check_device(device)
        .await
        .map_err(|source| FormatError::Check { device: device.to_owned(), source })?;
    match outcome {
        CheckOutcome::Clean | CheckOutcome::NoTool => {}
        CheckOutcome::Corrected => {
            tracing::info!(device = %device.display(), "the check corrected errors");
        }
        CheckOutcome::Uncorrected { output } => {
            return Err(FormatError::HasErrors { device: device.to_owned(), output });
        }
        CheckOutcome::Failed { code, output } => {
            tracing::warn!(device = %device.display(), ?code, output, "the check did not work");
        }
    }
    Ok(())
}
