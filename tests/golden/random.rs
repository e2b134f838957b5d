//! Stories of random scenarios: a tenth of them on each push, all of them with `cargo xtask test --thorough`.
//!
//! Each story is that of Kubernetes' own volume manager, or differs exactly as `random/differences.txt` lists.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;

use serial_test::serial;
use tests::{Ended, Part, Volproof, has_root, in_parallel, root};

use super::{difference, golden, rows, updates};

/// The files that hold the stories: `<group>.yaml` and `<group>.jsonl`.
const GROUPS: [&str; 4] = ["minimal", "0001", "0101", "1001"];

/// Into how many parts the stories are dealt. A push plays one of them, and the minimal stories.
const PARTS: usize = 10;

/// Opens the block of a story in the file of differences.
const BLOCK: &str = "== ";

struct Story {
    name: String,
    scenario: String,
    recording: String,
}

/// A listed difference of a story, with its reason.
#[derive(Default)]
struct Argued {
    reasons: Vec<String>,
    difference: String,
}

impl Argued {
    /// Whether the story is not played, since it differs between runs.
    fn is_left_out(&self) -> bool {
        self.reasons.iter().any(|reason| reason.starts_with("left out: "))
    }
}

fn file(name: &str) -> String {
    let path = golden("random").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read `{}`: {error}", path.display()))
}

/// All stories, in the order of the files.
fn stories() -> Vec<Story> {
    GROUPS.into_iter().flat_map(stories_of).collect()
}

fn stories_of(group: &str) -> Vec<Story> {
    let (scenarios, recordings) = (file(&format!("{group}.yaml")), file(&format!("{group}.jsonl")));
    let scenarios = scenarios.split("---\n").map(|text| (named(text, "name: ", "\n"), text.to_owned()));
    let head = "{\"ev\":\"scenario\",\"name\":\"";
    let recordings =
        recordings.split(head).skip(1).map(|text| (named(text, "", "\""), format!("{head}{text}")));
    let together = scenarios.zip(recordings).map(|((name, scenario), (recorded, recording))| {
        assert_eq!(name, recorded, "`{group}.yaml` and `{group}.jsonl` hold different stories");
        Story { name, scenario, recording }
    });
    together.collect()
}

/// The text between the two, at the beginning.
fn named(text: &str, before: &str, after: &str) -> String {
    let name = text.strip_prefix(before).and_then(|rest| rest.split(after).next());
    name.unwrap_or_else(|| panic!("no name: {}", text.lines().next().unwrap_or_default())).to_owned()
}

/// The listed differences, by the name of the story. A story with several blocks may differ in any of these ways.
fn argued() -> BTreeMap<String, Vec<Argued>> {
    let mut all: BTreeMap<String, Vec<Argued>> = BTreeMap::new();
    for block in format!("\n{}", file("differences.txt")).split(&format!("\n{BLOCK}")).skip(1) {
        let (name, body) = block.split_once('\n').unwrap_or((block, ""));
        let (reasons, lines): (Vec<&str>, Vec<&str>) = body.lines().partition(|line| line.starts_with("# "));
        let reasons = reasons.iter().map(|line| line.trim_start_matches("# ").to_owned()).collect();
        let difference = lines.iter().map(|line| format!("{line}\n")).collect();
        all.entry(name.to_owned()).or_default().push(Argued { reasons, difference });
    }
    all
}

fn written(all: &BTreeMap<String, Vec<Argued>>) -> String {
    let mut text = String::new();
    for (name, ways) in all {
        for way in ways {
            let reasons: String = way.reasons.iter().map(|reason| format!("# {reason}\n")).collect();
            write!(text, "{BLOCK}{name}\n{reasons}{}", way.difference).expect("a string takes everything");
        }
    }
    text
}

/// The stories that are played now.
fn chosen() -> Vec<Story> {
    let part = Part::now(PARTS, "the random stories");
    let is_chosen = |group: &str, at: usize| group == "minimal" || part.holds(at);
    let dealt = GROUPS.into_iter().flat_map(|group| {
        let all = stories_of(group).into_iter().enumerate();
        all.filter(move |(at, _)| is_chosen(group, *at)).map(|(_, story)| story)
    });
    dealt.collect()
}

