//! The table of reported bugs: each case and each sabotage that it names exists, and its count is that of its rows.

use std::collections::BTreeSet;

use super::{Repository, Violation};

const TABLE: &str = "docs/bugs.md";
const SABOTAGES: &str = "fake-csi/src/sabotage.rs";
const CASES: &str = "conformance/cases/src/";

pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let Some(text) = repository.files.get(TABLE) else { return vec![] };
    let sabotages = names(repository.files.get(SABOTAGES).map_or("", String::as_str));
    let (mut violations, mut all, mut found) = (Vec::new(), 0, 0);
    for (at, row) in text.lines().enumerate().filter(|(_, line)| line.starts_with("| ")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let &[_, reports, case, sabotage] = cells.as_slice() else { continue };
        if reports == "report" {
            continue;
        }
        let count = reports.split(", ").count();
        all += count;
        let place = || format!("{TABLE}:{}", at + 1);
        if let Some(name) = in_backticks(case).filter(|name| !is_case(repository, name)) {
            violations
                .push(Violation::new(place(), format!("names the case `{name}`, which does not exist")));
        }
        let Some(name) = in_backticks(sabotage) else { continue };
        found += count;
        if !sabotages.contains(name) {
            violations
                .push(Violation::new(place(), format!("names the sabotage `{name}`, which does not exist")));
        }
    }
    let said = format!("**{found} of {all} reports have a sabotage that is found.**");
    if !text.contains(&said) {
        violations.push(Violation::new(TABLE, format!("does not say `{said}`, as its rows do")));
    }
    violations
}

fn in_backticks(cell: &str) -> Option<&str> {
    cell.strip_prefix('`')?.strip_suffix('`')
}

/// `csi::device::name` is `fn name` in `csi/device.rs`.
fn is_case(repository: &Repository, name: &str) -> bool {
    let Some((module, function)) = name.rsplit_once("::") else { return false };
    let file = format!("{CASES}{}.rs", module.replace("::", "/"));
    let text = repository.files.get(file.as_str());
    text.is_some_and(|text| text.contains(&format!("async fn {function}(")))
}

/// The names in lines such as `StageStacksMounts "stage-stacks-mounts" "DRV-041"`.
fn names(text: &str) -> BTreeSet<&str> {
    text.lines().filter(|line| line.contains("\" \"DRV-")).filter_map(|line| line.split('"').nth(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = "**2 of 3 reports have a sabotage that is found.**\n\n| bug | report | case | sabotage |\n|---|---|---|---|\n\
        | it breaks | a#1, b#2 | `csi::x::is_found` | `a-b` |\n| it is slow | c#3 | nothing measures it |  |\n";

    fn found(table: &str) -> Vec<String> {
        let files = [
            (TABLE, table),
            (SABOTAGES, "    A \"a-b\" \"DRV-001\"\n"),
            ("conformance/cases/src/csi/x.rs", "async fn is_found(cx: &mut Cx)"),
        ];
        check(&Repository::made_of(&files)).into_iter().map(|violation| violation.what).collect()
    }

    #[test]
    fn case_sabotage_and_count_that_are_wrong_are_each_found() {
        assert_eq!(found(SOUND), [""; 0]);
        assert_eq!(
            found(&SOUND.replace("is_found`", "is_lost`")),
            ["names the case `csi::x::is_lost`, which does not exist"]
        );
        assert_eq!(
            found(&SOUND.replace("`a-b`", "`c-d`")),
            ["names the sabotage `c-d`, which does not exist"]
        );
        assert_eq!(found(&SOUND.replace("2 of 3", "3 of 3")).len(), 1);
    }
}
