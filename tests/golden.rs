//! Our volume manager has the stories that were recorded with Kubernetes' own, or a different one that is listed with its
//! reason.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tests::{Ended, Volproof, has_root, in_parallel, root};

mod random;

fn golden(part: &str) -> PathBuf {
    root().join("tests/golden").join(part)
}

/// The scenarios in a directory, in the order of their names.
fn scenarios(part: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(golden(part)).expect("the directory is part of the repository");
    let files = entries.map(|entry| entry.expect("it can be listed").path());
    let mut files: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|kind| kind == "yaml")).collect();
    files.sort();
    files
}

fn stem(file: &Path) -> &str {
    file.file_stem().and_then(|stem| stem.to_str()).expect("a scenario has a plain name")
}

fn play(scenario: &Path) -> Ended {
    Volproof::new().args("play --trace trace.jsonl --scenario").arg(scenario).run()
}

/// Compares a recording with what was just played.
fn compare(recording: &Path, played: &Ended) -> Ended {
    let ours = played.directory.path().join("trace.jsonl");
    Volproof::new().arg("compare").arg(recording).arg(ours).run()
}

/// The difference without its head, which names files.
fn difference(compared: &Ended) -> String {
    let body = compared.stdout.split_once("\n\n").map_or("", |(_, body)| body);
    body.to_owned()
}

/// A deviation that was written down: its reasons, and the difference.
fn deviation(name: &str) -> (Vec<String>, String) {
    let text = fs::read_to_string(golden("deviations").join(format!("{name}.txt"))).unwrap_or_default();
    let (reasons, lines): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with('#'));
    let reasons = reasons.iter().map(|line| line.trim_start_matches('#').trim().to_owned()).collect();
    (reasons, lines.iter().map(|line| format!("{line}\n")).collect())
}

fn updates() -> bool {
    std::env::var_os("UPDATE_EXPECT").is_some()
}

#[test]
fn each_recording_is_retold_but_for_what_is_argued() {
    if !has_root() {
        return;
    }
    // Each scenario is played in namespaces of its own.
    let wrong: Vec<String> = in_parallel(scenarios("scenarios"), |scenario| unlisted_difference(&scenario))
        .into_iter()
        .flatten()
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Plays a scenario. Returns the difference from its recording, unless that is listed with a reason.
fn unlisted_difference(scenario: &Path) -> Option<String> {
    let name = stem(scenario);
    let played = play(scenario);
    if played.code != Some(0) {
        return Some(format!("{name} cannot be played:\n{}", played.told()));
    }
    let compared = compare(&golden("traces").join(format!("{name}.jsonl")), &played);
    let (reasons, expected) = deviation(name);
    let found = difference(&compared);
    if found != expected && updates() {
        let kept: String = reasons.iter().map(|reason| format!("# {reason}\n")).collect();
        fs::write(golden("deviations").join(format!("{name}.txt")), kept + &found)
            .expect("the deviation can be written");
    }
    (found != expected).then(|| format!("{name}\n{found}"))
}

fn deviations() -> String {
    fs::read_to_string(root().join("docs/deviations.md")).expect("the document exists")
}

/// The first cells of the tables in a document: each names its row.
fn rows(document: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join(document)).expect("the document exists");
    let (lines, next) = (text.lines(), text.lines().skip(1));
    let bodies = lines.zip(next).filter(|(_, next)| !next.starts_with("|---")).map(|(line, _)| line);
    let cells = bodies.filter_map(|row| row.strip_prefix("| ")?.split(" | ").next());
    cells.map(str::to_owned).collect()
}

