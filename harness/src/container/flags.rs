//! Changes flags and propagation of existing mounts: in one call, or mount by mount on kernels before Linux 5.12. Changes
//! only mounts of this mount namespace.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use linux_raw_sys::general as raw;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};

use crate::observe::{Mount, parse_mountinfo};

/// A change of a mount.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    ReadOnly,
    /// One of `MS_PRIVATE`, `MS_SLAVE`, `MS_SHARED`.
    Propagation(MsFlags),
}

/// The mounts that change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Only this mount.
    Itself,
    /// The mount and all mounts below it.
    Below,
}

/// Changes the mount whose root is open here.
pub(crate) fn change(root: BorrowedFd<'_>, change: Change, reach: Reach) -> nix::Result<()> {
    match at_once(root, change, reach) {
        Err(Errno::ENOSYS) => change_each_mount(root, change, reach),
        done => done,
    }
}

/// By mount_setattr, which spares no mount and stops at none halfway.
fn at_once(root: BorrowedFd<'_>, change: Change, reach: Reach) -> nix::Result<()> {
    let (attr_set, propagation) = match change {
        Change::ReadOnly => (u64::from(raw::MOUNT_ATTR_RDONLY), 0),
        Change::Propagation(kind) => (0, kind.bits()),
    };
    let attributes = raw::mount_attr { attr_set, attr_clr: 0, propagation, userns_fd: 0 };
    let at = raw::AT_EMPTY_PATH | if reach == Reach::Below { raw::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is an empty C string, and the attributes live until the call has returned.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            root.as_raw_fd(),
            c"".as_ptr(),
            at,
            &raw const attributes,
            size_of::<raw::mount_attr>(),
        )
    };
    Errno::result(result).map(drop)
}

/// By remounting. mount(2) reaches below only for propagation; every other mount is looked up in the table.
fn change_each_mount(root: BorrowedFd<'_>, change: Change, reach: Reach) -> nix::Result<()> {
    if let Change::Propagation(kind) = change {
        let below = if reach == Reach::Below { MsFlags::MS_REC } else { MsFlags::empty() };
        return mount(None::<&str>, through(root).as_str(), None::<&str>, kind | below, None::<&str>);
    }
    let id = mount_id(root)?;
    let table = table()?;
    let itself = table.iter().find(|mount| mount.id.0 == id).ok_or(Errno::EINVAL)?;
    read_only(root, itself)?;
    if reach == Reach::Itself {
        return Ok(());
    }
    for mount in below(&table, id) {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&mount.target, flags, Mode::empty());
        // A mount that another one covers can be neither seen nor uncovered in the container.
        let Ok(opened) = opened else { continue };
        if mount_id(opened.as_fd())? == mount.id.0 {
            read_only(opened.as_fd(), mount)?;
        }
    }
    Ok(())
}

/// A remount names all flags anew: those a mount has stay, and in a user namespace they may not go.
fn read_only(root: BorrowedFd<'_>, mount: &Mount) -> nix::Result<()> {
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | kept(&mount.opts);
    nix::mount::mount(None::<&str>, through(root).as_str(), None::<&str>, flags, None::<&str>)
}

/// The flags behind the options of a mount, as the table shows them.
fn kept(options: &str) -> MsFlags {
    let mut flags = MsFlags::empty();
    for option in options.split(',') {
        flags |= match option {
            "nosuid" => MsFlags::MS_NOSUID,
            "nodev" => MsFlags::MS_NODEV,
            "noexec" => MsFlags::MS_NOEXEC,
            "noatime" => MsFlags::MS_NOATIME,
            "nodiratime" => MsFlags::MS_NODIRATIME,
            "relatime" => MsFlags::MS_RELATIME,
            // Linux 5.10, and not among the C library's.
            "nosymfollow" => MsFlags::from_bits_retain(0x100),
            _ => MsFlags::empty(),
        };
    }
    // `strictatime` is not in the mount table, and setting other time flags implies `relatime`.
    if !flags.intersects(MsFlags::MS_NOATIME | MsFlags::MS_RELATIME) {
        flags |= MsFlags::MS_STRICTATIME;
    }
    flags
}

/// All mounts below one, parents first.
fn below(table: &[Mount], id: u64) -> Vec<&Mount> {
    let mut found: Vec<&Mount> = Vec::new();
    let mut parents = vec![id];
    while let Some(parent) = parents.pop() {
        let children = table.iter().filter(|mount| mount.parent.0 == parent && mount.id.0 != parent);
        for child in children {
            parents.push(child.id.0);
            found.push(child);
        }
    }
    found
}

fn table() -> nix::Result<Vec<Mount>> {
    let text = fs::read("/proc/thread-self/mountinfo")
        .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))?;
    parse_mountinfo(&text).map_err(|_| Errno::EINVAL)
}

/// The number of a mount in the table.
fn mount_id(root: BorrowedFd<'_>) -> nix::Result<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(root, "", flags, StatxFlags::MNT_ID)
        .map_err(|errno| Errno::from_raw(errno.raw_os_error()))?;
    Ok(stat.stx_mnt_id)
}

