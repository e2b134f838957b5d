//! The findings of a run: each is listed once, with the case that shows it best.

mod promises;

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
            let clarity = Clarity::of(case, position);
            // Cases that stop at the same answer of the driver have the same finding.
            let is_same = |known: &RunFinding| {
                let sentences = [&known.finding.sentence, &finding.sentence];
                let same = |plain: fn(&str) -> String| {
                    let [one, other] = sentences.map(|sentence| plain(sentence));
                    !one.is_empty() && one == other
                };
                let both_are_stories =
                    is_story(case, finding) && known.finding.contract == known.case.as_str();
                let same_call =
                    known.finding.contract == finding.contract && known.finding.method == finding.method;
                known.finding.key() == finding.key()
                    || both_are_stories && same(without_names)
                    || same_call && same(without_symbols)
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
    gathered.sort_by_cached_key(|(clarity, found)| (urgency(found), clarity.position));
    for (_, finding) in &mut gathered {
        finding.also_in.sort();
    }
    gathered.into_iter().map(|(_, finding)| finding).collect()
}

/// A sentence without the names in it, which are other ones in each case: single words in backquotes, and those in the
/// symbols of paths.
fn without_names(sentence: &str) -> String {
    let parts = sentence.split('`').enumerate();
    // A line of a story has several words, and distinguishes one fault from another.
    let is_name = |(place, part): &(usize, &str)| place % 2 == 1 && !part.contains(' ');
    parts.filter(|part| !is_name(part)).map(|(_, part)| without_symbols(part)).collect()
}

/// A sentence without the names in the symbols of paths, which an answer of the driver has as well: `<publish:data/web>`
/// becomes `<publish>`.
fn without_symbols(text: &str) -> String {
    let mut left = String::new();
    let mut rest = text;
    while let Some((before, symbol)) = rest.split_once('<') {
        let Some((symbol, after)) = symbol.split_once('>') else { break };
        let kind = symbol.split(':').next().unwrap_or_default();
        left += &format!("{before}<{kind}>");
        rest = after;
    }
    left + rest
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
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Clarity {
    /// Whether the case did not fail: a case that only leaked shows less.
    indirect: bool,
    /// The number of findings in the case: a case with a single finding shows it best.
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
    fn names_of_pods_make_no_other_story() {
        let same = |one: &str, two: &str| without_names(one) == without_names(two);
        assert!(same("The volumes of `web` are not mounted.", "The volumes of `other` are not mounted."));
        assert!(!same("The volumes of `web` are not mounted.", "The volumes of `web` are not unmounted."));
        assert!(!same("Saw `csi Stage a`.", "Saw `csi Publish a`."));
    }

    #[test]
    fn names_in_paths_of_an_answer_make_no_other_finding() {
        let refused =
            |path: &str| without_symbols(&format!("NodeUnpublishVolume answers: \"{path}: not empty\"."));
        assert_eq!(refused("<publish:data/web>"), refused("<publish:data-3/web-3-0>"));
        assert_ne!(refused("<publish:data/web>"), refused("<stage:data>"));
        assert_ne!(refused("a < b"), refused("a < c"));
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
