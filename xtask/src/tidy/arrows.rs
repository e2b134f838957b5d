//! Who may depend on whom: the table in ARCHITECTURE.md is the rule, and `cargo metadata` is held against it.
//!
//! The table is read from the document and not repeated here, so the two cannot disagree.

use std::collections::{BTreeMap, BTreeSet};

use super::{Repository, Violation};

const DOCUMENT: &str = "ARCHITECTURE.md";
const HEADING: &str = "| crate | may use |";

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    if repository.packages.is_empty() {
        return Vec::new();
    }
    let document = repository.files.get(DOCUMENT).map_or("", String::as_str);
    let Some(table) = table(document) else {
        return vec![Violation::new(DOCUMENT, format!("has no table that begins with `{HEADING}`"))];
    };
    let mut violations = Vec::new();
    for (name, package) in &repository.packages {
        let Some(may) = table.get(name.as_str()) else {
            violations.push(Violation::new(DOCUMENT, format!("does not say what `{name}` may use")));
            continue;
        };
        for (used, in_tests) in uses(repository, package) {
            if !(may.always.contains(used) || in_tests && may.in_tests.contains(used)) {
                let what = format!("`{name}` may not use `{used}`: see the table in {DOCUMENT}");
                violations.push(Violation::new(&package.manifest, what));
            }
        }
    }
    for stale in table.keys().filter(|name| !repository.packages.contains_key(**name)) {
        violations.push(Violation::new(DOCUMENT, format!("names `{stale}`, which is no crate of ours")));
    }
    violations
}

/// Our own crates that a package uses, and whether only its tests do.
fn uses<'a>(
    repository: &'a Repository,
    package: &'a super::repository::Package,
) -> impl Iterator<Item = (&'a str, bool)> {
    let links = package.links.iter().map(|used| (used.as_str(), false));
    let tests = package.tests_link.iter().map(|used| (used.as_str(), true));
    links.chain(tests).filter(|(used, _)| repository.packages.contains_key(*used))
}

#[derive(Debug, Default)]
struct May<'a> {
    always: BTreeSet<&'a str>,
    in_tests: BTreeSet<&'a str>,
}

/// Rows such as ``| `sim` | `host`, `csi-proto`; in tests `contracts` |``: names stand in backticks.
fn table(document: &str) -> Option<BTreeMap<&str, May<'_>>> {
    let rows =
        document.lines().skip_while(|line| *line != HEADING).skip(2).take_while(|line| line.starts_with('|'));
    let mut table = BTreeMap::new();
    for row in rows {
        let mut cells = row.trim_matches('|').split('|');
        let (names, may) = (cells.next()?, cells.next()?);
        let (always, in_tests) = may.split_once("in tests").unwrap_or((may, ""));
        for name in in_backticks(names) {
            let may =
                May { always: in_backticks(always).collect(), in_tests: in_backticks(in_tests).collect() };
            table.insert(name, may);
        }
    }
    (!table.is_empty()).then_some(table)
}

fn in_backticks(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
# Title

| crate | may use |
|---|---|
| `host`, `macros` | none of ours |
| `volume-manager` | `host`; in tests `sim` |
| `sim` | `volume-manager`, `host` |
";

    fn repository(table: &str) -> Repository {
        Repository::made_of(&[(DOCUMENT, table)])
            .with_package("host", &["rustix"], &[])
            .with_package("macros", &["syn"], &[])
            .with_package("volume-manager", &["host", "tokio"], &["sim"])
            .with_package("sim", &["volume-manager", "host"], &[])
    }

    fn whats(repository: &Repository) -> Vec<String> {
        check(repository).into_iter().map(|violation| violation.what).collect()
    }

    #[test]
    fn arrows_of_the_table_are_allowed() {
        assert_eq!(check(&repository(TABLE)), []);
    }

    #[test]
    fn any_other_arrow_is_found() {
        let wrong = repository(TABLE).with_package("host", &["macros"], &[]);
        assert_eq!(whats(&wrong), ["`host` may not use `macros`: see the table in ARCHITECTURE.md"]);
    }

    #[test]
    fn test_dependency_is_no_dependency_of_the_crate() {
        let wrong = repository(TABLE).with_package("volume-manager", &["sim"], &[]);
        assert_eq!(whats(&wrong), ["`volume-manager` may not use `sim`: see the table in ARCHITECTURE.md"]);
    }

    #[test]
    fn the_table_names_exactly_our_crates() {
        let more = repository(TABLE).with_package("new", &[], &[]);
        assert_eq!(whats(&more), ["does not say what `new` may use"]);
        let mut fewer = repository(TABLE);
        fewer.packages.remove("sim");
        assert_eq!(whats(&fewer), ["names `sim`, which is no crate of ours"]);
    }

    #[test]
    fn a_document_without_the_table_is_found() {
        assert_eq!(check(&repository("# Title\n")).len(), 1);
    }
}
