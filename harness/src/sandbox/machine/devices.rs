//! A `/dev` of the sandbox's own: the devices that every machine has, and nodes for loop and mapped devices.
//!
//! Names that a driver or udev gives to disks (`/dev/disk`, `/dev/mapper`) are then the sandbox's, so that cases
//! that run at the same time do not share them. The machine's disks have no node.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use nix::mount::MsFlags;
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::mount::{MoveMountFlags, move_mount};

use super::cloned;
use crate::loop_device::{LOOP_MAJOR, table};
use crate::sandbox::SandboxError;
use crate::sandbox::furnish::{attach, make_dir, path_error};

/// Devices of the machine that the sandbox has, too, if the machine has them.
const OF_MACHINE: [&str; 13] = [
    "null",
    "zero",
    "full",
    "random",
    "urandom",
    "tty",
    "kmsg",
    "fuse",
    "kvm",
    "loop-control",
    "btrfs-control",
    "mapper/control",
    "net/tun",
];

/// File systems in the machine's `/dev` that the sandbox has, too.
const MOUNTED: [&str; 2] = ["mqueue", "hugepages"];

/// Nodes of loop devices are made in multiples of this number, and at least half of it beside those in use.
const READY: u32 = 64;

/// Fills the directory that will be `/dev`.
pub(super) fn furnish(dev: &Path, user_namespace: bool) -> Result<(), SandboxError> {
    // Binds of device nodes inherit the flags of this mount, so it has those of the machine's devtmpfs: none.
    attach("a tmpfs", dev, Some("tmpfs"), MsFlags::empty(), Some("size=4m,mode=755,nr_inodes=8k"))?;
    for directory in ["pts", "shm", "mapper", "net"] {
        make_dir(&dev.join(directory), 0o755)?;
    }
    take_from_machine(dev, user_namespace)?;
    if !user_namespace {
        make_disks(dev)?;
    }
    let terminals =
        if user_namespace { "newinstance,ptmxmode=0666" } else { "newinstance,ptmxmode=0666,mode=620,gid=5" };
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    attach("terminals", &dev.join("pts"), Some("devpts"), flags, Some(terminals))?;
    let links = [
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "fd/0"),
        ("stdout", "fd/1"),
        ("stderr", "fd/2"),
    ];
    for (name, target) in links {
        symlink(target, dev.join(name)).map_err(|source| path_error(&dev.join(name), source))?;
    }
    Ok(())
}

/// Makes [`OF_MACHINE`] and [`MOUNTED`]. A user namespace may not make nodes, and gets binds.
fn take_from_machine(dev: &Path, user_namespace: bool) -> Result<(), SandboxError> {
    for name in OF_MACHINE {
        let of_machine = Path::new("/dev").join(name);
        let Ok(metadata) = fs::symlink_metadata(&of_machine) else { continue };
        match user_namespace {
            true => show(&of_machine, &dev.join(name))?,
            false => {
                let mode = metadata.mode();
                make_node(&dev.join(name), FileType::CharacterDevice, metadata.rdev(), mode, metadata.gid())?;
            }
        }
    }
    for name in MOUNTED {
        let of_machine = Path::new("/dev").join(name);
        if of_machine.is_dir() {
            make_dir(&dev.join(name), 0o755)?;
            show(&of_machine, &dev.join(name))?;
        }
    }
    Ok(())
}

/// Makes nodes for the loop and mapped devices that exist or may be added: the kernel makes a device on request, and the
/// requesting process opens its node at once.
fn make_disks(dev: &Path) -> Result<(), SandboxError> {
    let mut loops: BTreeSet<u32> = table::numbers().into_iter().collect();
    let used = table::numbers_bound().into_iter().max().unwrap_or_default();
    loops.extend(0..(used + READY / 2).next_multiple_of(READY));
    // With the machine's mode and group, since drivers and pods see them through binds.
    let (mode, group) =
        fs::metadata("/dev/loop0").map_or((0o600, 0), |metadata| (metadata.mode(), metadata.gid()));
    for number in loops {
        let device = makedev(LOOP_MAJOR, number);
        make_node(&dev.join(format!("loop{number}")), FileType::BlockDevice, device, mode, group)?;
    }
    let Some(major) = mapper_major() else { return Ok(()) };
    for number in (0..READY).filter(|number| !is_of_machine(&format!("dm-{number}"), 8)) {
        let device = makedev(major, number);
        make_node(&dev.join(format!("dm-{number}")), FileType::BlockDevice, device, mode, group)?;
    }
    Ok(())
}

/// The major number of mapped devices, if the kernel has the device mapper.
fn mapper_major() -> Option<u32> {
    let text = fs::read_to_string("/proc/devices").ok()?;
    let (_, blocks) = text.split_once("Block devices:")?;
    blocks.lines().find_map(|line| line.trim().strip_suffix(" device-mapper")?.trim().parse().ok())
}

/// Whether a mapped device uses any device but loop devices.
fn is_of_machine(name: &str, depth: u32) -> bool {
    let below = fs::read_dir(format!("/sys/block/{name}/slaves")).into_iter().flatten().flatten();
    below.filter_map(|entry| entry.file_name().into_string().ok()).any(|below| match depth.checked_sub(1) {
        Some(depth) if below.starts_with("dm-") => is_of_machine(&below, depth),
        _ => !below.starts_with("loop"),
    })
}

fn make_node(place: &Path, kind: FileType, device: u64, mode: u32, group: u32) -> Result<(), SandboxError> {
    let failed = |source: io::Error| path_error(place, source);
    mknodat(CWD, place, kind, Mode::from_raw_mode(mode & 0o777), device)
        .map_err(|errno| failed(errno.into()))?;
    match group {
        0 => Ok(()),
        group => std::os::unix::fs::chown(place, None, Some(group)).map_err(failed),
    }
}

/// Binds a device or a file system of the machine's `/dev` at a path in this one.
fn show(of_machine: &Path, place: &Path) -> Result<(), SandboxError> {
    // A directory that the user may not read is left out.
    let Ok(tree) = cloned(of_machine) else { return Ok(()) };
    if !of_machine.is_dir() {
        fs::write(place, "").map_err(|source| path_error(place, source))?;
    }
    move_mount(&tree, "", CWD, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(|errno| path_error(place, errno.into()))
}
