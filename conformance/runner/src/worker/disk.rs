//! The disk of a guest whose power is cut: the files of node and driver are on it when they start again.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use nix::mount::MsFlags;

/// The mount point of the disk, outside of every sandbox and of the directories that a sandbox unmounts.
const MOUNT_POINT: &str = "/mnt/disk";

/// Mounts the disk, with a new file system if `new`.
pub(super) fn mounted(disk: &Path, new: bool) -> anyhow::Result<PathBuf> {
    if new {
        let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(disk).output();
        let made = made.context("cannot run `mkfs.ext4`")?;
        let stderr = String::from_utf8_lossy(&made.stderr).into_owned();
        ensure!(made.status.success(), "cannot make a file system on `{}`: {stderr}", disk.display());
    }
    std::fs::create_dir_all(MOUNT_POINT).with_context(|| format!("cannot create `{MOUNT_POINT}`"))?;
    nix::mount::mount(Some(disk), MOUNT_POINT, Some("ext4"), MsFlags::empty(), None::<&str>)
        .with_context(|| format!("cannot mount `{}`", disk.display()))?;
    Ok(PathBuf::from(MOUNT_POINT))
}
