//! Annotations that GitHub shows beside the lines of a pull request, and the summary of a job.
//!
//! An annotation belongs to a file of the user's repository, which is the driver's manifest. A driver given by a command
//! line has no manifest, and annotations of fake-csi belong to the source of the case.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;

use super::Reporter;
use super::junit::headline;
use super::line::{code_in, label, words};
use crate::event::{CaseReport, Event, RunRecord, Status};

/// The file that annotations belong to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stands {
    /// The source of the case.
    Case,
    /// The driver's manifest, at this path.
    Manifest(PathBuf),
    /// No file of the user's repository.
    Nowhere,
}

/// A reporter that writes workflow commands for GitHub.
pub struct Annotations<W> {
    out: W,
    stands: Stands,
    /// The file to which the job's summary is appended.
    summary: Option<PathBuf>,
}

impl<W: Write> Annotations<W> {
    /// `summary` is what GitHub names in `GITHUB_STEP_SUMMARY`.
    pub fn new(out: W, stands: Stands, summary: Option<PathBuf>) -> Self {
        Self { out, stands, summary }
    }
}

impl<W: Write> Reporter for Annotations<W> {
    fn report(&mut self, event: &Event) -> anyhow::Result<()> {
        match event {
            Event::CaseFinished(case) if case.status.is_bad() => {
                writeln!(self.out, "{}", annotation(case, &self.stands))?;
                self.out.flush()?;
            }
            Event::RunFinished(run) => {
                let Some(path) = &self.summary else { return Ok(()) };
                let failed = || format!("cannot write the job's summary to `{}`", path.display());
                let mut file =
                    OpenOptions::new().append(true).create(true).open(path).with_context(failed)?;
                file.write_all(summary(run).as_bytes()).with_context(failed)?;
            }
            _ => {}
        }
        Ok(())
    }
}

fn annotation(case: &CaseReport, stands: &Stands) -> String {
    let at = case.breakage.as_ref().map_or(&case.at, |broken| &broken.at);
    let title = property(&format!("{} {}", label(case.status), case.id));
    let position = match stands {
        Stands::Case => format!("file={},line={},title={title}", property(&at.file), at.line),
        Stands::Manifest(path) => {
            format!("file={},line=1,title={title}", property(&path.display().to_string()))
        }
        Stands::Nowhere => format!("title={title}"),
    };
    format!("::error {position}::{}", data(&format!("{}\n{}", headline(case), case.again)))
}

/// The run in Markdown: the number of cases by status, and each finding once.
fn summary(run: &RunRecord) -> String {
    let mut text =
        format!("### volproof: {} {}\n\n", cell(&run.header.driver), cell(&run.header.driver_version));
    let counts = Status::ALL.iter().filter(|status| run.count(**status) > 0);
    let counts: Vec<_> = counts.map(|status| format!("{} {}", run.count(*status), words(*status))).collect();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{} cases in {:.1} s: {}\n", run.cases.len(), run.seconds, counts.join(", "));
    if let Some(since) = &run.since {
        let _ = writeln!(text, "Since <code>{}</code>: {}\n", plain(&since.run), since.tally());
    }
    if !run.findings.is_empty() {
        text += "| promise | finding | cases | again |\n|---|---|---|---|\n";
    }
    for found in &run.findings {
        let again = run.cases.iter().find(|case| case.id == found.case).map_or("", |case| &case.again);
        let _ = writeln!(
            text,
            "| {} | {} | {} | <code>{}</code> |",
            cell(&found.finding.contract),
            cell(&found.finding.sentence),
            1 + found.also_in.len(),
            plain(again),
        );
    }
    text + "\n"
}

/// Text for a cell of a table, with what is between two backticks as code.
fn cell(text: &str) -> String {
    let shown = |(part, is_code)| match is_code {
        true => format!("<code>{}</code>", plain(part)),
        false => plain(part),
    };
    code_in(text).into_iter().map(shown).collect()
}

/// Text without line breaks, in which nothing is markup. In code between backticks GitHub would show the entities.
fn plain(text: &str) -> String {
    let escaped = |letter: char| match letter {
        '\n' | '\r' => " ".to_owned(),
        '&' | '<' | '>' | '|' | '`' | '*' | '_' | '~' | '[' | ']' | '\\' | '@' | '#' => {
            format!("&#{};", u32::from(letter))
        }
        letter => letter.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// The text after the second `::`, with the three characters escaped that would end it.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// The value of a property, with commas and colons escaped too: they separate properties.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Status;

    #[test]
    fn end_of_an_annotation_is_escaped() {
        let mut case = CaseReport::sample("csi::publish::a", Status::Leaked);
        case.left_behind = vec!["100% of\nit".into()];
        let shown = |stands: &Stands| annotation(&case, stands);
        expect_test::expect!["::error file=conformance/cases/src/csi/block.rs,line=12,title=LEAK csi%3A%3Apublish%3A%3Aa::left behind: 100%25 of%0Ait%0Avolproof run csi::publish::a"]
            .assert_eq(&shown(&Stands::Case));
        expect_test::expect!["::error file=ci/driver.toml,line=1,title=LEAK csi%3A%3Apublish%3A%3Aa::left behind: 100%25 of%0Ait%0Avolproof run csi::publish::a"]
            .assert_eq(&shown(&Stands::Manifest("ci/driver.toml".into())));
        assert!(shown(&Stands::Nowhere).starts_with("::error title=LEAK"));
    }

    #[test]
    fn summary_is_appended_and_no_driver_can_break_its_table() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("summary.md");
        std::fs::write(&path, "of the step before\n").unwrap();
        let finding =
            crate::judge::promise_broken("DRV-060", "NodeUnpublishVolume", "a|b\n<script> `<publish:a_b>`");
        let case = CaseReport::sample("a", Status::Failed).with_findings([finding]);
        let findings = crate::gather::gather(std::slice::from_ref(&case));
        let run = RunRecord { cases: vec![case], findings, ..RunRecord::default() };
        let mut annotations = Annotations::new(vec![], Stands::Case, Some(path.clone()));
        annotations.report(&Event::RunFinished(Box::new(run))).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.starts_with("of the step before\n### volproof"), "{text}");
        let row = text.lines().find(|line| line.starts_with("| DRV-060")).expect("a row");
        assert!(row.contains("a&#124;b &#60;script&#62; <code>&#60;publish:a&#95;b&#62;</code>"), "{row}");
        assert!(row.ends_with("<code>volproof run a</code> |"), "{row}");
        assert!(text.contains("1 fail\n"), "{text}");
        assert_eq!(cell("one ` alone"), "one &#96; alone");
    }
}
