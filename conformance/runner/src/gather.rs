//! The findings of a run: each is listed once, with the case that shows it best.

mod promises;
mod same;

use std::cmp::Reverse;

use contracts::promise::{self, Harm};

use crate::event::{CaseReport, Status};
use crate::finding::{Finding, Party, RunFinding};

pub(crate) use promises::of_run;

/// The findings of a run, each once, in the order in which to fix them: causes before consequences, faults before
/// advice, the driver's before the machine's, numbered promises before stories, lost data and the end of the driver before
/// all else, findings of many cases before those of few, and the calls of a volume's life in their order.
///
/// The story of a case is left out if a broken promise of the driver in the same case explains it.
pub(crate) fn gather(cases: &[CaseReport]) -> Vec<RunFinding> {
    let is_story = |case: &CaseReport, finding: &Finding| finding.contract == case.id.as_str();
    let mut gathered: Vec<(Clarity, RunFinding)> = Vec::new();
    for (position, case) in cases.iter().enumerate() {
        let explains = |finding: &Finding| finding.is_fault() && finding.party == Party::Driver;
        let explained = case.findings.iter().any(|finding| !is_story(case, finding) && explains(finding));
        for finding in case.findings.iter().filter(|finding| !(explained && is_story(case, finding))) {
            let clarity = Clarity::of(case, finding, position);
            let is_same = |known: &RunFinding| {
                let both_are_stories =
                    is_story(case, finding) && known.finding.contract == known.case.as_str();
                same::is_one_fault(&known.finding, finding, both_are_stories)
            };
            match gathered.iter_mut().find(|(_, known)| is_same(known)) {
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
    unite_with_each_call(&mut gathered);
    gathered.sort_by_cached_key(|(clarity, found)| (urgency(found), clarity.position));
    for (_, finding) in &mut gathered {
        finding.also_in.sort();
    }
    gathered.into_iter().map(|(_, finding)| finding).collect()
}

/// Leaves out a finding about several calls if each of them has a finding of its own for the same promise.
fn unite_with_each_call(gathered: &mut Vec<(Clarity, RunFinding)>) {
    let of_several: Vec<usize> = (0..gathered.len())
        .filter(|at| !same::calls_without_fields(&gathered[*at].1.finding).is_empty())
        .collect();
    for at in of_several.into_iter().rev() {
        let several = &gathered[at].1;
        let own = |call: &str| {
            gathered.iter().position(|(_, known)| {
                let (known, several) = (&known.finding, &several.finding);
                let is_own = known.contract == several.contract && known.method == call;
                is_own && same::calls_without_fields(known).is_empty()
            })
        };
        let owns: Option<Vec<usize>> =
            same::calls_without_fields(&several.finding).into_iter().map(own).collect();
        let Some(owns) = owns else { continue };
        let (_, several) = gathered[at].clone();
        for own in owns {
            let known = &mut gathered[own].1;
            for case in std::iter::once(&several.case).chain(&several.also_in) {
                if known.case != *case && !known.also_in.contains(case) {
                    known.also_in.push(case.clone());
                }
            }
        }
        gathered.remove(at);
    }
}

/// The calls of a volume's life, in their order.
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

/// The sort key of a finding: the smallest is to be fixed first.
fn urgency(found: &RunFinding) -> (bool, bool, bool, bool, Harm, Reverse<usize>, usize) {
    let finding = &found.finding;
    let is_story = finding.contract == found.case.as_str();
    let harm = promise::find(&finding.contract).map_or(Harm::Other, |promise| promise.harm);
    let call = LIFE.iter().position(|call| *call == finding.method).unwrap_or(LIFE.len());
    (
        !finding.consequence_of.is_empty(),
        !finding.is_fault(),
        finding.party == Party::Environment,
        is_story,
        harm,
        Reverse(found.also_in.len()),
        call,
    )
}

/// The rank of a case as an example of a finding; the smallest is the best.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Clarity {
    /// Whether another finding of the case explains it: a case that shows the same as a fault of its own shows more.
    explained: bool,
    /// Whether the case did not fail: a case that only leaked shows less.
    indirect: bool,
    /// The number of findings in the case: a case with a single finding shows it best.
    others: usize,
    position: usize,
}

impl Clarity {
    fn of(case: &CaseReport, finding: &Finding, position: usize) -> Self {
        let direct = matches!(case.status, Status::Failed | Status::Error | Status::DriverExited);
        let explained = !finding.consequence_of.is_empty();
        Self { explained, indirect: !direct, others: case.findings.len(), position }
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
    fn story_is_a_finding_unless_a_promise_explains_it() {
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
    fn stories_that_end_with_the_same_answer_are_one_finding() {
        let story = |case: &str, said: &str| Finding {
            contract: case.into(),
            sentence: said.into(),
            party: Party::Unknown,
            ..finding(said)
        };
        let refused = "CreateSnapshot answered Unknown (no path is set), and not OK.";
        let cases = [
            CaseReport::sample("a", Status::Failed).with_findings([story("a", refused)]),
            CaseReport::sample("b", Status::Failed).with_findings([story("b", "another story")]),
            CaseReport::sample("c", Status::Failed).with_findings([story("c", refused)]),
        ];
        let gathered: Vec<String> = gather(&cases)
            .into_iter()
            .map(|found| {
                format!(
                    "{} {:?}",
                    found.case.as_str(),
                    found.also_in.iter().map(|id| id.as_str()).collect::<Vec<_>>()
                )
            })
            .collect();
        assert_eq!(gathered, [r#"a ["c"]"#, "b []"]);
    }

    #[test]
    fn names_in_paths_of_an_answer_make_no_other_finding() {
        let of = |case: &str, path: &str| {
            let sentence = format!("answers \"{path}: not empty\".");
            let finding =
                Finding { cause: sentence.clone(), sentence, contract: "DRV-184".into(), ..finding("") };
            CaseReport::sample(case, Status::Failed).with_findings([finding])
        };
        let found = gather(&[
            of("a", "<publish:data/web>"),
            of("b", "<publish:first/next>"),
            of("c", "<stage:data>"),
        ]);
        assert_eq!(found.iter().map(|found| found.also_in.len()).collect::<Vec<_>>(), [1, 0]);
        // Names of fields tell findings apart.
        let without = |case: &str, field: &str| of(case, &format!("without `{field}`"));
        assert_eq!(gather(&[without("a", "volumeId"), without("b", "targetPath")]).len(), 2);
    }

    #[test]
    fn fault_is_not_hidden_by_a_case_where_it_is_a_consequence() {
        let consequence = Finding { consequence_of: "DRV-002".into(), ..finding("refused") };
        let fault = finding("refused");
        let cases = [
            CaseReport::sample("a", Status::Failed).with_findings([consequence]),
            CaseReport::sample("b", Status::Failed).with_findings([fault, finding("another")]),
        ];
        let found = gather(&cases);
        let refused = found.iter().find(|found| found.finding.cause == "refused").expect("it is there");
        assert_eq!((refused.case.as_str(), refused.finding.is_fault()), ("b", true));
    }

    #[test]
    fn call_without_its_fields_is_one_fault_whatever_else_was_called() {
        let without = |case: &str, method: &str, sentence: &str| {
            let finding = Finding {
                contract: "DRV-090".into(),
                method: method.into(),
                sentence: sentence.into(),
                ..finding(sentence)
            };
            CaseReport::sample(case, Status::Failed).with_findings([finding])
        };
        let all = without(
            "all",
            "ControllerGetVolume",
            "Without any of the required fields, ControllerGetVolume answered OK, GetSnapshot answered NotFound, and not InvalidArgument.",
        );
        let get = without(
            "get",
            "ControllerGetVolume",
            "ControllerGetVolume without `volumeId` answered OK, and not InvalidArgument.",
        );
        let of_snapshot = without(
            "snapshot",
            "GetSnapshot",
            "GetSnapshot without `snapshotId` answered NotFound, and not InvalidArgument.",
        );
        let found = |cases: &[&CaseReport]| -> Vec<String> {
            let cases: Vec<CaseReport> = cases.iter().map(|case| (*case).clone()).collect();
            let of = |found: RunFinding| format!("{} {}", found.case.as_str(), found.also_in.len());
            gather(&cases).into_iter().map(of).collect()
        };
        assert_eq!(found(&[&all, &get, &of_snapshot]), ["get 1", "snapshot 1"]);
        assert_eq!(found(&[&all, &get]), ["all 0", "get 0"], "one call has no other finding");
    }

    #[test]
    fn findings_are_sorted_by_urgency() {
        let broken = |contract: &str, method: &str| Finding {
            contract: contract.into(),
            method: method.into(),
            ..finding(contract)
        };
        let advice = Finding {
            strength: Some(contracts::promise::Strength::Advice),
            ..broken("DRV-017", "CreateVolume")
        };
        let consequence = Finding { consequence_of: "DRV-055".into(), ..broken("INV-019", "") };
        let (mount, create) = (broken("DRV-055", "NodePublishVolume"), broken("DRV-010", "CreateVolume"));
        // A read-only volume that is written loses data, whatever the number of cases that show other faults.
        let written = broken("DRV-050", "NodePublishVolume");
        let machine = Finding { party: Party::Environment, ..broken("environment", "") };
        let cases = [
            CaseReport::sample("a", Status::Failed).with_findings([consequence, advice, machine, written]),
            CaseReport::sample("b", Status::Failed).with_findings([mount.clone(), create]),
            CaseReport::sample("c", Status::Failed).with_findings([mount]),
        ];
        let order: Vec<_> = gather(&cases).into_iter().map(|found| found.finding.contract).collect();
        assert_eq!(order, ["DRV-050", "DRV-055", "DRV-010", "environment", "DRV-017", "INV-019"]);
    }

    #[test]
    fn finding_is_listed_once_with_the_case_that_shows_it_best() {
        let leaked = CaseReport::sample("a", Status::Leaked).with_findings([finding("target still mounted")]);
        let failed = CaseReport::sample("b", Status::Failed).with_findings([finding("target still mounted")]);
        let both = CaseReport::sample("c", Status::Failed)
            .with_findings([finding("target still mounted"), finding("answered twice")]);

        let found = gather(&[leaked, both, failed]);

        let listed: Vec<_> = (found.iter())
            .map(|found| (found.finding.cause.as_str(), found.case.as_str(), found.also_in.len()))
            .collect();
        assert_eq!(listed, [("target still mounted", "b", 2), ("answered twice", "c", 0)]);
    }
}
