//! Nothing but `host` touches the kernel on behalf of the volume manager.
//!
//! What cannot be linked cannot be called: this is why the journal can trust that every effect was announced,
//! and why the simulation can fail any step.

use super::{Repository, Violation};

/// The crates that stand on this side of the door.
const INSIDE: &[&str] =
    &["volume-manager", "api", "api-convert", "cluster", "csi-proto", "plugin-api", "sim"];

/// Ways to the kernel.
const WAYS: &[&str] = &["rustix", "nix", "libc", "linux-raw-sys", "loopdev-3", "fuser"];

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for name in INSIDE {
        let Some(package) = repository.packages.get(*name) else { continue };
        for way in package.links.iter().filter(|link| WAYS.contains(&link.as_str())) {
            let what = format!("`{name}` links `{way}`: only `host` touches the kernel");
            violations.push(Violation::new(&package.manifest, what));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_cannot_link_a_way_to_the_kernel() {
        for way in WAYS {
            let repository = Repository::default().with_package("volume-manager", &["tokio", way], &[]);
            assert_eq!(check(&repository).len(), 1, "{way}");
        }
    }

    #[test]
    fn host_and_tests_may() {
        let repository = Repository::default().with_package("host", &["rustix"], &[]).with_package(
            "volume-manager",
            &["host"],
            &["nix"],
        );
        assert_eq!(check(&repository), []);
    }
}
