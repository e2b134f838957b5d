//! The findings of sabotaged drivers, with strength, call and path. The honest driver has no finding with any capability
//! missing. `registry.rs` shows that each sabotage is found.

use std::collections::BTreeMap;

use serde_json::Value;
use tests::{Ended, Volproof, built, has_root, is_thorough};

/// The promise that each sabotage breaks, from the driver's own list: `name  DRV-…  the bug`.
fn promises() -> BTreeMap<String, String> {
    let listed = Volproof::new().args("__fake-csi sabotages").run();
    assert_eq!(listed.code, Some(0), "{}", listed.told());
    let pair = |line: &str| {
        let mut words = line.split_whitespace().map(str::to_owned);
        Some((words.next()?, words.next()?))
    };
    listed.stdout.lines().filter_map(pair).collect()
}

/// Runs cases against fake-csi with these arguments.
fn run_against(arguments: &[&str], filters: &[&str]) -> Ended {
    let mut command = vec![
        built().display().to_string(),
        "__fake-csi".into(),
        "--endpoint={endpoint}".into(),
        "--node={node}".into(),
        "--state-dir={state}".into(),
    ];
    command.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    let quoted: Vec<String> = command.iter().map(|word| format!("{word:?}")).collect();
    // Directories are of no type that could be asked for.
    let has_no_type = ["directory", "fuse"].iter().any(|backing| arguments.contains(backing));
    let fs_types = if has_no_type { "" } else { "fs_types = [\"ext4\", \"btrfs\", \"xfs\"]\n" };
    let manifest = format!(
        "name = \"fake.csi.volproof.dev\"\ncommand = [{}]\nnodes = 2\n[volume]\ninline = true\n{fs_types}",
        quoted.join(", ")
    );
    let run = Volproof::new()
        .file("driver.toml", &manifest)
        .args("run --about driver --driver driver.toml --report out");
    filters.iter().fold(run, |run, filter| run.arg(filter)).run()
}

/// Drivers that lack something, each with the cases that it changes most.
const OTHER_DRIVERS: &[(&[&str], &[&str])] = &[
    (&["--without", "volume-mount-group"], &["csi::group"]),
    (&["--without", "stage-unstage"], &["csi::order", "csi::fields", "csi::secrets"]),
    // Two nodes write to a volume that is staged and not attached.
    (&["--without", "publish-unpublish"], &["csi::fields", "csi::nodes", "csi::secrets"]),
    // Its volumes can be described one by one.
    (&["--without", "list-volumes"], &["csi::calls", "csi::lists"]),
    (
        &["--without", "topology", "--without", "told-capacity"],
        &["csi::identity", "csi::capacity", "csi::fields"],
    ),
    (&["--backing", "directory"], &["csi::order", "csi::paths"]),
    // The program that hangs may be the server of the volume.
    (&["--backing", "fuse"], &["csi::daemons"]),
    (&["--without", "online-expansion"], &["csi::claims", "csi::growth"]),
    (&["--without", "node-expand", "--without", "volume-stats"], &["csi::growth", "csi::calls"]),
    // The snapshots of its groups are all that it takes.
    (&["--without", "create-delete-snapshot"], &["csi::claims", "csi::groups", "csi::snapshots"]),
    (&["--max-volumes=1"], &["csi::copies", "csi::growth", "csi::snapshots"]),
    (&["--max-volumes=2"], &["csi::copies", "csi::daemons", "csi::load"]),
];

/// Every case can run against some driver: a case that needs the lack of an ability runs against a driver without it.
#[test]
fn honest_driver_without_an_ability_is_clean() {
    if !has_root() {
        return;
    }
    let thorough = is_thorough("a few cases against each driver that lacks an ability, not all");
    for (arguments, filters) in OTHER_DRIVERS {
        let ended = run_against(arguments, if thorough { &[] } else { filters });
        assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.told());
        let cases = ended.results().cases();
        assert!(cases.iter().any(|case| case.status == "passed"), "{arguments:?}: {}", ended.told());
        let policy = cases.iter().find(|case| case.id == "csi::group::policy_selects_who_applies_the_group");
        let lacks_groups = arguments.contains(&"volume-mount-group");
        assert!(!lacks_groups || policy.is_some_and(|case| case.status == "passed"), "{}", ended.told());
    }
}

