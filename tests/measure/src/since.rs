//! What has changed since an earlier report. Touches nothing.

use std::fmt::Write;

use measure::Row;

use crate::Report;

/// A figure that is worse by less than this is noise.
const NOISE: f64 = 1.1;

/// Each row with its change, then those that are slower.
pub(crate) fn compare(earlier: &Report, now: &Report) -> String {
    let commit = earlier.commit.as_deref().unwrap_or("unknown");
    let mut text =
        format!("since {} (commit {commit}); ratios to a floor where there are any\n", earlier.date);
    let mut slower = Vec::new();
    for row in &now.rows {
        let same = |old: &&Row| (&old.subject, &old.name, &old.unit) == (&row.subject, &row.name, &row.unit);
        let name = format!("{}: {}", row.subject, row.name);
        let Some(old) = earlier.rows.iter().find(same) else {
            let _ = writeln!(text, "{name:<60} new");
            continue;
        };
        let (before, after) = figures(old, row);
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

/// What to compare: ratios to a floor travel between machines.
fn figures(old: &Row, new: &Row) -> (f64, f64) {
    let ratio = |row: &Row| row.floor.and(row.ratio);
    ratio(old).zip(ratio(new)).unwrap_or((old.median, new.median))
}

/// Worse by more than noise, and outside of the earlier spread.
fn is_slower(old: &Row, new: &Row) -> bool {
    let (before, after) = figures(old, new);
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
    fn ratio_counts_more_than_time() {
        let row = |median: f64, floor: f64| Row::new("pod", "in", "ms", &[median]).floor(&[floor]);
        assert!(!is_slower(&row(10.0, 5.0), &row(20.0, 10.0)), "another machine");
        assert!(is_slower(&row(10.0, 5.0), &row(10.0, 4.0)));
    }
}
