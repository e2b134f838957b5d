//! Reading what `cargo test` prints: the counts, and which of its lines a person wants to see.
//!
//! libtest knows no skipped tests. Ours say `skipped: <why>` and return, so a passed test whose output
//! holds such a line is counted as skipped, and the line is shown.

use crate::tally::Tally;

/// Follows the output of `cargo test -- --show-output`, line by line.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    tally: Tally,
    section: Section,
    /// Tests of this program that passed only because they did nothing: its counts come after its output.
    skipped: u64,
    /// A program has said how many tests it runs, and not yet how they ended.
    running: bool,
    /// The test whose captured output we are in, and whether it has been counted as skipped.
    test: Option<(String, bool)>,
    left_out: Vec<String>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Section {
    #[default]
    Progress,
    Successes,
    Failures,
}

impl Reader {
    /// Takes one line. What comes back is to be shown.
    pub(crate) fn line(&mut self, line: &str) -> Option<String> {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.section = Section::Progress;
            self.test = None;
            self.running = false;
            let mut counts = counts(result);
            counts.passed -= self.skipped.min(counts.passed);
            counts.skipped += std::mem::take(&mut self.skipped);
            self.tally += counts;
            return None;
        }
        if line.starts_with("running ") && self.section == Section::Progress {
            self.end_of_program();
            self.running = true;
        }
        match line {
            "successes:" => self.enter(Section::Successes),
            "failures:" => self.enter(Section::Failures),
            _ => return self.inside(line),
        }
        None
    }

    /// Whether the lines that come belong to failed tests, until the counts of their program.
    pub(crate) fn is_among_failures(&self) -> bool {
        self.section == Section::Failures
    }

    /// The counts of all programs that have ended.
    pub(crate) fn tally(&mut self) -> Tally {
        self.end_of_program();
        self.tally
    }

    /// A program that died has no counts, and is a failure beside those of others.
    fn end_of_program(&mut self) {
        if std::mem::take(&mut self.running) {
            self.tally += Tally::of_check(false);
            // The next program starts with no skipped tests.
            self.skipped = 0;
        }
    }

    /// The parts of tests that run only with `--thorough`, each once.
    pub(crate) fn into_left_out(self) -> Vec<String> {
        self.left_out
    }

    fn enter(&mut self, section: Section) {
        self.section = section;
        self.test = None;
    }

    fn inside(&mut self, line: &str) -> Option<String> {
        if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            self.test = Some((name.to_owned(), false));
            return (self.section == Section::Failures).then(|| line.to_owned());
        }
        match self.section {
            Section::Failures => (!line.is_empty()).then(|| line.to_owned()),
            Section::Progress => is_news(line).then(|| line.to_owned()),
            Section::Successes => {
                self.leave_out(line);
                self.skip(line)
            }
        }
    }

    fn leave_out(&mut self, line: &str) {
        if let Some(left_out) = line.trim_start().strip_prefix("not thorough:").map(str::trim)
            && !self.left_out.iter().any(|known| known == left_out)
        {
            self.left_out.push(left_out.to_owned());
        }
    }

    fn skip(&mut self, line: &str) -> Option<String> {
        let why = line.trim_start().strip_prefix("skipped:")?;
        let (name, counted) = self.test.as_mut()?;
        if *counted {
            return None;
        }
        *counted = true;
        self.skipped += 1;
        Some(format!("{:>12} {name}: {}", "SKIP", why.trim()))
    }
}

/// Progress worth showing: not what passed.
fn is_news(line: &str) -> bool {
    let passed = line.starts_with("test ") && line.ends_with(" ... ok");
    let quiet = line.is_empty() || line.starts_with("running ") || passed;
    !quiet
}

/// `ok. 5 passed; 1 failed; 2 ignored; 0 measured; …`
fn counts(result: &str) -> Tally {
    let mut tally = Tally::default();
    let words: Vec<&str> = result.split_whitespace().collect();
    for pair in words.windows(2) {
        let Ok(count) = pair[0].parse::<u64>() else { continue };
        match pair[1].trim_end_matches(';') {
            "passed" => tally.passed = count,
            "failed" => tally.failed = count,
            "ignored" => tally.skipped = count,
            _ => {}
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(output: &str) -> (Tally, Vec<String>) {
        let mut reader = Reader::default();
        let shown = output.lines().filter_map(|line| reader.line(line)).collect();
        (reader.tally(), shown)
    }

    #[test]
    fn a_test_that_said_why_it_could_not_run_counts_as_skipped() {
        let (tally, shown) = read(
            "\nrunning 2 tests\ntest a ... ok\ntest b ... ok\n\nsuccesses:\n\n---- b stdout ----\n\
             skipped: needs root\nskipped: and a loop device\n\n\nsuccesses:\n    a\n    b\n\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n",
        );
        assert_eq!(tally, Tally { passed: 1, failed: 0, skipped: 1 });
        assert_eq!(shown, ["        SKIP b: needs root"]);
    }

    #[test]
    fn failures_are_shown_with_what_they_printed() {
        let (tally, shown) = read(
            "running 2 tests\ntest a ... ok\ntest c ... FAILED\n\nfailures:\n\n---- c stdout ----\n\
             assertion failed\n\n\nfailures:\n    c\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n",
        );
        assert_eq!(tally, Tally { passed: 1, failed: 1, skipped: 0 });
        assert_eq!(shown, ["test c ... FAILED", "---- c stdout ----", "assertion failed", "    c"]);
    }

    #[test]
    fn program_that_died_is_a_failure_beside_those_of_others() {
        let (tally, _) = read(
            "running 2 tests\ntest a ... ok\nrunning 2 tests\ntest b ... ok\ntest c ... FAILED\n\
             test result: FAILED. 1 passed; 1 failed; 0 ignored\nrunning 1 test\n",
        );
        assert_eq!(tally, Tally { passed: 1, failed: 3, skipped: 0 });
    }

    #[test]
    fn tests_that_ran_in_part_are_listed_once_and_count_as_passed() {
        let mut reader = Reader::default();
        for line in [
            "successes:",
            "---- a stdout ----",
            "not thorough: 3 moments of 50",
            "---- b stdout ----",
            "not thorough: 3 moments of 50",
            "test result: ok. 2 passed; 0 failed; 0 ignored",
        ] {
            assert_eq!(reader.line(line), None, "{line}");
        }
        assert_eq!(reader.tally(), Tally { passed: 2, failed: 0, skipped: 0 });
        assert_eq!(reader.into_left_out(), ["3 moments of 50"]);
    }
}
