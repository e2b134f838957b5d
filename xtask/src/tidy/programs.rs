//! A crate has one program of integration tests, `it`: each further one is linked and started for itself. Another one
//! stands in the manifest, below a comment with its reason.

use super::{Repository, Violation};

const WHAT: &str = "is a test program of its own: make it a module of `it`, or give its reason in the manifest, in a \
                    comment above `[[test]]`";

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in repository.packages.values() {
        let manifest = repository.files.get(&package.manifest).map_or("", String::as_str);
        let declared = declared(manifest);
        let directory = package.manifest.trim_end_matches("Cargo.toml");
        let tests = format!("{directory}tests/");
        let found = repository.rust().filter_map(|(path, _)| path.strip_prefix(&tests)?.strip_suffix(".rs"));
        for name in found.filter(|name| !name.contains('/')) {
            if !declared.iter().any(|(known, _)| known == name) {
                violations.push(Violation::new(format!("{tests}{name}.rs"), WHAT));
            }
        }
        for (name, _) in declared.iter().filter(|(name, argued)| name != "it" && !argued) {
            violations.push(Violation::new(&package.manifest, format!("`{name}` {WHAT}")));
        }
    }
    violations
}

/// The test programs that a manifest names, and whether a comment stands above each.
fn declared(manifest: &str) -> Vec<(String, bool)> {
    let lines: Vec<&str> = manifest.lines().collect();
    let blocks = lines.iter().enumerate().filter(|(_, line)| **line == "[[test]]");
    let program = |(at, _): (usize, &&str)| {
        let name = lines[at..].iter().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))?;
        let argued = at.checked_sub(1).is_some_and(|above| lines[above].starts_with('#'));
        Some((name.to_owned(), argued))
    };
    blocks.filter_map(program).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(manifest: &str, more: &str) -> usize {
        let repository = Repository::made_of(&[("host/Cargo.toml", manifest), (more, "//! A test.\n")]);
        check(&repository.with_package("host", &[], &[])).len()
    }

    #[test]
    fn second_program_without_a_reason_is_found() {
        assert_eq!(found("", "host/tests/it/main.rs"), 0);
        assert_eq!(found("", "host/tests/it/mounts.rs"), 0);
        assert_eq!(found("", "host/tests/mounts.rs"), 1);
        let declared = "[[test]]\nname = \"mounts\"\nharness = false\n";
        assert_eq!(found(declared, "host/tests/mounts.rs"), 1);
        assert_eq!(found(&format!("# It is PID 1.\n{declared}"), "host/tests/mounts.rs"), 0);
        assert_eq!(found("[[test]]\nname = \"it\"\n", "host/tests/it/main.rs"), 0);
    }
}
