//! Documents: the three at the root are there, and what a document links to exists.

use super::{Repository, Violation};

const ROOT_DOCUMENTS: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for document in ROOT_DOCUMENTS {
        if !repository.files.contains_key(*document) {
            violations.push(Violation::new(*document, "is missing"));
        }
    }
    for (path, text) in repository.files.iter().filter(|(path, _)| path.ends_with(".md")) {
        for (line, link) in links(text) {
            if !exists(repository, path, link) {
                violations.push(Violation::new(
                    format!("{path}:{line}"),
                    format!("links to `{link}`, which is not there"),
                ));
            }
        }
    }
    violations
}

/// The targets of `[text](target)` that lie in this repository, with their lines.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().flat_map(|(at, line)| {
        line.split("](")
            .skip(1)
            .filter_map(|rest| rest.split_once(')'))
            .map(|(target, _)| target.split('#').next().unwrap_or(target))
            .filter(|target| !target.is_empty() && !target.contains("://"))
            .map(move |target| (at + 1, target))
    })
}

fn exists(repository: &Repository, document: &str, link: &str) -> bool {
    let directory = document.rsplit_once('/').map_or("", |(directory, _)| directory);
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let path = parts.join("/");
    let below = format!("{path}/");
    repository.files.contains_key(&path)
        || repository.files.keys().any(|file| file.starts_with(&below))
        || crate::workspace::root().join(&path).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_root_documents(more: &[(&str, &str)]) -> Repository {
        let mut files: Vec<(&str, &str)> = ROOT_DOCUMENTS.iter().map(|document| (*document, "")).collect();
        files.extend(more);
        Repository::made_of(&files)
    }

    #[test]
    fn a_missing_root_document_is_found() {
        assert_eq!(check(&Repository::made_of(&[("README.md", ""), ("CONTRIBUTING.md", "")])).len(), 1);
    }

    #[test]
    fn a_link_to_nowhere_is_found() {
        let repository =
            with_root_documents(&[("docs/a.md", "see\n[b](b.md) and [c](../c.md#part) and [d](d/)")]);
        assert_eq!(
            check(&repository).iter().map(|violation| violation.place.as_str()).collect::<Vec<_>>(),
            ["docs/a.md:2", "docs/a.md:2", "docs/a.md:2"]
        );
    }

    #[test]
    fn a_link_that_leads_somewhere_is_not() {
        let repository = with_root_documents(&[
            ("docs/a.md", "[r](../README.md) [e](e/) [w](https://example.com/x) [p](#part)"),
            ("docs/e/f.md", ""),
        ]);
        assert_eq!(check(&repository), []);
    }
}
