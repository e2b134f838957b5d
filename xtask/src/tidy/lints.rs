//! Every crate takes the lints of the workspace, and nothing is silenced without an end in sight.

use super::source::{code, lines_with};
use super::{Repository, Violation};

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in repository.packages.values() {
        let manifest = repository.files.get(&package.manifest).map_or("", String::as_str);
        if !manifest.contains("[lints]\nworkspace = true") {
            violations.push(Violation::new(&package.manifest, "does not take `[lints] workspace = true`"));
        }
    }
    for (path, text) in repository.rust() {
        let code = code(text);
        for (pattern, what) in [
            ("#[ignore", "an ignored test is one nobody runs: assert today's behaviour, with a note"),
            ("[allow(", "`allow` outlives its cause: use `#[expect(…, reason = \"…\")]`"),
        ] {
            violations.extend(
                lines_with(&code, pattern).map(|line| Violation::new(format!("{path}:{line}"), what)),
            );
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_without_the_lints_is_found() {
        let repository =
            Repository::made_of(&[("host/Cargo.toml", "[package]\n")]).with_package("host", &[], &[]);
        assert_eq!(check(&repository).len(), 1);
        let repository = Repository::made_of(&[("host/Cargo.toml", "[lints]\nworkspace = true\n")]);
        assert_eq!(check(&repository.with_package("host", &[], &[])), []);
    }

    #[test]
    fn silence_is_found() {
        for bad in
            ["#[ignore]\nfn a() {}", "#[ignore = \"slow\"]", "#![allow(dead_code)]", "#[allow(unused)]"]
        {
            assert_eq!(check(&Repository::made_of(&[("a.rs", bad)])).len(), 1, "{bad}");
        }
        assert_eq!(check(&Repository::made_of(&[("a.rs", "#[expect(unused, reason = \"x\")]")])), []);
    }
}
