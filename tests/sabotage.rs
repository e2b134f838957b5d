//! Each sabotage of fake-csi is found, by the case that claims it, as exactly one finding; the honest driver
//! gives none. The honest run is the control of the sabotaged ones, and they are its control.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use serial_test::file_serial;
use tests::{Ended, Residue, Volproof, built, has_root, is_thorough, settle};

/// The case that claims to find a sabotage. A sabotage that no case claims yet is not in here.
const CLAIMS: &[(&str, &str)] = &[
    ("unpublish-leaves-mount", "csi::lifecycle::file_system_is_set_up_and_torn_down"),
    ("unstage-succeeds-but-mounted", "csi::lifecycle::file_system_is_set_up_and_torn_down"),
    ("publish-ignores-read-only", "csi::publish::read_only_claim_cannot_be_written"),
    ("publish-wrong-volume", "csi::lifecycle::file_system_is_set_up_and_torn_down"),
    ("stage-leaks-loop-device", "csi::lifecycle::file_system_is_set_up_and_torn_down"),
    ("block-target-is-regular-file", "csi::block::teardown_is_the_reverse_of_setup"),
];

/// The promise that each sabotage breaks, as the driver itself says: `name  DRV-…  what the bug is`.
fn promises() -> BTreeMap<String, String> {
    let listed = Volproof::new().args("__fake-csi sabotages").run();
    assert_eq!(listed.code, Some(0), "{}", listed.told());
    let pair = |line: &str| {
        let mut words = line.split_whitespace().map(str::to_owned);
        Some((words.next()?, words.next()?))
    };
    listed.stdout.lines().filter_map(pair).collect()
}

/// Runs cases against fake-csi as it is with these arguments: those that are named, or all with `--thorough`. A case that waits for what a sabotaged driver
/// will never do need not wait long.
fn run_against(arguments: &[&str], cases: &[&str]) -> Ended {
    let mut command = vec![
        built().display().to_string(),
        "__fake-csi".into(),
        "--endpoint={endpoint}".into(),
        "--node={node}".into(),
        "--state-dir={state}".into(),
    ];
    command.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    let quoted: Vec<String> = command.iter().map(|word| format!("{word:?}")).collect();
    let manifest = format!(
        "name = \"fake.csi.volproof.dev\"\ncommand = [{}]\n[volume]\ninline = true\nfs_types = [\"ext4\", \"xfs\"]\n",
        quoted.join(", ")
    );
    let run = Volproof::new()
        .file("driver.toml", &manifest)
        .args("run --driver driver.toml --report out --jobs 4 --timeout 15s");
    if !is_thorough("all cases against each sabotaged driver, not only those that claim to find it") {
        return cases.iter().fold(run, |run, case| run.arg(case)).run();
    }
    // Cases that call as no node does find what follows from a broken promise as well, as another one.
    let follows = arguments.contains(&"--sabotage");
    if follows { run.args("--exclude csi::calls").run() } else { run.run() }
}

#[test]
#[file_serial(root)]
fn the_honest_driver_is_clean() {
    if has_root() {
        let cases: Vec<&str> = CLAIMS.iter().map(|(_, case)| *case).collect();
        let ended = run_against(&[], &cases);
        assert_eq!(ended.code, Some(0), "{}", ended.told());
        assert_eq!(ended.results().findings(), [], "{}", ended.told());
        assert!(!ended.results().cases().is_empty());
    }
}

/// What no ability stands in the way of: a case that needs the lack of one runs against a driver that lacks it.
#[test]
#[file_serial(root)]
fn the_honest_driver_that_leaves_groups_to_the_node_is_clean() {
    if has_root() {
        let ended = run_against(&["--without", "volume-mount-group"], &["csi::group"]);
        assert_eq!(ended.code, Some(0), "{}", ended.told());
        let cases = ended.results().cases();
        let group = cases.iter().find(|case| case.id == "csi::group::policy_selects_who_applies_the_group");
        assert!(group.is_some_and(|case| case.status == "passed"), "{}", ended.told());
    }
}