/// `volproof sabotage` tries the cases that judge a promise until one of them finds it broken.
#[test]
fn run_until_a_promise_is_broken_ends_with_the_case_that_finds_it() {
    if !has_root() {
        return;
    }
    let run = |promise: &str| {
        let options =
            "run --sabotage publish-ignores-mount-flags --jobs 1 --report out csi::flags csi::order";
        let ended = Volproof::new().args(options).args(&format!("--until-broken {promise}")).run();
        assert_eq!(ended.code, Some(1), "{}", ended.told());
        ended.results()
    };
    let (other, cut_short) = (run("DRV-060").cases(), run("DRV-057").cases());
    assert!(cut_short.len() < other.len(), "{cut_short:?}");
    assert_eq!(cut_short.last().map(|case| case.status.as_str()), Some("failed"), "{cut_short:?}");
}

/// `volproof sabotage --honest` believes only a report whose run came to the cases that it needs.
#[test]
fn report_of_the_honest_driver_takes_the_place_of_its_run() {
    if !has_root() {
        return;
    }
    // Those that judge the promise of `stage-without-mount`.
    const CASES: &str = "csi::order::data_on_a_device_outlives_each_call csi::order::staged_volume_can_be_published \
                         csi::staging::unstage_of_another_path_leaves_the_volume";
    let honest = Volproof::new().args("run --report out").args(CASES).run();
    assert_eq!(honest.code, Some(0), "{}", honest.told());
    let report = honest.directory.path().join("out");
    let sabotage = |name: &str| Volproof::new().args("sabotage").arg(name).arg("--honest").arg(&report).run();
    let ended = sabotage("stage-without-mount");
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    assert!(ended.told().contains("the honest driver passes 3 cases"), "{}", ended.told());
    let ended = sabotage("publish-ignores-mount-flags");
    assert_eq!(ended.code, Some(2), "{}", ended.told());
    assert!(ended.told().contains("did not come to `csi::flags::"), "{}", ended.told());
}

