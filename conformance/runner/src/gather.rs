//! The findings of a run, each told once, by the case that shows it best.

use crate::event::{CaseReport, Status};
use crate::finding::{Finding, Party, RunFinding};

/// The findings of a run, each once, in the order of the cases that show them best.
///
/// A driver that breaks a numbered promise breaks stories, too: a story that did not come true is a finding of its
/// own only in a run in which the driver broke no numbered promise. The case has failed all the same.
pub(crate) fn gather(cases: &[CaseReport]) -> Vec<RunFinding> {
    let mut all = cases.iter().flat_map(|case| case.findings.iter().map(move |finding| (case, finding)));
    let is_story = |(case, finding): &(&CaseReport, &Finding)| finding.contract == case.id.as_str();
    let numbered = all.any(|found| !is_story(&found) && found.1.is_fault() && found.1.party == Party::Driver);
    let mut gathered: Vec<(Clarity, RunFinding)> = Vec::new();
    for (position, case) in cases.iter().enumerate() {
        for finding in &case.findings {
            if is_story(&(case, finding)) && numbered {
                continue;
            }
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
    gathered.sort_by_key(|(clarity, _)| clarity.position);
    for (_, finding) in &mut gathered {
        finding.also_in.sort();
    }
    gathered.into_iter().map(|(_, finding)| finding).collect()
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
        assert_eq!(contracts(&cases), ["DRV-031"]);
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
        assert_eq!(said, [("answered twice", "c", 0), ("target still mounted", "b", 2)]);
    }
}