#[test]
#[file_serial(root)]
fn each_sabotage_is_one_finding_of_the_case_that_claims_it() {
    if !has_root() {
        return;
    }
    let mut wrong = Vec::new();
    let promises = promises();
    for (sabotage, case) in CLAIMS {
        let contract =
            promises.get(*sabotage).unwrap_or_else(|| panic!("fake-csi has no sabotage `{sabotage}`"));
        let ended = run_against(&["--sabotage", sabotage], &[case]);
        let findings = ended.results().findings();
        let faults = findings.iter().filter(|finding| finding.consequence_of.is_empty());
        // The story of another case may break with the promise: which of them is not known there.
        let faults = faults.filter(|finding| !finding.contract.contains("::"));
        let found = faults.map(|finding| finding.contract.as_str()).collect::<Vec<_>>();
        let claimed = findings.iter().any(|finding| finding.cases.iter().any(|found| found == case));
        if ended.code != Some(1) || found != [contract] || !claimed {
            wrong.push(format!(
                "{sabotage}: expected {contract} in {case}, found {findings:#?}\n{}",
                ended.told()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// What CSI does not ask of a driver fails no case, and where it asks, the same answer does.
#[test]
#[file_serial(root)]
fn only_a_duty_of_the_driver_fails_a_case() {
    if !has_root() {
        return;
    }
    const IN_USE: &str = "csi::calls::volume_in_use_is_not_deleted";
    // Driver's sabotage, case, exit code, findings by promise and strength.
    type Row<'a> = (&'a str, &'a str, u8, &'a [(&'a str, &'a str)]);
    let rows: [Row<'_>; 6] = [
        (
            "--without told-capacity --sabotage create-ignores-conflict",
            "csi::calls::taken_name_with_another_size_is_refused",
            0,
            &[],
        ),
        ("--without publish-unpublish --sabotage delete-while-in-use", IN_USE, 0, &[]),
        ("--sabotage delete-while-in-use", IN_USE, 1, &[("DRV-021", "must")]),
        (
            "--sabotage unstage-while-published",
            "csi::calls::incompatible_publish_is_refused",
            0,
            &[("DRV-075", "advice")],
        ),
        // It wants the size that CSI makes optional, and each caller sends; and it measures whatever path it is given.
        ("--hostpath", "csi::calls::reported_node_calls_work", 1, &[("DRV-085", "must")]),
        (
            "--sabotage capability-without-call",
            "csi::calls::reported_node_calls_work",
            1,
            &[("DRV-002", "must")],
        ),
    ];
    for (arguments, case, code, expected) in rows {
        let driver = format!(
            "{} __fake-csi --endpoint={{endpoint}} --node={{node}} --state-dir={{state}} {arguments}",
            built().display()
        );
        let ended =
            Volproof::new().args("run --report out --timeout 15s --driver-cmd").arg(driver).arg(case).run();
        let findings = ended.results().findings();
        let found: Vec<(&str, &str)> =
            findings.iter().map(|finding| (finding.contract.as_str(), finding.strength.as_str())).collect();
        assert_eq!(
            (ended.code, found.as_slice()),
            (Some(i32::from(code)), expected),
            "{arguments}: {}",
            ended.told()
        );
    }
}

/// What a driver does to the paths of the node: sabotage, promise, call, and a part of the path that is told.
const TOUCHING: &[(&str, &str, &str, &str)] = &[
    ("unpublish-removes-siblings", "DRV-065", "NodeUnpublishVolume", "vol_data.json"),
    ("publish-replaces-record", "DRV-076", "NodePublishVolume", "vol_data.json"),
    ("stage-fails-but-mounts", "DRV-045", "NodeStageVolume", "stag"),
];

/// A driver that touches what is the node's is named, with the call and the path.
#[test]
#[file_serial(root)]
fn driver_that_touches_what_is_the_nodes_is_named() {
    if !has_root() {
        return;
    }
    let life = "csi::lifecycle::file_system_is_set_up_and_torn_down";
    for (sabotage, contract, method, path) in TOUCHING {
        let ended =
            Volproof::new().args("run --report out --timeout 15s --sabotage").arg(sabotage).arg(life).run();
        let findings = ended.results().findings();
        let named = findings.iter().any(|finding| {
            (finding.contract.as_str(), finding.party.as_str(), finding.method.as_str())
                == (*contract, "driver", *method)
        });
        assert!(named && ended.told().contains(path), "{sabotage}: {findings:#?}\n{}", ended.told());
    }
}

/// Whatever falls in consequence, a driver that broke a promise is not acquitted.
#[test]
#[file_serial(root)]
fn no_sabotaged_driver_is_acquitted() {
    if !has_root() {
        return;
    }
    let promises = promises();
    for (sabotage, case) in [
        ("stage-fails-but-mounts", "csi::lifecycle::file_system_is_set_up_and_torn_down"),
        ("publish-forgets-idempotence", "csi::lifecycle::each_repeated_call_succeeds"),
        ("stage-forgets-idempotence", "csi::lifecycle::each_repeated_call_succeeds"),
        ("publish-creates-file", "csi::block::teardown_is_the_reverse_of_setup"),
        ("unpublish-keeps-target", "csi::block::teardown_is_the_reverse_of_setup"),
        ("unstage-removes-directory", "csi::block::teardown_is_the_reverse_of_setup"),
    ] {
        let ended =
            Volproof::new().args("run --report out --timeout 15s --sabotage").arg(sabotage).arg(case).run();
        assert!(!ended.told().contains("Not the driver's fault"), "{sabotage}: {}", ended.told());
        let findings = ended.results().findings();
        assert!(findings.iter().all(|finding| finding.party != "manager"), "{sabotage}: {findings:#?}");
        let named = findings.iter().any(|finding| finding.contract == promises[sabotage]);
        if sabotage.ends_with("forgets-idempotence") || sabotage == "publish-creates-file" {
            assert!(named, "{sabotage}: {findings:#?}\n{}", ended.told());
        }
    }
}

/// A driver without block volumes that makes a file at the target learns what to refuse, and whoever reads of a pod that
/// got no volume reads the event that its owner sees.
#[test]
#[file_serial(root)]
fn report_says_what_to_refuse_and_what_the_pod_was_told() {
    if !has_root() {
        return;
    }
    let run = |sabotage: &str, case: &str| {
        Volproof::new().args("run --report out --timeout 15s --sabotage").arg(sabotage).arg(case).run().told()
    };
    let device = run("publish-creates-file", "csi::block::teardown_is_the_reverse_of_setup");
    assert!(device.contains("DRV-055") && device.contains("refuse it with INVALID_ARGUMENT"), "{device}");
    let refused = run("stage-without-mount", "csi::lifecycle::file_system_is_set_up_and_torn_down");
    let event = refused.lines().find(|line| line.trim_start().starts_with("the first event"));
    let words = ["pod/web FailedMount", "code = FailedPrecondition", "is not any more"];
    assert!(event.is_some_and(|event| words.iter().all(|word| event.contains(word))), "{refused}");
    let honest = Volproof::new().args("run csi::lifecycle::file_system_is_set_up_and_torn_down").run().told();
    assert!(!honest.contains("the first event"), "{honest}");
}

#[test]
#[file_serial(root)]
fn the_matrix_tells_what_was_found_and_what_was_not() {
    if !has_root() {
        return;
    }
    let break_these = |names: &str| {
        let volproof = Volproof::new()
            .args("sabotage --json --case csi::lifecycle::file_system_is_set_up_and_torn_down");
        volproof.args(names).run()
    };
    let all = break_these("unpublish-leaves-mount stage-without-mount create-forgets-idempotence");
    assert_eq!(all.code, Some(1), "{}", all.told());
    let rows: Vec<Value> =
        all.stdout.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
    let outcomes: Vec<&str> = rows.iter().filter_map(|row| row["outcome"].as_str()).collect();
    assert_eq!(outcomes, ["found", "noticed", "missed"], "{}", all.told());
    assert_eq!(rows[0]["promise"], "DRV-060");
    assert_eq!(rows[0]["cases"], serde_json::json!(["csi::lifecycle::file_system_is_set_up_and_torn_down"]));
    assert_eq!(all.temporary_files(), Vec::<String>::new());

    let found = break_these("unpublish-leaves-mount");
    assert_eq!(found.code, Some(0), "{}", found.told());
}

/// The case that finds a sabotage with node calls of its own, by what the kernel shows then.
const FOUND_BY_NODE_CALLS: &[(&str, &str)] = &[
    ("stage-without-mount", "csi::order::staged_volume_can_be_published"),
    ("stage-formats-again", "csi::order::data_outlives_each_call"),
    ("unpublish-deletes-data", "csi::order::data_outlives_each_call"),
    ("unstage-loses-last-write", "csi::order::data_outlives_each_call"),
    ("stage-fails-but-mounts", "csi::order::refused_stage_leaves_no_mount"),
    ("stage-follows-link", "csi::order::link_in_place_of_a_path_is_not_followed"),
    ("publish-follows-link", "csi::order::link_in_place_of_a_path_is_not_followed"),
    ("stage-accepts-stale-context", "csi::order::context_of_an_earlier_attachment_is_refused"),
    ("publish-without-staging", "csi::order::unstaged_volume_is_not_published"),
    ("unpublish-lazily", "csi::order::target_in_use_is_not_unpublished"),
    ("unpublish-needs-mount", "csi::order::teardown_of_lost_mounts_is_ok"),
    ("unpublish-keeps-target", "csi::order::teardown_of_a_device_twice_is_ok"),
    ("unpublish-forgets-idempotence", "csi::order::teardown_of_a_device_twice_is_ok"),
    ("unstage-forgets-idempotence", "csi::order::teardown_of_a_device_twice_is_ok"),
    ("unstage-removes-directory", "csi::order::teardown_twice_is_ok"),
    ("aborted-call-keeps-lock", "csi::races::stages_at_once_are_one_stage"),
    ("ignores-operations-in-flight", "csi::races::stages_at_once_are_one_stage"),
    ("one-operation-at-a-time", "csi::races::volumes_come_and_go_at_once"),
    ("deadlocks-in-parallel", "csi::races::volumes_come_and_go_at_once"),
    ("unpublish-removes-all", "csi::order::unpublish_of_a_stacked_target_keeps_the_data"),
    ("publish-records-late", "csi::process::publish_cut_by_death_is_undone"),
    ("publish-leaks-descriptor", "csi::process::cycles_leave_the_driver_as_it_was"),
    ("forgets-on-restart", "csi::recovery::restarted_driver_knows_its_volumes"),
    ("restart-unmounts", "csi::recovery::published_volume_outlives_the_driver"),
    ("inline-volume-stays", "csi::inline::volume_is_gone_with_its_target"),
    ("inline-unpublish-not-found", "csi::inline::volume_is_gone_with_its_target"),
    ("publish-ignores-group", "csi::group::group_can_write_to_the_root"),
    ("unstage-succeeds-but-mounted", "csi::staging::pod_deleted_during_stage"),
    ("unpublish-takes-all-targets", "csi::sharing::two_pods_share_one_staging"),
    ("publish-creates-file", "csi::order::teardown_twice_is_ok"),
    ("publish-creates-file", "csi::stats::statistics_are_of_the_file_system"),
    ("stage-forgets-idempotence", "csi::order::data_outlives_each_call"),
    ("publish-forgets-idempotence", "csi::races::cancelled_call_is_good_the_next_time"),
    ("publish-ignores-mount-flags", "csi::flags::requested_mount_flags_are_in_force"),
    ("publish-ignores-single-writer", "csi::flags::single_writer_has_one_target"),
];

/// The case that finds a sabotage by what the kernel shows of a snapshot, a copy, or a volume that has grown.
const FOUND_BY_COPIES: &[(&str, &str)] = &[
    ("snapshot-shares-blocks", "csi::snapshots::snapshot_of_a_device_keeps_its_moment"),
    ("snapshot-forgets-idempotence", "csi::snapshots::repeated_snapshot_is_the_same"),
    ("snapshot-without-time", "csi::snapshots::snapshot_describes_itself"),
    ("snapshot-dies-with-source", "csi::snapshots::snapshot_outlives_its_source"),
    ("snapshot-loses-unsynced-write", "csi::snapshots::snapshot_of_a_file_system_keeps_its_moment"),
    ("delete-snapshot-forgets-idempotence", "csi::snapshots::deleting_a_snapshot_twice_is_ok"),
    ("list-snapshots-ignores-filter", "csi::snapshots::snapshot_list_is_filtered"),
    ("list-snapshots-ignores-limit", "csi::snapshots::snapshot_pages_hold_each_once"),
    ("clone-is-empty", "csi::copies::clone_has_the_blocks_of_its_source"),
    ("clone-shares-blocks", "csi::copies::clone_has_the_files_of_its_source"),
    ("clone-dies-with-source", "csi::copies::clone_has_the_files_of_its_source"),
    ("clone-collides-with-source", "csi::copies::clone_is_used_beside_its_source"),
    ("copy-keeps-small-file-system", "csi::copies::larger_restore_has_a_larger_file_system"),
    ("copy-keeps-small-device", "csi::copies::larger_restore_of_a_device_is_larger"),
    ("copy-cuts-its-source", "csi::copies::copy_is_not_smaller_than_its_source"),
    ("copy-hides-its-source", "csi::copies::clone_has_the_files_of_its_source"),
    ("create-from-unknown-source", "csi::copies::clone_of_an_unknown_volume_is_not_found"),
    ("group-misses-one", "csi::groups::group_describes_itself"),
    ("group-without-time", "csi::groups::group_describes_itself"),
    ("group-forgets-idempotence", "csi::groups::repeated_group_is_the_same"),
    ("group-delete-keeps-snapshots", "csi::groups::group_goes_as_a_whole"),
    ("group-unknown-is-empty", "csi::groups::group_is_gotten_whole"),
    ("create-reports-wrong-size", "csi::capacity::device_has_the_answered_size"),
    ("capacity-never-shrinks", "csi::capacity::capacity_shrinks_with_a_volume"),
    ("stats-of-the-host", "csi::stats::statistics_are_of_the_file_system"),
    ("stats-in-blocks", "csi::stats::statistics_are_of_the_file_system"),
    ("stats-of-the-device-node", "csi::stats::statistics_are_of_the_device"),
    ("always-healthy", "csi::stats::volume_without_its_mount_is_not_well"),
    ("stats-without-condition", "csi::stats::volume_without_its_mount_is_not_well"),
    ("modify-applies-half", "csi::modify::refused_modification_changes_nothing"),
    ("modify-forgets-idempotence", "csi::modify::repeated_modification_is_ok"),
    ("expand-answers-early", "csi::growth::device_grows_in_use"),
    ("expand-forgets-device", "csi::growth::device_grows_in_use"),
    ("expand-forgets-file-system", "csi::growth::file_system_grows_in_use"),
    ("expand-reports-old-size", "csi::growth::unused_device_grows"),
    ("expand-forgets-idempotence", "csi::growth::growth_to_a_size_that_is_reached_is_ok"),
    ("expand-accepts-any-size", "csi::growth::impossible_growth_is_refused"),
    ("expand-left-to-nobody", "csi::growth::file_system_grows_in_use"),
];

/// A case that calls as no node does finds a sabotage under its own promise, with one consequence at most.
#[test]
#[file_serial(root)]
fn node_calls_find_each_sabotage_under_its_promise() {
    if !has_root() {
        return;
    }
    let promises = promises();
    let mut wrong = Vec::new();
    for (sabotage, case) in FOUND_BY_NODE_CALLS.iter().chain(FOUND_BY_COPIES) {
        let ended =
            Volproof::new().args("run --report out --timeout 15s --sabotage").arg(sabotage).arg(case).run();
        let findings = ended.results().findings();
        let is_own = |finding: &&tests::Finding| finding.contract == promises[*sabotage];
        let own = findings.iter().filter(is_own).count();
        if own != 1 || findings.len() > 2 {
            wrong.push(format!("{sabotage} in {case}: {findings:#?}\n{}", ended.told()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// What a driver says of itself, and what it does when it is asked twice: any life of a volume shows it.
const SEEN_IN_A_LIFE: &str = "wrong-plugin-name capabilities-flap node-id-changes create-forgets-idempotence \
    create-too-small delete-forgets-idempotence attach-forgets-idempotence detach-forgets-idempotence \
    stage-leaves-process unpublish-keeps-target unstage-removes-directory stage-stacks-mounts publish-stacks-mounts unpublish-forgets-idempotence unstage-forgets-idempotence";

/// What only shows when somebody asks as no node does.
const SEEN_WHEN_ASKED: &str = "capability-without-call create-ignores-conflict create-refuses-long-names \
    create-accepts-anything validate-confirms-anything delete-while-in-use attach-to-unknown-node \
    list-loses-a-volume list-repeats-token list-accepts-any-token wrong-code-for-missing-field wrong-code-for-unknown-volume \
    unstage-while-published stage-ignores-conflict publish-ignores-conflict stats-of-any-path";

/// Found by cases that ask for a file system or for mount options, in the mount itself.
const SEEN_IN_THE_MOUNT: &str = "stage-ignores-fs-type stage-ignores-mount-flags";

#[test]
#[file_serial(root)]
fn each_is_found_by_a_few_cases() {
    if !has_root() {
        return;
    }
    for (cases, names) in [
        ("csi::lifecycle", SEEN_IN_A_LIFE),
        ("csi::calls", SEEN_WHEN_ASKED),
        ("csi::staging::file_system", SEEN_IN_THE_MOUNT),
    ] {
        let ended = Volproof::new().args("sabotage --case").arg(cases).args(names).run();
        assert_eq!(ended.code, Some(0), "{}", ended.told());
    }
}

#[test]
fn a_promise_that_nobody_knows_is_told_the_nearest() {
    let ended = Volproof::new().args("sabotage unpublish-leave-mount").run();
    assert_eq!(ended.code, Some(2), "{}", ended.told());
    assert!(ended.stderr.contains("the nearest is `unpublish-leaves-mount`"), "{}", ended.told());
}

/// Whoever breaks promises one after the other is ended at any time: by Ctrl-C, or without a word.
#[test]
#[file_serial(root)]
fn a_matrix_that_is_cut_short_leaves_nothing() {
    if !has_root() {
        return;
    }
    for (signal, code) in [(Signal::SIGINT, Some(130)), (Signal::SIGKILL, None)] {
        let (name, mark) = Residue::mark();
        let before = Residue::see(&mark);
        let volproof =
            Volproof::new().env(name, &mark).args("sabotage unpublish-leaves-mount --case csi::lifecycle");
        let (mut matrix, directory) = volproof.start();
        let mut begun = String::new();
        let mut said = BufReader::new(matrix.stderr.as_mut().expect("it is piped"));
        said.read_line(&mut begun).expect("it can be read");
        assert!(begun.starts_with("the honest driver passes"), "{begun}");
        kill(Pid::from_raw(matrix.id().cast_signed()), signal).expect("it is there");
        let ended = Ended::of(matrix.wait_with_output().expect("its output"), directory);
        assert_eq!(ended.code, code, "{}", ended.told());
        let mut left = settle(&before, &mark, Duration::from_secs(30));
        left.extend(ended.temporary_files());
        assert_eq!(left, Vec::<String>::new(), "was left behind after {signal}");
    }
}
