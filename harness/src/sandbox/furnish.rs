//! The mounts of a sandbox. Runs inside the new mount namespace and touches nothing outside.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use super::machine::Machine;
use super::{SOURCE, SandboxError, SandboxOptions};
use crate::{Layout, ledger, observe};

/// Mounts and makes everything. Returns the devices of what lives and dies with the namespace, and the machine as it is
/// seen from inside.
pub(super) fn furnish(
    layout: &Layout,
    options: &SandboxOptions,
) -> Result<(Vec<u64>, Machine), SandboxError> {
    // First: from here on no mount reaches the machine.
    attach("a private root", Path::new("/"), None, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None)?;
    let mut machine = contain(layout, options);
    let mut devices = machine.devices()?;
    devices.extend(machine.own_devices()?);
    if machine.bounds.open_because.is_some() {
        let proc_flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        attach("proc", Path::new("/proc"), Some("proc"), proc_flags, None)?;
        release_volumes_below(&[layout.root(), &ledger::base()]);
        if !layout.root().is_dir() || !layout.state().is_dir() {
            devices.push(cover_var_lib(layout)?);
        }
    }
    match &options.disk {
        Some(disk) => {
            for (name, place, mode) in parts(layout) {
                keep_on(disk, place, name, mode)?;
            }
        }
        None => keep_in_memory(layout, options.bytes())?,
    }
    // A peer group of its own: mounts that a container or a driver makes below it with propagation appear here.
    attach("a shared node root", layout.root(), None, MsFlags::MS_SHARED, None)?;
    fill(layout)?;
    // The state's is the same.
    devices.push(device_of(layout.root())?);
    machine.disregard_until_now();
    Ok((devices, machine))
}

/// Puts the machine's files out of reach, if that is wanted and possible.
fn contain(layout: &Layout, options: &SandboxOptions) -> Machine {
    if options.disk.is_some() {
        return Machine::open("what is written is to be there after a power cut");
    }
    let directories = [layout.root(), layout.state()];
    Machine::enter(&options.machine, options.user_namespace, &directories).unwrap_or_else(|error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        Machine::open(format!("{error}{}", cause.unwrap_or_default()))
    })
}

/// The two directories of a node on their file system: the name there, the place, and the mode. The first has the mode that
/// the kubelet gives it.
fn parts(layout: &Layout) -> [(&'static str, &Path, u32); 2] {
    [("node", layout.root(), 0o750), ("state", layout.state(), 0o755)]
}

/// Makes one file system in memory, and mounts a directory of it at each place.
///
/// One, since on most machines a driver's files and the node's are on one disk: a driver that finds mount points by their
/// device numbers takes the directory of a volume that is mounted at a target for a plain one. Two mounts, since a driver in
/// a pod has these directories so: it can rename nothing from one to the other.
fn keep_in_memory(layout: &Layout, bytes: u64) -> Result<(), SandboxError> {
    // It is unmounted again before anything else runs in the sandbox, so any place will do.
    let whole = layout.state();
    tmpfs(whole, bytes, "0700")?;
    let mut trees: Vec<(&Path, OwnedFd)> = Vec::new();
    for (name, place, mode) in parts(layout) {
        let part = whole.join(name);
        make_dir(&part, mode)?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        trees.push((place, open_tree(CWD, &part, flags).map_err(|errno| path_error(&part, errno.into()))?));
    }
    let refused = |place: &Path, source: io::Error| SandboxError::Mount {
        what: "a directory of a tmpfs",
        target: place.to_owned(),
        source,
    };
    umount2(whole, MntFlags::empty()).map_err(|errno| refused(whole, errno.into()))?;
    for (place, tree) in trees {
        move_mount(&tree, "", CWD, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(|errno| refused(place, errno.into()))?;
    }
    Ok(())
}

/// Binds a directory of a disk over a place, without the sockets of dead servers.
fn keep_on(disk: &Path, place: &Path, name: &str, mode: u32) -> Result<(), SandboxError> {
    let kept = disk.join(name);
    make_dir(&kept, mode)?;
    remove_sockets(&kept);
    mount(Some(&kept), place, None::<&str>, MsFlags::MS_BIND, None::<&str>).map_err(|errno| {
        SandboxError::Mount {
            what: "a directory of the disk",
            target: place.to_owned(),
            source: io::Error::from(errno),
        }
    })
}

/// A process that makes a socket anew would find the old one in the way, and reports it if it could not be removed.
fn remove_sockets(below: &Path) {
    for entry in fs::read_dir(below).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => remove_sockets(&entry.path()),
            Ok(kind) if kind.is_socket() => drop(fs::remove_file(entry.path())),
            _ => {}
        }
    }
}