#[test]
fn each_deviation_is_a_row_of_the_table() {
    let rows = rows("docs/deviations.md");
    assert!(rows.len() > 20, "the table was not found");
    let names: BTreeSet<String> =
        scenarios("scenarios").iter().map(|scenario| stem(scenario).to_owned()).collect();
    for entry in fs::read_dir(golden("deviations")).expect("it is there") {
        let file = entry.expect("it can be listed").path();
        let name = stem(&file);
        assert!(names.contains(name), "there is no scenario `{name}`");
        let (reasons, difference) = deviation(name);
        assert!(!difference.is_empty(), "`{name}` does not deviate");
        assert!(!reasons.is_empty(), "`{name}` deviates without a reason");
        for reason in reasons {
            assert!(rows.contains(reason.as_str()), "no row of the table says: {reason}");
        }
    }
}

/// The number that the name of a scenario begins with.
fn number(name: &str) -> &str {
    name.split('-').next().unwrap_or_default()
}

/// The numbers after a word in a text: 10 in "golden 10".
fn named<'a>(text: &'a str, word: &'a str) -> BTreeSet<&'a str> {
    let numbers = text.split(word).skip(1).filter_map(|rest| rest.get(..2));
    numbers.filter(|number| number.bytes().all(|byte| byte.is_ascii_digit())).collect()
}

#[test]
fn each_scenario_that_the_table_names_is_there() {
    let document = deviations();
    for (word, part) in [("ours/", "ours"), ("golden ", "scenarios")] {
        let there = scenarios(part);
        let there: BTreeSet<&str> = there.iter().map(|scenario| number(stem(scenario))).collect();
        let numbers = named(&document, word);
        assert!(!numbers.is_empty(), "docs/deviations.md names no `{word}NN`");
        let missing: Vec<_> = numbers.difference(&there).collect();
        assert!(
            missing.is_empty(),
            "docs/deviations.md names {missing:?}, which tests/golden/{part} does not have"
        );
    }
}

#[test]
fn each_deviation_shows_a_row_of_the_table() {
    let document = deviations();
    let shown: String =
        document.lines().filter_map(|row| row.strip_prefix("| ")?.split(" | ").nth(4)).collect();
    for entry in fs::read_dir(golden("deviations")).expect("it is there") {
        let file = entry.expect("it can be listed").path();
        let name = stem(&file);
        assert!(named(&shown, "golden ").contains(number(name)), "no row of the table is shown by `{name}`");
    }
}

#[test]
fn own_scenarios_show_the_rest() {
    if !has_root() {
        return;
    }
    let wrong: Vec<String> = in_parallel(scenarios("ours"), |scenario| {
        let played = play(&scenario);
        let file = scenario.with_extension("txt");
        let expected = fs::read_to_string(&file).unwrap_or_default();
        if played.stdout != expected && updates() {
            fs::write(&file, &played.stdout).expect("the story can be written");
        }
        let same = played.stdout == expected && played.code == Some(0);
        (!same).then(|| format!("{}\n{}", stem(&scenario), played.told()))
    })
    .into_iter()
    .flatten()
    .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The control of all the others: another story is found to be another one.
#[test]
fn another_story_is_not_the_same() {
    let (one, other) = (golden("traces/01-single-fs.jsonl"), golden("traces/03-block.jsonl"));
    let same = Volproof::new().arg("compare").arg(&one).arg(&one).run();
    assert_eq!((same.code, same.stdout.as_str()), (Some(0), "the same story\n"));
    let differs = Volproof::new().arg("compare").arg(&one).arg(&other).run();
    assert_eq!(differs.code, Some(1), "{}", differs.told());
    let json = Volproof::new().arg("compare").arg("--json").arg(&one).arg(&other).run();
    let comparison: serde_json::Value = serde_json::from_str(&json.stdout).expect("it is JSON");
    assert_eq!((json.code, &comparison["same"]), (Some(1), &serde_json::json!(false)));
    assert!(comparison["differences"].as_array().is_some_and(|all| !all.is_empty()));
    let unreadable = Volproof::new().file("x.jsonl", "{}\n").arg("compare").arg(&one).arg("x.jsonl").run();
    assert_eq!(unreadable.code, Some(2), "{}", unreadable.told());
}
