//! Correct drivers that are not like fake-csi have no finding: a driver of content or of scratch space, one with a form of
//! ids, one whose backend is shared, one that answers oddly. Beside each runs a driver or a manifest of which the same
//! cases find a fault.

use std::collections::BTreeMap;
use std::fs;

use tests::{Ended, Volproof, built, has_root, is_thorough};

/// Runs cases against fake-csi with these arguments and these lines of its manifest.
fn run(arguments: &[&str], lines: &str, options: &str) -> Ended {
    let run = Volproof::new().file("driver.toml", &manifest(arguments, lines));
    run.args("run --report out --driver driver.toml --about driver").args(options).run()
}

fn manifest(arguments: &[&str], lines: &str) -> String {
    let program = built().display().to_string();
    let serve = ["__fake-csi", "--endpoint={endpoint}", "--node={node}", "--state-dir={state}"];
    let command: Vec<String> =
        [&program[..]].iter().chain(&serve).chain(arguments).map(|word| format!("{word:?}")).collect();
    format!("name = \"fake.csi.volproof.dev\"\ncommand = [{}]\n{lines}\n", command.join(", "))
}

/// A fault of NodePublishVolume: the command for each target of a file system, after the driver's own work.
fn at_each_target(command: &str) -> String {
    let targets = "/var/lib/kubelet/pods/*/volumes/kubernetes.io~csi/*/mount";
    ran_after_publish(&format!("for target in {targets}; do mountpoint -q $target && {command}; done"))
}

fn ran_after_publish(command: &str) -> String {
    format!("--fault={}", serde_json::json!({ "method": "NodePublishVolume", "after": true, "run": command }))
}

fn statuses(ended: &Ended) -> BTreeMap<String, String> {
    ended.results().cases().into_iter().map(|case| (case.id, case.status)).collect()
}

/// The ids of cases that failed; the run has failed because of them.
fn failed(ended: &Ended) -> Vec<String> {
    assert_eq!(ended.code, Some(1), "{}", ended.told());
    statuses(ended).into_iter().filter(|(_, status)| status == "failed").map(|(id, _)| id).collect()
}

/// A driver that keeps a state for each node has its volumes made and used on each of them, and none of them moves.
#[test]
fn driver_with_a_state_for_each_node_is_clean() {
    if !has_root() {
        return;
    }
    let apart = "nodes = 2\nstate = \"per_node\"";
    let case = "csi::nodes::volume_lives_on_each_of_two_nodes_apart";
    let ended = run(&["--without=publish-unpublish"], apart, "csi::nodes");
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    assert_eq!(statuses(&ended)[case], "passed", "{}", ended.told());
    assert!(ended.stdout.contains("has a state for each node by its manifest (`state`)"), "{}", ended.told());

    // The control: a driver that loses what was written.
    let ended = run(&["--without=publish-unpublish", "--sabotage=unpublish-deletes-data"], apart, case);
    assert_eq!(failed(&ended), [case]);
}

/// A driver whose volumes have content from the start, and which has no CreateVolume: no case asks for an empty volume or
/// for one that it would have to make.
#[test]
fn driver_of_content_without_create_volume_is_clean() {
    if !has_root() {
        return;
    }
    let content = at_each_target("echo from the driver > $target/content");
    let driver = ["--without=create-delete-volume", "--without=publish-unpublish", &content];
    let cases = "csi::calls:: csi::inline:: csi::lifecycle:: block::";
    let ended = run(&driver, "[volume]\ninline = true\npersistent = false", cases);
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    assert_eq!(statuses(&ended)["csi::inline::each_repeated_call_succeeds"], "passed", "{}", ended.told());
    let reason = "the driver has no CreateVolume, and the manifest names no `existing` volumes";
    assert!(ended.stdout.contains(reason), "{}", ended.told());
    let head = ended.stdout.lines().find(|line| line.contains("Driver fake.csi.volproof.dev"));
    let claims = |word: &str| head.is_none_or(|head| head.split([',', ' ']).any(|said| said == word));
    assert!(claims("inline") && !claims("block") && !claims("system"), "{}", ended.told());

    let kept = run(&driver, "[volume]\ninline = true", "csi::inline::volume_lives_as_long_as_its_pod");
    assert_eq!(failed(&kept), ["csi::inline::volume_lives_as_long_as_its_pod"], "{}", kept.told());
}

