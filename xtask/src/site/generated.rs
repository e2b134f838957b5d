//! The pages that volproof itself tells: every case, every promise and every invariant.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::markdown::slug;

/// The paths of the generated pages, as of documents.
pub(super) const PAGES: [&str; 2] = ["docs/cases.md", "docs/promises.md"];

/// The generated pages, as documents.
pub(super) fn pages(binary: &Path) -> Result<BTreeMap<String, String>> {
    let cases = objects(&told(binary, &["list", "--format", "json"])?)?;
    let promises = objects(&told(binary, &["list", "--promises", "--format", "json"])?)?;
    let names = told(binary, &["explain"])?;
    let pages = [self::cases(&cases), self::promises(&promises, &names)];
    Ok(PAGES.map(str::to_owned).into_iter().zip(pages).collect())
}

fn told(binary: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(binary).args(arguments).output();
    let output = output.with_context(|| format!("cannot run `{}`", binary.display()))?;
    ensure!(output.status.success(), "`{}` ended with {}", binary.display(), output.status);
    String::from_utf8(output.stdout).context("it printed no text")
}

fn objects(lines: &str) -> Result<Vec<Value>> {
    lines.lines().map(|line| serde_json::from_str(line).context("it printed no JSON")).collect()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, field: &str) -> Vec<&'a str> {
    value[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// A text in which nothing but code in backticks is markup.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for (number, part) in text.split('`').enumerate() {
        let is_code = number % 2 == 1;
        if number > 0 {
            plain.push('`');
        }
        for letter in part.chars() {
            if !is_code && matches!(letter, '<' | '>' | '*' | '_' | '[' | ']' | '|' | '\\' | '&' | '#') {
                plain.push('\\');
            }
            plain.push(letter);
        }
    }
    plain
}

/// How far CSI obliges, as CSI writes it.
fn strength(promise: &Value) -> String {
    match text(promise, "strength") {
        "advice" => "Advice".to_owned(),
        word => word.to_uppercase(),
    }
}

fn cases(cases: &[Value]) -> String {
    let mut page = "# Every case\n\nWhat `volproof list` shows: each case with the sentence that it proves. `volproof run ID` \
                    runs one, `volproof explain ID` says more.\n"
        .to_owned();
    let mut module = "";
    // Writing to a string cannot fail, so the results of `write!` are ignored.
    for case in cases {
        let id = text(case, "id");
        let of = id.rsplit_once("::").map_or(id, |(module, _)| module);
        if of != module {
            let _ = write!(page, "\n## {of}\n");
            module = of;
        }
        let _ = write!(page, "\n### `{id}`\n\n{}\n", plain(text(case, "proves")));
        let _ = write!(page, "\nAbout the {}.", text(case, "about"));
        let needs = list(case, "needs");
        if !needs.is_empty() {
            let _ = write!(page, " Needs {}.", needs.join(", "));
        }
        let judged = list(case, "judges");
        if !judged.is_empty() {
            let links = judged.iter().map(|id| format!("[{id}](promises.md#{})", slug(id)));
            let _ = write!(page, " Judges {}.", links.collect::<Vec<_>>().join(", "));
        }
        page.push('\n');
    }
    page
}

fn promises(promises: &[Value], names: &str) -> String {
    let mut page = "# Every promise\n\nWhat a driver promises by implementing CSI, and how far CSI obliges it: a broken MUST fails \
                    a run, a broken SHOULD is reported, and advice is what CSI does not ask for. Each promise is judged in \
                    every case that gives an occasion, if a rule can see it, and by the cases that are named here.\n\n\
                    ## Of a driver\n"
        .to_owned();
    for promise in promises {
        let (id, strength) = (text(promise, "id"), strength(promise));
        let _ = write!(page, "\n### {id}\n\n{strength}: {}\n", plain(text(promise, "sentence")));
        let _ = write!(page, "\n> {}\n", plain(text(promise, "basis")).replace('\n', "\n> "));
        let cases = list(promise, "cases");
        if !cases.is_empty() {
            let links = cases.iter().map(|id| format!("[`{id}`](cases.md#{})", slug(id)));
            let _ = write!(page, "\nCases: {}.\n", links.collect::<Vec<_>>().join(", "));
        }
        let sabotages = list(promise, "sabotages");
        if !sabotages.is_empty() {
            let lines = sabotages.iter().map(|name| format!("`--sabotage {name}`"));
            let _ = write!(page, "\nSee it broken: {}.\n", lines.collect::<Vec<_>>().join(", "));
        }
    }
    page += "\n## Of the volume manager and the controllers\n\nThese bind volproof's own node: a broken one is no fault of the \
             driver.\n\n";
    for line in names.lines().map(str::trim).filter(|line| line.starts_with("INV-")) {
        if let Some((id, sentence)) = line.split_once("  ") {
            let _ = writeln!(page, "- **{id}** {}", plain(sentence.trim()));
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_names_the_promises_that_it_judges() {
        let case = r#"{"id":"csi::a::b","proves":"A <b> of *c*.","about":"driver","needs":["Root"],"judges":["DRV-001"]}"#;
        let page = cases(&objects(case).unwrap());
        assert!(page.contains("## csi::a\n\n### `csi::a::b`\n\nA \\<b\\> of \\*c\\*.\n"), "{page}");
        assert!(page.contains("Needs Root. Judges [DRV-001](promises.md#drv-001)."), "{page}");
    }

    #[test]
    fn promise_names_its_cases_and_its_sabotages() {
        let promise = r#"{"id":"DRV-001","strength":"must","sentence":"s of `A_B` and_c","basis":"b","cases":["csi::a::b"],"sabotages":["x"]}"#;
        let page = promises(&objects(promise).unwrap(), "Invariants\n  INV-001  one thing\n");
        assert!(page.contains("### DRV-001\n\nMUST: s of `A_B` and\\_c\n\n> b\n"), "{page}");
        assert!(page.contains("[`csi::a::b`](cases.md#csiab)"), "{page}");
        assert!(page.contains("`--sabotage x`") && page.contains("- **INV-001** one thing\n"), "{page}");
    }
}