/// Makes the directories that a node and a driver need at their start.
pub(super) fn fill(layout: &Layout) -> Result<(), SandboxError> {
    for below in ["pods", "plugins", "plugins_registry"] {
        make_dir(&layout.root().join(below), 0o750)?;
    }
    make_dir(&layout.driver_state(), 0o755)?;
    make_dir(&layout.sockets(), 0o755)
}

/// Lets go of volumes that a real kubelet on this machine has mounted, or a run with a driver that runs already.
///
/// The new namespace has copies of them, and a copy keeps a device busy that its owner wants to detach.
fn release_volumes_below(places: &[&Path]) {
    let mut volumes = observe::mounts_of("thread-self").unwrap_or_default();
    volumes.retain(|mount| places.iter().any(|place| mount.target.starts_with(place)));
    // Youngest first, so that none is asked for under another.
    for volume in volumes.iter().rev() {
        // In a user namespace inherited mounts are locked together; there they hold nothing anyway.
        let _ = umount2(&volume.target, MntFlags::MNT_DETACH);
    }
}

/// Puts a writable layer over `/var/lib`, so that missing mount points can be made without making them on the
/// machine. Returns its device.
fn cover_var_lib(layout: &Layout) -> Result<u64, SandboxError> {
    let covered = Path::new("/var/lib");
    // Opened before it is covered, and in this namespace: overlay wants its lower layer in the caller's own.
    let lower = fs::File::open(covered).map_err(|source| path_error(covered, source))?;
    tmpfs(covered, 64 << 20, "0755")?;
    let device = device_of(covered)?;
    for layer in ["upper", "work"] {
        make_dir(&covered.join(layer), 0o755)?;
    }
    let options =
        format!("lowerdir=/proc/self/fd/{},upperdir=/var/lib/upper,workdir=/var/lib/work", lower.as_raw_fd());
    let stacked = mount(Some(SOURCE), covered, Some("overlay"), MsFlags::empty(), Some(options.as_str()));
    if stacked.is_err() {
        // No overlay in this kernel: a bare tmpfs hides what else lies there, which few programs need.
        for layer in ["upper", "work"] {
            let layer = covered.join(layer);
            fs::remove_dir_all(&layer).map_err(|source| path_error(&layer, source))?;
        }
    }
    make_dir(layout.root(), 0o755)?;
    make_dir(layout.state(), 0o755)?;
    Ok(device)
}

pub(super) fn tmpfs(target: &Path, bytes: u64, mode: &str) -> Result<(), SandboxError> {
    let options = format!("size={bytes},mode={mode}");
    attach("a tmpfs", target, Some("tmpfs"), MsFlags::empty(), Some(&options))
}

pub(super) fn attach(
    what: &'static str,
    target: &Path,
    fstype: Option<&str>,
    flags: MsFlags,
    options: Option<&str>,
) -> Result<(), SandboxError> {
    mount(fstype.map(|_| SOURCE), target, fstype, flags, options).map_err(|errno| SandboxError::Mount {
        what,
        target: target.to_owned(),
        source: io::Error::from(errno),
    })
}

/// Makes a directory of exactly this mode, with any umask; one that exists keeps its own.
pub(super) fn make_dir(path: &Path, mode: u32) -> Result<(), SandboxError> {
    match fs::create_dir(path) {
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(mode)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
    .map_err(|source| path_error(path, source))
}

pub(super) fn device_of(path: &Path) -> Result<u64, SandboxError> {
    Ok(fs::metadata(path).map_err(|source| path_error(path, source))?.dev())
}

pub(super) fn path_error(path: &Path, source: io::Error) -> SandboxError {
    SandboxError::Path { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use nix::sched::{CloneFlags, unshare};

    use super::*;

    #[test]
    fn volume_with_a_blank_in_its_path_is_released() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("ignored, because it needs root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (blank, plain) = (dir.path().join("pods a"), dir.path().join("pods"));
        // A mount namespace belongs to a thread, and this one ends with its mounts.
        let released = std::thread::scope(|scope| {
            let in_namespace = || {
                unshare(CloneFlags::CLONE_NEWNS).unwrap();
                let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
                mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
                for target in [&blank, &plain] {
                    fs::create_dir(target).unwrap();
                    tmpfs(target, 1 << 20, "0755").unwrap();
                }
                let below = || {
                    let all = observe::mounts_of("thread-self").unwrap();
                    all.iter().filter(|mount| mount.target.starts_with(dir.path())).count()
                };
                let before = below();
                release_volumes_below(&[&blank]);
                (before, below())
            };
            scope.spawn(in_namespace).join().unwrap()
        });
        assert_eq!(released, (2, 1));
    }
}
