//! Abilities of this kernel and machine. Touches nothing but a detached file-system context.

use std::fs;
use std::sync::LazyLock;

use rustix::mount::{FsOpenFlags, fsconfig_set_flag, fsopen};

/// (major, minor); (0, 0) if it cannot be read.
pub(super) fn kernel_version() -> (u32, u32) {
    static VERSION: LazyLock<(u32, u32)> = LazyLock::new(|| {
        let text = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let mut numbers = text.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
        let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
        (next(), next())
    });
    *VERSION
}

/// Whether SELinux is enabled: its file system is mounted at the usual place, and a policy is loaded. Without a
/// policy the context of every process is `kernel`.
pub(super) fn selinux_enabled() -> bool {
    const SELINUX_MAGIC: u64 = 0xf97c_ff8c;
    let mounted = rustix::fs::statfs("/sys/fs/selinux")
        .is_ok_and(|stats| u64::try_from(stats.f_type).is_ok_and(|magic| magic == SELINUX_MAGIC));
    mounted
        && fs::read_to_string("/proc/thread-self/attr/current")
            .is_ok_and(|context| context.trim_end_matches(['\0', '\n']) != "kernel")
}

/// Whether tmpfs takes `noswap`. Tried on a file-system context that is never mounted, so there is nothing to
/// undo.
pub(super) fn tmpfs_takes_noswap() -> bool {
    if in_user_namespace() {
        return false;
    }
    let Ok(context) = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC) else {
        return kernel_version() >= (6, 4);
    };
    fsconfig_set_flag(&context, "noswap").is_ok()
}

/// Whether this process is outside the initial user namespace, the only one that maps all ids to themselves.
pub(super) fn in_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/thread-self/uid_map").unwrap_or_default();
    let fields: Vec<&str> = map.split_whitespace().collect();
    !fields.is_empty() && fields != ["0", "0", "4294967295"]
}
