//! Every Rust file opens with `//!`: what it is for, and what it may touch.

use super::{Repository, Violation};

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    repository
        .rust()
        .filter(|(_, text)| !opens_well(text))
        .map(|(path, _)| {
            Violation::new(path, "opens without `//!`: say what it is for and what it may touch")
        })
        .collect()
}

/// The first line is a sentence of documentation, not an empty one.
fn opens_well(text: &str) -> bool {
    text.lines()
        .next()
        .and_then(|first| first.strip_prefix("//!"))
        .is_some_and(|rest| !rest.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_it_is_for() {
        for bad in ["", "use std::fs;\n", "//!\n//! Late.\n", "// A comment.\n", "\n//! Late.\n"] {
            assert_eq!(check(&Repository::made_of(&[("a.rs", bad)])).len(), 1, "{bad:?}");
        }
        assert_eq!(check(&Repository::made_of(&[("a.rs", "//! Says it.\n")])), []);
    }
}
