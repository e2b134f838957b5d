//! Every line the terminal can show, held by its text: a reviewer sees the wording change.

use std::path::Path;

use expect_test::{Expect, expect};

use super::*;
use crate::event::{Header, RunRecord, Status};
use contracts::promise::Strength;

use crate::finding::{Finding, Party};
use crate::gather::gather;
use testbed::failure::{Breakage, Place};
use testbed::message::Sample;

fn check(events: impl IntoIterator<Item = Event>, expected: Expect) {
    expected.assert_eq(&rendered(Palette::plain(), false, events));
}

fn rendered(palette: Palette, verbose: bool, events: impl IntoIterator<Item = Event>) -> String {
    let mut out = Vec::new();
    let mut human = Human::new(&mut out, palette, verbose);
    for event in events {
        human.report(&event).expect("a vector takes everything");
    }
    drop(human);
    // A first line without indentation, or `expect!` would take away that of all others.
    format!("$ volproof run\n{}", String::from_utf8(out).expect("text"))
}

fn finished(case: CaseReport) -> Event {
    Event::CaseFinished(Box::new(case))
}

fn header() -> Header {
    Header {
        driver: "block.csi.example.com".into(),
        driver_version: "1.4.0".into(),
        abilities: vec!["stage".into(), "expand".into(), "block".into()],
        kernel: "6.6.21".into(),
        privilege: "root".into(),
        guests: String::new(),
        has: vec!["loop".into(), "ext4".into()],
        lacks: vec!["nfsd".into()],
        cases: 62,
        lanes: 8,
        seed: 7,
        about: String::new(),
        odd: vec![],
        machine: vec![],
        limits: vec![],
    }
}

fn run(cases: Vec<CaseReport>) -> RunRecord {
    let findings = gather(&cases);
    let mut promises = crate::gather::of_run(&std::collections::BTreeSet::new(), &cases, &[]);
    // The catalogue grows.
    promises.retain(|promise| ["DRV-031", "DRV-055", "DRV-060", "DRV-080"].contains(&promise.id.as_str()));
    let exit_code = u8::from(cases.iter().any(|case| case.status.is_bad()));
    RunRecord {
        version: RunRecord::VERSION,
        header: Header { cases: cases.len(), ..header() },
        cases,
        findings,
        promises,
        kernel: vec![],
        seconds: 41.7,
        interrupted: false,
        exit_code,
        hints: vec![],
        since: None,
    }
}

/// A run with a case of every status.
pub(crate) fn full_run() -> RunRecord {
    let sample = |status: &Status| CaseReport::sample(&format!("a::{status}"), *status);
    let mut cases: Vec<_> = Status::ALL.iter().map(sample).collect();
    cases.push(broken_block());
    cases[2].findings = vec![still_mounted()];
    cases[7].reasons = vec!["does not report GET_VOLUME_STATS".into()];
    let mut record = run(cases);
    record.hints = vec!["nothing is proven".into()];
    record
}

fn still_mounted() -> Finding {
    Finding {
        contract: "DRV-031".into(),
        method: "NodeUnpublishVolume".into(),
        cause: "target still mounted".into(),
        party: Party::Driver,
        strength: Some(Strength::Must),
        consequence_of: String::new(),
        sentence: "NodeUnpublishVolume returned OK, but its target is still mounted.".into(),
        cites: "DRV-031, CSI: NodeUnpublishVolume undoes the work of NodePublishVolume.".into(),
    }
}

