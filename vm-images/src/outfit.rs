//! The contents of a guest: the program under test, its tools, its modules. A guest is built once and kept in the
//! cache, under a hash of its inputs.

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

/// Raise this number when a change of this code, and of no input file, changes the contents of a guest.
const VERSION: u32 = 3;

/// The file of a guest that a run holds while it uses the guest.
const RELEASE: &str = "release";

/// The number of guests that the cache keeps beside the one in use.
const KEPT: usize = 5;

/// Modules that each guest loads when it boots, if its kernel has them: programs do not find the devices otherwise.
const AT_ONCE: &[&str] = &["virtio_blk", "loop", "fuse", "overlay", "dm_mod", "ext4"];

/// Modules that are loaded when the kernel asks for them, if it has them.
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
    "scsi_transport_iscsi",
    "libiscsi",
    "libiscsi_tcp",
    "iscsi_tcp",
    "target_core_mod",
    "target_core_file",
    "iscsi_target_mod",
];

/// Programs of this machine that a guest gets, if the machine has them: those that drivers call to format, mount and
/// expand, and those that a person at a prompt expects.
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
    "mkfs",
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
    "lvm",
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
    "lsmod",
    "iscsiadm",
    "iscsid",
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

/// Names of `lvm` that drivers call.
const LVM_NAMES: &[&str] = &[
    "lvchange",
    "lvconvert",
    "lvcreate",
    "lvdisplay",
    "lvextend",
    "lvreduce",
    "lvremove",
    "lvrename",
    "lvresize",
    "lvs",
    "lvscan",
    "pvcreate",
    "pvdisplay",
    "pvmove",
    "pvremove",
    "pvresize",
    "pvs",
    "pvscan",
    "vgchange",
    "vgck",
    "vgcreate",
    "vgdisplay",
    "vgextend",
    "vgreduce",
    "vgremove",
    "vgrename",
    "vgs",
    "vgscan",
];

/// The configuration of LVM where no udev and no daemon answers, and where no tool checks thin pools.
const LVM_CONF: &[u8] = b"devices {
    obtain_device_list_from_udev = 0
    external_device_info_source = \"none\"
    use_devicesfile = 0
}
global {
    use_lvmpolld = 0
    event_activation = 0
    thin_check_executable = \"\"
}
activation {
    udev_sync = 0
    udev_rules = 0
    monitoring = 0
}
backup {
    backup = 0
    archive = 0
}
";

/// The configuration of the initiator. Its daemon runs before it is asked for; and a guest is stopped while its snapshot
/// is taken, and runs slowly where it is emulated, so that a target that answers late is not taken for a lost one.
const ISCSID_CONF: &[u8] = b"iscsid.startup = /bin/false
node.startup = manual
node.leading_login = No
node.conn[0].timeo.noop_out_interval = 0
node.conn[0].timeo.noop_out_timeout = 0
node.session.scan = auto
";

/// The name of each guest: no two of them see the same target.
const INITIATOR_NAME: &[u8] = b"InitiatorName=iqn.2026-01.dev.volproof:guest\n";

/// The machine's directories of programs.
pub(crate) const PROGRAM_DIRS: &[&str] =
    &["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin"];

/// Configuration files of this machine that tools read, if it has them.
const SETTINGS: &[&str] = &["/etc/mke2fs.conf", "/etc/netconfig", "/etc/protocols", "/etc/services"];

/// The inputs of a guest.
#[derive(Debug, Clone)]
pub struct Outfit {
    pub packages: Vec<PathBuf>,
    /// Our program: PID 1 of the guest, and its applets.
    pub program: PathBuf,
    /// Files and directories that have the same path in the guest; programs bring their libraries.
    pub files: Vec<PathBuf>,
    /// Modules that are loaded when it boots, and that its kernel has to have.
    pub modules: Vec<String>,
}

/// A guest that can be booted. While this value exists, no other run removes its files.
#[derive(Debug)]
pub struct BuiltGuest {
    /// Its directory in the cache.
    pub dir: PathBuf,
    /// The output of `uname -r` in the guest.
    pub release: String,
    _held: File,
}

