//! Builds a container: namespaces, mounts, devices, and last its user. Runs in the container's first process, with one
//! thread, and changes nothing outside of its own namespaces.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid};
use oci_spec::runtime::{LinuxDevice, LinuxDeviceType, Mount, Process, Spec};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::mount::{MoveMountFlags, OpenTreeFlags};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::flags::{Change, Reach, change};

/// An error while a container is built.
#[derive(Debug)]
pub(super) struct BuildError {
    pub(super) what: String,
    pub(super) errno: Errno,
}

type Result<T = ()> = std::result::Result<T, BuildError>;

/// Adds the step that failed to an error of the kernel.
fn failed_to<E: Into<std::io::Error>>(step: impl Into<String>) -> impl FnOnce(E) -> BuildError {
    let step = step.into();
    |error| {
        let errno = Errno::from_raw(error.into().raw_os_error().unwrap_or(libc::EIO));
        BuildError { what: step, errno }
    }
}

/// The devices that every container has.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// This process's id in the PID namespace of its parent. To be called before [`build`].
pub(super) fn pid_outside() -> std::io::Result<i32> {
    let me = fs::read_link("/proc/self")?;
    me.to_str()
        .and_then(|number| number.parse().ok())
        .ok_or_else(|| std::io::Error::other("`/proc/self` has no process id"))
}

/// Turns this process into the container of the configuration.
pub(super) fn build(spec: &Spec) -> Result {
    let mounts: &[Mount] = spec.mounts().as_deref().unwrap_or_default();
    // Cloned in the node's mount namespace: there a clone of a shared mount becomes its peer, so that a mount made in
    // the container appears on the node. In the new namespace a clone would be a peer of that namespace's copy only.
    let sources = mounts.iter().map(clone_source).collect::<Result<Vec<Option<OwnedFd>>>>()?;
    let namespaces = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
    unshare(namespaces).map_err(failed_to("make namespaces"))?;
    // From here on a new mount appears on the node only if it is made in one of `sources`.
    let slave = MsFlags::MS_REC | MsFlags::MS_SLAVE;
    mount(None::<&str>, "/", None::<&str>, slave, None::<&str>)
        .map_err(failed_to("leave the peers of `/`"))?;

    let root = spec.root().as_ref().map_or(Path::new(""), |root| root.path().as_path());
    mount(Some("volproof"), root, Some("tmpfs"), MsFlags::empty(), Some("mode=755"))
        .map_err(failed_to("mount the root"))?;
    let inside = open(root)?;
    for (mount, source) in mounts.iter().zip(sources) {
        let destination = mount.destination();
        attach(inside.as_fd(), mount, source).map_err(|error| BuildError {
            what: format!("{} `{}`", error.what, destination.display()),
            ..error
        })?;
    }
    make_devices(inside.as_fd(), spec)?;
    protect_paths(inside.as_fd(), spec)?;
    if let Some(hostname) = spec.hostname() {
        nix::unistd::sethostname(hostname).map_err(failed_to("set the host name"))?;
    }
    if spec.root().as_ref().and_then(|root| root.readonly()) == Some(true) {
        change(inside.as_fd(), Change::ReadOnly, Reach::Itself)
            .map_err(failed_to("make the root read-only"))?;
    }
    drop(inside);
    enter(root)?;
    if let Some(process) = spec.process() {
        become_user(process)?;
    }
    Ok(())
}

/// Makes the devices of every container and those of the configuration.
fn make_devices(root: BorrowedFd<'_>, spec: &Spec) -> Result {
    for name in DEVICES {
        let device = Path::new("/dev").join(name);
        // A device that the machine lacks is left out.
        let Ok(node_device) = clone(&device, false) else { continue };
        mount_at(root, &device, &node_device, true)?;
    }
    let linux = spec.linux().as_ref();
    for device in linux.iter().flat_map(|linux| linux.devices().iter().flatten()) {
        make_device(root, device)?;
    }
    Ok(())
}

/// Masks paths and makes paths read-only, as the configuration says.
fn protect_paths(root: BorrowedFd<'_>, spec: &Spec) -> Result {
    let linux = spec.linux().as_ref();
    for path in linux.iter().flat_map(|linux| linux.masked_paths().iter().flatten()) {
        mask(root, Path::new(path))?;
    }
    for path in linux.iter().flat_map(|linux| linux.readonly_paths().iter().flatten()) {
        make_read_only(root, Path::new(path))?;
    }
    Ok(())
}

/// Clones the source of a bind mount, without attaching the clone. With `rbind` the clone includes
/// the mounts below the source.
fn clone_source(mount: &Mount) -> Result<Option<OwnedFd>> {
    let (Some("bind"), Some(source)) = (mount.typ().as_deref(), mount.source()) else { return Ok(None) };
    clone(source, options(mount).any(|option| option == "rbind")).map(Some)
}

fn options(mount: &Mount) -> impl Iterator<Item = &str> {
    mount.options().iter().flatten().map(String::as_str)
}

