//! `report.html`: the run as one file that opens without a network.
//!
//! The page is complete without its script, which filters, copies commands and draws timelines. Every text in it is
//! escaped by maud; `PreEscaped` stands only around our own style and script, and around JSON.

use std::path::Path;
use std::time::SystemTime;

use anyhow::Context;
use contracts::promise;
use harness::manifest::Day;
use harness::printable::printable;
use harness::private;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::line::{code_in, count, tried, words};
use crate::event::{CaseReport, Header, RunRecord, Status};

mod breakage;
mod case;
mod changes;
mod findings;
mod logs;
mod mounts;
mod promises;
mod timeline;

const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/report.js");

/// The most events that are drawn on one page: a browser opens it at once, however long the traces are.
const DRAWN: usize = 100_000;

/// Writes `report.html` into a report directory.
pub fn write(run: &RunRecord, directory: &Path) -> anyhow::Result<()> {
    let path = directory.join("report.html");
    private::write(&path, render(run)).with_context(|| format!("cannot write `{}`", path.display()))
}

/// The whole page. Timelines and logs come from the directories of its cases.
pub fn render(run: &RunRecord) -> String {
    let title = format!("{} {}", run.header.driver, run.header.driver_version);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "volproof: " (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main { h1 { (title) } (written()) (facts(&run.header)) (body(run)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

fn written() -> Markup {
    let now = SystemTime::now();
    let unix = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    html! {
        p.quiet {
            "volproof " (env!("CARGO_PKG_VERSION")) ", report written "
            time data-unix=(unix) { (Day::of(now)) " (UTC)" }
        }
    }
}

/// The driver and the machine of the run.
fn facts(header: &Header) -> Markup {
    let machine = [&header.kernel, &header.privilege].into_iter().chain(&header.has);
    let rows = [
        ("The driver has", header.abilities.join(", ")),
        ("The machine has", machine.map(String::as_str).collect::<Vec<_>>().join(", ")),
        ("It lacks", header.lacks.join(", ")),
        ("Guests", header.guests.clone()),
        ("Seed", header.seed.to_string()),
        ("Odd", header.odd.join("; ")),
        ("Contained", header.machine.join("; ")),
        ("Limits", header.limits.join("; ")),
    ];
    html! {
        details {
            summary { "driver and machine" }
            dl {
                @for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
                    dt { (name) } dd { (prose(value)) }
                }
            }
        }
    }
}

fn body(run: &RunRecord) -> Markup {
    let samples = run.samples();
    html! {
        (start_here(run))
        p { (tally(run)) }
        @if !samples.is_empty() { p.quiet { "Tried: " (tried(&samples)) } }
        @if let Some(since) = &run.since { (changes::section(since)) }
        @if !run.findings.is_empty() { (findings::section(&run.findings)) }
        @for defect in &run.kernel { p.box.failed { "The kernel: " (defect) } }
        @if !run.promises.is_empty() { (promises::section(&run.promises)) }
        (cases(run))
    }
}

/// The finding to mend first, with its command.
fn start_here(run: &RunRecord) -> Markup {
    let Some(first) = run.findings.iter().find(|found| found.finding.is_fault()) else { return html! {} };
    let contract = &first.finding.contract;
    let case = run.cases.iter().find(|case| case.id == first.case);
    html! {
        div.box.start {
            b { "Start here:" } " " (prose(&first.finding.sentence)) br;
            code { (contract) } " in " (link(first.case.as_str()))
            @if let Some(reason) = promise::find(contract).and_then(|promise| promise.harm.reason()) {
                br; span.quiet { (reason) }
            }
            @if let Some(case) = case { (command(&case.again)) }
        }
    }
}

/// `12 cases in 3.1 s: 10 passed, 2 failed`.
fn tally(run: &RunRecord) -> Markup {
    html! {
        (count(run.cases.len(), "case")) " in " (format!("{:.1}", run.seconds)) " s: "
        @for (index, (status, number)) in statuses(run).enumerate() {
            @if index > 0 { ", " }
            span class=(status) { (number) " " (words(status)) }
        }
    }
}

/// The statuses that cases of the run have, each with their number.
fn statuses(run: &RunRecord) -> impl Iterator<Item = (Status, usize)> {
    Status::ALL.into_iter().map(|status| (status, run.count(status))).filter(|(_, number)| *number > 0)
}

/// All cases, those that did not pass first.
fn cases(run: &RunRecord) -> Markup {
    let mut cases: Vec<&CaseReport> = run.cases.iter().collect();
    cases.sort_by_key(|case| (!case.status.is_bad(), case.status.is_skip(), &case.id));
    let mut room = DRAWN;
    html! {
        h2 #cases { "Cases" }
        div.filters {
            @for (status, number) in statuses(run) {
                button type="button" aria-pressed="false" data-status=(status) { (number) " " (words(status)) }
            }
            input #search type="search" placeholder="case, sentence or promise" aria-label="search cases";
            span #shown .quiet role="status" {}
        }
        @for case in cases { (case::section(case, &mut room)) }
    }
}

/// A command with a button that copies it.
fn command(line: &str) -> Markup {
    html! { div.command { code { (line) } button.copy type="button" { "copy" } } }
}

/// A link to a case of the page.
fn link(case: &str) -> Markup {
    html! { a href={ "#" (case) } { (case) } }
}

/// Lines under a title; nothing if there are none.
fn list(title: &str, lines: &[String]) -> Markup {
    html! {
        @if !lines.is_empty() {
            p.quiet { (title) }
            pre tabindex="0" { (lines.join("\n")) }
        }
    }
}

/// A sentence, with what is between two backticks as code.
fn prose(text: &str) -> Markup {
    html! {
        @for (part, is_code) in code_in(text) {
            @if is_code { code { (part) } } @else { (part) }
        }
    }
}

/// A path or another text that has to stay one line, with line breaks and commands written out.
fn single_line(text: &str) -> String {
    printable(text).replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_with(cases: Vec<CaseReport>) -> RunRecord {
        RunRecord { version: RunRecord::VERSION, cases, seconds: 1.0, exit_code: 1, ..RunRecord::default() }
    }

    #[test]
    fn driver_message_is_escaped() {
        let mut case = CaseReport::sample("csi::a", Status::Leaked);
        case.left_behind = vec!["bind <publish:data/web> & \"more\"".into()];
        let mut run = run_with(vec![case]);
        run.header.driver = "<script>".into();
        let page = render(&run);
        assert!(page.contains("<title>volproof: &lt;script&gt; </title>"), "{page}");
        assert!(page.contains("bind &lt;publish:data/web&gt; &amp; &quot;more&quot;"), "{page}");
        let elsewhere = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!elsewhere.contains("http"), "it must open without a network");
    }

    #[test]
    fn text_between_backticks_is_code_and_a_single_one_is_none() {
        assert_eq!(prose("`<a>` is `b`").into_string(), "<code>&lt;a&gt;</code> is <code>b</code>");
        assert_eq!(prose("a ` alone <b>").into_string(), "a ` alone &lt;b&gt;");
    }

    #[test]
    fn each_region_has_a_name_of_its_own() {
        let logs = tempfile::tempdir().unwrap();
        let header = contracts::recording::header();
        let call = r#"{"seq":1,"t_ms":1.0,"ev":"rpc_start","id":7,"method":"NodeStageVolume","req":{}}"#;
        std::fs::write(logs.path().join("trace.jsonl"), format!("{header}\n{call}\n")).unwrap();
        let case = |id: &str| CaseReport {
            logs: Some(logs.path().to_owned()),
            ..CaseReport::sample(id, Status::Failed)
        };
        let page = render(&run_with(vec![case("csi::a"), case("csi::b")]));
        let regions = page.split(r#"role="region" aria-label=""#).skip(1);
        let mut names: Vec<&str> = regions.filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(names.len(), 2, "{page}");
        names.dedup();
        assert_eq!(names.len(), 2, "a screen reader tells them apart by their names: {names:?}");
    }

    #[test]
    fn box_with_a_copy_button_has_a_command() {
        let mut case = CaseReport::sample("csi::a", Status::Failed);
        case.again = "volproof run --driver driver.toml csi::a".into();
        case.look = Some("the same with --keep, then: volproof enter csi::a".into());
        let page = render(&run_with(vec![case]));
        let commands = page.split(r#"<div class="command"><code>"#).skip(1);
        let commands: Vec<&str> = commands.filter_map(|rest| rest.split("</code>").next()).collect();
        let again = "volproof run --driver driver.toml csi::a";
        let kept = format!("{again} --keep");
        assert_eq!(commands, [again, &kept, "volproof enter csi::a"]);
    }
}
