//! File systems on devices: probe, check or make one, then mount it (07 §9). Touches a [`Host`].

use std::path::{Path, PathBuf};

use crate::door::Host;
use crate::error::{HostError, SEE_LOG};
use crate::options::{MountOptions, MountSpec, Scope};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskContent {
    /// No known signature: the device may be formatted.
    Nothing,
    /// A file system (or another signature) of this type.
    FileSystem(String),
    /// A partition table: unknown data, never formatted.
    Partitions,
}

impl DiskContent {
    /// The kubelet's name for it: the type, "unknown data, probably partitions", or an empty string.
    pub fn format_name(&self) -> &str {
        match self {
            Self::Nothing => "",
            Self::FileSystem(fs_type) => fs_type,
            Self::Partitions => "unknown data, probably partitions",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckOutcome {
    Clean,
    /// Errors were repaired (exit 1).
    Corrected,
    /// Errors are left (exit 4): the device must not be mounted.
    Uncorrected {
        output: String,
    },
    /// fsck itself failed (any other exit): the device may be mounted unchecked.
    Failed {
        /// `None` if a signal ended fsck.
        code: Option<i32>,
        output: String,
    },
    NoTool,
}

/// A file system to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MakeFilesystem {
    pub device: PathBuf,
    pub fs_type: String,
    /// The caller's options. On the command line they come before the options that mkfs always gets for the type.
    pub options: Vec<String>,
}

impl MakeFilesystem {
    /// Arguments for `mkfs.<type>`: ext3 and ext4 always get `-F -m0`, xfs `-f`.
    pub fn arguments(&self) -> Vec<String> {
        let fixed: &[&str] = match self.fs_type.as_str() {
            "ext3" | "ext4" => &["-F", "-m0"],
            "xfs" => &["-f"],
            _ => &[],
        };
        let fixed = fixed.iter().map(|argument| (*argument).to_owned());
        let device = self.device.to_string_lossy().into_owned();
        self.options.iter().cloned().chain(fixed).chain([device]).collect()
    }
}

/// A file system to grow to the size of its device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grow {
    pub device: PathBuf,
    /// ext2, ext3, ext4, xfs and btrfs can grow.
    pub fs_type: String,
    /// The mount point: the tools of xfs and btrfs need it.
    pub mounted_at: PathBuf,
}

/// A device to mount, after making a file system on it if it holds nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatAndMount {
    pub device: PathBuf,
    /// Must exist.
    pub target: PathBuf,
    /// Empty: ext4.
    pub fs_type: String,
    /// `defaults` is added.
    pub options: MountOptions,
    pub format_options: Vec<String>,
}

/// The reason that a device was not mounted. Names in parentheses are the kubelet's classes of mount errors.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The probe failed (GetDiskFormatFailed).
    #[error("failed to get disk format of disk `{}`", device.display())]
    Probe {
        device: PathBuf,
        #[source]
        source: HostError,
    },
    /// The device holds nothing, and the mount is read-only (UnformattedReadOnly).
    #[error("cannot mount unformatted disk `{}` as it is read-only", device.display())]
    UnformattedReadOnly { device: PathBuf },
    /// mkfs failed (FormatFailed).
    #[error("cannot format `{}` as {fs_type}", device.display())]
    Format {
        device: PathBuf,
        fs_type: String,
        #[source]
        source: HostError,
    },
    /// The check could not be run at all.
    #[error("cannot check `{}`", device.display())]
    Check {
        device: PathBuf,
        #[source]
        source: HostError,
    },
    /// Errors are left after the check (HasFilesystemErrors); the device was not mounted.
    #[error("'fsck' found errors on device `{}` but could not correct them: {output}", device.display())]
    HasErrors { device: PathBuf, output: String },
    /// The device holds another file system than the wanted one, and its mount failed (FilesystemMismatch).
    #[error("failed to mount the volume as \"{wanted}\", it already contains {found}. Mount error")]
    Mismatch {
        wanted: String,
        found: String,
        #[source]
        source: HostError,
    },
    #[error("cannot mount `{}`", device.display())]
    Mount {
        device: PathBuf,
        #[source]
        source: HostError,
    },
}

impl FormatError {
    /// The cause without any path of the node: for users.
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

    /// Whether the caller records an event about the wrong file system on the volume's object.
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
                "device holds another file system than the wanted one; mounting it all the same");
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
            tracing::info!(device = %device.display(), "fsck corrected errors on the device; mounting it");
        }
        CheckOutcome::Uncorrected { output } => {
            return Err(FormatError::HasErrors { device: device.to_owned(), output });
        }
        CheckOutcome::Failed { code, output } => {
            tracing::warn!(device = %device.display(), ?code, output, "fsck failed; mounting the device unchecked");
        }
    }
    Ok(())
}
