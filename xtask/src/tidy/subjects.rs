//! Commits: a subject names its area, `area: change`, so that a log can be read by area.
//!
//! The history before this rule is left as it is; so are merges and reverts. A clone without that history, and a
//! copy without git, have nothing to check.

use std::process::Command;

use super::{Repository, Violation};
use crate::workspace;

/// The first commit that this rule binds is the one that adds this file.
const RULE: &str = "xtask/src/tidy/subjects.rs";

pub(crate) fn check(_: &Repository) -> Vec<Violation> {
    subjects().lines().filter_map(violation).collect()
}

/// `hash subject` of each commit since the rule, none if git has no history.
fn subjects() -> String {
    let added = git(&["log", "--diff-filter=A", "--format=%H", "--", RULE]);
    let Some(since) = added.as_deref().and_then(|added| added.lines().last()) else { return String::new() };
    // In a shallow clone every file is added by the oldest commit that is there, which may be any.
    let shallow =
        git(&["rev-parse", "--is-shallow-repository"]).is_none_or(|shallow| shallow.trim() != "false");
    let range = if shallow { "-1".to_owned() } else { format!("{since}..HEAD") };
    git(&["log", "--no-merges", "--format=%h %s", &range]).unwrap_or_default()
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir(workspace::root()).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn violation(line: &str) -> Option<Violation> {
    let (commit, subject) = line.split_once(' ')?;
    let tolerated = subject.starts_with("Revert \"") || subject.starts_with("Merge ");
    (!tolerated && !has_area(subject)).then(|| {
        Violation::new(format!("commit {commit}"), format!("`{subject}`: a subject is `area: change`"))
    })
}

fn has_area(subject: &str) -> bool {
    subject.split_once(": ").is_some_and(|(area, change)| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_/,. ".contains(c);
        !area.is_empty() && area.chars().all(plain) && !change.trim().is_empty()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_without_an_area_are_found() {
        for bad in ["Mend the ledger", "Ledger: mend it", "ledger:mend it", "ledger: ", "wip"] {
            assert!(violation(&format!("abc {bad}")).is_some(), "{bad}");
        }
        for good in [
            "ledger: refuse a link",
            "host/linux, exec: close both ends",
            "Revert \"ledger: refuse a link\"",
            "Merge branch 'x'",
        ] {
            assert_eq!(violation(&format!("abc {good}")), None, "{good}");
        }
    }
}