fn broken_block() -> CaseReport {
    let mut case = CaseReport::sample("csi::block::teardown_is_the_reverse_of_setup", Status::Failed);
    case.number = 31;
    case.seconds = 2.41;
    case.breakage = Some(Breakage {
        after: "web.stop()".into(),
        at: Place { file: "conformance/cases/src/csi/block.rs".into(), line: 31 },
        expected: Some(
            "unlock <map:disk/web>\ncsi    Unpublish disk web\numount <publish:disk/web>\n".into(),
        ),
        actual: Some("unlock <map:disk/web>\ncsi    Unpublish disk web\n".into()),
        cause: vec!["the story is another one".into()],
        event: Some("pod/web FailedMapVolume: <publish:disk/web> is no device".into()),
    });
    case.left_behind = vec!["bind   <publish:disk/web>  =  <device:disk>".into()];
    case.logs = Some("out/cases/csi::block::teardown_is_the_reverse_of_setup".into());
    case.log_files = vec!["driver.log".into(), "journal.txt".into()];
    case.look = Some("volproof enter csi::block::teardown_is_the_reverse_of_setup".into());
    case.with_findings([still_mounted()])
}

#[test]
fn the_head_says_what_was_asked_and_what_the_machine_has() {
    let bare = Header { abilities: vec![], lacks: vec![], cases: 1, lanes: 1, ..header() };
    check(
        [Event::RunStarted(Box::new(header())), Event::RunStarted(Box::new(bare))],
        expect![[r#"
            $ volproof run
                Driver block.csi.example.com 1.4.0   stage, expand, block   (asked)
                  Host 6.6.21, root, loop, ext4; no nfsd
                 Cases 62 in 8 lanes

                Driver block.csi.example.com 1.4.0   no ability that the selected cases need   (asked)
                  Host 6.6.21, root, loop, ext4
                 Cases 1 in 1 lane

        "#]],
    );
}

#[test]
fn each_status_has_its_line() {
    let statuses = Status::ALL.into_iter().enumerate().map(|(number, status)| {
        let mut case = CaseReport::sample("csi::publish::read_only_claim_cannot_be_written", status);
        case.number = number + 1;
        match status {
            Status::SkippedDriver => case.reasons = vec!["does not report GET_VOLUME_STATS".into()],
            Status::SkippedHost => {
                case.reasons = vec!["module `nfsd` is not available".into(), "not root".into()];
            }
            Status::Xfail | Status::Xpass => case.reasons = vec!["our issue 41".into()],
            _ => {}
        }
        StatusLine { palette: Palette::plain(), case: &case, hidden: 0 }.to_string()
    });
    expect![[r#"
        $ volproof run
                PASS [   0.31s] ( 1/62) csi::publish::read_only_claim_cannot_be_written
                FAIL [   0.31s] ( 2/62) csi::publish::read_only_claim_cannot_be_written
                LEAK [   0.31s] ( 3/62) csi::publish::read_only_claim_cannot_be_written
               ERROR [   0.31s] ( 4/62) csi::publish::read_only_claim_cannot_be_written
         DRIVER EXIT [   0.31s] ( 5/62) csi::publish::read_only_claim_cannot_be_written
               XPASS [   0.31s] ( 6/62) csi::publish::read_only_claim_cannot_be_written   our issue 41
               XFAIL [   0.31s] ( 7/62) csi::publish::read_only_claim_cannot_be_written   our issue 41
                SKIP            ( 8/62) csi::publish::read_only_claim_cannot_be_written   driver: does not report GET_VOLUME_STATS
                SKIP            ( 9/62) csi::publish::read_only_claim_cannot_be_written   host: module `nfsd` is not available; not root"#]]
    .assert_eq(&format!("$ volproof run\n{}", statuses.collect::<Vec<_>>().join("\n")));
}

#[test]
fn a_failure_says_where_in_the_story_it_broke_and_why() {
    check(
        [finished(broken_block())],
        expect![[r#"
            $ volproof run
                    FAIL [   2.41s] (31/62) csi::block::teardown_is_the_reverse_of_setup

              after `web.stop()`  conformance/cases/src/csi/block.rs:31

                    unlock <map:disk/web>
                    csi    Unpublish disk web
                -   umount <publish:disk/web>

              the first event  pod/web FailedMapVolume: <publish:disk/web> is no device

              NodeUnpublishVolume returned OK, but its target is still mounted.
              DRV-031, CSI: NodeUnpublishVolume undoes the work of NodePublishVolume.

              left behind
                bind   <publish:disk/web>  =  <device:disk>

              logs   out/cases/csi::block::teardown_is_the_reverse_of_setup/   driver.log  journal.txt
              again  volproof run csi::block::teardown_is_the_reverse_of_setup
              look   volproof enter csi::block::teardown_is_the_reverse_of_setup

        "#]],
    );
}

#[test]
fn a_finding_is_explained_once() {
    let first = CaseReport::sample("csi::publish::a", Status::Failed).with_findings([still_mounted()]);
    let second = CaseReport::sample("csi::publish::b", Status::Leaked).with_findings([still_mounted()]);
    check(
        [finished(first), finished(second)],
        expect![[r#"
            $ volproof run
                    FAIL [   0.31s] ( 1/62) csi::publish::a

              NodeUnpublishVolume returned OK, but its target is still mounted.
              DRV-031, CSI: NodeUnpublishVolume undoes the work of NodePublishVolume.

              again  volproof run csi::publish::a

                    LEAK [   0.31s] ( 1/62) csi::publish::b

              NodeUnpublishVolume returned OK, but its target is still mounted.
              The same as in csi::publish::a.

              again  volproof run csi::publish::b

        "#]],
    );
}

#[test]
fn error_is_printed_with_its_causes() {
    let mut case = CaseReport::sample("csi::publish::a", Status::Error);
    case.breakage = Some(Breakage {
        after: String::new(),
        at: case.at.clone(),
        expected: None,
        actual: None,
        cause: vec!["cannot start the driver".into(), "No such file or directory".into()],
        event: None,
    });
    case.kernel = vec!["EXT4-fs error (device loop3): bad block".into()];
    case.unchecked = vec!["the driver's books: it does not report LIST_VOLUMES".into()];
    check(
        [finished(case)],
        expect![[r#"
            $ volproof run
                   ERROR [   0.31s] ( 1/62) csi::publish::a

              at the beginning  conformance/cases/src/csi/block.rs:12

              cannot start the driver
                because No such file or directory

              the kernel said
                EXT4-fs error (device loop3): bad block

              not checked
                the driver's books: it does not report LIST_VOLUMES

              again  volproof run csi::publish::a

        "#]],
    );
}

#[test]
fn with_verbose_the_sentence_is_shown() {
    let case = CaseReport::sample("csi::publish::a", Status::Passed);
    expect![[r#"
        $ volproof run
                PASS [   0.31s] ( 1/62) csi::publish::a
                     A volume can be read and written.
    "#]]
    .assert_eq(&rendered(Palette::plain(), true, [finished(case)]));
}

#[test]
fn the_summary_counts_and_names_what_is_bad() {
    let mut record = full_run();
    record.cases[8].reasons = vec!["module `nfsd` is not available".into()];
    let sample = |tried, all, points: &str| Sample { points: points.to_owned(), tried, all };
    record.cases[0].samples = vec![sample(5, 22, "crash points"), sample(4, 9, "power cuts")];
    record.cases[1].samples = vec![sample(4, 20, "crash points")];
    check(
        [Event::RunFinished(Box::new(record))],
        expect![[r#"
            $ volproof run
            ────────────
                 Summary [  41.70s] 10 cases: 1 passed, 2 failed, 1 leaked, 1 errored, 1 lost their driver, 1 passed unexpectedly, 1 failed as expected, 2 skipped (1 driver, 1 host)
                 Skipped 1 case: the driver does not report GET_VOLUME_STATS
                 Skipped 1 case: this machine: module `nfsd` is not available
                Promises 1 broken, 0 kept, 2 not tried, 1 not observable; --report DIR lists each
                   Tried 9 of 42 crash points, 4 of 9 power cuts; --thorough tries all
                    FAIL a::failed
                    LEAK a::leaked
                   ERROR a::error
             DRIVER EXIT a::driver_exited
                   XPASS a::xpass
                    FAIL csi::block::teardown_is_the_reverse_of_setup
                 Finding NodeUnpublishVolume returned OK, but its target is still mounted.
                         DRV-031 in csi::block::teardown_is_the_reverse_of_setup
                         also in a::leaked
              without a finding: a::failed, a::error, a::driver_exited and 1 more
              hint: nothing is proven
        "#]],
    );
}

#[test]
fn skipped_cases_are_counted_by_reason() {
    let skipped = |id: &str, status, reasons: &[&str]| {
        let mut case = CaseReport::sample(id, status);
        case.reasons = reasons.iter().map(|reason| (*reason).to_owned()).collect();
        case
    };
    const NO_GUEST: &str = "no guest for it: `volproof vm fetch 6.1` fetches its kernel";
    let cases = [
        skipped("a", Status::SkippedDriver, &["does not create block volumes"]),
        skipped("b", Status::SkippedHost, &["module `nfsd` is not available", NO_GUEST]),
        skipped("c", Status::SkippedHost, &["module `nfsd` is not available", NO_GUEST]),
    ];
    let finished = cases.iter().cloned().map(finished);
    let ended = Event::RunFinished(Box::new(run(cases.to_vec())));
    check(
        finished.chain([ended]),
        expect![[r#"
            $ volproof run
            ────────────
                 Summary [  41.70s] 3 cases: 3 skipped (1 driver, 2 host)
                 Skipped 2 cases: this machine: module `nfsd` is not available
                           and: no guest for it: `volproof vm fetch 6.1` fetches its kernel
                 Skipped 1 case: the driver does not create block volumes
        "#]],
    );
}

#[test]
fn summary_names_the_report_that_lists_each_promise() {
    let run = full_run();
    let lines = |report| SummaryLines { palette: Palette::plain(), run: &run, report }.to_string();
    assert!(lines(Some(Path::new("out"))).contains("; out/report.html lists each"));
    assert!(lines(None).contains("; --report DIR lists each"));
}

#[test]
fn a_summary_of_one_and_of_none() {
    let one = run(vec![CaseReport::sample("a", Status::Passed)]);
    check(
        [Event::RunFinished(Box::new(one)), Event::RunFinished(Box::new(run(vec![])))],
        expect![[r#"
            $ volproof run
            ────────────
                 Summary [  41.70s] 1 case: 1 passed
            ────────────
                 Summary [  41.70s] 0 cases: none ran
        "#]],
    );
}

#[test]
fn kept_sandbox_is_named_with_its_command() {
    let cases = vec![CaseId::new("csi::a"), CaseId::new("csi::b")];
    check(
        [Event::Kept { run: "2ae5-af343c98".to_owned(), cases }],
        expect![[r#"
        $ volproof run
          kept until Ctrl-C, for a look from another terminal:
            volproof enter csi::a --run 2ae5-af343c98
            volproof enter csi::b --run 2ae5-af343c98
    "#]],
    );
}

#[test]
fn an_interruption_says_what_is_stopped_and_what_would_be_undone() {
    let running = vec![CaseId::new("csi::a"), CaseId::new("csi::b")];
    let mut record = run(vec![CaseReport::sample("a", Status::Passed)]);
    record.interrupted = true;
    record.header.cases = 62;
    record.exit_code = 130;
    check(
        [
            Event::Interrupted { running: running.clone(), sweep: None },
            Event::Interrupted { running: running.clone(), sweep: Some(vec!["loop3 of csi::a".into()]) },
            Event::Interrupted { running, sweep: Some(vec![]) },
            Event::RunFinished(Box::new(record)),
        ],
        expect![[r#"
            $ volproof run

              interrupted: stopping 2 cases; Ctrl-C again leaves at once, and the rest to `volproof sweep`

              interrupted again: left 2 cases to die
              `volproof sweep` would undo: loop3 of csi::a

              interrupted again: left 2 cases to die
              `volproof sweep` would find nothing to undo
            ────────────
                 Summary [  41.70s] 1 of 62 cases: 1 passed
        "#]],
    );
}

#[test]
fn colours_frame_words_and_change_none() {
    let text = rendered(Palette::coloured(), false, [finished(broken_block())]);
    assert!(text.contains("\u{1b}[31m"), "{text:?}");
    let stripped = anstream::adapter::strip_str(&text).to_string();
    assert_eq!(stripped, rendered(Palette::plain(), false, [finished(broken_block())]));
}

#[test]
fn case_without_a_promise_is_named_once_below_its_story() {
    let story = Finding { contract: "c::c".into(), strength: None, ..still_mounted() };
    let case = CaseReport::sample("c::c", Status::Failed).with_findings([story]);
    let text = rendered(Palette::plain(), false, [Event::RunFinished(Box::new(run(vec![case])))]);
    let named = text.lines().filter(|line| line.trim() == "in c::c").count();
    assert_eq!((named, text.contains("c::c in c::c")), (1, false), "{text}");
}

#[test]
fn recommendations_and_consequences_are_marked() {
    let finding = |contract: &str, strength, consequence_of: &str| Finding {
        contract: contract.into(),
        strength,
        consequence_of: consequence_of.into(),
        ..still_mounted()
    };
    let advised = CaseReport::sample("a::passed", Status::Passed).with_findings([
        finding("DRV-058", Some(Strength::Should), ""),
        finding("DRV-075", Some(Strength::Advice), ""),
    ]);
    let failed = CaseReport::sample("b::failed", Status::Failed)
        .with_findings([still_mounted(), finding("INV-019", None, "DRV-031")]);
    let record = run(vec![advised, failed]);
    assert_eq!(record.exit_code, 1);
    let text = rendered(Palette::plain(), false, [Event::RunFinished(Box::new(record))]);
    let words: Vec<&str> = (text.lines())
        .filter_map(|line| line.split_once("NodeUnpublishVolume returned"))
        .map(|(word, _)| word.trim())
        .collect();
    assert_eq!(words, ["Finding", "Recommended", "Advice", "Consequence"], "{text}");
}

#[test]
fn run_of_several_findings_says_where_to_start() {
    let start = |cases: Vec<CaseReport>| {
        let text = rendered(Palette::plain(), false, [Event::RunFinished(Box::new(run(cases)))]);
        text.lines().find(|line| line.contains("start here")).map(str::to_owned)
    };
    let case = |id: &str, finding: Finding| {
        let again = format!("volproof run {id}");
        CaseReport { again, ..CaseReport::sample(id, Status::Failed) }.with_findings([finding])
    };
    let other = Finding { contract: "DRV-060".into(), cause: "another".into(), ..still_mounted() };
    let story = Finding { contract: "c::c".into(), strength: None, ..still_mounted() };
    assert_eq!(start(vec![case("a::a", still_mounted())]), None);
    assert_eq!(
        start(vec![case("a::a", still_mounted()), case("b::b", still_mounted()), case("c::c", other)])
            .as_deref(),
        Some("  start here: DRV-031 (2 cases)   volproof run a::a   volproof explain DRV-031")
    );
    // A story has no number that could be explained.
    let advice = Finding { strength: Some(Strength::Advice), ..still_mounted() };
    let more = Finding { contract: "DRV-075".into(), ..advice.clone() };
    assert_eq!(start(vec![case("a::a", advice.clone()), case("b::b", more)]), None);
    assert_eq!(
        start(vec![case("a::a", advice), case("c::c", story)]).as_deref(),
        Some("  start here: c::c (1 case)   volproof run c::c")
    );
}