/// Why a guest cannot be built.
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
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
}

impl BuiltGuest {
    pub fn kernel(&self) -> PathBuf {
        self.dir.join("vmlinuz")
    }

    /// The archive with the guest's root.
    pub fn initramfs(&self) -> PathBuf {
        self.dir.join("root.cpio")
    }
}

impl Outfit {
    /// Takes the guest from the cache, or builds it if none was built from the same inputs.
    pub fn build_or_reuse(&self, cache: &Cache) -> Result<BuiltGuest, OutfitError> {
        let guests = cache.dir("guests")?;
        let dir = guests.join(self.key()?);
        for _ in 0..3 {
            if !dir.join(RELEASE).is_file() {
                self.build(&guests, &dir)?;
            }
            // Another run may have removed the guest since: then build it again.
            if let Some(fitted) = hold(&dir)? {
                tidy(&guests, &dir, RELEASE, KEPT);
                return Ok(fitted);
            }
        }
        Err(io(&dir)(io::Error::other("other runs remove it as soon as it is built")))
    }

    /// The hash of the guest's inputs. A file counts by its path, inode, size and modification time.
    fn key(&self) -> Result<String, OutfitError> {
        let mut hash = Sha256::new();
        hash.update(format!("{VERSION} {AT_ONCE:?} {ON_DEMAND:?} {:?}", self.modules));
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
            (RELEASE, &kernel.release.clone().into_bytes()),
        ] {
            let path = part.path().join(name);
            fs::write(&path, content).map_err(io(&path))?;
        }
        match fs::rename(part.path(), dir) {
            // The directory has its final name: the guard must not remove it.
            Ok(()) => drop(part.keep()),
            // Another run has built the same guest first.
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
        settings(&mut root, Path::new("/"))?;
        root.file(Path::new("/etc/passwd"), b"root:x:0:0:root:/root:/bin/sh\n", 0o644)?;
        root.file(Path::new("/etc/group"), b"root:x:0:\n", 0o644)?;
        root.file(Path::new("/etc/hosts"), b"127.0.0.1 localhost\n", 0o644)?;
        for file in &self.files {
            root.tree(file, file)?;
        }
        // After those, among which may be a configuration of the driver's own.
        for (name, _) in tools() {
            match name {
                "lvm" => configure_lvm(&mut root)?,
                "iscsiadm" => configure_iscsi(&mut root)?,
                _ => {}
            }
        }
        let in_kernel = |name: &&&str| kernel.modules.has(name);
        let at_once = TRANSPORT.iter().chain(AT_ONCE.iter().filter(in_kernel)).copied();
        let at_once: Vec<&str> = at_once.chain(self.modules.iter().map(String::as_str)).collect();
        root.modules(&kernel.modules, &at_once)?;
        for name in ON_DEMAND.iter().filter(in_kernel) {
            root.module_on_demand(&kernel.modules, name)?;
        }
        Ok(root.finish()?)
    }
}

/// Gives `lvm` its other names and its configuration.
fn configure_lvm(root: &mut Initramfs) -> Result<(), InitramfsError> {
    for name in LVM_NAMES {
        root.link(&Path::new("/usr/sbin").join(name), "/usr/sbin/lvm")?;
    }
    root.file(Path::new("/etc/lvm/lvm.conf"), LVM_CONF, 0o644)?;
    Ok(())
}

/// Gives `iscsiadm` and its daemon their configuration.
fn configure_iscsi(root: &mut Initramfs) -> Result<(), InitramfsError> {
    root.file(Path::new("/etc/iscsi/iscsid.conf"), ISCSID_CONF, 0o600)?;
    root.file(Path::new("/etc/iscsi/initiatorname.iscsi"), INITIATOR_NAME, 0o600)?;
    Ok(())
}

/// Puts the configuration files that a machine has into the guest.
fn settings(root: &mut Initramfs, machine: &Path) -> Result<(), InitramfsError> {
    for setting in SETTINGS.iter().map(Path::new) {
        let here = machine.join(setting.strip_prefix("/").unwrap_or(setting));
        if here.is_file() {
            root.copy(&here, setting)?;
        }
    }
    Ok(())
}

