//! What goes into a guest: the program under test, its tools, its modules. Built once, and kept in the cache
//! under a name made of everything that went in.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use crate::cache::{Cache, CacheError, hex};
use crate::elf;
use crate::guest::applet_names;
use crate::initramfs::{Initramfs, InitramfsError, TRANSPORT};
use crate::kernel::{KernelError, KernelFiles};

/// Raised when what this code puts into a guest changes without any file having changed.
const VERSION: u32 = 1;

/// How many built guests the cache keeps beside the one that is used.
const KEPT: usize = 5;

/// Modules every guest comes up with, where its kernel has them: others find their devices only then.
const AT_ONCE: &[&str] = &["virtio_blk", "loop", "fuse", "overlay", "dm_mod", "ext4"];

/// Modules that are loaded when the kernel asks for them, where it has them.
const ON_DEMAND: &[&str] = &[
    "xfs",
    "btrfs",
    "nfsd",
    "nfs",
    "nfsv3",
    "nfsv4",
    "dm_flakey",
    "dm_delay",
    "dm_log_writes",
    "dm_snapshot",
    "dm_thin_pool",
    "null_blk",
    "scsi_debug",
    "sd_mod",
    "brd",
    "nbd",
    "configfs",
];

/// Programs of this machine that a guest gets, where the machine has them: what drivers call to format, mount
/// and grow, and what a person at a prompt expects.
const TOOLS: &[&str] = &[
    "sh",
    "mount",
    "umount",
    "losetup",
    "findmnt",
    "blkid",
    "blockdev",
    "lsblk",
    "fsck",
    "mkfs.ext4",
    "mke2fs",
    "e2fsck",
    "fsck.ext4",
    "resize2fs",
    "tune2fs",
    "dumpe2fs",
    "debugfs",
    "mkfs.xfs",
    "xfs_growfs",
    "xfs_repair",
    "xfs_admin",
    "fsck.xfs",
    "xfs_io",
    "mkfs.btrfs",
    "btrfs",
    "dmsetup",
    "sleep",
    "cat",
    "ls",
    "cp",
    "mv",
    "rm",
    "mkdir",
    "rmdir",
    "touch",
    "ln",
    "chmod",
    "chown",
    "stat",
    "df",
    "du",
    "dd",
    "sync",
    "truncate",
    "tar",
    "grep",
    "sed",
    "head",
    "tail",
    "wc",
    "sort",
    "env",
    "id",
    "uname",
    "ps",
    "kill",
    "dmesg",
    "find",
    "true",
    "false",
    "echo",
    "readlink",
    "realpath",
    "mknod",
    "tr",
    "cut",
    "test",
    "bash",
];

/// Where the machine keeps programs.
const PROGRAM_DIRS: &[&str] =
    &["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin"];

/// Files of this machine that tools read, where it has them.
const SETTINGS: &[&str] = &["/etc/mke2fs.conf"];

/// What a guest is to hold.
#[derive(Debug, Clone)]
pub struct Outfit {
    /// The kernel's packages.
    pub packages: Vec<PathBuf>,
    /// The program that is PID 1 and all else of ours.
    pub program: PathBuf,
    /// Files and directories that lie at the same place as here; programs bring their libraries.
    pub files: Vec<PathBuf>,
}

/// A guest that can be booted. For as long as it is held, no other run takes its files away.
#[derive(Debug)]
pub struct Fitted {
    /// Its directory in the cache.
    pub dir: PathBuf,
    /// What its kernel will say to `uname -r`.
    pub release: String,
    _held: File,
}

/// What stood in the way of building a guest.
#[derive(Debug, thiserror::Error)]
pub enum OutfitError {
    /// The cache could not be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The packages hold no kernel we can use.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The root could not be put together.
    #[error(transparent)]
    Root(#[from] InitramfsError),
    /// A file could not be used.
    #[error("cannot use `{path}`")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Fitted {
    /// The kernel image.
    pub fn kernel(&self) -> PathBuf {
        self.dir.join("vmlinuz")
    }

    /// The root.
    pub fn initramfs(&self) -> PathBuf {
        self.dir.join("root.cpio")
    }
}

impl Outfit {
    /// Builds the guest, unless the very same one is in the cache.
    pub fn fit(&self, cache: &Cache) -> Result<Fitted, OutfitError> {
        let guests = cache.dir("guests")?;
        let dir = guests.join(self.key()?);
        for _ in 0..3 {
            if !dir.join("release").is_file() {
                self.build(&guests, &dir)?;
            }
            // Another run may have taken it away in between, and then there is nothing to hold.
            if let Some(fitted) = hold(&dir)? {
                tidy(&guests, &dir);
                return Ok(fitted);
            }
        }
        Err(io(&dir)(io::Error::other("it is taken away as soon as it is built")))
    }

    /// Names the guest by all that goes in. A file is known by its place, size and age.
    fn key(&self) -> Result<String, OutfitError> {
        let mut hash = Sha256::new();
        hash.update(format!("{VERSION} {AT_ONCE:?} {ON_DEMAND:?}"));
        let mut files = self.packages.clone();
        files.push(self.program.clone());
        files.extend(tools().map(|(_, path)| path));
        files.extend(self.files.iter().cloned());
        while let Some(path) = files.pop() {
            let meta = fs::metadata(&path).map_err(io(&path))?;
            hash.update(format!("{:?}", (&path, meta.len(), meta.ino(), meta.mtime(), meta.mtime_nsec())));
            if meta.is_dir() {
                let entries = fs::read_dir(&path).map_err(io(&path))?;
                let mut entries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
                entries.sort();
                files.extend(entries);
            }
        }
        Ok(hex(&hash.finalize()[..8]))
    }

