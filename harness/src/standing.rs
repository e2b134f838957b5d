//! The privileges of this process on the machine, and whether that is a guest.

use std::fs;
use std::sync::LazyLock;

/// The privileges of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Root of the machine.
    Root,
    /// Root of a user namespace, as in a rootless container: to the kernel an ordinary user.
    NamespaceRoot,
    /// An ordinary user.
    User,
}

/// The privileges of this process. In a sandbox that is a user namespace, the answer is
/// [`Standing::NamespaceRoot`].
pub fn standing() -> Standing {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    match (nix::unistd::geteuid().is_root(), maps_all(&map)) {
        (false, _) => Standing::User,
        // Without `/proc` a user namespace cannot be recognised.
        (true, all) if all || map.is_empty() => Standing::Root,
        (true, _) => Standing::NamespaceRoot,
    }
}

/// Whether this process is root of the machine.
pub fn is_root() -> bool {
    standing() == Standing::Root
}

/// Whether this is a guest of the suite.
pub fn in_guest() -> bool {
    // The arguments of a guest's PID 1 are on its kernel's command line.
    static IN_GUEST: LazyLock<bool> =
        LazyLock::new(|| fs::read_to_string("/proc/cmdline").unwrap_or_default().contains(" -- __guest"));
    *IN_GUEST
}

/// The user id of this process on the machine.
pub(crate) fn outer_user() -> u32 {
    let user = nix::unistd::geteuid().as_raw();
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    outside(&map, user).unwrap_or(user)
}

/// Whether every user of the machine has the same id in this namespace, as in the initial one.
fn maps_all(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

fn outside(map: &str, user: u32) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let (inside, outside, length) = (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
        let offset = user.checked_sub(inside).filter(|offset| *offset < length)?;
        outside.checked_add(offset)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_namespace_maps_all_users() {
        assert!(maps_all("         0          0 4294967295\n"));
        for map in ["", "0 0 1\n", "0 1000 1\n1 100000 65536\n", "0 0 65536\n", "0 100000 4294967295\n"] {
            assert!(!maps_all(map), "{map}");
        }
    }

    #[test]
    fn user_of_the_machine_is_found_in_the_map() {
        let map = "         0       1000          1\n         1     100000      65536\n";
        assert_eq!(
            [0, 1, 65536, 65537].map(|user| outside(map, user)),
            [Some(1000), Some(100_000), Some(165_535), None]
        );
    }
}
