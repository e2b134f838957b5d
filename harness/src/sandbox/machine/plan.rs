//! Which of the machine's mounts a sandbox shows, and how. Pure: decides on a mount table, and touches nothing.

use std::path::Path;

use nix::mount::MsFlags;

use crate::observe::{Mount, MountId};

/// Places that a sandbox has of its own, or takes from the kernel as a whole.
const OWN: [&str; 5] = ["/proc", "/sys", "/dev", "/run", "/tmp"];

/// File systems that an overlay takes for its lower layer and that answer without another machine.
const LAYERED: [&str; 16] = [
    "bcachefs", "btrfs", "erofs", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "overlay", "ramfs",
    "reiserfs", "squashfs", "tmpfs", "xfs", "zfs",
];

/// Interfaces of the kernel, which hold no files of the machine.
const OF_KERNEL: [&str; 15] = [
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "mqueue",
    "nfsd",
    "nsfs",
    "proc",
    "rpc_pipefs",
    "sysfs",
    "tracefs",
];

/// The treatment of a mount in the new root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Treatment {
    /// A layer takes all writes.
    Layer,
    ReadOnly,
    /// Unchanged: it cannot be written, or it is an interface of the kernel.
    AsItIs,
    /// Left out: a look at it could trigger a mount.
    Hidden,
    /// The sandbox has something else at its place.
    Own,
}

/// Whether a path is at or below a place that the sandbox has of its own.
pub(super) fn is_own(path: &Path) -> bool {
    OWN.iter().any(|own| path.starts_with(own))
}

/// The treatment of a mount other than the root.
pub(super) fn treatment(mount: &Mount) -> Treatment {
    let fstype = mount.fstype.as_str();
    let is_read_only = |options: &str| options.split(',').any(|option| option == "ro");
    if is_own(&mount.target) {
        Treatment::Own
    } else if fstype == "autofs" {
        Treatment::Hidden
    } else if OF_KERNEL.contains(&fstype) || is_read_only(&mount.opts) || is_read_only(&mount.super_opts) {
        Treatment::AsItIs
    } else if LAYERED.contains(&fstype) {
        Treatment::Layer
    } else {
        // A disk format that no overlay takes, or a server that may not answer.
        Treatment::ReadOnly
    }
}

/// The flags of a mount that a layer over it has to have, too.
pub(super) fn flags(options: &str) -> MsFlags {
    let flag = |option| match option {
        "nosuid" => MsFlags::MS_NOSUID,
        "nodev" => MsFlags::MS_NODEV,
        "noexec" => MsFlags::MS_NOEXEC,
        _ => MsFlags::empty(),
    };
    options.split(',').map(flag).collect()
}

/// The mounts that paths can reach, the root first and each before the mounts on it. Covered mounts are left out.
pub(super) fn visible(mounts: Vec<Mount>) -> Vec<Mount> {
    let Some(root) = mounts.iter().rfind(|mount| mount.target == Path::new("/")).map(|mount| mount.id) else {
        return mounts;
    };
    let mut open = vec![root];
    let mut seen: Vec<MountId> = Vec::new();
    while let Some(id) = open.pop() {
        let children: Vec<&Mount> =
            mounts.iter().filter(|mount| mount.parent == id && mount.id != id).collect();
        // A mount on the very root of another one covers it whole.
        let own = mounts.iter().find(|mount| mount.id == id).map(|mount| mount.target.as_path());
        if let Some(cover) = children.iter().find(|child| Some(child.target.as_path()) == own && id != root) {
            open.push(cover.id);
            continue;
        }
        seen.push(id);
        let is_covered = |child: &Mount| {
            children
                .iter()
                .any(|other| child.target != other.target && child.target.starts_with(&other.target))
        };
        open.extend(children.iter().filter(|child| !is_covered(child)).map(|child| child.id));
    }
    let mut visible = mounts;
    visible.retain(|mount| seen.contains(&mount.id));
    visible.sort_by_key(|mount| (mount.target.components().count(), mount.target.clone()));
    visible
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::parse_mountinfo;

    fn mounts(table: &str) -> Vec<Mount> {
        parse_mountinfo(table.as_bytes()).unwrap()
    }

    #[test]
    fn covered_mounts_are_left_out() {
        let table = "\
20 1 8:1 / / rw - ext4 /dev/sda1 rw
21 20 8:2 / /a/b rw - ext4 /dev/sda2 rw
22 20 8:3 / /a rw - ext4 /dev/sda3 rw
23 22 8:4 / /a/c rw - ext4 /dev/sda4 rw
24 23 8:5 / /a/c rw - xfs /dev/sda5 rw
25 21 8:6 / /a/b/d rw - ext4 /dev/sda6 rw
26 20 8:7 / /home\\040of rw - ext4 /dev/sda7 rw
";
        let visible = visible(mounts(table));
        let shown: Vec<String> =
            visible.iter().map(|mount| format!("{} {}", mount.id.0, mount.target.display())).collect();
        assert_eq!(shown, ["20 /", "22 /a", "26 /home of", "24 /a/c"]);
    }

    #[test]
    fn mount_is_layered_only_where_that_works() {
        for (line, expected) in [
            ("/home rw - ext4 /dev/sda rw", Treatment::Layer),
            ("/home ro - ext4 /dev/sda rw", Treatment::AsItIs),
            ("/snap/x rw - squashfs /dev/loop1 ro", Treatment::AsItIs),
            ("/home rw - nfs4 server:/home rw", Treatment::ReadOnly),
            ("/home rw - fuse.sshfs host: rw", Treatment::ReadOnly),
            ("/boot/efi rw - vfat /dev/sda1 rw", Treatment::ReadOnly),
            ("/misc rw - autofs systemd-1 rw", Treatment::Hidden),
            ("/var/lib/nfs/rpc_pipefs rw - rpc_pipefs sunrpc rw", Treatment::AsItIs),
            ("/run/user/1000 rw - tmpfs tmpfs rw", Treatment::Own),
            ("/dev/pts rw - devpts devpts rw", Treatment::Own),
            ("/runner rw - tmpfs tmpfs rw", Treatment::Layer),
        ] {
            let mount = &mounts(&format!("21 20 8:2 / {line}\n"))[0];
            assert_eq!(treatment(mount), expected, "{line}");
        }
        assert_eq!(flags("rw,nosuid,nodev,relatime"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV);
    }
}