fn through(root: BorrowedFd<'_>) -> String {
    format!("/proc/thread-self/fd/{}", root.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::path::Path;

    use expect_test::{Expect, expect};
    use nix::sched::{CloneFlags, unshare};

    use super::*;

    type Way = fn(BorrowedFd<'_>, Change, Reach) -> nix::Result<()>;

    /// The flags of a tree of mounts after changes, in a mount namespace that ends with its thread. `None` without root.
    fn flags_after(
        way: Way,
        changes: &'static [(&'static str, Change, Reach)],
    ) -> Option<nix::Result<String>> {
        if !nix::unistd::geteuid().is_root() {
            println!("skipped: mounting needs root");
            return None;
        }
        let scratch = tempfile::tempdir().unwrap();
        let base = scratch.path().to_owned();
        let seen = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            let apart = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, "/", None::<&str>, apart, None::<&str>).unwrap();
            let strict = MsFlags::MS_STRICTATIME | MsFlags::MS_NODIRATIME;
            let careful = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC | MsFlags::MS_NOATIME;
            for (path, flags) in [
                ("", MsFlags::empty()),
                ("a", careful | MsFlags::MS_NODIRATIME),
                ("a/sub", MsFlags::MS_NODEV),
                ("a/sub/deep", strict),
                ("a/covered", MsFlags::empty()),
                ("a/covered/deep", MsFlags::empty()),
                ("a/covered", MsFlags::empty()),
                ("b", MsFlags::empty()),
            ] {
                let target = base.join(path);
                fs::create_dir_all(&target).unwrap();
                mount(Some("t"), &target, Some("tmpfs"), flags, Some("size=64k")).unwrap();
            }
            for (path, change, reach) in changes {
                way(open(&base.join(path)).as_fd(), *change, *reach)?;
            }
            Ok(shown(&base))
        });
        Some(seen.join().unwrap())
    }

    /// Holds what comes of both ways against the same.
    fn both_ways(changes: &'static [(&'static str, Change, Reach)], expected: &Expect) {
        for seen in [change as Way, change_each_mount].into_iter().filter_map(|way| flags_after(way, changes))
        {
            expected.assert_eq(&seen.unwrap());
        }
    }

    fn open(path: &Path) -> OwnedFd {
        rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    fn shown(base: &Path) -> String {
        let line = |mount: &Mount| {
            let path = Path::new(".").join(mount.target.strip_prefix(base).ok()?);
            let peers = mount.propagation.split(':').next().unwrap_or_default();
            Some(format!("{} {} [{peers}]\n", path.display(), mount.opts))
        };
        table().unwrap().iter().filter_map(line).collect()
    }

    const READ_ONLY: Change = Change::ReadOnly;
    const SHARED: Change = Change::Propagation(MsFlags::MS_SHARED);
    const PRIVATE: Change = Change::Propagation(MsFlags::MS_PRIVATE);

    #[test]
    fn changed_mount_keeps_its_other_flags() {
        let changes = &[("a", READ_ONLY, Reach::Itself), ("a/sub", SHARED, Reach::Itself)];
        let expected = expect![[r#"
            ./ rw,relatime []
            ./a ro,nosuid,noexec,noatime,nodiratime []
            ./a/sub rw,nodev,relatime [shared]
            ./a/sub/deep rw,nodiratime []
            ./a/covered rw,relatime []
            ./a/covered/deep rw,relatime []
            ./a/covered rw,relatime []
            ./b rw,relatime []
        "#]];
        both_ways(changes, &expected);
    }

    #[test]
    fn all_mounts_below_are_changed_and_none_beside() {
        let changes = &[
            ("a", SHARED, Reach::Below),
            ("a/sub", PRIVATE, Reach::Below),
            ("a/sub", READ_ONLY, Reach::Below),
        ];
        let expected = expect![[r#"
            ./ rw,relatime []
            ./a rw,nosuid,noexec,noatime,nodiratime [shared]
            ./a/sub ro,nodev,relatime []
            ./a/sub/deep ro,nodiratime []
            ./a/covered rw,relatime [shared]
            ./a/covered/deep rw,relatime [shared]
            ./a/covered rw,relatime [shared]
            ./b rw,relatime []
        "#]];
        both_ways(changes, &expected);
    }

    #[test]
    fn covered_mount_does_not_block() {
        if let Some(seen) = flags_after(change_each_mount, &[("a", READ_ONLY, Reach::Below)]) {
            expect![[r#"
                ./ rw,relatime []
                ./a ro,nosuid,noexec,noatime,nodiratime []
                ./a/sub ro,nodev,relatime []
                ./a/sub/deep ro,nodiratime []
                ./a/covered rw,relatime []
                ./a/covered/deep rw,relatime []
                ./a/covered ro,relatime []
                ./b rw,relatime []
            "#]]
            .assert_eq(&seen.unwrap());
        }
    }
}
