//! `report.html`: the run as one file that opens without a network.
//!
//! The page is complete without its script, which filters, copies commands and draws timelines.

use std::fmt::Write as _;
use std::path::Path;
use std::time::SystemTime;

use anyhow::Context;
use contracts::promise::{self, Strength};
use harness::manifest::Day;
use harness::private;

use super::line::{count, tried, with_code, words};
use crate::event::{CaseReport, Header, RunRecord, Status};
use crate::finding::{Party, RunFinding};
use crate::promises::{Counts, Standing};
use crate::since::{Since, Slower};

mod case;
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
    let mut page = String::new();
    head(&mut page, &run.header);
    start_here(&mut page, run);
    // Writing to a string cannot fail, so the results of `write!` are ignored.
    let _ = writeln!(page, "<p>{}</p>", tally(run));
    let samples = run.samples();
    if !samples.is_empty() {
        let _ = writeln!(page, "<p class=quiet>Tried: {}</p>", escape(&tried(&samples)));
    }
    if let Some(since) = &run.since {
        changes(&mut page, since);
    }
    if !run.findings.is_empty() {
        page += "<h2>Findings</h2>\n";
        run.findings.iter().for_each(|found| finding(&mut page, found));
    }
    run.kernel.iter().for_each(|defect| {
        let _ = writeln!(page, "<p class=\"box failed\">The kernel: {}</p>", escape(defect));
    });
    promises(&mut page, run);
    cases(&mut page, run);
    let _ = writeln!(page, "</main><script>{SCRIPT}</script></body></html>");
    page
}

fn head(page: &mut String, header: &Header) {
    let title = escape(&format!("{} {}", header.driver, header.driver_version));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let _ = writeln!(
        page,
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width, initial-scale=1\">\
         <title>volproof: {title}</title>\n<style>{STYLE}</style></head>\n<body><main>\n<h1>{title}</h1>\n\
         <p class=quiet>volproof {}, report written <time data-unix={now}>{} (UTC)</time></p>\n<details><summary>driver and machine</summary><dl>",
        env!("CARGO_PKG_VERSION"),
        Day::of(SystemTime::now()),
    );
    let mut host = vec![header.kernel.clone(), header.privilege.clone()];
    host.extend(header.has.iter().cloned());
    let rows = [
        ("The driver has", header.abilities.join(", ")),
        ("The machine has", host.join(", ")),
        ("It lacks", header.lacks.join(", ")),
        ("Guests", header.guests.clone()),
        ("Seed", header.seed.to_string()),
        ("Odd", header.odd.join("; ")),
        ("Contained", header.machine.join("; ")),
        ("Limits", header.limits.join("; ")),
    ];
    for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
        let _ = writeln!(page, "<dt>{name}<dd>{}", prose(value));
    }
    *page += "</dl></details>\n";
}

/// The finding to mend first, with its command.
fn start_here(page: &mut String, run: &RunRecord) {
    let Some(first) = run.findings.iter().find(|found| found.finding.is_fault()) else { return };
    let _ = writeln!(
        page,
        "<div class=\"box start\"><b>Start here:</b> {}<br><code>{}</code> in <a href=\"#{case}\">{case}</a>",
        prose(&first.finding.sentence),
        escape(&first.finding.contract),
        case = escape(first.case.as_str()),
    );
    if let Some(reason) = promise::find(&first.finding.contract).and_then(|promise| promise.harm.reason()) {
        let _ = writeln!(page, "<br><span class=quiet>{reason}</span>");
    }
    if let Some(case) = run.cases.iter().find(|case| case.id == first.case) {
        command(page, &case.again);
    }
    *page += "</div>\n";
}

/// The difference from an earlier run.
fn changes(page: &mut String, since: &Since) {
    let _ = writeln!(
        page,
        "<h2>Changes</h2>\n<p>Since <code>{}</code>: {}.</p>",
        escape(&since.run),
        since.tally()
    );
    for (word, faults) in since.lists().into_iter().filter(|(_, faults)| !faults.is_empty()) {
        let open = if word == "new" { " open" } else { "" };
        let _ = writeln!(page, "<details{open}><summary>{}: {word}</summary><ul>", faults.len());
        for fault in faults {
            let (contract, case, sentence) =
                (escape(&fault.contract), escape(fault.case.as_str()), prose(&fault.sentence));
            let _ = writeln!(page, "<li><code>{contract}</code> {sentence} <a href=\"#{case}\">{case}</a>");
        }
        *page += "</ul></details>\n";
    }
    if !since.slower.is_empty() {
        let _ = writeln!(page, "<details><summary>{}: slower</summary><ul>", since.slower.len());
        for Slower { case, before, now } in &since.slower {
            let case = escape(case.as_str());
            let _ = writeln!(page, "<li><a href=\"#{case}\">{case}</a> {now:.1} s, and {before:.1} s before");
        }
        *page += "</ul></details>\n";
    }
}

