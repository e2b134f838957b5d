//! Block devices and the file systems on them. The only place of the project that runs blkid, fsck, mkfs and
//! the tools that grow a file system.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::command::{self, Ran};
use super::file;
use crate::disk_tools::{self, Tool};
use crate::effect::Effect;
use crate::error::{Action, HostError, Result};
use crate::format::{CheckOutcome, DiskContent, Grow, MakeFilesystem};

/// Whether a device is open exclusively. A path that is missing or no device: `false`.
pub(super) fn is_opened(path: &Path) -> Result<bool> {
    match file::metadata(path) {
        Ok(there) if there.kind.is_device() => {}
        Ok(_) => return Ok(false),
        Err(error) if error.is_not_found() => return Ok(false),
        Err(error) => return Err(error),
    }
    match rustix::fs::open(path, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty()) {
        Ok(_) => Ok(false),
        Err(Errno::BUSY) => Ok(true),
        Err(error) => Err(HostError::os(Action::Open, path, error)),
    }
}

/// The offset of the end: a block device has no length in its metadata.
pub(super) fn size(path: &Path) -> Result<u64> {
    File::open(path)
        .and_then(|mut file| file.seek(SeekFrom::End(0)))
        .map_err(|error| HostError::os(Action::Measure, path, error))
}

/// Content of a device by blkid's low-level probe.
pub(super) fn probe(device: &Path) -> Result<DiskContent> {
    // First, since blkid gives the same answer for a missing device and for an empty one.
    file::metadata(device)?;
    let (tool, ran) = run(disk_tools::probe(device))?;
    match disk_tools::read_probe(ran.code(), &ran.output) {
        Some(DiskContent::Nothing) => readable(device).map(|()| DiskContent::Nothing),
        Some(content) => Ok(content),
        None => Err(ran.into_error("blkid", &tool.program, &tool.arguments.join(" "))),
    }
}

/// Reads the beginning and the end of a disk, where all signatures are. blkid gives the same answer for an
/// empty disk and for one that it cannot read, and formatting the latter would destroy its data.
fn readable(device: &Path) -> Result<()> {
    const BEGINNING: u64 = 256 << 10;
    const END: u64 = 64 << 10;
    let failed = |error| HostError::os(Action::Read, device, error);
    let mut file = File::open(device).map_err(failed)?;
    let length = file.seek(SeekFrom::End(0)).map_err(failed)?;
    for (from, many) in [(0, BEGINNING), (length.saturating_sub(END), END)] {
        file.seek(SeekFrom::Start(from)).map_err(failed)?;
        std::io::copy(&mut Read::by_ref(&mut file).take(many), &mut std::io::sink()).map_err(failed)?;
    }
    Ok(())
}

/// Runs fsck and reads its exit code as the kubelet does.
pub(super) fn check(device: &Path) -> Result<CheckOutcome> {
    match run(disk_tools::check(device)) {
        Ok((_, ran)) => Ok(disk_tools::read_check(ran.code(), ran.output)),
        Err(error) if error.is_not_found() => Ok(CheckOutcome::NoTool),
        Err(error) => Err(error),
    }
}

pub(super) fn make(make: &MakeFilesystem) -> Result<()> {
    must(disk_tools::make(make))?;
    Effect::new("format", &make.device).fs_type(Some(&make.fs_type)).announce();
    Ok(())
}

pub(super) fn grow(grow: &Grow) -> Result<()> {
    must(disk_tools::grow(grow)?)?;
    Effect::new("grow", &grow.device).fs_type(Some(&grow.fs_type)).announce();
    Ok(())
}

fn run(tool: Tool) -> Result<(Tool, Ran)> {
    let ran = command::run(&tool.program, &tool.arguments)?;
    Ok((tool, ran))
}

fn must(tool: Tool) -> Result<()> {
    let shown = tool.arguments.join(" ");
    command::must(&tool.program, &tool.program, &tool.arguments, &shown).map(drop)
}
