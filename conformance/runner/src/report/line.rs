//! The lines of the terminal, one small type each, so that a snapshot can hold every variant.

use std::fmt::{self, Display, Formatter};
use std::path::Path;

use anstyle::{AnsiColor, Style};

use contracts::promise::Strength;

use super::skips::SkipLines;
use crate::event::{CaseReport, Header, RunRecord, Status};
use crate::finding::{Finding, Party, RunFinding};
use crate::program;
use crate::promises::Counts;
use crate::since::{Since, Slower};
use testbed::case::CaseId;
use testbed::failure::Breakage;
use testbed::message::Sample;

/// The colours, or their absence.
#[derive(Debug, Clone, Copy, Default)]
pub struct Palette {
    good: Style,
    bad: Style,
    odd: Style,
    quiet: Style,
    head: Style,
    name: Style,
}

impl Palette {
    /// A palette without colours.
    pub fn plain() -> Self {
        Self::default()
    }

    /// Colours for terminals. No line depends on its colours.
    pub fn coloured() -> Self {
        let colour = |colour: AnsiColor| Style::new().fg_color(Some(colour.into()));
        Self {
            good: colour(AnsiColor::Green).bold(),
            bad: colour(AnsiColor::Red).bold(),
            odd: colour(AnsiColor::Yellow).bold(),
            quiet: Style::new().dimmed(),
            head: colour(AnsiColor::Green).bold(),
            name: Style::new().bold(),
        }
    }

    pub(super) fn quiet(&self) -> Style {
        self.quiet
    }

    fn of(&self, status: Status) -> Style {
        match status {
            Status::Passed => self.good,
            Status::Failed | Status::Error | Status::DriverExited | Status::Xpass => self.bad,
            Status::Leaked => self.odd,
            Status::SkippedDriver | Status::SkippedHost | Status::Xfail => self.quiet,
        }
    }
}

/// The label of a status on the terminal.
pub fn label(status: Status) -> &'static str {
    match status {
        Status::Passed => "PASS",
        Status::Failed => "FAIL",
        Status::Leaked => "LEAK",
        Status::Error => "ERROR",
        Status::DriverExited => "DRIVER EXIT",
        Status::SkippedDriver | Status::SkippedHost => "SKIP",
        Status::Xfail => "XFAIL",
        Status::Xpass => "XPASS",
    }
}

/// A status in a sentence.
pub(super) fn words(status: Status) -> String {
    match status {
        Status::SkippedDriver => "skipped for the driver".to_owned(),
        Status::SkippedHost => "skipped for the machine".to_owned(),
        status => label(status).to_lowercase(),
    }
}

/// A line with a word in the twelve columns on the left.
pub struct Headed<'a> {
    pub palette: Palette,
    pub word: &'a str,
    pub rest: &'a str,
}

impl Display for Headed<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let style = self.palette.head;
        write!(f, "{style}{:>10}{style:#} {}", self.word, self.rest)
    }
}

/// The lines before the first case.
pub struct HeaderLines<'a>(pub Palette, pub &'a Header);

impl Display for HeaderLines<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(palette, header) = *self;
        let line =
            |f: &mut Formatter<'_>, word, rest: &str| writeln!(f, "{}", Headed { palette, word, rest });
        let abilities = match header.abilities.is_empty() {
            true => "no ability that the selected cases need".to_owned(),
            false => header.abilities.join(", "),
        };
        line(f, "Driver", &format!("{} {}   {abilities}   (asked)", header.driver, header.driver_version))?;
        let in_guests = header.privilege == "guest";
        let privilege = if in_guests { "root" } else { &header.privilege };
        let has = [header.kernel.clone(), privilege.to_owned()].into_iter().chain(header.has.iter().cloned());
        let mut host = has.collect::<Vec<_>>().join(", ");
        if !header.lacks.is_empty() {
            host += &format!("; no {}", header.lacks.join(", no "));
        }
        line(f, if in_guests { "Guest" } else { "Host" }, &host)?;
        if !header.guests.is_empty() {
            line(f, "Guests", &header.guests)?;
        }
        let about = if header.about.is_empty() { String::new() } else { format!(" {}", header.about) };
        line(f, "Cases", &format!("{}{about} in {}", header.cases, count(header.lanes, "lane")))?;
        header.odd.iter().try_for_each(|odd| line(f, "Odd", odd))?;
        header.machine.iter().try_for_each(|bound| line(f, "Machine", bound))?;
        header.limits.iter().try_for_each(|limit| line(f, "Limit", limit))
    }
}

/// The line of a case: status, time, progress, name, and the reason if the case was skipped.
pub struct StatusLine<'a> {
    pub palette: Palette,
    pub case: &'a CaseReport,
    /// Skipped cases without a line, which do not count as progress.
    pub hidden: usize,
}

