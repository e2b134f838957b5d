//! What a case does not do: clean up, wait for time to pass, or ask whether it may run.
//!
//! The sandbox cleans up even after a case was killed, `cx.sees` waits for what it waits for, and needs stand
//! above the body. A case that did any of this itself would hide what the suite is there to find.

use super::source::{code, lines_with};
use super::{Repository, Violation};

/// The directory of the cases.
const CASES: &str = "conformance/cases/src/";

/// Calls that a case must not make, with the reason. Words of a story are not meant: they are in strings.
const FORBIDDEN: &[(&str, &str)] = &[
    ("sleep(", "a case does not sleep: `cx.sees` waits until nothing is pending"),
    ("remove_dir", "a case does not clean up: the sandbox does, and the census reports the rest"),
    ("remove_file", "a case does not clean up: the sandbox does, and the census reports the rest"),
    ("umount", "a case does not clean up: the sandbox does, and the census reports the rest"),
    ("impl Drop", "a case does not clean up: the sandbox does, and the census reports the rest"),
    (".unwrap(", "a case does not unwrap: `?` keeps the line, and distinguishes a failure from an error"),
    ("capabilit", "a case does not ask whether it may run: that is what `needs` says"),
    ("process::exit", "a case does not end the worker"),
];

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in repository.rust().filter(|(path, _)| path.starts_with(CASES)) {
        let code = code(text);
        for (pattern, what) in FORBIDDEN {
            violations.extend(
                lines_with(&code, pattern).map(|line| Violation::new(format!("{path}:{line}"), *what)),
            );
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_a_case(text: &str) -> Vec<Violation> {
        check(&Repository::made_of(&[("conformance/cases/src/csi/block.rs", text)]))
    }

    #[test]
    fn each_forbidden_thing_is_found() {
        for (pattern, what) in FORBIDDEN {
            assert_eq!(
                in_a_case(&format!("//! A case.\nfn f() {{ x{pattern} }}\n")),
                [Violation::new("conformance/cases/src/csi/block.rs:2", *what)]
            );
        }
    }

    #[test]
    fn a_story_may_speak_of_umount() {
        assert_eq!(
            in_a_case("cx.sees(expect![[r#\"\n    umount <publish:data/web>\n\"#]])?; // no sleep()"),
            []
        );
    }

    #[test]
    fn others_may_sleep() {
        assert_eq!(check(&Repository::made_of(&[("harness/src/wait.rs", "sleep(")])), []);
    }
}
