//! Block devices and the file systems on them. Runs blkid, fsck, mkfs and the tools that grow; nothing else
//! of the project may.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::{command, file};
use crate::effect::Effect;
use crate::errno;
use crate::error::{Action, HostError, Result, ToolError};
use crate::format::{CheckOutcome, DiskContent, Grow, MakeFilesystem};

/// Whether somebody has it open exclusively. What is no device is open to nobody.
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

/// Its length: a device's is where its end is.
pub(super) fn size(path: &Path) -> Result<u64> {
    File::open(path)
        .and_then(|mut file| file.seek(SeekFrom::End(0)))
        .map_err(|error| HostError::os(Action::Measure, path, error))
}

/// What is on it, as blkid's low-level probe says.
pub(super) fn probe(device: &Path) -> Result<DiskContent> {
    let arguments = words(&["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export"], device);
    let ran = command::run("blkid", &arguments)?;
    match ran.code() {
        _ if ran.success() => read_probe(&ran.output).ok_or_else(|| {
            let output = ran.output.clone();
            unreadable(output, &arguments)
        }),
        // "No tags found", the word for an empty disk; also for no disk, which open(2) tells apart.
        Some(2) => {
            file::metadata(device)?;
            Ok(DiskContent::Nothing)
        }
        _ => Err(ran.into_error("blkid", "blkid", &arguments.join(" "))),
    }
}

fn unreadable(output: String, arguments: &[String]) -> HostError {
    ToolError {
        what: "blkid".to_owned(),
        status: "its output has a line that is no KEY=value".to_owned(),
        code: Some(0),
        program: "blkid".to_owned(),
        arguments: arguments.join(" "),
        output,
    }
    .into()
}

/// Reads blkid's export format. `None` if a line is not one key, one `=` and one value.
fn read_probe(output: &str) -> Option<DiskContent> {
    let (mut fs_type, mut partitions) = (String::new(), false);
    for line in output.lines().filter(|line| !line.is_empty()) {
        let (key, value) = line.split_once('=').filter(|(_, value)| !value.contains('='))?;
        match key {
            "TYPE" => value.clone_into(&mut fs_type),
            "PTTYPE" => partitions = !value.is_empty(),
            _ => {}
        }
    }
    Some(match (partitions, fs_type.is_empty()) {
        (true, _) => DiskContent::Partitions,
        (false, true) => DiskContent::Nothing,
        (false, false) => DiskContent::FileSystem(fs_type),
    })
}

/// fsck, with the answers the kubelet makes of its exit codes.
pub(super) fn check(device: &Path) -> Result<CheckOutcome> {
    let ran = match command::run("fsck", &words(&["-a"], device)) {
        Ok(ran) => ran,
        Err(error) if error.errno() == Some(errno::ENOENT) => return Ok(CheckOutcome::NoTool),
        Err(error) => return Err(error),
    };
    Ok(match ran.code() {
        _ if ran.success() => CheckOutcome::Clean,
        Some(1) => CheckOutcome::Corrected,
        Some(4) => CheckOutcome::Uncorrected { output: ran.output },
        code => CheckOutcome::Failed { code, output: ran.output },
    })
}

/// mkfs.
pub(super) fn make(make: &MakeFilesystem) -> Result<()> {
    let (program, arguments) = (format!("mkfs.{}", make.fs_type), make.arguments());
    command::must(&program, &program, &arguments, &arguments.join(" "))?;
    Effect::new("format", &make.device).fs_type(Some(&make.fs_type)).announce();
    Ok(())
}

/// The tool that grows this type.
pub(super) fn grow(grow: &Grow) -> Result<()> {
    let (program, arguments) = match grow.fs_type.as_str() {
        "ext2" | "ext3" | "ext4" => ("resize2fs", words(&[], &grow.device)),
        "xfs" => ("xfs_growfs", words(&["-d"], &grow.mounted_at)),
        "btrfs" => ("btrfs", words(&["filesystem", "resize", "max"], &grow.mounted_at)),
        _ => {
            return Err(HostError::CannotGrow { device: grow.device.clone(), fs_type: grow.fs_type.clone() });
        }
    };
    command::must(program, program, &arguments, &arguments.join(" "))?;
    Effect::new("grow", &grow.device).fs_type(Some(&grow.fs_type)).announce();
    Ok(())
}

fn words(words: &[&str], path: &Path) -> Vec<String> {
    let path = path.to_string_lossy().into_owned();
    words.iter().map(|word| (*word).to_owned()).chain([path]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_blkid_says_is_read() {
        let rows = [
            ("", Some(DiskContent::Nothing)),
            ("DEVNAME=/dev/loop0\n", Some(DiskContent::Nothing)),
            ("DEVNAME=/dev/loop0\nTYPE=ext4\n", Some(DiskContent::FileSystem("ext4".into()))),
            ("DEVNAME=/dev/loop0\nPTTYPE=dos\n", Some(DiskContent::Partitions)),
            ("TYPE=ext4\nPTTYPE=gpt\n", Some(DiskContent::Partitions)),
            ("TYPE=ext4\nnonsense\n", None),
            ("TYPE=a=b\n", None),
        ];
        for (output, expected) in rows {
            assert_eq!(read_probe(output), expected, "{output:?}");
        }
    }
}
