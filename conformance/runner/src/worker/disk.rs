//! The disk of a machine whose power is cut: what a node and a driver wrote is on it when they start again.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use nix::mount::MsFlags;

/// Where it is mounted, outside of every sandbox and of what a sandbox lets go of.
const PLACE: &str = "/mnt/disk";

/// Mounts it, with a new file system if nothing is to be on it.
pub(super) fn mounted(disk: &Path, new: bool) -> anyhow::Result<PathBuf> {
    if new {
        let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(disk).output();
        let made = made.context("cannot run `mkfs.ext4`")?;
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        ensure!(made.status.success(), "cannot make a file system on `{}`: {said}", disk.display());
    }
    std::fs::create_dir_all(PLACE).with_context(|| format!("cannot create `{PLACE}`"))?;
    nix::mount::mount(Some(disk), PLACE, Some("ext4"), MsFlags::empty(), None::<&str>)
        .with_context(|| format!("cannot mount `{}`", disk.display()))?;
    Ok(PathBuf::from(PLACE))
}