fn finding(page: &mut String, found: &RunFinding) {
    let finding = &found.finding;
    let class = match (finding.strength, finding.consequence_of.is_empty()) {
        (_, false) => "quiet",
        (Some(Strength::Should), _) => "should",
        (Some(Strength::Advice), _) => "advice",
        (Some(Strength::Must) | None, _) => "must",
    };
    let kind = match (finding.strength, finding.consequence_of.as_str()) {
        (Some(strength), "") => strength.to_string(),
        (None, "") => String::new(),
        (_, cause) => format!("consequence of {}", escape(cause)),
    };
    let link = |id: &str| format!("<a href=\"#{0}\">{0}</a>", escape(id));
    let cases = std::iter::once(&found.case).chain(&found.also_in).map(|id| link(id.as_str()));
    let _ = writeln!(
        page,
        "<div class=box><b>{}</b><br><span class={class}>{kind}</span> <code>{}</code> {}<br><span class=quiet>{}</span>\
         <details><summary>{}</summary>{}</details></div>",
        prose(&finding.sentence),
        escape(&finding.contract),
        escape(&finding.method),
        prose(&finding.cites),
        count(1 + found.also_in.len(), "case"),
        cases.collect::<Vec<_>>().join("<br>"),
    );
}

/// A command with a button that copies it.
fn command(page: &mut String, line: &str) {
    let _ = writeln!(
        page,
        "<div class=command><code>{}</code><button class=copy type=button>copy</button></div>",
        escape(line)
    );
}

/// All cases, those that did not pass first.
fn cases(page: &mut String, run: &RunRecord) {
    *page += "<h2 id=cases>Cases</h2>\n<div class=filters>";
    for status in Status::ALL.iter().filter(|status| run.count(**status) > 0) {
        let _ = write!(
            page,
            "<button type=button aria-pressed=false data-status={status}>{} {}</button>",
            run.count(*status),
            words(*status)
        );
    }
    *page += "<input id=search type=search placeholder=\"case, sentence or promise\" aria-label=\"search cases\">\
              <span id=shown class=quiet role=status></span></div>\n";
    let mut cases: Vec<&CaseReport> = run.cases.iter().collect();
    cases.sort_by_key(|case| (!case.status.is_bad(), case.status.is_skip(), &case.id));
    let mut room = DRAWN;
    cases.into_iter().for_each(|case| case::write(page, case, &mut room));
}

/// Every promise with its standing, those of the driver first.
fn promises(page: &mut String, run: &RunRecord) {
    if run.promises.is_empty() {
        return;
    }
    let counts = Counts(&run.promises);
    let _ = write!(page, "<h2>Promises</h2>\n<p>Of the driver: {counts}</p>\n");
    for (party, of) in
        [(Party::Driver, "of the driver"), (Party::Manager, "of the volume manager and the controllers")]
    {
        let _ = writeln!(page, "<details><summary>{of}</summary><dl>");
        for record in run.promises.iter().filter(|record| record.binds == party) {
            let binds = record.strength.is_none_or(|strength| strength == Strength::Must);
            let standing = record.standing.to_string();
            let (class, standing) = match record.standing {
                Standing::Broken if !binds => ("should", "not followed"),
                Standing::Broken => ("failed", standing.as_str()),
                Standing::Kept => ("passed", standing.as_str()),
                Standing::NotTried | Standing::NotObservable => ("quiet", standing.as_str()),
            };
            let strength = record.strength.map(|strength| format!("{strength}: ")).unwrap_or_default();
            let cases = match record.judged_in {
                0 => String::new(),
                judged => format!("judged in {}", count(judged, "case")),
            };
            let _ = writeln!(
                page,
                "<dt><span class=\"status {class}\">{}</span><code>{}</code><dd>{strength}{} <span class=quiet>{cases}</span>",
                standing,
                escape(&record.id),
                prose(&record.sentence),
            );
        }
        *page += "</dl></details>\n";
    }
}

fn tally(run: &RunRecord) -> String {
    let parts = Status::ALL.iter().filter(|status| run.count(**status) > 0);
    let parts =
        parts.map(|status| format!("<span class={status}>{} {}</span>", run.count(*status), words(*status)));
    format!(
        "{} in {:.1} s: {}",
        count(run.cases.len(), "case"),
        run.seconds,
        parts.collect::<Vec<_>>().join(", ")
    )
}

/// A sentence, with what is between two backticks as code.
fn prose(text: &str) -> String {
    with_code(text, escape, "`")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_with(cases: Vec<CaseReport>) -> RunRecord {
        RunRecord {
            version: RunRecord::VERSION,
            header: crate::event::Header::default(),
            cases,
            findings: vec![],
            promises: vec![],
            kernel: vec![],
            seconds: 1.0,
            interrupted: false,
            exit_code: 1,
            hints: vec![],
            since: None,
        }
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
        assert_eq!(prose("`<a>` is `b`"), "<code>&lt;a&gt;</code> is <code>b</code>");
        assert_eq!(prose("a ` alone <b>"), "a ` alone &lt;b&gt;");
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
        let mut names: Vec<&str> =
            page.split("role=region aria-label=").skip(1).filter_map(|rest| rest.split('>').next()).collect();
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
        let commands = page.split("<div class=command><code>").skip(1);
        let commands: Vec<&str> = commands.filter_map(|rest| rest.split("</code>").next()).collect();
        let again = "volproof run --driver driver.toml csi::a";
        let kept = format!("{again} --keep");
        assert_eq!(commands, [again, &kept, "volproof enter csi::a"]);
    }
}