/// Sets the flags in a mount's options on its tree. The tree has to be attached: older kernels cannot change it before.
fn set_flags(tree: &OwnedFd, mount: &Mount) -> Result {
    let propagation = options(mount).find_map(|option| match option {
        "rprivate" | "private" => Some(MsFlags::MS_PRIVATE),
        "rslave" | "slave" => Some(MsFlags::MS_SLAVE),
        "rshared" | "shared" => Some(MsFlags::MS_SHARED),
        _ => None,
    });
    if let Some(kind) = propagation {
        change(tree.as_fd(), Change::Propagation(kind), Reach::Below)
            .map_err(failed_to("set the propagation of the volume at"))?;
    }
    for option in options(mount) {
        let reach = match option {
            "ro" => Reach::Itself,
            "rro" => Reach::Below,
            _ => continue,
        };
        change(tree.as_fd(), Change::ReadOnly, reach).map_err(failed_to("make the volume read-only at"))?;
    }
    Ok(())
}

fn clone(path: &Path, recursive: bool) -> Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    rustix::mount::open_tree(CWD, path, flags).map_err(failed_to(format!("clone `{}`", path.display())))
}

fn attach(root: BorrowedFd<'_>, wanted: &Mount, source: Option<OwnedFd>) -> Result {
    if let Some(source) = source {
        let stat = rustix::fs::fstat(&source).map_err(failed_to("stat the source of the mount at"))?;
        let is_dir = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory;
        mount_at(root, wanted.destination(), &source, !is_dir)?;
        return set_flags(&source, wanted);
    }
    let place = mount_point(root, wanted.destination(), false)?;
    let target = format!("/proc/self/fd/{}", place.as_raw_fd());
    let (mut flags, mut data) = (MsFlags::empty(), Vec::new());
    for option in wanted.options().iter().flatten() {
        match option.as_str() {
            "nosuid" => flags |= MsFlags::MS_NOSUID,
            "noexec" => flags |= MsFlags::MS_NOEXEC,
            "nodev" => flags |= MsFlags::MS_NODEV,
            "ro" => flags |= MsFlags::MS_RDONLY,
            "strictatime" => flags |= MsFlags::MS_STRICTATIME,
            "rw" => {}
            other => data.push(other),
        }
    }
    let fs_type = wanted.typ().as_deref();
    match mount(fs_type, target.as_str(), fs_type, flags, Some(data.join(",").as_str())) {
        // A user namespace without a network namespace of its own may not mount sysfs; it gets a bind of the existing one.
        Err(Errno::EPERM) if fs_type == Some("sysfs") => {
            mount_at(root, wanted.destination(), &clone(Path::new("/sys"), true)?, false)
        }
        mounted => mounted.map_err(failed_to(format!("mount {} at", fs_type.unwrap_or_default()))),
    }
}

fn mount_at(root: BorrowedFd<'_>, path: &Path, tree: &OwnedFd, is_file: bool) -> Result {
    let place = mount_point(root, path, is_file)?;
    attach_tree(tree, &place).map_err(failed_to("mount a volume at"))
}

/// Attaches a tree at an open mount point.
fn attach_tree(tree: &OwnedFd, place: &OwnedFd) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(tree, "", place, "", flags)
}

/// Opens a path in the root, and creates its missing directories and, with `is_file`, the file at its end. Symbolic
/// links are resolved inside the root.
fn mount_point(root: BorrowedFd<'_>, path: &Path, is_file: bool) -> Result<OwnedFd> {
    let failed = |errno: rustix::io::Errno| failed_to("make the mount point")(errno);
    let names: Vec<_> = path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
    let mut here = root.try_clone_to_owned().map_err(failed_to("make the mount point"))?;
    let mut walked = PathBuf::new();
    for (index, name) in names.iter().enumerate() {
        walked.push(name);
        here = match open_in_root(root, &walked) {
            Err(rustix::io::Errno::NOENT) => {
                if is_file && index + 1 == names.len() {
                    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
                    rustix::fs::openat(&here, name.as_os_str(), flags, Mode::from(0o644)).map_err(failed)?;
                } else {
                    rustix::fs::mkdirat(&here, name.as_os_str(), Mode::from(0o755)).map_err(failed)?;
                }
                open_in_root(root, &walked).map_err(failed)?
            }
            found => found.map_err(failed)?,
        };
    }
    Ok(here)
}

fn open_in_root(root: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
}

fn open(root: &Path) -> Result<OwnedFd> {
    rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(failed_to("open the root"))
}

/// Makes a device file from its numbers, as a container runtime does: on the node the device may have another path.
fn make_device(root: BorrowedFd<'_>, device: &LinuxDevice) -> Result {
    let path = device.path();
    let step = || format!("make the device `{}`", path.display());
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(BuildError { what: step(), errno: Errno::EINVAL });
    };
    let kind = match device.typ() {
        LinuxDeviceType::B => rustix::fs::FileType::BlockDevice,
        LinuxDeviceType::P => rustix::fs::FileType::Fifo,
        _ => rustix::fs::FileType::CharacterDevice,
    };
    let number = |number: i64| u32::try_from(number).unwrap_or_default();
    let numbers = rustix::fs::makedev(number(device.major()), number(device.minor()));
    let parent = mount_point(root, parent, false)?;
    let mode = Mode::from(device.file_mode().unwrap_or(0o666) & 0o7777);
    rustix::fs::mknodat(&parent, name, kind, mode, numbers).map_err(failed_to(step()))?;
    // mknod applies the umask.
    rustix::fs::chmodat(&parent, name, mode, rustix::fs::AtFlags::empty()).map_err(failed_to(step()))?;
    let owner = device.uid().map(rustix::fs::Uid::from_raw);
    let group = device.gid().map(rustix::fs::Gid::from_raw);
    rustix::fs::chownat(&parent, name, owner, group, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
        .map_err(failed_to(step()))
}

