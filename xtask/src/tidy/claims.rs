//! Claims of documents: a number is that of the rows it counts, and a test that a table names exists.

use std::collections::BTreeSet;

use super::{Repository, Violation};

const DEVIATIONS: &str = "docs/deviations.md";
const OBSERVABLE: &str = "## Observable by a driver";
const OTHERS: &str = "## Not observable by a driver";

/// The document that says how many sabotages the cases find, the list of those that they miss, and the list of all.
const SABOTAGES_SAID: &str = "CONTRIBUTING.md";
const SABOTAGES_MISSED: &str = "tests/registry.rs";
const SABOTAGES: &str = "fake-csi/src/sabotage.rs";

/// The last column of tables whose rows name tests.
const SHOWN_BY: &str = "shown by |";

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    violations.extend(deviations(repository));
    violations.extend(sabotages(repository));
    violations.extend(tests(repository));
    violations
}

/// `**33 of 74 can be observed by a driver**` equals the rows of the two tables.
fn deviations(repository: &Repository) -> Option<Violation> {
    let text = repository.files.get(DEVIATIONS)?;
    let (observable, others) = (rows(text, OBSERVABLE), rows(text, OTHERS));
    let said = format!("**{observable} of {} can be observed by a driver**", observable + others);
    (!text.contains(&said))
        .then(|| Violation::new(DEVIATIONS, format!("does not say `{said}`, as its rows do")))
}

/// Rows of the first table below a heading.
fn rows(text: &str, heading: &str) -> usize {
    let table = text.lines().skip_while(|line| *line != heading).skip_while(|line| !line.starts_with('|'));
    table.take_while(|line| line.starts_with('|')).count().saturating_sub(2)
}

/// `34 of 92 sabotages` equals the names that fake-csi has without those that the test lists, and all of them.
fn sabotages(repository: &Repository) -> Option<Violation> {
    let document = repository.files.get(SABOTAGES_SAID)?;
    let all = names(repository.files.get(SABOTAGES)?);
    let missed = constants(repository.files.get(SABOTAGES_MISSED).map_or("", String::as_str));
    let missed = missed.split(|c: char| !c.is_ascii_lowercase() && c != '-').collect::<BTreeSet<_>>();
    let count = all.iter().filter(|name| !missed.contains(**name)).count();
    let said = format!("{count} of {} sabotages", all.len());
    let missing = format!("does not say `{said}`, as {SABOTAGES_MISSED} and {SABOTAGES} do");
    (!words(document).contains(&said)).then(|| Violation::new(SABOTAGES_SAID, missing))
}

/// The names in lines such as `StageStacksMounts "stage-stacks-mounts" "DRV-041"`.
fn names(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.contains("\" \"DRV-")).filter_map(|line| line.split('"').nth(1)).collect()
}

/// The text of a file's constants, from `const` to the semicolon at the end of a line.
fn constants(text: &str) -> String {
    let mut inside = false;
    let lines = text.lines().filter(|line| {
        inside |= line.starts_with("const ");
        let is_part = inside;
        inside &= !line.ends_with(';');
        is_part
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A text with single blanks: a sentence may be broken anywhere.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Every name in backticks in the last column of a table of tests is a function, a case or a patch.
fn tests(repository: &Repository) -> Vec<Violation> {
    let functions: BTreeSet<&str> = repository.rust().flat_map(|(_, text)| functions(text)).collect();
    let patches = repository.files.keys().filter_map(|path| path.strip_suffix(".patch"));
    let patches: BTreeSet<&str> = patches.filter_map(|path| path.rsplit('/').next()).collect();
    let mut violations = Vec::new();
    for (path, text) in repository.files.iter().filter(|(path, _)| path.ends_with(".md")) {
        for (line, name) in named(text) {
            let function = name.rsplit("::").next().unwrap_or(name);
            // A scenario: `tests/golden.rs` checks those.
            let is_scenario = name.contains('/');
            if !is_scenario && !functions.contains(function) && !patches.contains(name) {
                let missing = format!("names the test `{name}`, which does not exist");
                violations.push(Violation::new(format!("{path}:{line}"), missing));
            }
        }
    }
    violations
}

fn functions(text: &str) -> impl Iterator<Item = &str> {
    text.split("fn ").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        &rest[..end]
    })
}

/// The names in backticks in the last column of tables that end with [`SHOWN_BY`], with their lines.
fn named(text: &str) -> Vec<(usize, &str)> {
    let mut inside = false;
    let mut names = Vec::new();
    for (at, line) in text.lines().enumerate() {
        inside = line.starts_with('|') && (inside || line.ends_with(SHOWN_BY));
        let cell = line.trim_end_matches([' ', '|']).rsplit(" | ").next().filter(|_| inside);
        names.extend(
            cell.into_iter().flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(|name| (at + 1, name)),
        );
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "**1 of 3 can be observed by a driver**\n\n## Observable by a driver\n\n| a | b |\n|---|---|\n\
        | 1 | 2 |\n\n## Not observable by a driver\n\n| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\n\
        ## Left to others\n\n| a | b |\n|---|---|\n| 5 | 6 |\n";

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        check(&Repository::made_of(files)).into_iter().map(|violation| violation.what).collect()
    }

    #[test]
    fn wrong_count_of_deviations_is_found() {
        assert_eq!(found(&[(DEVIATIONS, DOCUMENT)]), [""; 0]);
        let more = DOCUMENT.replace("| 3 | 4 |", "| 3 | 4 |\n| 5 | 6 |");
        let said = "does not say `**1 of 4 can be observed by a driver**`, as its rows do";
        assert_eq!(found(&[(DEVIATIONS, &more)]), [said]);
    }

    #[test]
    fn wrong_count_of_sabotages_is_found() {
        let all = "    A \"a-b\" \"DRV-001\"\n        \"It breaks.\"\n    C \"c-d\" \"DRV-002\"\n";
        let lists = "const MISSED: &str = \"c-d \\\n    x\";\nfn other() { run(\"a-b\"); }\n";
        let repository = |said| [(SABOTAGES, all), (SABOTAGES_MISSED, lists), (SABOTAGES_SAID, said)];
        assert_eq!(found(&repository("find 1 of\n2 sabotages")), [""; 0]);
        assert_eq!(found(&repository("find 2 of 2 sabotages")).len(), 1);
    }

    #[test]
    fn test_that_does_not_exist_is_found() {
        let table = "| what | shown by |\n|---|---|\n| `x` | `is_here`; case `a::is_here`; planted `a-bug`; `ours/01` |\n";
        let files = [("a.rs", "fn is_here() {}"), ("tests/simulated/a-bug.patch", ""), ("a.md", table)];
        assert_eq!(found(&files), [""; 0]);
        let gone = [("a.rs", ""), ("a.md", table)];
        assert_eq!(found(&gone).len(), 3);
    }
}
