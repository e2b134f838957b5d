//! Compares a report with an earlier one. Pure.

use std::fmt::Write;

use measure::Row;

use crate::Report;

/// The ratio of two figures up to which the worse one counts as noise.
const NOISE: f64 = 1.1;

/// A text with a line for each row and its change, and then a line for each row that is slower.
pub(crate) fn compare(earlier: &Report, now: &Report) -> String {
    let commit = earlier.commit.as_deref().unwrap_or("unknown");
    let mut text = format!(
        "since {} (commit {commit}); a row with a floor is compared by its ratio to it\n",
        earlier.date
    );
    let mut slower = Vec::new();
    for row in &now.rows {
        let same = |old: &&Row| (&old.subject, &old.name, &old.unit) == (&row.subject, &row.name, &row.unit);
        let name = format!("{}: {}", row.subject, row.name);
        let Some(old) = earlier.rows.iter().find(same) else {
            let _ = writeln!(text, "{name:<60} new");
            continue;
        };
        let (before, after) = comparable_figures(old, row);
        let _ = writeln!(
            text,
            "{name:<60} {before:>10.2} {after:>10.2} {:>+6.0} %",
            (after / before - 1.0) * 100.0
        );
        if is_slower(old, row) {
            slower.push(name);
        }
    }
    if slower.is_empty() {
        text += "nothing is slower\n";
    }
    for name in slower {
        let _ = writeln!(text, "slower: {name}");
    }
    text
}

/// The two figures to compare: the ratios to a floor, which hold on any machine, or else the medians.
fn comparable_figures(old: &Row, new: &Row) -> (f64, f64) {
    let ratio = |row: &Row| row.floor.and(row.ratio);
    ratio(old).zip(ratio(new)).unwrap_or((old.median, new.median))
}

/// Whether a row is worse by more than noise. Its median must also be outside the earlier spread, unless it is a time with
/// a floor.
fn is_slower(old: &Row, new: &Row) -> bool {
    let (before, after) = comparable_figures(old, new);
    if new.is_rate() {
        after * NOISE < before && new.median < old.low
    } else {
        after > before * NOISE && (new.floor.is_some() || new.median > old.high)
    }
}

#[cfg(test)]
mod tests {
    use measure::Row;

    use super::is_slower;

    #[test]
    fn noise_is_not_slower() {
        let row = |median: f64| Row::new("pod", "in", "ms", &[median * 0.9, median, median * 1.1]);
        assert!(!is_slower(&row(10.0), &row(10.5)));
        assert!(is_slower(&row(10.0), &row(12.0)));
        assert!(!is_slower(&row(10.0), &row(8.0)));
    }

    #[test]
    fn rate_is_slower_when_it_falls() {
        let row = |median: f64| Row::new("check", "lines", "lines/s", &[median]);
        assert!(is_slower(&row(100.0), &row(80.0)));
        assert!(!is_slower(&row(80.0), &row(100.0)));
    }

    #[test]
    fn row_with_a_floor_is_compared_by_its_ratio() {
        let row = |median: f64, floor: f64| Row::new("pod", "in", "ms", &[median]).floor(&[floor]);
        assert!(!is_slower(&row(10.0, 5.0), &row(20.0, 10.0)), "another machine");
        assert!(is_slower(&row(10.0, 5.0), &row(10.0, 4.0)));
    }
}
