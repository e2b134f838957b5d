//! The registry of promises, as the program shows it: each promise is judged, each case has an occasion to judge what
//! it says it judges, and each sabotage is found under its own promise.
//!
//! A push tries a sixth of the sabotages, and `cargo xtask test --thorough` all; `VOLPROOF_PART=all` also tries all.
//! Each is tried with the cases that judge its promise; `volproof sabotage --thorough` tries each with all cases.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tests::{Ended, Part, Results, Volproof, has_root};

/// Into how many parts the sabotages are dealt. A push tries one of them.
const PARTS: usize = 6;

/// The most findings of a sabotage beside that of its own promise.
const CONSEQUENCES: usize = 1;

fn rows(ended: &Ended) -> Vec<Value> {
    let row = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {}", ended.told()));
    ended.stdout.lines().map(row).collect()
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn listed() -> Vec<Value> {
    rows(&Volproof::new().args("list --promises --format json").run())
}

#[test]
fn each_promise_is_judged_and_has_a_sabotage() {
    let promises = listed();
    assert!(promises.iter().any(|promise| promise["id"] == "DRV-060"), "{promises:?}");
    let unjudged = promises.iter().filter(|promise| promise["observable"] == false);
    let unjudged: Vec<&str> = unjudged.filter_map(|promise| promise["id"].as_str()).collect();
    assert!(unjudged.is_empty(), "judged by nothing: {unjudged:?}");
    for promise in &promises {
        assert!(!texts(&promise["sabotages"]).is_empty(), "nothing breaks {promise}");
    }
}

/// The report of all cases against the honest driver that `cargo xtask test` has made just before, if it has.
fn honest_report() -> Option<PathBuf> {
    std::env::var_os("VOLPROOF_HONEST_REPORT").map(PathBuf::from)
}

/// The control of all other runs here: the honest driver passes, and gives each case the occasion to judge.
#[test]
fn honest_driver_keeps_each_promise_in_each_case_that_judges_it() {
    if !has_root() {
        return;
    }
    let promises = listed();
    // Dropped at the end: the report is in its directory.
    let mut run = None;
    let report = honest_report().unwrap_or_else(|| {
        let cases: BTreeSet<&str> = promises.iter().flat_map(|promise| texts(&promise["cases"])).collect();
        let volproof = Volproof::new().args("run --report out");
        let ended = run.insert(cases.iter().fold(volproof, |volproof, case| volproof.arg(case)).run());
        assert_eq!(ended.code, Some(0), "{}", ended.told());
        ended.directory.path().join("out")
    });
    let results = Results::read(&report.join("results.json")).expect("the report of a run");
    assert_eq!(results.findings(), []);
    let untried: Vec<_> = results.cases().into_iter().filter(|case| !case.not_tried.is_empty()).collect();
    assert_eq!(untried, [], "these cases had no occasion to judge what they say they judge");
    for promise in promises.iter().filter_map(|promise| promise["id"].as_str()) {
        let standing = results.standing(promise).map(|(standing, _)| standing);
        assert_eq!(standing.as_deref(), Some("kept"), "{promise}");
    }
    let left = left_on_shared_drivers(&report.join("cases"));
    assert!(left.is_empty(), "a case that shares a driver leaves what the next one would find: {left:?}");
}

/// The lines of shared drivers' workers about leftovers.
fn left_on_shared_drivers(cases: &Path) -> Vec<String> {
    let all = std::fs::read_dir(cases).expect("it is there").flatten().map(|entry| entry.path());
    let is_shared = |path: &PathBuf| path.to_string_lossy().contains("/shared-driver-");
    let logs: Vec<String> = all
        .filter(is_shared)
        .map(|path| std::fs::read_to_string(path.join("worker.log")).expect("each worker has one"))
        .collect();
    assert!(!logs.is_empty(), "no driver was shared");
    logs.iter()
        .flat_map(|log| log.lines())
        .filter(|line| line.contains("still there"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn each_sabotage_is_found_under_its_own_promise() {
    if !has_root() {
        return;
    }
    let listed = listed();
    let part = Part::now(PARTS, "the sabotages");
    let all: BTreeSet<&str> = listed.iter().flat_map(|promise| texts(&promise["sabotages"])).collect();
    let chosen = all.into_iter().enumerate().filter(|(at, _)| part.holds(*at)).map(|(_, name)| name);
    let chosen: BTreeSet<&str> = chosen.collect();
    let mut missed = missed(&chosen, "");
    // A case that ran out of time on a machine with other work accuses no driver: each is tried alone once more.
    if !missed.is_empty() {
        missed = self::missed(&missed, "--jobs 1 --timeout 30s");
    }
    assert!(missed.is_empty(), "missed: {missed:?}");
}

/// The sabotages that were not found under their own promise, or only among many findings.
fn missed<'a>(chosen: &BTreeSet<&'a str>, arguments: &str) -> BTreeSet<&'a str> {
    let names: Vec<&str> = chosen.iter().copied().collect();
    let mut volproof = Volproof::new().args("sabotage --json").args(arguments).args(&names.join(" "));
    if let Some(report) = honest_report() {
        volproof = volproof.arg("--honest").arg(report);
    }
    let ended = volproof.run();
    let rows = rows(&ended);
    let tried: BTreeSet<&str> = rows.iter().filter_map(|row| row["sabotage"].as_str()).collect();
    assert_eq!(tried, *chosen, "{}", ended.told());
    let is_clean = |row: &&Value| texts(&row["also"]).len() <= CONSEQUENCES;
    let found = rows.iter().filter(|row| row["outcome"] == "found").filter(is_clean);
    let found: BTreeSet<&str> = found.filter_map(|row| row["sabotage"].as_str()).collect();
    let missed: BTreeSet<&'a str> = chosen.iter().copied().filter(|name| !found.contains(name)).collect();
    println!("not found, or with more than {CONSEQUENCES} beside it: {missed:?}\n{}", ended.told());
    missed
}
