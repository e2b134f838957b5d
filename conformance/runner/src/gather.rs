//! The findings of a run, each told once, by the case that shows it best.

mod promises;

use std::cmp::Reverse;

use crate::event::{CaseReport, Status};
use crate::finding::{Finding, Party, RunFinding};

pub(crate) use promises::of_run;

/// The findings of a run, each once, in the order in which they are best mended: causes before consequences, what CSI
/// obliges a driver to before what it recommends, numbered promises before stories, many cases before few, and the
/// calls of a volume's life in their order.
///
/// The story of a case is left out where a broken promise in the same case says better what went wrong.
pub(crate) fn gather(cases: &[CaseReport]) -> Vec<RunFinding> {
    let is_story = |case: &CaseReport, finding: &Finding| finding.contract == case.id.as_str();
    let mut gathered: Vec<(Clarity, RunFinding)> = Vec::new();
    for (position, case) in cases.iter().enumerate() {
        let explains = |finding: &Finding| finding.is_fault() && finding.party == Party::Driver;
        let explained = case.findings.iter().any(|finding| !is_story(case, finding) && explains(finding));
        for finding in case.findings.iter().filter(|finding| !(explained && is_story(case, finding))) {
            let clarity = Clarity::of(case, position);
            match gathered.iter_mut().find(|(_, known)| known.finding.key() == finding.key()) {
                Some((best, known)) if clarity < *best => {
                    let before = std::mem::replace(&mut known.case, case.id.clone());
                    known.also_in.push(before);
                    known.finding = finding.clone();
                    *best = clarity;
                }
                Some((_, known)) if known.case != case.id && !known.also_in.contains(&case.id) => {
                    known.also_in.push(case.id.clone());
                }
                Some(_) => {}
                None => {
                    let finding = finding.clone();
                    gathered.push((clarity, RunFinding { finding, case: case.id.clone(), also_in: vec![] }));
                }
            }
        }
    }
    gathered.sort_by_cached_key(|(clarity, found)| (urgency(found), clarity.position));
    for (_, finding) in &mut gathered {
        finding.also_in.sort();
    }
    gathered.into_iter().map(|(_, finding)| finding).collect()
}

/// The calls of a volume's life.
const LIFE: [&str; 9] = [
    "GetPluginInfo",
    "NodeGetInfo",
    "CreateVolume",
    "ControllerPublishVolume",
    "NodeStageVolume",
    "NodePublishVolume",
    "NodeUnpublishVolume",
    "NodeUnstageVolume",
    "ControllerUnpublishVolume",
];

/// What makes one finding better to mend first than another; smaller is earlier.
fn urgency(found: &RunFinding) -> (bool, bool, bool, Reverse<usize>, usize) {
    let finding = &found.finding;
    let is_story = finding.contract == found.case.as_str();
    let call = LIFE.iter().position(|call| *call == finding.method).unwrap_or(LIFE.len());
    (!finding.consequence_of.is_empty(), !finding.is_fault(), is_story, Reverse(found.also_in.len()), call)
}

/// How well a case shows a finding; smaller is better.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Clarity {
    /// A case that failed shows more than one that only left something behind.
    indirect: bool,
    /// A case with one finding is about that finding.
    others: usize,
    position: usize,
}

impl Clarity {
    fn of(case: &CaseReport, position: usize) -> Self {
        let direct = matches!(case.status, Status::Failed | Status::Error | Status::DriverExited);
        Self { indirect: !direct, others: case.findings.len(), position }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(cause: &str) -> Finding {
        Finding {
            contract: "DRV-031".into(),
            method: "NodeUnpublishVolume".into(),
            cause: cause.into(),
            party: Party::Driver,
            strength: None,
            consequence_of: String::new(),
            sentence: String::new(),
            cites: String::new(),
        }
    }

    #[test]
    fn a_story_is_a_finding_where_no_promise_explains_it() {
        let story =
            |case: &str| Finding { contract: case.into(), party: Party::Unknown, ..finding("another story") };
        let cases = [
            CaseReport::sample("a", Status::Failed).with_findings([story("a")]),
            CaseReport::sample("b", Status::Failed).with_findings([finding("target still mounted")]),
        ];
        let contracts = |cases: &[CaseReport]| -> Vec<String> {
            gather(cases).into_iter().map(|found| found.finding.contract).collect()
        };
        assert_eq!(contracts(&cases[..1]), ["a"]);
        assert_eq!(contracts(&cases), ["DRV-031", "a"], "another case's fault does not explain it");
        let both =
            CaseReport::sample("c", Status::Failed).with_findings([story("c"), finding("still mounted")]);
        assert_eq!(contracts(&[both]), ["DRV-031"]);
    }

    #[test]
    fn findings_come_in_the_order_to_mend_them() {
        let of = |contract: &str, method: &str| Finding {
            contract: contract.into(),
            method: method.into(),
            ..finding(contract)
        };
        let advice =
            Finding { strength: Some(contracts::promise::Strength::Advice), ..of("DRV-017", "CreateVolume") };
        let consequence = Finding { consequence_of: "DRV-055".into(), ..of("INV-019", "") };
        let (mount, create) = (of("DRV-055", "NodePublishVolume"), of("DRV-010", "CreateVolume"));
        let publish = of("DRV-050", "NodePublishVolume");
        let cases = [
            CaseReport::sample("a", Status::Failed).with_findings([consequence, advice, publish]),
            CaseReport::sample("b", Status::Failed).with_findings([mount.clone(), create]),
            CaseReport::sample("c", Status::Failed).with_findings([mount]),
        ];
        let order: Vec<_> = gather(&cases).into_iter().map(|found| found.finding.contract).collect();
        assert_eq!(order, ["DRV-055", "DRV-010", "DRV-050", "DRV-017", "INV-019"]);
    }

    #[test]
    fn a_finding_is_said_once_by_the_case_that_shows_it_best() {
        let leaked = CaseReport::sample("a", Status::Leaked).with_findings([finding("target still mounted")]);
        let failed = CaseReport::sample("b", Status::Failed).with_findings([finding("target still mounted")]);
        let both = CaseReport::sample("c", Status::Failed)
            .with_findings([finding("target still mounted"), finding("answered twice")]);

        let found = gather(&[leaked, both, failed]);

        let said: Vec<_> = (found.iter())
            .map(|found| (found.finding.cause.as_str(), found.case.as_str(), found.also_in.len()))
            .collect();
        assert_eq!(said, [("target still mounted", "b", 2), ("answered twice", "c", 0)]);
    }
}
