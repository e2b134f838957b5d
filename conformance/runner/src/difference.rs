//! The difference between two runs.

use std::collections::BTreeMap;

use testbed::case::CaseId;

use crate::event::{CaseReport, RunRecord, Status};
use crate::promises::Standing;
use crate::since::{Fault, Since, Slower};

/// A case is slower if it takes at least this many times as long as before.
const TIMES: f64 = 2.0;

/// A case is slower only by at least this many seconds: shorter differences come from other work of the machine.
const SECONDS: f64 = 1.0;

/// The new, mended and unchanged faults of `now` against `before`, and the slower cases.
pub fn between(run: String, before: &RunRecord, now: &RunRecord) -> Since {
    let (mut earlier, later) = (faults(before), faults(now));
    let mut since = Since { run, slower: slower(before, now), ..Since::default() };
    for (key, found) in later {
        match earlier.remove(&key) {
            Some(_) => since.still_there.push(found.fault),
            None => since.new.push(found.fault),
        }
    }
    for found in earlier.into_values() {
        match is_mended(&found, now) {
            true => since.mended.push(found.fault),
            false => since.not_tried.push(found.fault),
        }
    }
    since
}

/// Whether a run shows that a fault is gone: one of its cases had a verdict, and did not break on another fault before it
/// came to this one.
fn is_mended(found: &Found, now: &RunRecord) -> bool {
    let promise = now.promises.iter().find(|promise| promise.id == found.fault.contract);
    let is_tried = promise.is_none_or(|promise| promise.standing != Standing::NotTried);
    let is_kept = promise.is_some_and(|promise| promise.standing == Standing::Kept);
    let shows_it = |report: &&CaseReport| {
        found.cases.contains(&report.id)
            && report.status != Status::Error
            && !report.status.is_skip()
            && (is_kept || !report.status.is_bad())
    };
    is_tried && now.cases.iter().any(|report| shows_it(&report))
}

struct Found {
    fault: Fault,
    cases: Vec<CaseId>,
}

/// The faults of a run by the key of their finding. A consequence of another finding is left out, since it comes and goes
/// with that finding.
fn faults(run: &RunRecord) -> BTreeMap<(String, String, String), Found> {
    let mut faults = BTreeMap::new();
    for found in run.findings.iter().filter(|found| found.finding.consequence_of.is_empty()) {
        let (contract, method, cause) = found.finding.key();
        let fault = Fault {
            contract: contract.to_owned(),
            case: found.case.clone(),
            sentence: found.finding.sentence.clone(),
        };
        let cases = std::iter::once(&found.case).chain(&found.also_in).cloned().collect();
        let key = (contract.to_owned(), method.to_owned(), cause.to_owned());
        faults.insert(key, Found { fault, cases });
    }
    let unexplained = |case: &&CaseReport| case.status.is_bad() && case.findings.is_empty();
    for case in run.cases.iter().filter(unexplained) {
        let cause = case.status.to_string();
        let sentence = case.left_behind.first().cloned();
        let sentence = sentence.unwrap_or_else(|| format!("the case ended as `{cause}`"));
        let fault = Fault { contract: case.id.to_string(), case: case.id.clone(), sentence };
        let key = (case.id.to_string(), String::new(), cause);
        faults.insert(key, Found { fault, cases: vec![case.id.clone()] });
    }
    faults
}

fn slower(before: &RunRecord, now: &RunRecord) -> Vec<Slower> {
    let passed = |run: &RunRecord| -> BTreeMap<CaseId, f64> {
        let passed = run.cases.iter().filter(|case| case.status == Status::Passed);
        passed.map(|case| (case.id.clone(), case.seconds)).collect()
    };
    let earlier = passed(before);
    let pair =
        |(case, now): (CaseId, f64)| earlier.get(&case).map(|before| Slower { case, before: *before, now });
    let is_slower = |pair: &Slower| pair.now > pair.before * TIMES && pair.now > pair.before + SECONDS;
    passed(now).into_iter().filter_map(pair).filter(is_slower).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Party;
    use crate::gather::gather;
    use crate::judge;
    use crate::promises::PromiseRecord;

    fn run(cases: Vec<CaseReport>) -> RunRecord {
        RunRecord { findings: gather(&cases), cases, ..RunRecord::default() }
    }

    fn broken(id: &str, contract: &str) -> CaseReport {
        let finding = judge::promise_broken(contract, "NodePublishVolume", "x");
        CaseReport::sample(id, Status::Failed).with_findings([finding])
    }

    fn names(faults: &[Fault]) -> Vec<(&str, &str)> {
        faults.iter().map(|fault| (fault.contract.as_str(), fault.case.as_str())).collect()
    }

    #[test]
    fn findings_are_new_mended_still_there_or_not_tried() {
        let sample = CaseReport::sample;
        let before = run(vec![
            broken("a", "DRV-050"),
            broken("b", "DRV-055"),
            broken("c", "DRV-060"),
            sample("d", Status::Leaked),
            sample("e", Status::Passed),
        ]);
        let now = run(vec![
            broken("a", "DRV-050"),
            sample("b", Status::Passed),
            sample("c", Status::SkippedDriver),
            sample("d", Status::Leaked),
            broken("e", "DRV-010"),
        ]);
        let since = between("before".into(), &before, &now);
        assert_eq!(names(&since.new), [("DRV-010", "e")]);
        assert_eq!(names(&since.mended), [("DRV-055", "b")]);
        assert_eq!(names(&since.still_there), [("DRV-050", "a"), ("d", "d")]);
        assert_eq!(names(&since.not_tried), [("DRV-060", "c")]);
        assert_eq!(since.tally(), "1 new, 1 mended, 2 still there, 1 not tried");
    }

    #[test]
    fn fault_is_not_mended_by_a_case_that_breaks_on_another() {
        let before = run(vec![broken("a", "DRV-050"), CaseReport::sample("b", Status::Leaked)]);
        let mut now = run(vec![broken("a", "DRV-055"), broken("b", "DRV-055")]);
        let since = between("before".into(), &before, &now);
        assert_eq!(names(&since.not_tried), [("DRV-050", "a"), ("b", "b")]);
        assert_eq!(since.mended, []);

        // Unless it keeps the promise all the same.
        now.promises = vec![PromiseRecord {
            id: "DRV-050".into(),
            binds: Party::Driver,
            strength: None,
            sentence: String::new(),
            standing: Standing::Kept,
            judged_in: 1,
            lacks: vec![],
        }];
        assert_eq!(names(&between("before".into(), &before, &now).mended), [("DRV-050", "a")]);
    }

    #[test]
    fn case_is_slower_only_if_it_takes_much_longer() {
        let took =
            |seconds: f64, status| run(vec![CaseReport { seconds, ..CaseReport::sample("a", status) }]);
        let slower = |before, now| {
            let (before, now) = (took(before, Status::Passed), took(now, Status::Passed));
            between(String::new(), &before, &now).slower.len()
        };
        assert_eq!([slower(0.1, 0.5), slower(0.5, 2.0), slower(10.0, 12.0), slower(2.0, 0.5)], [0, 1, 0, 0]);
        let failed = between(String::new(), &took(0.1, Status::Failed), &took(9.0, Status::Passed));
        assert_eq!(failed.slower, []);
        let same = took(0.1, Status::Passed);
        assert_eq!(between(String::new(), &same, &same).tally(), "nothing has changed");
    }
}