/// A driver whose inline volumes are for reading only is asked for no other, also by the calls that a case makes itself.
#[test]
fn inline_volume_for_reading_only_is_published_so() {
    if !has_root() {
        return;
    }
    let lines = "[volume]\ninline = true\ninline_read_only = true\npersistent = false";
    let ended =
        run(&["--without=create-delete-volume", "--without=publish-unpublish"], lines, "csi::inline::");
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    assert_eq!(statuses(&ended)["csi::inline::repeated_unpublish_is_ok"], "passed", "{}", ended.told());

    let trace = ended.directory.path().join("out/cases/csi::inline::repeated_unpublish_is_ok/trace.jsonl");
    let trace = fs::read_to_string(trace).unwrap();
    // The case's step names the request.
    assert!(trace.contains(r#"\"readonly\":true"#), "{trace}");

    let driver = ["--without=create-delete-volume", "--sabotage=publish-ignores-read-only"];
    let case = "csi::inline::each_repeated_call_succeeds";
    let ignored = run(&driver, lines, case);
    assert_eq!(failed(&ignored), [case], "{}", ignored.told());
    assert!(ignored.stdout.contains("DRV-050"), "{}", ignored.told());
}

/// A controller that creates no volume has to implement ValidateVolumeCapabilities, and is asked for it.
#[test]
fn controller_without_volumes_is_asked_for_its_required_call() {
    if !has_root() {
        return;
    }
    let fault = serde_json::json!({ "method": "ValidateVolumeCapabilities", "code": 12 });
    let driver =
        ["--without=create-delete-volume", "--without=publish-unpublish", &format!("--fault={fault}")];
    let case = "csi::calls::missing_field_is_invalid_argument";
    let lacking = run(&driver, "[volume]\ninline = true", case);
    assert_eq!(failed(&lacking), [case], "{}", lacking.told());
    assert!(lacking.stdout.contains("DRV-002"), "{}", lacking.told());
    let whole = run(&driver[..2], "[volume]\ninline = true", case);
    assert_eq!(whole.code, Some(0), "{}", whole.told());
}

/// A driver that starts only if the disk is mounted that `prepare` has mounted: the disk is there after a reboot. A driver
/// that keeps its volumes in `/tmp` loses them.
#[test]
fn disk_that_was_prepared_is_there_after_a_reboot() {
    if !has_root() {
        return;
    }
    let case = "csi::reboot::pod_has_its_volumes_after_a_reboot";
    let run = |directory: &str| {
        let serve = format!("__fake-csi --endpoint={{endpoint}} --node={{node}} --state-dir={directory}");
        let command = format!("mountpoint -q {{state}}/disk && exec {} {serve}", built().display());
        let prepare = "mkdir {state}/disk && mount -t tmpfs disk {state}/disk";
        let manifest = format!(
            "command = [\"/bin/sh\", \"-c\", \"{command}\"]\n\
             [per_case]\nprepare = [\"/bin/sh\", \"-c\", \"{prepare}\"]\n"
        );
        let run = Volproof::new().file("driver.toml", &manifest);
        run.args("run --report out --driver driver.toml --about driver").args(case).run()
    };
    let kept = run("{state}/disk");
    assert_eq!(kept.code, Some(0), "{}", kept.told());
    assert_eq!(failed(&run("/tmp/volumes")), [case]);
}

/// A driver of scratch space, which empties a volume each time that it publishes it: no case reads what was written before.
#[test]
fn driver_that_keeps_nothing_is_clean() {
    if !has_root() {
        return;
    }
    let driver = [&at_each_target("find $target -mindepth 1 -delete")[..]];
    let thorough = is_thorough("a few cases against a driver that keeps nothing, not all");
    let cases = if thorough { "csi::" } else { "csi::data:: csi::order:: csi::publish:: csi::staging::" };
    let ended = run(&driver, "[volume]\npersistent = false", cases);
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    let statuses = statuses(&ended);
    assert!(statuses.values().any(|status| status == "passed"), "{}", ended.told());

    let kept = run(&driver, "", "csi::publish::");
    assert!(!failed(&kept).is_empty(), "{}", kept.told());
}

/// A device that others may write is published read-only by a bind that is.
#[test]
fn read_only_bind_of_a_writable_device_is_read_only() {
    if !has_root() {
        return;
    }
    let case = "block::read_only_pod_cannot_write_its_device";
    let writable = "--sabotage=block-ignores-read-only";
    let targets = "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/*/uid-reader";
    let bind = ran_after_publish(&format!(
        "for target in {targets}; do test ! -b $target || mount -o remount,bind,ro $target; done"
    ));
    let bound = run(&[writable, &bind], "", case);
    assert_eq!(bound.code, Some(0), "{}", bound.told());
    assert_eq!(statuses(&bound)[case], "passed", "{}", bound.told());

    assert_eq!(failed(&run(&[writable], "", case)), [case]);
}

/// An id that has not the form of the driver's ids may be refused with INVALID_ARGUMENT. One that has it is not found, and
/// the manifest names it.
#[test]
fn id_of_another_form_may_be_an_invalid_argument() {
    if !has_root() {
        return;
    }
    let case = "csi::calls::attach_of_an_unknown_volume_or_node_is_not_found";
    // The first call has the right ids.
    let fault = "--fault={\"method\":\"ControllerPublishVolume\",\"skip\":1,\"code\":3,\"message\":\"this is no id\"}";
    let lenient = run(&[fault], "", case);
    assert_eq!(lenient.code, Some(0), "{}", lenient.told());
    for (id, promise) in [("volume = \"vol-ffffffff\"", "DRV-099"), ("node = \"node-9\"", "DRV-033")] {
        let ids = format!("[unknown_ids]\n{id}");
        let wrong = run(&[fault], &ids, case);
        let findings = wrong.results().findings();
        let found: Vec<&str> = findings.iter().map(|finding| finding.contract.as_str()).collect();
        assert_eq!((wrong.code, found), (Some(1), vec![promise]), "{}", wrong.told());
        let right = run(&[], &ids, case);
        assert_eq!(right.code, Some(0), "{}", right.told());
    }
}

/// CSI has no code for a snapshot of a volume that does not exist, so that any refusal is right. It has one for growing it.
#[test]
fn snapshot_of_an_unknown_volume_may_be_refused_with_any_code() {
    if !has_root() {
        return;
    }
    let fault = |method: &str| {
        format!("--fault={{\"method\":\"{method}\",\"code\":13,\"message\":\"no such source\"}}")
    };
    let refused =
        run(&[&fault("CreateSnapshot")], "", "csi::snapshots::snapshot_of_an_unknown_volume_is_refused");
    assert_eq!(refused.code, Some(0), "{}", refused.told());

    let case = "csi::growth::growth_of_an_unknown_volume_is_not_found";
    assert_eq!(failed(&run(&[&fault("ControllerExpandVolume")], "", case)), [case]);
}

/// A publish that was refused has done nothing that an unpublish could undo.
#[test]
fn refused_publish_is_not_undone() {
    if !has_root() {
        return;
    }
    let fault = r#"--fault={"method":"NodeUnpublishVolume","code":13,"message":"not mounted"}"#;
    let refused = run(&[fault], "", "csi::fields::use_without_type_or_mode_is_refused");
    assert_eq!(refused.code, Some(0), "{}", refused.told());

    let case = "csi::fields::node_call_without_a_field_is_invalid_argument";
    assert_eq!(failed(&run(&[fault], "", case)), [case]);
}

/// CSI has no code of its own for a place that is full, so that a driver chooses.
#[test]
fn full_place_has_either_code() {
    if !has_root() {
        return;
    }
    let case = "csi::load::volumes_that_come_and_go_leave_nothing";
    let full = |code: i32| {
        format!("--fault={{\"method\":\"CreateVolume\",\"skip\":3,\"code\":{code},\"message\":\"no space\"}}")
    };
    for code in [8, 11] {
        let ended = run(&[&full(code)], "", case);
        assert_eq!(ended.code, Some(0), "{}", ended.told());
    }
    assert_eq!(failed(&run(&[&full(13)], "", case)), [case]);
}

/// A driver may answer anything for a path that is not its node's, so cases ask for statistics below the node's root only.
#[test]
fn statistics_are_asked_for_below_the_nodes_root() {
    if !has_root() {
        return;
    }
    let case = "csi::stats::statistics_of_another_path_are_not_found";
    let ended = run(&[], "", case);
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    let trace = ended.directory.path().join("out/cases").join(case).join("trace.jsonl");
    let trace = fs::read_to_string(trace).expect("the case has a trace");
    // fake-csi's answer names the path.
    let refused = r#""code":"NotFound","message":"the volume is not at `"#;
    let paths: Vec<&str> = trace.split(refused).skip(1).collect();
    assert!(!paths.is_empty(), "{trace}");
    assert!(paths.iter().all(|path| path.starts_with("$ROOT/kl/")), "{trace}");
}

/// A driver of directories or of shares has no type of file system, and none is asked of it, whether it applies the groups of
/// pods itself or leaves that to the node.
#[test]
fn driver_without_file_system_types_is_asked_for_none() {
    if !has_root() {
        return;
    }
    let asked = "csi::group:: csi::lifecycle::";
    for driver in [&["--without=fs-types"][..], &["--without=fs-types", "--without=volume-mount-group"]] {
        let ended = run(driver, "", asked);
        assert_eq!(ended.code, Some(0), "{driver:?}: {}", ended.told());
        let passed = statuses(&ended).values().filter(|status| *status == "passed").count();
        assert!(passed > 2, "{driver:?}: {}", ended.told());
    }
    let refused = run(&["--without=fs-types"], "[volume]\nfs_types = [\"ext4\"]", asked);
    assert_eq!(refused.code, Some(3), "{}", refused.told());
    let reason = "CreateVolume refuses file system volumes: InvalidArgument";
    assert!(refused.stdout.contains(reason), "{}", refused.told());
}

/// UNKNOWN for a kind of volume means that the driver has none of it, and is shown in the head of the run. A kind that the
/// manifest excludes is not asked for.
#[test]
fn odd_refusal_of_a_kind_of_volume_is_reported_and_fails_nothing() {
    if !has_root() {
        return;
    }
    // The first volume that is asked for has a file system.
    let fault =
        "--fault={\"method\":\"CreateVolume\",\"skip\":1,\"times\":1,\"code\":2,\"message\":\"no idea\"}";
    let odd = "Odd CreateVolume answered Unknown for a block volume (\"no idea\")";
    for (lines, is_odd, reason) in [
        ("", true, "CreateVolume refuses block volumes: Unknown \"no idea\""),
        ("[volume]\nblock = false", false, "the manifest says that there are none (`block = false`)"),
    ] {
        let ended = run(&[fault], lines, "csi::calls::unknown_list_token_is_refused csi::block::");
        assert_eq!(ended.code, Some(0), "{lines}: {}", ended.told());
        assert_eq!(ended.stdout.contains(odd), is_odd, "{lines}: {}", ended.told());
        assert!(ended.stdout.contains(reason), "{lines}: {}", ended.told());
        assert_eq!(ended.results().findings(), [], "{lines}");
    }
}

/// The names of the volumes that a case asked for, from its trace.
fn asked_names(ended: &Ended) -> Vec<String> {
    let cases = ended.directory.path().join("out/cases");
    let directories = fs::read_dir(&cases).expect("the cases have directories").flatten();
    let mut names = Vec::new();
    for directory in directories {
        let Ok(trace) = fs::read_to_string(directory.path().join("trace.jsonl")) else { continue };
        let events = trace.lines().map(|line| serde_json::from_str(line).expect("it is JSON"));
        let mut asked: Vec<String> = events
            .filter(|event: &serde_json::Value| {
                event["ev"] == "rpc_start" && event["method"] == "CreateVolume"
            })
            .filter_map(|event| Some(event["req"]["name"].as_str()?.to_owned()))
            .collect();
        asked.sort();
        asked.dedup();
        names.extend(asked);
    }
    names
}

/// In a backend of all cases and runs, a name never means the volume of another case: the same claim has another name in
/// each.
#[test]
fn each_case_of_each_run_has_its_own_names_of_volumes() {
    if !has_root() {
        return;
    }
    // The first two cases share a driver, the others have their own.
    let cases = "csi::calls::taken_name csi::calls::size_limit csi::lifecycle:: csi::publish::";
    let runs = [(); 2].map(|()| run(&[], "", cases));
    runs.iter().for_each(|run| assert_eq!(run.code, Some(0), "{}", run.told()));
    let names: Vec<String> = runs.iter().flat_map(asked_names).collect();
    let data = names.iter().filter(|name| name.starts_with("pvc-data-")).count();
    assert!(data >= 10, "{names:?}");
    let mut different = names.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), names.len(), "{names:?}");
}

/// Cases go one at a time on a backend that they share.
#[test]
fn cases_on_a_shared_backend_go_one_at_a_time() {
    if !has_root() {
        return;
    }
    let run = |lines: &str| {
        let run = Volproof::new();
        let outside = run.directory().join("outside");
        fs::create_dir(&outside).expect("a directory");
        let outside = outside.display();
        // Cannot be prepared while another case is.
        let lines = format!(
            "{lines}\nhost_paths = [\"{outside}\"]\n[per_case]\nprepare = [\"mkdir\", \"{outside}/lock\"]\n\
             cleanup = [\"rmdir\", \"{outside}/lock\"]"
        );
        let options =
            "run --driver driver.toml --report out --jobs 4 csi::calls::taken_name csi::lifecycle::";
        run.file("driver.toml", &manifest(&[], &lines)).args(options).run()
    };
    let shared = run("shared_backend = true");
    assert_eq!(shared.code, Some(0), "{}", shared.told());
    assert!(shared.stdout.contains(" in 1 lane\n"), "{}", shared.told());
    assert!(statuses(&shared).len() > 2 && statuses(&shared).values().all(|status| status == "passed"));
    let several = run("");
    assert!(several.stdout.contains(" in 4 lanes\n"), "{}", several.told());
}