/// The difference of a story from its recording: failed steps, then other sections.
fn story_difference(story: &Story) -> Result<String, String> {
    let played = Volproof::new()
        .file("scenario.yaml", &story.scenario)
        .file("recording.jsonl", &story.recording)
        .args("play --quiet --trace ours.jsonl --scenario scenario.yaml")
        .run();
    let failures = failures(&played);
    if !matches!((played.code, failures.is_empty()), (Some(0), true) | (Some(1), false)) {
        return Err(format!("{} cannot be played:\n{}", story.name, played.told()));
    }
    let file = |name: &str| played.directory.path().join(name);
    let compared = Volproof::new().arg("compare").arg(file("recording.jsonl")).arg(file("ours.jsonl")).run();
    match compared.code {
        Some(0 | 1) => Ok(failures + &difference(&compared)),
        _ => Err(format!("{} cannot be compared:\n{}", story.name, compared.told())),
    }
}

/// The first line of each failure, without the state that follows it, and all that was left behind.
fn failures(played: &Ended) -> String {
    let is_head = |line: &&str| {
        line.starts_with("left behind: ") || (line.starts_with("line ") && line.contains(", step "))
    };
    played.stderr.lines().filter(is_head).map(|line| format!("{line}\n")).collect()
}

#[test]
#[serial]
fn each_random_story_is_retold_but_for_what_is_argued() {
    if !has_root() {
        return;
    }
    let mut argued = argued();
    let is_played = |story: &Story| !argued.get(&story.name).is_some_and(|ways| ways[0].is_left_out());
    let played = in_parallel(chosen().into_iter().filter(is_played).collect(), |story| {
        (story_difference(&story), story)
    });
    let mut wrong = Vec::new();
    for (found, story) in played {
        let ways = argued.get(&story.name).map_or(&[][..], Vec::as_slice);
        let is_expected = |found: &str| match ways {
            [] => found.is_empty(),
            ways => ways.iter().any(|way| way.difference == found),
        };
        // A step may have come late beside the other stories. By itself the story has to differ again.
        let again = match found {
            Ok(found) if is_expected(&found) => continue,
            Ok(_) => story_difference(&story),
            failed => failed,
        };
        let found = match again {
            Ok(found) if is_expected(&found) => continue,
            Ok(found) => found,
            Err(why) => {
                wrong.push(why);
                continue;
            }
        };
        let name = story.name;
        wrong.push(match (found.is_empty(), ways.is_empty()) {
            (true, _) => {
                format!("{name} is the same as its recording, and `differences.txt` says it differs")
            }
            (false, true) => format!("{name} differs, and `differences.txt` says nothing of it:\n{found}"),
            (false, false) => format!("{name} differs otherwise than `differences.txt` says:\n{found}"),
        });
        let ways = argued.entry(name).or_default();
        let reasons = ways.drain(..).next().unwrap_or_default().reasons;
        ways.extend((!found.is_empty()).then_some(Argued { reasons, difference: found }));
    }
    if updates() {
        argued.retain(|_, ways| !ways.is_empty());
        fs::write(golden("random/differences.txt"), written(&argued)).expect("the file can be written");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_difference_of_a_random_story_has_its_reason() {
    let names: BTreeSet<String> = stories().into_iter().map(|story| story.name).collect();
    assert_eq!(names.len(), 336);
    let argued = argued();
    assert_eq!(written(&argued), file("differences.txt"), "the blocks are not in the order of their names");
    let (deviations, others) = (rows("docs/deviations.md"), rows("tests/golden/README.md"));
    let mut used = BTreeSet::new();
    for (name, ways) in &argued {
        assert!(names.contains(name), "there is no story `{name}`");
        for way in ways {
            assert!(!way.reasons.is_empty(), "`{name}` differs without a reason");
            let says_nothing = way.difference.is_empty();
            assert!(!says_nothing || way.is_left_out() || ways.len() > 1, "`{name}` does not differ");
            for reason in &way.reasons {
                let reason = reason.strip_prefix("left out: ").unwrap_or(reason);
                assert!(
                    deviations.contains(reason) || others.contains(reason),
                    "`{name}`: no row says: {reason}"
                );
                used.insert(reason.to_owned());
            }
        }
    }
    let unused: Vec<_> = others.difference(&used).collect();
    assert!(unused.is_empty(), "no story differs because of {unused:?}");
}

#[test]
fn each_random_story_that_the_table_names_is_there() {
    let names: BTreeSet<String> = stories().into_iter().map(|story| story.name).collect();
    let document = fs::read_to_string(root().join("docs/deviations.md")).expect("the document exists");
    let listed = document.split("`random/").skip(1).filter_map(|rest| rest.split('`').next());
    let listed: Vec<&str> = listed.collect();
    assert!(!listed.is_empty(), "docs/deviations.md names no `random/…`");
    for short in listed {
        let is_it = |name: &String| name == short || name.starts_with(&format!("{short}-"));
        assert!(names.iter().any(is_it), "there is no story `{short}`");
    }
}