impl Display for StatusLine<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { palette, case, hidden } = *self;
        let style = palette.of(case.status);
        write!(f, "{style}{:>12}{style:#} ", label(case.status))?;
        match case.status.is_skip() {
            true => write!(f, "{:10} ", "")?,
            false => write!(f, "[{:>7.2}s] ", case.seconds)?,
        }
        let [number, of] = [case.number, case.of].map(|count| count.saturating_sub(hidden));
        let digits = of.to_string().len();
        write!(f, "({number:>digits$}/{of}) {}", CaseName(palette, case))?;
        let party = match case.status {
            Status::SkippedDriver => "driver: ",
            Status::SkippedHost => "host: ",
            _ => "",
        };
        if let Some(reason) = case.reasons.first() {
            let quiet = palette.quiet;
            let padding = 46usize.saturating_sub(case.id.as_str().len());
            write!(f, "{:padding$}   {quiet}{party}{reason}{quiet:#}", "")?;
            for more in &case.reasons[1..] {
                write!(f, "{quiet}; {more}{quiet:#}")?;
            }
        }
        Ok(())
    }
}

/// A case's id, its own part brighter than its module.
struct CaseName<'a>(Palette, &'a CaseReport);

impl Display for CaseName<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(palette, case) = *self;
        let (quiet, name) = (palette.quiet, palette.name);
        match case.id.as_str().rsplit_once("::") {
            Some((module, own)) => write!(f, "{quiet}{module}::{quiet:#}{name}{own}{name:#}"),
            None => write!(f, "{name}{}{name:#}", case.id),
        }
    }
}

/// The difference between the expected and the actual story: missing lines with `-`, unexpected lines with `+`.
pub struct Difference<'a> {
    pub palette: Palette,
    /// The story of the case.
    pub expected: &'a str,
    /// The story of the kernel.
    pub actual: &'a str,
}

impl Display for Difference<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let diff = similar::TextDiff::from_lines(self.expected, self.actual);
        for change in diff.iter_all_changes() {
            let (mark, style) = match change.tag() {
                similar::ChangeTag::Equal => ("    ", Style::new()),
                similar::ChangeTag::Delete => ("-   ", self.palette.bad),
                similar::ChangeTag::Insert => ("+   ", self.palette.good),
            };
            let line = format!("{mark}{}", change.value().trim_end());
            writeln!(f, "    {style}{}{style:#}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Everything below the status line of a case that did not pass.
pub struct Details<'a> {
    pub palette: Palette,
    pub case: &'a CaseReport,
    /// Findings that were shown with an earlier case, each with that case.
    pub shown: &'a [(Finding, CaseId)],
}

impl Display for Details<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let case = self.case;
        self.breakage(f)?;
        for finding in &case.findings {
            writeln!(f, "  {}", finding.sentence)?;
            match self.shown.iter().find(|(shown, _)| shown.key() == finding.key()) {
                Some((_, first)) => writeln!(f, "  The same as in {first}.")?,
                None if finding.cites.is_empty() => {}
                None => writeln!(f, "  {}", finding.cites)?,
            }
            writeln!(f)?;
        }
        block(f, "passes when it runs alone, and breaks on the same driver after", &case.after)?;
        block(f, "left behind", &case.left_behind)?;
        block(f, "the kernel said", &case.kernel)?;
        block(f, "not checked", &case.unchecked)?;
        if let Some(logs) = case.logs.as_ref().filter(|_| !case.log_files.is_empty()) {
            writeln!(f, "  logs   {}/   {}", logs.display(), case.log_files.join("  "))?;
        }
        writeln!(f, "  again  {}", case.again)?;
        case.look.iter().try_for_each(|look| writeln!(f, "  look   {look}"))
    }
}

impl Details<'_> {
    fn breakage(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Some(broken) = &self.case.breakage else { return Ok(()) };
        match broken.after.is_empty() {
            true => writeln!(f, "  at the beginning  {}\n", broken.at)?,
            false => writeln!(f, "  after `{}`  {}\n", broken.after, broken.at)?,
        }
        if let (Some(expected), Some(actual)) = (&broken.expected, &broken.actual) {
            let palette = self.palette;
            writeln!(f, "{}", Difference { palette, expected, actual })?;
        } else if let Some(seen) = broken.actual.as_ref().filter(|seen| !seen.is_empty()) {
            seen.lines().try_for_each(|line| writeln!(f, "        {line}"))?;
            writeln!(f)?;
        }
        // With a finding this is left out: the finding has the same cause and the promise that it breaks.
        let is_sentence =
            |cause: &String| self.case.findings.iter().any(|finding| finding.sentence == *cause);
        let has_finding = broken.expected.is_some() && !self.case.findings.is_empty();
        if !has_finding && !broken.cause.iter().all(is_sentence) {
            Self::causes(f, broken)?;
        }
        match &broken.event {
            Some(event) => writeln!(f, "  the first event  {event}\n"),
            None => Ok(()),
        }
    }

    fn causes(f: &mut Formatter<'_>, broken: &Breakage) -> fmt::Result {
        for (depth, cause) in broken.cause.iter().enumerate() {
            match depth {
                0 => writeln!(f, "  {cause}")?,
                _ if cause.starts_with("its ") || cause.starts_with("still ") => writeln!(f, "    {cause}")?,
                _ => writeln!(f, "    because {cause}")?,
            }
        }
        if broken.cause.is_empty() { Ok(()) } else { writeln!(f) }
    }
}