    fn build(&self, guests: &Path, dir: &Path) -> Result<(), OutfitError> {
        let kernel = KernelFiles::from_packages(&self.packages)?;
        let root = self.root(&kernel)?;
        let part = tempfile::Builder::new().prefix(".part-").tempdir_in(guests).map_err(io(guests))?;
        for (name, content) in [
            ("vmlinuz", &kernel.image),
            ("root.cpio", &root),
            ("release", &kernel.release.clone().into_bytes()),
        ] {
            let path = part.path().join(name);
            fs::write(&path, content).map_err(io(&path))?;
        }
        match fs::rename(part.path(), dir) {
            // It is theirs now, and there is nothing to remove.
            Ok(()) => drop(part.keep()),
            // Another run was quicker with the same one.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EEXIST | libc::ENOTEMPTY)) => {}
            Err(error) => return Err(io(dir)(error)),
        }
        Ok(())
    }

    fn root(&self, kernel: &KernelFiles) -> Result<Vec<u8>, OutfitError> {
        let mut root = Initramfs::new()?;
        for (place, content) in elf::libraries(&self.program).map_err(InitramfsError::from)? {
            root.file(&place, &content, 0o755)?;
        }
        let program = fs::read(&self.program).map_err(io(&self.program))?;
        root.file(Path::new("/init"), &elf::stripped(program), 0o755)?;
        for name in applet_names() {
            root.link(Path::new(name), "/init")?;
        }
        for (name, path) in tools() {
            let dir = if path.parent().and_then(Path::file_name) == Some(OsStr::new("sbin")) {
                "sbin"
            } else {
                "bin"
            };
            root.program(&path, &Path::new("/usr").join(dir).join(name))?;
        }
        for setting in SETTINGS.iter().map(Path::new).filter(|path| path.is_file()) {
            root.copy(setting, setting)?;
        }
        root.file(Path::new("/etc/passwd"), b"root:x:0:0:root:/root:/bin/sh\n", 0o644)?;
        root.file(Path::new("/etc/group"), b"root:x:0:\n", 0o644)?;
        root.file(Path::new("/etc/hosts"), b"127.0.0.1 localhost\n", 0o644)?;
        for file in &self.files {
            root.tree(file, file)?;
        }
        let there = |name: &&&str| kernel.modules.has(name);
        let at_once: Vec<&str> = TRANSPORT.iter().chain(AT_ONCE.iter().filter(there)).copied().collect();
        root.modules(&kernel.modules, &at_once)?;
        for name in ON_DEMAND.iter().filter(there) {
            root.module_on_demand(&kernel.modules, name)?;
        }
        Ok(root.finish()?)
    }
}

/// The tools that this machine has, by name.
fn tools() -> impl Iterator<Item = (&'static str, PathBuf)> {
    TOOLS.iter().filter_map(|name| {
        let path = PROGRAM_DIRS.iter().map(|dir| Path::new(dir).join(name)).find(|path| path.is_file())?;
        Some((*name, path))
    })
}

fn hold(dir: &Path) -> Result<Option<Fitted>, OutfitError> {
    let path = dir.join("release");
    let held = match File::open(&path) {
        Ok(held) => held,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(&path)(error)),
    };
    held.lock_shared().map_err(io(&path))?;
    if !path.is_file() {
        return Ok(None);
    }
    // Its age is when it was used last. Where it cannot be set, it only goes earlier.
    let _ = held.set_modified(SystemTime::now());
    let release = fs::read_to_string(&path).map_err(io(&path))?;
    Ok(Some(Fitted { dir: dir.to_owned(), release, _held: held }))
}

/// Takes away the guests that were not used for longest. One that somebody holds stays; what cannot be removed
/// only takes room.
fn tidy(guests: &Path, but: &Path) {
    let entries = fs::read_dir(guests).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut others: Vec<(SystemTime, PathBuf)> = entries
        .filter(|path| path != but)
        .filter_map(|path| Some((fs::metadata(path.join("release")).ok()?.modified().ok()?, path)))
        .collect();
    others.sort();
    let many = others.len().saturating_sub(KEPT);
    for (_, path) in others.into_iter().take(many) {
        let Ok(file) = File::open(path.join("release")) else { continue };
        if !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

fn io(path: &Path) -> impl FnOnce(io::Error) -> OutfitError {
    let path = path.to_owned();
    move |source| OutfitError::Io { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(guests: &Path, name: &str, age: u64) -> PathBuf {
        let dir = guests.join(name);
        fs::create_dir(&dir).unwrap();
        let file = File::create(dir.join("release")).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(age)).unwrap();
        dir
    }

    #[test]
    fn the_oldest_guest_goes_unless_somebody_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let all: Vec<PathBuf> = (0..8).map(|n| made(dir.path(), &format!("guest-{n}"), n)).collect();
        let held = File::open(all[0].join("release")).unwrap();
        held.lock_shared().unwrap();
        tidy(dir.path(), &all[7]);
        let left: Vec<bool> = all.iter().map(|path| path.exists()).collect();
        assert_eq!(left, [true, false, true, true, true, true, true, true]);
    }

    #[test]
    fn another_program_makes_another_guest() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        fs::write(&program, "one").unwrap();
        let outfit = Outfit { packages: vec![], program: program.clone(), files: vec![] };
        let before = outfit.key().unwrap();
        assert_eq!(outfit.key().unwrap(), before);
        fs::write(&program, "three").unwrap();
        assert_ne!(outfit.key().unwrap(), before);
    }
}
