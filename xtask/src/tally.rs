//! Counting: how many things passed, failed and were skipped, over everything that was run.

use std::fmt;
use std::ops::AddAssign;

/// The counts of passed, failed and skipped checks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    /// One check, and whether it held.
    pub(crate) fn of_check(held: bool) -> Tally {
        Tally { passed: u64::from(held), failed: u64::from(!held), skipped: 0 }
    }

    /// Whether this may be called a success: nothing failed, and something ran.
    pub(crate) fn is_good(self) -> bool {
        self.failed == 0 && self.passed > 0
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// The closing line, which scripts read.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_run_is_not_a_success() {
        assert!(!Tally { skipped: 3, ..Tally::default() }.is_good());
        assert!(!Tally { passed: 3, failed: 1, skipped: 0 }.is_good());
        assert!(Tally::of_check(true).is_good());
    }

    #[test]
    fn the_closing_line_reads_as_promised() {
        let mut all = Tally::of_check(true);
        all += Tally { passed: 4, failed: 1, skipped: 2 };
        assert_eq!(all.to_string(), "5 passed, 1 failed, 2 skipped");
    }
}
