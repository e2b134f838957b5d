//! The standing of each promise after a run, from all its cases.

use std::collections::BTreeSet;

use contracts::{manager, promise};
use testbed::case::Case;

use crate::event::CaseReport;
use crate::finding::Party;
use crate::judge::ENVIRONMENT;
use crate::promises::{PromiseRecord, Standing, is_judged};

/// Every promise with its standing: the driver's, then the volume manager's and the controllers'. `at_first` are the
/// promises that the first answers kept, and `all` are the cases of this program.
pub(crate) fn of_run(
    at_first: &BTreeSet<String>,
    reports: &[CaseReport],
    all: &[&Case],
) -> Vec<PromiseRecord> {
    let of_driver = promise::all().map(|promise| PromiseRecord {
        strength: Some(promise.strength),
        ..blank(promise.id, Party::Driver, promise.sentence)
    });
    let of_manager = manager::all().map(|rule| blank(rule.id, Party::Manager, rule.sentence));
    of_driver.chain(of_manager).map(|record| with_standing(record, at_first, reports, all)).collect()
}

fn blank(id: &str, binds: Party, sentence: &str) -> PromiseRecord {
    let (id, sentence) = (id.to_owned(), sentence.to_owned());
    PromiseRecord {
        id,
        binds,
        strength: None,
        sentence,
        standing: Standing::NotTried,
        judged_in: 0,
        lacks: vec![],
    }
}

fn with_standing(
    record: PromiseRecord,
    at_first: &BTreeSet<String>,
    reports: &[CaseReport],
    all: &[&Case],
) -> PromiseRecord {
    let id = record.id.as_str();
    let broken = reports.iter().filter(|report| is_broken_in(id, report)).count();
    let keeps = |report: &&CaseReport| report.judged.kept.contains(id) && !is_broken_in(id, report);
    let kept = reports.iter().filter(keeps).count() + usize::from(at_first.contains(id));
    let missing = reports.iter().filter_map(|report| report.judged.unobservable.get(id)).next();
    let standing = match (broken, kept, missing) {
        (1.., ..) => Standing::Broken,
        (0, 1.., _) => Standing::Kept,
        (0, 0, Some(_)) => Standing::NotObservable,
        (0, 0, None) if is_judged(id, all) => Standing::NotTried,
        (0, 0, None) => Standing::NotObservable,
    };
    let lacks = missing.filter(|_| standing == Standing::NotObservable).cloned().unwrap_or_default();
    PromiseRecord { standing, judged_in: broken + kept, lacks, ..record }
}

/// Whether a case found the promise broken and the machine was not the reason.
fn is_broken_in(id: &str, report: &CaseReport) -> bool {
    report.findings.iter().any(|finding| finding.contract == id && finding.consequence_of != ENVIRONMENT)
}

#[cfg(test)]
mod tests {
    use contracts::rule::Witness;

    use super::*;
    use crate::event::Status;
    use crate::judge;
    use crate::promises::Counts;

    fn report(kept: &[&str], broken: &[&str]) -> CaseReport {
        let mut report = CaseReport::sample("a", Status::Passed)
            .with_findings(broken.iter().map(|id| judge::promise_broken(id, "NodePublishVolume", "x")));
        report.judged.kept = kept.iter().map(|id| (*id).to_owned()).collect();
        report
    }

    #[track_caller]
    fn check(reports: &[CaseReport], id: &str, standing: Standing, judged_in: usize) {
        let all = of_run(&BTreeSet::new(), reports, &[]);
        let record = all.iter().find(|record| record.id == id).expect("a promise of that number");
        assert_eq!((record.standing, record.judged_in), (standing, judged_in), "{record:?}");
    }

    #[test]
    fn promise_is_kept_only_where_a_case_had_an_occasion() {
        check(&[report(&[], &[])], "DRV-055", Standing::NotTried, 0);
        check(&[report(&["DRV-055"], &[])], "DRV-055", Standing::Kept, 1);
        let reports = [report(&["DRV-055"], &[]), report(&["DRV-055"], &["DRV-055"]), report(&[], &[])];
        check(&reports, "DRV-055", Standing::Broken, 2);
    }

    #[test]
    fn promise_that_nothing_can_see_is_not_observable() {
        // Neither a rule nor one of these cases judges it.
        check(&[report(&[], &[])], "DRV-080", Standing::NotObservable, 0);
        let mut blind = report(&[], &[]);
        blind.judged.unobservable.insert("DRV-055".to_owned(), vec![Witness::Kernel]);
        check(&[blind.clone()], "DRV-055", Standing::NotObservable, 0);
        check(&[blind, report(&["DRV-055"], &[])], "DRV-055", Standing::Kept, 1);
    }

    #[test]
    fn promise_broken_on_a_machine_without_room_does_not_count_as_broken() {
        let mut excused = report(&[], &["DRV-055"]);
        judge::excuse(&mut excused.findings);
        check(&[excused], "DRV-055", Standing::NotTried, 0);
    }

    #[test]
    fn counts_are_of_the_driver_and_separate_duties_from_recommendations() {
        let all = of_run(&BTreeSet::new(), &[report(&["DRV-060", "INV-001"], &["DRV-055", "DRV-017"])], &[]);
        let counts = Counts(&all).to_string();
        assert!(counts.starts_with("1 broken, 1 recommended and not followed, 1 kept, "), "{counts}");
    }
}