fn block(f: &mut Formatter<'_>, title: &str, lines: &[impl Display]) -> fmt::Result {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(f, "  {title}")?;
    for line in lines {
        writeln!(f, "    {line}")?;
    }
    writeln!(f)
}

/// The lines after the last case.
pub struct SummaryLines<'a> {
    pub palette: Palette,
    pub run: &'a RunRecord,
    /// The directory of the run's reports, if one was asked for.
    pub report: Option<&'a Path>,
}

impl Display for SummaryLines<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { palette, run, report } = *self;
        let quiet = palette.quiet;
        writeln!(f, "{quiet}────────────{quiet:#}")?;
        let style = if run.exit_code == 0 { palette.good } else { palette.bad };
        let ran = if run.interrupted {
            format!("{} of {}", run.cases.len(), run.header.cases)
        } else {
            run.cases.len().to_string()
        };
        let noun = if run.cases.len() == 1 && !run.interrupted { "case" } else { "cases" };
        writeln!(
            f,
            "{style}{:>12}{style:#} [{:>7.2}s] {ran} {noun}: {}",
            "Summary",
            run.seconds,
            Tally(run)
        )?;
        write!(f, "{}", SkipLines(palette, run))?;
        if run.promises.iter().any(|promise| promise.judged_in > 0) {
            let rest = match report {
                Some(directory) => format!("; {} lists each", directory.join("report.html").display()),
                None => "; --report DIR lists each".to_owned(),
            };
            writeln!(f, "{:>12} {}{quiet}{rest}{quiet:#}", "Promises", Counts(&run.promises))?;
        }
        let samples = run.samples();
        if !samples.is_empty() {
            let is_whole = samples.iter().all(|sample| sample.tried >= sample.all);
            let rest = if is_whole { "" } else { "; --thorough tries all" };
            writeln!(f, "{:>12} {}{quiet}{rest}{quiet:#}", "Tried", tried(&samples))?;
        }
        for case in run.cases.iter().filter(|case| case.status.is_bad()) {
            let style = palette.of(case.status);
            writeln!(f, "{style}{:>12}{style:#} {}", label(case.status), CaseName(palette, case))?;
        }
        for finding in &run.findings {
            write!(f, "{}", FindingLine(palette, finding))?;
        }
        for defect in &run.kernel {
            let style = palette.bad;
            writeln!(f, "{style}{:>12}{style:#} {defect}", "Kernel")?;
            writeln!(f, "{:12} it names no device of a case, so it stands against the whole run", "")?;
        }
        let unexplained: Vec<CaseId> = (run.cases.iter())
            .filter(|case| case.status.is_bad() && case.findings.is_empty())
            .map(|case| case.id.clone())
            .collect();
        if !unexplained.is_empty() && !run.findings.is_empty() {
            writeln!(f, "  without a finding: {}", named(&unexplained))?;
        }
        if let Some(since) = &run.since {
            write!(f, "{}", SinceLines(palette, since))?;
        }
        for hint in &run.hints {
            writeln!(f, "  hint: {hint}")?;
        }
        write!(f, "{}", StartHere(run))
    }
}

/// `12 of 96 crash points, 1 of 48 power cuts`.
pub fn tried(samples: &[Sample]) -> String {
    let line = |sample: &Sample| format!("{} of {} {}", sample.tried, sample.all, sample.points);
    samples.iter().map(line).collect::<Vec<_>>().join(", ")
}

/// The difference from an earlier run. Faults that are still there are only counted here, since the findings list them.
pub struct SinceLines<'a>(pub Palette, pub &'a Since);

impl Display for SinceLines<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(palette, since) = *self;
        writeln!(f, "{:>12} {}: {}", "Since", since.run, since.tally())?;
        let lists = [("New", palette.bad, &since.new), ("Mended", palette.good, &since.mended)];
        for (word, style, faults) in lists {
            for fault in faults {
                writeln!(f, "{style}{word:>12}{style:#} {} in {}", fault.contract, fault.case)?;
            }
        }
        for Slower { case, before, now } in &since.slower {
            let style = palette.odd;
            writeln!(f, "{style}{:>12}{style:#} {case}: {now:.1} s, and {before:.1} s before", "Slower")?;
        }
        Ok(())
    }
}