/// Covers a masked path, if it exists: a directory with an empty tmpfs, a file with `/dev/null`.
fn mask(root: BorrowedFd<'_>, path: &Path) -> Result {
    let step = || format!("mask `{}`", path.display());
    let Ok(place) = open_in_root(root, path.strip_prefix("/").unwrap_or(path)) else { return Ok(()) };
    let stat = rustix::fs::fstat(&place).map_err(failed_to(step()))?;
    let target = format!("/proc/self/fd/{}", place.as_raw_fd());
    match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::Directory => {
            let flags = MsFlags::MS_RDONLY;
            mount(Some("tmpfs"), target.as_str(), Some("tmpfs"), flags, Some("size=0"))
                .map_err(failed_to(step()))
        }
        _ => {
            let nothing = clone(Path::new("/dev/null"), false)?;
            attach_tree(&nothing, &place).map_err(failed_to(step()))
        }
    }
}

fn make_read_only(root: BorrowedFd<'_>, path: &Path) -> Result {
    let step = || format!("make `{}` read-only", path.display());
    let Ok(place) = open_in_root(root, path.strip_prefix("/").unwrap_or(path)) else { return Ok(()) };
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = rustix::mount::open_tree(&place, "", flags).map_err(failed_to(step()))?;
    attach_tree(&tree, &place).map_err(failed_to(step()))?;
    change(tree.as_fd(), Change::ReadOnly, Reach::Below).map_err(failed_to(step()))
}

/// Changes the root, and unmounts the old one with everything in it.
fn enter(root: &Path) -> Result {
    nix::unistd::chdir(root).map_err(failed_to("enter the root"))?;
    nix::unistd::pivot_root(".", ".").map_err(failed_to("change the root"))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(failed_to("leave the old root"))?;
    nix::unistd::chdir("/").map_err(failed_to("enter the new root"))
}

/// Takes the user, the environment and the capabilities of the container. The last step: after it this process has only the
/// container's rights.
fn become_user(process: &Process) -> Result {
    if let Some(score) = process.oom_score_adj() {
        match fs::write("/proc/self/oom_score_adj", score.to_string()) {
            // Only root of the machine may lower the score.
            Err(error) if error.raw_os_error() == Some(libc::EACCES) => {}
            written => written.map_err(failed_to("set oom_score_adj"))?,
        }
    }
    for name in std::env::vars_os().map(|(name, _)| name) {
        // SAFETY: this process has one thread.
        unsafe { std::env::remove_var(name) };
    }
    for variable in process.env().iter().flatten() {
        let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
        // SAFETY: this process has one thread.
        unsafe { std::env::set_var(name, value) };
    }
    let user = process.user();
    let groups: Vec<Gid> =
        user.additional_gids().iter().flatten().map(|group| Gid::from_raw(*group)).collect();
    match nix::unistd::setgroups(&groups) {
        // An ordinary user's namespace may not set groups, and none are to be set.
        Err(Errno::EPERM) if groups.is_empty() => {}
        set => set.map_err(failed_to("set the groups"))?,
    }
    nix::unistd::setgid(Gid::from_raw(user.gid())).map_err(failed_to("set the group"))?;
    nix::unistd::setuid(Uid::from_raw(user.uid())).map_err(failed_to("become the user"))?;
    if user.uid() == 0 {
        let wanted = process.capabilities().as_ref().and_then(|sets| sets.effective().as_ref());
        let names = wanted.into_iter().flatten().map(|capability| format!("{capability:?}"));
        return limit_to(&names.collect::<Vec<_>>());
    }
    Ok(())
}

/// Keeps only these capabilities, also for programs that are executed later.
fn limit_to(names: &[String]) -> Result {
    // The two libraries spell the names of capabilities differently.
    let plain = |name: &str| name.to_lowercase().replace('_', "");
    // A capability that this process lacks cannot be given to a container.
    let own = rustix::thread::capabilities(None).map_err(failed_to("read the capabilities"))?.permitted;
    let wanted: CapabilitySet = own
        .iter_names()
        .filter(|(known, _)| names.iter().any(|name| plain(name) == plain(known)))
        .map(|(_, capability)| capability)
        .collect();
    for (_, capability) in CapabilitySet::all().difference(wanted).iter_names() {
        // An error means that this kernel does not have the capability.
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
    let sets = CapabilitySets { effective: wanted, permitted: wanted, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).map_err(failed_to("give up capabilities"))
}
