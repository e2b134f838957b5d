//! Sparse copies of images, copies of trees, and the extents of an image.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use super::{KernelError, tool};

/// Start and length in bytes.
pub(crate) type Range = (u64, u64);

/// Ranges of an image that hold data, in order.
pub(crate) fn extents(image: &File) -> io::Result<Vec<Range>> {
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        let start = match rustix::fs::seek(image, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(found),
            Err(errno) => return Err(errno.into()),
        };
        at = rustix::fs::seek(image, SeekFrom::Hole(start))?;
        found.push((start, at - start));
    }
}

/// Copies an image and keeps its holes.
pub(crate) fn image(from: &Path, to: &Path) -> Result<(), KernelError> {
    let copy = || -> io::Result<()> {
        let source = File::open(from)?;
        let target = File::create(to)?;
        target.set_len(source.metadata()?.len())?;
        for (start, length) in extents(&source)? {
            copy_range(&source, &target, start, length)?;
        }
        Ok(())
    };
    copy().map_err(|source| KernelError::pair("copy", from, to, source))
}

fn copy_range(source: &File, target: &File, start: u64, length: u64) -> io::Result<()> {
    let (mut read_at, mut write_at, mut left) = (start, start, length);
    while left > 0 {
        let chunk = usize::try_from(left).unwrap_or(usize::MAX).min(1 << 30);
        match rustix::fs::copy_file_range(source, Some(&mut read_at), target, Some(&mut write_at), chunk)? {
            // The file was truncated meanwhile.
            0 => return Ok(()),
            copied => left -= copied as u64,
        }
    }
    Ok(())
}

/// Makes a hole in each 4 MiB of a file: none is seen by a reader of only its start, its middle and its end.
pub(crate) fn lose_stripes(file: &Path) -> Result<(), KernelError> {
    let punch = || -> io::Result<()> {
        let opened = File::options().write(true).open(file)?;
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for at in (1 << 20..opened.metadata()?.len()).step_by(4 << 20) {
            rustix::fs::fallocate(&opened, hole, at, 4096)?;
        }
        Ok(())
    };
    punch().map_err(|source| KernelError::path("punch holes into", file, source))
}

/// Makes a hole of what follows the last whole 4 MiB of a file.
pub(crate) fn lose_tail(file: &Path) -> Result<(), KernelError> {
    let cut = || -> io::Result<()> {
        let opened = File::options().write(true).open(file)?;
        let length = opened.metadata()?.len();
        opened.set_len(length >> 22 << 22)?;
        opened.set_len(length)
    };
    cut().map_err(|source| KernelError::path("cut the end of", file, source))
}

/// Copies the content of a directory into an existing one, with owners, modes, links and holes.
pub(crate) fn tree(from: &Path, to: &Path) -> Result<(), KernelError> {
    let mut contents = from.as_os_str().to_owned();
    contents.push("/.");
    let output = tool("cp")
        .args(["-a", "--sparse=auto", "--"])
        .arg(&contents)
        .arg(to)
        .output()
        .map_err(|source| KernelError::pair("copy", from, to, source))?;
    if output.status.success() {
        return Ok(());
    }
    let output = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(KernelError::Tool { command: format!("cp -a {} {}", from.display(), to.display()), output })
}

/// Removes a file or a tree. Missing: success. A mount point is an error and is left alone.
pub(crate) fn remove(path: &Path) -> Result<(), KernelError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => {
            if super::mount::is_mount_point(path)? {
                return Err(KernelError::path("remove", path, Errno::BUSY));
            }
            fs::remove_dir_all(path)
        }
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(KernelError::path("remove", path, error))
        }
        _ => Ok(()),
    }
}