/// An answer that CSI does not forbid fails no case, and the same answer fails a case where CSI forbids it.
#[test]
fn only_a_duty_of_the_driver_fails_a_case() {
    if !has_root() {
        return;
    }
    const IN_USE: &str = "csi::calls::volume_in_use_is_not_deleted";
    const GONE: &str = "csi::device::file_system_gone_read_only_is_not_published";
    const CONDITION: &str = "csi::stats::volume_without_its_mount_is_not_well";
    // Driver's sabotage, case, exit code, findings by promise and strength.
    type Row<'a> = (&'a str, &'a str, u8, &'a [(&'a str, &'a str)]);
    // A class without attachments lets the controller delete a volume before the node has unstaged it.
    const LATE: &str = r#"--without publish-unpublish --fault '{"method":"NodeUnstageVolume","after":true,"code":14,"times":1}'"#;
    let rows: [Row<'_>; 12] = [
        (
            "--without told-capacity --sabotage create-ignores-conflict",
            "csi::calls::taken_name_with_another_size_is_refused",
            0,
            &[],
        ),
        ("--without publish-unpublish --sabotage delete-while-in-use", IN_USE, 0, &[]),
        (
            LATE,
            "csi::claims::claim_of_an_ephemeral_volume_is_deleted_with_its_pod",
            0,
            &[("INV-007", "advice")],
        ),
        ("--sabotage delete-while-in-use", IN_USE, 1, &[("DRV-021", "must")]),
        (
            "--sabotage unstage-while-published",
            "csi::calls::published_volume_is_not_unstaged",
            0,
            &[("DRV-075", "advice")],
        ),
        ("--sabotage publish-ignores-dead-file-system", GONE, 0, &[("DRV-163", "advice")]),
        ("--sabotage well-without-words", CONDITION, 0, &[("DRV-088", "advice")]),
        ("--sabotage condition-without-words", CONDITION, 1, &[("DRV-170", "must")]),
        // The case puts the target back, so that what the driver then undoes is not left behind.
        (
            "--sabotage unpublish-needs-target",
            "csi::order::unpublish_of_a_lost_target_is_ok",
            0,
            &[("DRV-069", "advice")],
        ),
        // The driver requires the size, which is optional in CSI and sent by each caller, and measures any path.
        ("--hostpath", "csi::calls::reported_node_calls_work", 0, &[]),
        ("--hostpath", "csi::stats::statistics_of_another_path_are_not_found", 1, &[("DRV-085", "must")]),
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

/// Sabotages of the node's paths: sabotage, promise, call, and a part of the reported path.
const TOUCHING: &[(&str, &str, &str, &str)] = &[
    ("unpublish-removes-siblings", "DRV-065", "NodeUnpublishVolume", "vol_data.json"),
    ("publish-replaces-record", "DRV-076", "NodePublishVolume", "vol_data.json"),
    ("stage-fails-but-mounts", "DRV-045", "NodeStageVolume", "stag"),
];

/// A driver that changes a path of the node has a finding with the call and the path.
#[test]
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

/// A driver that broke a promise is not acquitted, even if other calls fail in consequence.
#[test]
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
        ("publish-creates-file", "block::missing_device_at_the_target_is_reported"),
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

/// A pod that is deleted before its volume is there shows nothing of the driver: the next pod has to get the volume.
#[test]
fn driver_that_mounts_nothing_fails_a_case_whose_pod_is_deleted_early() {
    if !has_root() {
        return;
    }
    let case = "csi::staging::pod_deleted_during_stage";
    let run = |options: &str| Volproof::new().args("run --report out").args(options).arg(case).run();
    let mounts_nothing = run("--sabotage stage-without-mount");
    assert_eq!(mounts_nothing.results().bad().len(), 1, "{}", mounts_nothing.told());
    assert_eq!(mounts_nothing.results().cases()[0].status, "failed", "{}", mounts_nothing.told());
    assert!(
        mounts_nothing.stdout.contains("The volumes of `next` are not mounted"),
        "{}",
        mounts_nothing.told()
    );
    let honest = run("");
    assert_eq!(honest.code, Some(0), "{}", honest.told());
}

/// What NodeStageVolume has formatted away is not gone because of NodeUnpublishVolume.
#[test]
fn driver_that_formats_what_it_stages_deletes_nothing_when_it_unpublishes() {
    if !has_root() {
        return;
    }
    let case = "csi::order::unpublish_of_a_stacked_target_keeps_the_data";
    let contracts = |sabotage: &str| -> Vec<String> {
        let ended = Volproof::new().args("run --report out --sabotage").arg(sabotage).arg(case).run();
        ended.results().findings().into_iter().map(|finding| finding.contract).collect()
    };
    assert!(!contracts("stage-formats-again").contains(&"DRV-064".to_owned()));
    assert!(contracts("unpublish-deletes-data").contains(&"DRV-064".to_owned()));
}

/// A driver without block volumes that makes a file at the target learns what to refuse, and the report of a pod that
/// got no volume shows the event that its owner sees.
#[test]
fn report_has_the_code_to_refuse_with_and_the_event_of_the_pod() {
    if !has_root() {
        return;
    }
    let run = |sabotage: &str, case: &str| {
        Volproof::new().args("run --report out --timeout 15s --sabotage").arg(sabotage).arg(case).run().told()
    };
    let device = run("publish-creates-file", "csi::block::teardown_is_the_reverse_of_setup");
    assert!(device.contains("DRV-055") && device.contains("refuse it with INVALID_ARGUMENT"), "{device}");
    let refused = run("stage-without-mount", "csi::lifecycle::file_system_is_set_up_and_torn_down");
    // The summary names the call and its answer, and not only what came of it.
    let summary = refused.lines().find(|line| line.trim_start().starts_with("Finding "));
    let words = ["are not mounted: NodePublishVolume answers FAILED_PRECONDITION", "is no longer staged"];
    assert!(summary.is_some_and(|line| words.iter().all(|word| line.contains(word))), "{refused}");
    let event = refused.lines().find(|line| line.trim_start().starts_with("the first event"));
    let words = ["pod/web FailedMount", "code = FailedPrecondition", "is no longer staged"];
    assert!(event.is_some_and(|event| words.iter().all(|word| event.contains(word))), "{refused}");
    let honest = Volproof::new().args("run csi::lifecycle::file_system_is_set_up_and_torn_down").run().told();
    assert!(!honest.contains("the first event"), "{honest}");
}

#[test]
fn matrix_lists_found_and_missed_sabotages() {
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

#[test]
fn unknown_promise_names_the_nearest() {
    let ended = Volproof::new().args("sabotage unpublish-leave-mount").run();
    assert_eq!(ended.code, Some(2), "{}", ended.told());
    assert!(ended.stderr.contains("the nearest is `unpublish-leaves-mount`"), "{}", ended.told());
}
