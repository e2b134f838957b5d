//! Disks with a driver's root file system, which a guest mounts read-only: a root may be larger than a guest's memory. A
//! disk is made once and kept in the cache, under the name of its content.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use sha2::{Digest, Sha256};

use crate::cache::{Cache, CacheError, hex};
use crate::outfit::{PROGRAM_DIRS, tidy};

/// The program that makes a file system of a directory without mounting it.
const MAKER: &str = "mke2fs";

/// The name of the disk in its directory of the cache.
const DISK: &str = "disk";

/// The number of disks that the cache keeps beside the one in use.
const KEPT: usize = 3;

const BLOCK: u64 = 4096;

/// A disk in the cache. While this value exists, no other run removes it.
#[derive(Debug)]
pub struct RootDisk {
    dir: PathBuf,
    _held: File,
}

/// Why there is no disk for a root.
#[derive(Debug, thiserror::Error)]
pub enum RootDiskError {
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// A file could not be used.
    #[error("cannot use `{path}`")]
    Io { path: PathBuf, source: io::Error },
    #[error("cannot make a disk of the driver's root: `{MAKER}` is not installed")]
    NoMaker,
    /// The program that makes the file system has failed.
    #[error("cannot make a disk of the driver's root: {said}")]
    Maker {
        /// Its last line.
        said: String,
    },
}

impl RootDiskError {
    /// A hint for the user, in one line.
    pub fn hint(&self) -> Option<&'static str> {
        matches!(self, Self::NoMaker)
            .then_some("on Debian and Ubuntu: apt-get install --no-install-recommends e2fsprogs")
    }
}

impl RootDisk {
    /// The disk of that name, if it is in the cache.
    pub fn cached(cache: &Cache, name: &str) -> Result<Option<Self>, RootDiskError> {
        let roots = cache.dir("roots")?;
        let dir = roots.join(name);
        let path = dir.join(DISK);
        let held = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(io(&path))?,
        };
        held.lock_shared().map_err(io(&path))?;
        if !path.is_file() {
            return Ok(None);
        }
        tidy(&roots, &dir, DISK, KEPT);
        // Says when it was used last. If that cannot be set, the disk is only removed earlier.
        let _ =
            File::options().append(true).open(&path).and_then(|disk| disk.set_modified(SystemTime::now()));
        Ok(Some(Self { dir, _held: held }))
    }

    /// Makes the disk of a directory and keeps it under this name.
    pub fn make(cache: &Cache, name: &str, root: &Path) -> Result<Self, RootDiskError> {
        let roots = cache.dir("roots")?;
        let dir = roots.join(name);
        for _ in 0..3 {
            let part = tempfile::Builder::new().prefix(".part-").tempdir_in(&roots).map_err(io(&roots))?;
            make(&part.path().join(DISK), root)?;
            match fs::rename(part.path(), &dir) {
                // The directory has its final name: the guard must not remove it.
                Ok(()) => drop(part.keep()),
                // Another run has made the same disk first.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EEXIST | libc::ENOTEMPTY)) => {}
                Err(error) => return Err(io(&dir)(error)),
            }
            if let Some(disk) = Self::cached(cache, name)? {
                return Ok(disk);
            }
        }
        Err(io(&dir)(io::Error::other("other runs remove it as soon as it is made")))
    }

    pub fn path(&self) -> PathBuf {
        self.dir.join(DISK)
    }

    /// Its directory in the cache, for what belongs to it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// A name for the content of a directory. A file counts by its path, mode, size and times.
pub fn name_of(root: &Path) -> Result<String, RootDiskError> {
    let mut hash = Sha256::new();
    hash.update(format!("{root:?}"));
    walk(root, &mut |path, found| {
        let times = (found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec());
        hash.update(format!("{:?}", (path, found.mode(), found.len(), found.ino(), times)));
    })?;
    Ok(format!("root-{}", hex(&hash.finalize()[..16])))
}

/// Makes a file system with the content of a directory.
fn make(disk: &Path, root: &Path) -> Result<(), RootDiskError> {
    let maker = maker().ok_or(RootDiskError::NoMaker)?;
    let (mut bytes, mut files) = (0, 0);
    walk(root, &mut |_, found| {
        bytes += found.len().next_multiple_of(BLOCK) + BLOCK;
        files += 1;
    })?;
    let inodes = files + 1024;
    // Besides the files there are the inodes, the maps of blocks, and directories that grow.
    let size = bytes + bytes / 20 + inodes * 256 + (16 << 20);
    let mut command = Command::new(maker);
    command.args(["-q", "-F", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-b", &BLOCK.to_string(), "-N"]);
    command.arg(inodes.to_string()).args(["-E", "nodiscard"]).arg("-d").arg(root).arg(disk);
    command.arg(format!("{}k", size.div_ceil(1024)));
    // SAFETY: prctl is the only call between fork and exec.
    unsafe { command.pre_exec(|| set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from)) };
    let ended = command.output().map_err(io(disk))?;
    match ended.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&ended.stderr);
            let last = said.lines().rfind(|line| !line.trim().is_empty());
            Err(RootDiskError::Maker { said: last.map_or_else(|| ended.status.to_string(), str::to_owned) })
        }
    }
}

fn maker() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(PROGRAM_DIRS.iter().map(PathBuf::from));
    directories.map(|directory| directory.join(MAKER)).find(|program| program.is_file())
}

/// All entries below a directory, in an order that is always the same.
fn walk(root: &Path, each: &mut dyn FnMut(&Path, &fs::Metadata)) -> Result<(), RootDiskError> {
    let mut todo = vec![root.to_owned()];
    while let Some(path) = todo.pop() {
        let found = fs::symlink_metadata(&path).map_err(io(&path))?;
        each(path.strip_prefix(root).unwrap_or(&path), &found);
        if found.is_dir() {
            let entries = fs::read_dir(&path).map_err(io(&path))?;
            let mut entries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            entries.sort();
            todo.extend(entries);
        }
    }
    Ok(())
}

fn io(path: &Path) -> impl FnOnce(io::Error) -> RootDiskError {
    let path = path.to_owned();
    move |source| RootDiskError::Io { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_file_changes_the_name() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("driver"), "one").unwrap();
        let before = name_of(root.path()).unwrap();
        assert_eq!(name_of(root.path()).unwrap(), before);
        fs::write(root.path().join("driver"), "three").unwrap();
        assert_ne!(name_of(root.path()).unwrap(), before);
    }

    #[test]
    fn disk_has_the_files_of_the_root_and_is_made_once() {
        if maker().is_none() {
            return println!("skipped: `{MAKER}` is not installed");
        }
        let (root, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let cache = Cache::at(cache.path().to_owned());
        fs::create_dir(root.path().join("usr")).unwrap();
        fs::write(root.path().join("usr/driver"), b"the driver of this root".repeat(10_000)).unwrap();
        assert!(RootDisk::cached(&cache, "x").unwrap().is_none());
        let made = RootDisk::make(&cache, "x", root.path()).unwrap();
        let whole = fs::read(made.path()).unwrap();
        let has = |text: &[u8]| whole.windows(text.len()).any(|window| window == text);
        assert!(has(b"the driver of this root") && !has(b"no such text"));
        assert_eq!(RootDisk::cached(&cache, "x").unwrap().unwrap().path(), made.path());
    }
}
