//! The standing of promises after a run: kept only if a case tried them.

use serial_test::serial;
use tests::{Ended, Volproof, has_root};

const LIFE: &str = "csi::lifecycle::file_system_is_set_up_and_torn_down";

/// A run on a machine that is not overloaded: else the judge takes back what it cannot be sure of.
fn run_one_life(sabotage: &str) -> Ended {
    let run = || Volproof::new().args("run --report out --timeout 15s").args(sabotage).arg(LIFE).run();
    let mut ended = run();
    for _ in 0..5 {
        if !ended.told().contains("the machine was overloaded") {
            break;
        }
        ended = run();
    }
    ended
}

fn standing(ended: &Ended, promise: &str) -> (String, u64) {
    ended.results().standing(promise).unwrap_or_else(|| panic!("{promise} is missing: {}", ended.told()))
}

/// In the same case the honest driver keeps a promise and a sabotaged one breaks it; a promise that the case does not try
/// is neither.
#[test]
#[serial]
fn each_promise_is_kept_broken_not_tried_or_not_observable() {
    if !has_root() {
        return;
    }
    let honest = run_one_life("");
    let lying = run_one_life("--sabotage unpublish-leaves-mount");
    for (promise, by_honest, by_lying) in [
        // A rule judges it at each NodeUnpublishVolume.
        ("DRV-060", ("kept", 1), ("broken", 1)),
        // A rule judges it, and nothing is unpublished twice here.
        ("DRV-062", ("not_tried", 0), ("not_tried", 0)),
        // Only cases that did not run judge it.
        ("DRV-064", ("not_tried", 0), ("not_tried", 0)),
        // The first questions judge it.
        ("DRV-007", ("kept", 1), ("kept", 1)),
        // The volume manager's own.
        ("INV-001", ("kept", 1), ("kept", 1)),
    ] {
        let expected = |(standing, cases): (&str, u64)| (standing.to_owned(), cases);
        assert_eq!(standing(&honest, promise), expected(by_honest), "{promise}: {}", honest.told());
        assert_eq!(standing(&lying, promise), expected(by_lying), "{promise}: {}", lying.told());
    }
    assert!(honest.told().contains("Promises 0 broken, "), "{}", honest.told());
    assert!(lying.told().contains("Promises 1 broken, "), "{}", lying.told());
}

/// `explain` and `list` agree with a run about a promise.
#[test]
fn explain_tells_the_judges_of_a_promise() {
    let told = |words: &str| Volproof::new().args(words).run().told();
    let by_cases = told("explain DRV-064");
    let (_, judges) = by_cases.split_once("judged by these cases\n").expect("cases judge it");
    assert!(judges.contains("    csi::order::data_outlives_each_call\n"), "{by_cases}");
    let by_suite = told("explain DRV-007");
    assert!(by_suite.contains("judged by the first questions to the driver"), "{by_suite}");
    let case = told("explain csi::order::data_outlives_each_call");
    assert!(case.contains("judges, beside the rules") && case.contains("DRV-064"), "{case}");
    // Both mark a promise that nothing judges.
    let listed = told("list --promises");
    for line in listed.lines().filter(|line| line.contains("(not observable yet)")) {
        let id = line.split_whitespace().next().expect("an id");
        let explained = told(&format!("explain {id}"));
        assert!(explained.contains("not observable: nothing here judges it yet"), "{explained}");
    }
    assert!(!by_cases.contains("not observable"), "{by_cases}");
}
