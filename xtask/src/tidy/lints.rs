//! Every crate takes the lints of the workspace. No test is ignored, and a lint is silenced only by `expect`, which
//! fails when the lint no longer fires.

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
        let ignore_defect = "an ignored test never runs: assert today's behaviour, with a note";
        let ignores = lines_with(&code, "#[ignore");
        violations.extend(ignores.map(|line| Violation::new(format!("{path}:{line}"), ignore_defect)));
        let allow_defect = "`allow` outlives its cause: use `#[expect(…, reason = \"…\")]`";
        let allows = lines_with(&code, "[allow(").filter(|line| !may_allow(text, *line));
        violations.extend(allows.map(|line| Violation::new(format!("{path}:{line}"), allow_defect)));
    }
    violations
}

/// Whether a line may use `allow`: in generated code an `expect` would fail with another version of the generator.
/// Clippy demands the reason.
fn may_allow(text: &str, line: usize) -> bool {
    text.lines().nth(line - 1).is_some_and(|line| line.contains("reason = \"generated"))
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
    fn ignored_test_and_allowed_lint_are_found() {
        for bad in
            ["#[ignore]\nfn a() {}", "#[ignore = \"slow\"]", "#![allow(dead_code)]", "#[allow(unused)]"]
        {
            assert_eq!(check(&Repository::made_of(&[("a.rs", bad)])).len(), 1, "{bad}");
        }
        for good in ["#[expect(unused, reason = \"x\")]", "#[allow(missing_docs, reason = \"generated\")]"] {
            assert_eq!(check(&Repository::made_of(&[("a.rs", good)])), [], "{good}");
        }
        let in_a_test = "#![allow(dead_code, reason = \"each test uses its own part\")]";
        assert_eq!(check(&Repository::made_of(&[("a/tests/world.rs", in_a_test)])).len(), 1);
    }
}