/// One finding in the summary.
struct FindingLine<'a>(Palette, &'a RunFinding);

impl Display for FindingLine<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(palette, found) = *self;
        let style = palette.odd;
        let word = word(&found.finding);
        writeln!(f, "{style}{word:>12}{style:#} {}", found.finding.sentence)?;
        // A story that was not seen has the id of its case.
        match found.finding.contract == found.case.as_str() {
            true => writeln!(f, "{:12} in {}", "", found.case)?,
            false => writeln!(f, "{:12} {} in {}", "", found.finding.contract, found.case)?,
        }
        match found.also_in.as_slice() {
            [] => Ok(()),
            others => writeln!(f, "{:12} also in {}", "", named(others)),
        }
    }
}

/// The label of a finding, by its strength.
fn word(finding: &Finding) -> &'static str {
    match (finding.strength, finding.consequence_of.is_empty()) {
        (_, false) => "Consequence",
        (Some(Strength::Should), _) => "Recommended",
        (Some(Strength::Advice), _) => "Advice",
        (Some(Strength::Must) | None, _) => "Finding",
    }
}

/// A finding outside of a case: the sentence, and the promise with its citation.
pub struct FoundLines<'a>(pub Palette, pub &'a Finding);

impl Display for FoundLines<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(palette, finding) = *self;
        let style = if finding.is_fault() { palette.bad } else { palette.odd };
        writeln!(f, "{style}{:>12}{style:#} {}", word(finding), finding.sentence)?;
        match finding.cites.is_empty() {
            true => writeln!(f, "{:12} {}", "", finding.contract),
            false => writeln!(f, "{:12} {}", "", finding.cites),
        }
    }
}

/// The first cases by name, and how many more there are.
fn named(cases: &[CaseId]) -> String {
    const NAMED: usize = 3;
    let names: Vec<&str> = cases.iter().take(NAMED).map(CaseId::as_str).collect();
    match cases.len().saturating_sub(NAMED) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// The finding to mend first, with the commands for it.
struct StartHere<'a>(&'a RunRecord);

impl Display for StartHere<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // What the machine lacks is nothing to mend in a driver.
        let is_theirs =
            |found: &&RunFinding| found.finding.is_fault() && found.finding.party != Party::Environment;
        let Some(first) = self.0.findings.iter().find(is_theirs) else { return Ok(()) };
        let contract = &first.finding.contract;
        let again = self.0.cases.iter().find(|case| case.id == first.case).map(|case| case.again.as_str());
        let (Some(again), false) = (again, self.0.findings.len() < 2) else { return Ok(()) };
        write!(f, "  start here: {contract} ({})   {again}", count(1 + first.also_in.len(), "case"))?;
        match contract.as_str() == first.case.as_str() {
            true => writeln!(f),
            false => writeln!(f, "   {} explain {contract}", program::name()),
        }
    }
}

/// `50 passed, 1 failed, 10 skipped (8 driver, 2 host)`, without the statuses that no case has.
struct Tally<'a>(&'a RunRecord);

impl Display for Tally<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        for status in Status::ALL {
            let word = match status {
                Status::SkippedDriver | Status::SkippedHost => continue,
                Status::DriverExited => "lost their driver",
                Status::Xpass => "passed unexpectedly",
                Status::Xfail => "failed as expected",
                Status::Error => "errored",
                Status::Passed => "passed",
                Status::Failed => "failed",
                Status::Leaked => "leaked",
            };
            match self.0.count(status) {
                0 => {}
                number => parts.push(format!("{number} {word}")),
            }
        }
        let (driver, host) = (self.0.count(Status::SkippedDriver), self.0.count(Status::SkippedHost));
        let skipped = [(driver, "driver"), (host, "host")];
        let skipped: Vec<_> =
            skipped.iter().filter(|(n, _)| *n > 0).map(|(n, party)| format!("{n} {party}")).collect();
        if !skipped.is_empty() {
            parts.push(format!("{} skipped ({})", driver + host, skipped.join(", ")));
        }
        match parts.is_empty() {
            true => f.write_str("none ran"),
            false => f.write_str(&parts.join(", ")),
        }
    }
}

/// `1 case`, `2 cases`.
pub fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// The parts of a text, each with whether it is code: what stands between two backticks. A backtick without a second one
/// is text.
pub(super) fn code_in(text: &str) -> Vec<(&str, bool)> {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return vec![(text, false)];
    }
    parts.into_iter().enumerate().map(|(index, part)| (part, index % 2 == 1)).collect()
}
