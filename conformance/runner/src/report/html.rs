//! `report.html`: the run as one file that opens without a network.
//!
//! No script: what folds is `<details>`. What is shown of a failing case is what the terminal shows.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use harness::private;

use super::line::{Details, Palette, count, label};
use crate::event::{CaseReport, RunRecord, Status};
use crate::finding::Party;
use crate::promises::{Counts, Standing};

const STYLE: &str = "\
:root { color-scheme: light dark; --good: #1a7f37; --bad: #cf222e; --odd: #9a6700; --quiet: #6e7781 }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
td { padding: .2rem .6rem; border-bottom: 1px solid #8884; vertical-align: top }
code, pre, summary { font-family: ui-monospace, monospace; font-size: 13px }
pre { overflow-x: auto; padding: .8rem; background: #8881; border-radius: 6px }
.passed, .xfail { color: var(--good) } .leaked { color: var(--odd) }
.failed, .error, .driver_exited, .xpass { color: var(--bad) }
.skipped_driver, .skipped_host, .quiet { color: var(--quiet) }
.status { font-weight: 600; white-space: nowrap } .time { text-align: right; white-space: nowrap }
";

/// Writes `report.html` into a report directory.
pub fn write(run: &RunRecord, directory: &Path) -> anyhow::Result<()> {
    let path = directory.join("report.html");
    private::write(&path, render(run)).with_context(|| format!("cannot write `{}`", path.display()))
}

/// The whole page.
pub fn render(run: &RunRecord) -> String {
    let header = &run.header;
    let mut page = String::new();
    let title = escape(&format!("{} {}", header.driver, header.driver_version));
    // Writing to a string cannot fail, so the results of `write!` are not looked at.
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=en><meta charset=utf-8><title>volproof: {title}</title>\n<style>{STYLE}</style>\n\
         <h1>{title}</h1>\n<p>{}, {}; abilities: {}</p>\n<p>{}</p>\n",
        escape(&header.kernel),
        escape(&header.privilege),
        escape(&header.abilities.join(", ")),
        tally(run),
    );
    if !run.findings.is_empty() {
        page += "<h2>Findings</h2>\n";
        run.findings.iter().for_each(|found| {
            let also = found.also_in.iter().map(|id| escape(id.as_str())).collect::<Vec<_>>().join(", ");
            let also = if also.is_empty() { also } else { format!("<br>also in {also}") };
            let _ = writeln!(
                page,
                "<p><b>{}</b><br>{}<br><span class=quiet>{} in <a href=\"#{id}\">{id}</a>{also}</span></p>",
                escape(&found.finding.sentence),
                escape(&found.finding.cites),
                escape(&found.finding.contract),
                id = escape(found.case.as_str()),
            );
        });
    }
    promises(&mut page, run);
    page += "<h2>Cases</h2>\n<table>\n";
    let mut cases: Vec<&CaseReport> = run.cases.iter().collect();
    cases.sort_by_key(|case| &case.id);
    cases.into_iter().for_each(|case| row(&mut page, case));
    page + "</table>\n</html>\n"
}

/// Every promise with what became of it, those of the driver first.
fn promises(page: &mut String, run: &RunRecord) {
    if run.promises.is_empty() {
        return;
    }
    let counts = Counts(&run.promises);
    let _ = write!(page, "<h2>Promises</h2>\n<p>Of the driver: {counts}</p>\n");
    for (party, of) in [(Party::Driver, "of the driver"), (Party::Manager, "of the volume manager")] {
        let _ = writeln!(page, "<details><summary>{of}</summary><table>");
        for record in run.promises.iter().filter(|record| record.binds == party) {
            let class = match record.standing {
                Standing::Broken => "failed",
                Standing::Kept => "passed",
                Standing::NotTried | Standing::NotObservable => "quiet",
            };
            let strength = record.strength.map(|strength| format!("{strength}: ")).unwrap_or_default();
            let cases = if record.judged_in == 0 { String::new() } else { count(record.judged_in, "case") };
            let _ = writeln!(
                page,
                "<tr><td class=\"status {class}\">{}<td class=time>{cases}<td><code>{}</code><br>{strength}{}",
                record.standing,
                escape(&record.id),
                escape(&record.sentence),
            );
        }
        *page += "</table></details>\n";
    }
}

fn tally(run: &RunRecord) -> String {
    let parts = Status::ALL.iter().filter(|status| run.count(**status) > 0);
    let parts = parts.map(|status| format!("<span class={status}>{} {status}</span>", run.count(*status)));
    format!("{} cases in {:.1} s: {}", run.cases.len(), run.seconds, parts.collect::<Vec<_>>().join(", "))
}

fn row(page: &mut String, case: &CaseReport) {
    let id = escape(case.id.as_str());
    let time = if case.status.is_skip() { String::new() } else { format!("{:.2} s", case.seconds) };
    let _ = write!(
        page,
        "<tr id=\"{id}\"><td class=\"status {}\">{}<td class=time>{time}<td><code>{id}</code><br>{}",
        case.status,
        label(case.status),
        escape(&case.proves).replace("\n\n", "<br>"),
    );
    if !case.reasons.is_empty() {
        let _ = write!(page, "<br><span class=quiet>{}</span>", escape(&case.reasons.join("; ")));
    }
    if case.status.is_bad() {
        let details = Details { palette: Palette::plain(), case, told: &[] }.to_string();
        let _ = write!(
            page,
            "<details open><summary>what happened</summary><pre>{}</pre></details>",
            escape(&details)
        );
    }
    *page += "\n";
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_message_is_escaped() {
        let mut case = CaseReport::sample("csi::a", Status::Leaked);
        case.left_behind = vec!["bind <publish:data/web> & \"more\"".into()];
        let run = RunRecord {
            version: RunRecord::VERSION,
            header: crate::event::Header { driver: "<script>".into(), ..Default::default() },
            cases: vec![case],
            findings: vec![],
            promises: vec![],
            kernel: vec![],
            seconds: 1.0,
            interrupted: false,
            exit_code: 1,
            hints: vec![],
        };
        let page = render(&run);
        assert!(page.contains("<title>volproof: &lt;script&gt; </title>"), "{page}");
        assert!(page.contains("bind &lt;publish:data/web&gt; &amp; &quot;more&quot;"), "{page}");
        assert!(!page.contains("http"), "it must open without a network");
    }
}
