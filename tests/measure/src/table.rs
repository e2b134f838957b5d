//! The table for people: a hundred columns wide. Touches nothing.

use std::fmt::Write;

use measure::Verdict;

use crate::Report;

/// The machine, then the rows of each subject.
pub(crate) fn of(report: &Report) -> String {
    let machine = &report.machine;
    let commit = report.commit.as_deref().map_or_else(String::new, |commit| format!(", commit {commit}"));
    let mut text = format!(
        "{}{commit}\nLinux {}, {} cores of {}, {} GiB, load {}\n",
        report.date, machine.kernel, machine.cores, machine.cpu, machine.memory_gib, machine.load
    );
    let mut subject = "";
    for row in &report.rows {
        if row.subject != subject {
            subject = &row.subject;
            let columns = ["median", "quartiles", "floor", "ratio", "aim"];
            let [median, spread, floor, ratio, aim] = columns;
            let _ =
                writeln!(text, "\n{subject:<43} {median:>15} {spread:>11} {floor:>6} {ratio:>6} {aim:>7}");
        }
        let _ = writeln!(text, "{row}");
    }
    let verdicts: Vec<Verdict> = report.rows.iter().filter_map(measure::Row::verdict).collect();
    let met = verdicts.iter().filter(|verdict| **verdict == Verdict::Met).count();
    let _ = writeln!(text, "\n{met} of {} aims met", verdicts.len());
    text
}
