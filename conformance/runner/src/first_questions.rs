//! Reports wrong answers to the first questions, the calls before any volume, as a case of its own.
//!
//! The driver answers them before the first case. Without this case, a wrong answer would end the run without a result.

use std::collections::BTreeSet;

use harness::driver::WrongAnswer;
use testbed::case::CaseId;
use testbed::failure::{Breakage, Place};
use testbed::message::Abilities;

use crate::event::{CaseReport, Status};
use crate::finding::Finding;
use crate::judge::{promise_broken, story_broken};
use crate::promises::Judged;

/// The id of the case that reports the wrong answers.
pub const ID: &str = "first_questions";

const PROVES: &str = "The driver answers the calls that come before any volume as CSI requires.";

/// The case for the wrong answers; `None` if all answers were right. Advice that is not followed fails nothing.
pub fn report(wrong: &[WrongAnswer], last_words: &[String], total: usize, again: &str) -> Option<CaseReport> {
    if wrong.is_empty() {
        return None;
    }
    let at = Place { file: file!().to_owned(), line: line!() };
    let cause = std::iter::once("The driver's log ends with:".to_owned());
    let cause = cause.chain(last_words.iter().map(|line| format!("  {line}"))).collect();
    let breakage =
        Breakage { after: String::new(), at: at.clone(), expected: None, actual: None, cause, event: None };
    let findings: Vec<Finding> = wrong.iter().map(finding).collect();
    let is_broken = findings.iter().any(Finding::is_fault) || wrong.iter().any(|answer| answer.is_fatal);
    Some(CaseReport {
        id: CaseId::new(ID),
        status: if is_broken { Status::Failed } else { Status::Passed },
        seconds: 0.0,
        number: 1,
        of: total,
        proves: PROVES.to_owned(),
        at,
        reasons: vec![],
        breakage: (!last_words.is_empty()).then_some(breakage),
        findings,
        judged: Judged::default(),
        not_tried: vec![],
        left_behind: vec![],
        kernel: vec![],
        unchecked: vec![],
        samples: vec![],
        logs: None,
        log_files: vec![],
        after: vec![],
        again: again.to_owned(),
        look: None,
    })
}

/// The promises that the first answers kept.
pub(crate) fn kept(abilities: &Abilities) -> BTreeSet<String> {
    let tells_topology = !abilities.says.topology.is_empty();
    let tried =
        [("DRV-007", true), ("DRV-008", tells_topology), ("DRV-173", true), ("DRV-174", tells_topology)];
    let is_broken = |id: &str| abilities.wrong.iter().any(|answer| answer.promise.as_deref() == Some(id));
    let kept = tried.into_iter().filter(|(id, is_tried)| *is_tried && !is_broken(id));
    kept.map(|(id, _)| id.to_owned()).collect()
}

fn finding(answer: &WrongAnswer) -> Finding {
    let WrongAnswer { method, promise, cause, .. } = answer;
    let found = match promise {
        Some(promise) => promise_broken(promise, method, cause),
        None => Finding { method: method.clone(), ..story_broken(ID, cause, PROVES) },
    };
    Finding { sentence: format!("{answer}."), ..found }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(promise: Option<&str>) -> WrongAnswer {
        WrongAnswer {
            method: "GetPluginInfo".to_owned(),
            promise: promise.map(str::to_owned),
            cause: "not implemented".to_owned(),
            detail: String::new(),
            is_fatal: true,
        }
    }

    #[test]
    fn wrong_answers_are_a_failed_case_with_a_finding_each() {
        let wrong = [answer(Some("DRV-007")), answer(None)];
        let case = report(&wrong, &["listening".to_owned()], 3, "volproof run").unwrap();
        assert_eq!((case.id.as_str(), case.status), (ID, Status::Failed));
        let contracts: Vec<_> = case.findings.iter().map(|finding| finding.contract.as_str()).collect();
        assert_eq!(contracts, ["DRV-007", ID]);
        assert_eq!(case.breakage.unwrap().cause, ["The driver's log ends with:", "  listening"]);
    }

    #[test]
    fn advice_that_is_not_followed_fails_nothing() {
        let advice = WrongAnswer { is_fatal: false, ..answer(Some("DRV-006")) };
        let case = report(&[advice], &[], 3, "volproof run").unwrap();
        assert_eq!((case.status, case.findings.len()), (Status::Passed, 1));
    }

    #[test]
    fn first_answers_keep_only_the_promises_that_they_answer() {
        let kept = |abilities: &Abilities| kept(abilities).into_iter().collect::<Vec<_>>();
        let mut abilities = Abilities::default();
        assert_eq!(kept(&abilities), ["DRV-007", "DRV-173"]);
        abilities.says.topology.insert("zone".to_owned(), "z1".to_owned());
        assert_eq!(kept(&abilities), ["DRV-007", "DRV-008", "DRV-173", "DRV-174"]);
        abilities.wrong.push(answer(Some("DRV-007")));
        assert_eq!(kept(&abilities), ["DRV-008", "DRV-173", "DRV-174"]);
    }

    #[test]
    fn right_answers_are_not_reported() {
        assert!(report(&[], &["listening".to_owned()], 3, "volproof run").is_none());
    }
}
