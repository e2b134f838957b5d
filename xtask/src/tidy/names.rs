//! Names of files: a directory is a subject, a file one noun or one verb.

use super::{Repository, Violation};

/// Names that say nothing about what is inside, so that everything ends up there.
const EMPTY_NAMES: &[&str] = &["utils", "util", "common", "helpers", "helper", "types", "misc"];

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    repository.rust().filter_map(|(path, _)| violation(path)).collect()
}

fn violation(path: &str) -> Option<Violation> {
    let parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    if parts.last() == Some(&"mod") {
        return Some(Violation::new(path, "`foo.rs` stands beside `foo/`: there is no `mod.rs`"));
    }
    let empty = parts.iter().find(|part| EMPTY_NAMES.contains(part))?;
    Some(Violation::new(path, format!("`{empty}` says nothing about what is inside: name the subject")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_for_its_subject() {
        for bad in
            ["a/src/mod.rs", "a/src/utils.rs", "a/src/common/x.rs", "a/tests/helpers/b.rs", "x/types.rs"]
        {
            assert_eq!(check(&Repository::made_of(&[(bad, "")])).len(), 1, "{bad}");
        }
        for good in ["a/src/module.rs", "a/src/model.rs", "a/src/uncommon.rs"] {
            assert_eq!(check(&Repository::made_of(&[(good, "")])), [], "{good}");
        }
    }
}