/// The tools that this machine has, by name.
fn tools() -> impl Iterator<Item = (&'static str, PathBuf)> {
    TOOLS.iter().filter_map(|name| {
        let path = PROGRAM_DIRS.iter().map(|dir| Path::new(dir).join(name)).find(|path| path.is_file())?;
        Some((*name, path))
    })
}

fn hold(dir: &Path) -> Result<Option<BuiltGuest>, OutfitError> {
    let path = dir.join(RELEASE);
    let held = match File::open(&path) {
        Ok(held) => held,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(&path)(error)),
    };
    held.lock_shared().map_err(io(&path))?;
    if !path.is_file() {
        return Ok(None);
    }
    // The modification time says when the guest was last used. If it cannot be set, the guest is only removed earlier.
    let _ = held.set_modified(SystemTime::now());
    let release = fs::read_to_string(&path).map_err(io(&path))?;
    Ok(Some(BuiltGuest { dir: dir.to_owned(), release, _held: held }))
}

/// Removes the directories of the cache that were unused for longest, but for `kept` of them. One whose file `held` a run
/// holds stays. A failed removal is ignored: it only costs space.
pub(crate) fn tidy(all: &Path, used: &Path, held: &str, kept: usize) {
    let entries = fs::read_dir(all).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut others: Vec<(SystemTime, PathBuf)> = entries
        .filter(|path| path != used)
        .filter_map(|path| Some((fs::metadata(path.join(held)).ok()?.modified().ok()?, path)))
        .collect();
    others.sort();
    let excess = others.len().saturating_sub(kept);
    for (_, path) in others.into_iter().take(excess) {
        let Ok(file) = File::open(path.join(held)) else { continue };
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
    fn oldest_guest_is_removed_unless_a_run_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let all: Vec<PathBuf> = (0..8).map(|n| made(dir.path(), &format!("guest-{n}"), n)).collect();
        let held = File::open(all[0].join("release")).unwrap();
        held.lock_shared().unwrap();
        tidy(dir.path(), &all[7], RELEASE, KEPT);
        let left: Vec<bool> = all.iter().map(|path| path.exists()).collect();
        assert_eq!(left, [true, false, true, true, true, true, true, true]);
    }

    /// Whether an archive has a path. The entries of the format end their names with zero.
    fn has(archive: &[u8], path: &str) -> bool {
        let name = [path.trim_start_matches('/').as_bytes(), &[0]].concat();
        archive.windows(name.len()).any(|window| window == name)
    }

    /// An NFS server ends without them: "unable to resolve ANYADDR:nfs".
    #[test]
    fn names_of_services_and_protocols_are_in_the_guest() {
        let machine = tempfile::tempdir().unwrap();
        fs::create_dir(machine.path().join("etc")).unwrap();
        for name in ["services", "protocols", "netconfig"] {
            fs::write(machine.path().join("etc").join(name), "nfs 2049/tcp\n").unwrap();
        }
        let mut root = Initramfs::new().unwrap();
        settings(&mut root, machine.path()).unwrap();
        let archive = root.finish().unwrap();
        for path in ["/etc/services", "/etc/protocols", "/etc/netconfig"] {
            assert!(has(&archive, path), "{path}");
        }
        assert!(!has(&archive, "/etc/mke2fs.conf"), "this machine does not have it");
    }

    #[test]
    fn file_of_the_manifest_keeps_its_path_below_the_directory_for_temporary_files() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let program = dir.path().join("my-driver");
        fs::write(&program, "#!/bin/sh\n").unwrap();
        let mut root = Initramfs::new().unwrap();
        root.tree(&program, &program).unwrap();
        assert!(has(&root.finish().unwrap(), program.to_str().unwrap()));
    }

    #[test]
    fn changed_program_changes_the_key() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        fs::write(&program, "one").unwrap();
        let outfit = Outfit { packages: vec![], program: program.clone(), files: vec![], modules: vec![] };
        let before = outfit.key().unwrap();
        assert_eq!(outfit.key().unwrap(), before);
        fs::write(&program, "three").unwrap();
        assert_ne!(outfit.key().unwrap(), before);
    }
}
