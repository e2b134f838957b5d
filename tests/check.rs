//! `volproof check`: recordings beside another volume manager, our own recordings, and recordings of a driver's bug.

use std::fs;
use std::path::{Path, PathBuf};

use tests::{Ended, Volproof, has_root};

fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/traces")
}

fn check(name: &str, trace: &str) -> Ended {
    Volproof::new().file(name, trace).arg("check").arg("--at-rest").arg(name).run()
}

/// The promises are no invention: Kubernetes' own volume manager and a driver of others keep all that can be seen.
#[test]
fn recordings_of_the_real_manager_break_nothing() {
    let mut wrong = Vec::new();
    let recordings = fs::read_dir(recordings()).expect("the recordings are here");
    for recording in recordings.map(|entry| entry.expect("the recordings are here").path()) {
        let checked = Volproof::new().arg("check").arg("--at-rest").arg(&recording).run();
        if checked.code != Some(0) || !checked.stdout.contains(" kept, ") {
            wrong.push(format!("{}\n{}", recording.display(), checked.told()));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// The control: a recording with one planted fault has a finding with the promise and the line.
#[test]
fn broken_promise_is_reported_with_its_line() {
    let recording =
        fs::read_to_string(recordings().join("01-single-fs.jsonl")).expect("the recording is here");
    let is = |line: &str, what: &str| line.contains(what);

    // The call is not made, and its mount stays.
    let forgotten =
        recording.lines().filter(|line| !is(line, "NodeUnpublishVolume") && !is(line, "mount_del"));
    let checked = check("forgotten.jsonl", &forgotten.collect::<Vec<_>>().join("\n"));
    assert_eq!(checked.code, Some(1), "{}", checked.told());
    let unstage =
        checked.stdout.lines().any(|line| line.trim_start().starts_with("line ") && is(line, "Unstage"));
    assert!(unstage && checked.stdout.contains("broken by the node's volume manager"), "{}", checked.told());

    // The driver answers, and its mount stays.
    let left = recording.lines().filter(|line| !is(line, "mount_del")).collect::<Vec<_>>().join("\n");
    let checked = check("left.jsonl", &left);
    assert_eq!(checked.code, Some(1), "{}", checked.told());
    assert!(
        checked.stdout.contains("DRV-060") && checked.stdout.contains("broken by the driver"),
        "{}",
        checked.told()
    );

    let often = check("often.jsonl", &[left.as_str(); 150].join("\n"));
    assert!(often.stdout.contains("    and ") && often.stdout.contains(" more times\n"), "{}", often.told());

    let json = Volproof::new().file("x.jsonl", &left).args("check --json x.jsonl").run();
    let judged: serde_json::Value = serde_json::from_str(&json.stdout).expect("it is JSON");
    let promises = judged["promises"].as_array().expect("there are promises");
    let broken = promises.iter().find(|promise| promise["contract"] == "DRV-060");
    assert!(broken.is_some_and(|promise| promise["verdict"]["broken"][0]["seq"].is_u64()), "{}", json.told());
    assert_eq!(json.code, Some(1));
}

#[test]
fn file_without_a_recording_is_refused() {
    for (trace, code, text) in [
        ("", 2, "it holds no call"),
        ("{\"ev\":\"rpc_start\"", 2, "line 1 is no event of a trace"),
        ("{\"ev\":\"rpc_start\",\"id\":1}", 2, "missing field `method`"),
        ("{\"ev\":\"mount_add\",\"target\":\"/x\"}", 2, "missing field"),
        ("{\"ev\":\"snapshot\"}", 3, "not observable"),
        (NO_OCCASION, 3, "none broken, 0 kept, "),
    ] {
        let checked = check("x.jsonl", trace);
        assert_eq!(checked.code, Some(code), "{trace}: {}", checked.told());
        assert!(checked.told().contains(text), "{trace}: {}", checked.told());
    }
    let missing = Volproof::new().args("check nowhere.jsonl").run();
    assert_eq!(missing.code, Some(2), "{}", missing.told());
    assert!(missing.stderr.contains("cannot read the trace `nowhere.jsonl`"), "{}", missing.told());
}

/// The node's mount and a driver's, the second of which no call explains, and an announcement that nothing shows.
const UNEXPLAINED: &str = r#"{"ev":"process","who":"node","edge":"start","root":"/kl"}
{"ev":"effect","effect":"mkdir","path":"/kl/pods/u/volumes","confirmed":true}
{"ev":"rpc_start","id":1,"method":"GetPluginCapabilities","req":{}}
{"ev":"rpc_end","id":1,"method":"GetPluginCapabilities","code":"OK","dur_ms":1,"resp":{}}
{"ev":"mount_del","target":"/kl/pods/u/volumes/kubernetes.io~csi/pv/mount","id":1,"by":"driver","seen_by":"fanotify"}
{"ev":"effect","effect":"umount","path":"/kl/pods/u/volumes/kubernetes.io~csi/other/mount","confirmed":true}
"#;

#[test]
fn unexplained_mounts_of_a_recording_are_found() {
    let checked = check("x.jsonl", &format!("{HEADER}{UNEXPLAINED}"));
    assert_eq!(checked.code, Some(1), "{}", checked.told());
    for text in
        ["line 6: done, and not announced: umount /kl/pods", "line 7: announced, and not there: umount /kl"]
    {
        assert!(checked.stdout.contains(text), "{text}: {}", checked.told());
    }
    // A recording without a version does not say who made a mount, but what its recorder made of that.
    let old = Volproof::new().file("x.jsonl", UNEXPLAINED).args("check --verbose x.jsonl").run();
    let line = old.stdout.lines().find(|line| line.starts_with("stray"));
    assert!(line.is_some_and(|line| line.contains("not observable")), "{}", old.told());
}

const HEADER: &str = "{\"ev\":\"trace\",\"version\":2}\n";

#[test]
fn unknown_word_of_a_recording_is_reported_with_the_nearest() {
    let misspelt = UNEXPLAINED.replace("\"umount\"", "\"umuont\"");
    let checked = check("x.jsonl", &format!("{HEADER}{misspelt}"));
    assert_eq!(checked.code, Some(2), "{}", checked.told());
    let error = "line 7 is no event of a trace: unknown word `umuont`, the nearest known is `umount`";
    assert!(checked.told().contains(error), "{}", checked.told());
}

/// A call that no promise is about, except that it has to be answered.
const NO_OCCASION: &str =
    r#"{"seq":1,"t_ms":0,"ev":"rpc_start","id":1,"method":"GetPluginCapabilities","req":{}}"#;

/// Broken advice is reported, and the exit code is 0.
#[test]
fn broken_advice_is_reported_and_is_no_fault() {
    let call = |id: u32, method: &str, paths: &str| {
        format!(
            r#"{{"seq":1,"t_ms":0,"ev":"rpc_start","id":{id},"method":"{method}","req":{{"volumeId":"v"{paths}}}}}
{{"seq":2,"t_ms":1,"ev":"rpc_end","id":{id},"method":"{method}","code":"OK","dur_ms":1,"resp":{{}}}}
"#
        )
    };
    let staging = r#","stagingTargetPath":"/s""#;
    let publish = format!(r#"{staging},"targetPath":"/t""#);
    let trace = call(1, "NodeStageVolume", staging)
        + &call(2, "NodePublishVolume", &publish)
        + &call(3, "NodeUnstageVolume", staging);
    // The manager that unstages a published volume is at fault, and not the driver that allows it.
    let checked = Volproof::new().file("x.jsonl", &trace).args("check --json x.jsonl").run();
    let judged: serde_json::Value = serde_json::from_str(&checked.stdout).expect("it is JSON");
    let find = |id: &str| {
        let promises = judged["promises"].as_array().expect("there are promises");
        promises.iter().find(|promise| promise["contract"] == id).expect("it is judged").clone()
    };
    assert_eq!(find("DRV-075")["strength"], "advice");
    assert!(find("DRV-075")["verdict"]["broken"].is_array(), "{}", checked.told());
    assert_eq!(find("DRV-100")["verdict"], "not_tried", "{}", checked.told());

    let printed = Volproof::new().file("x.jsonl", &trace).args("check x.jsonl").run();
    assert!(printed.stdout.contains("DRV-075 (advice)"), "{}", printed.told());
    assert!(printed.stdout.contains("not followed by the driver"), "{}", printed.told());
    assert!(printed.stdout.contains("1 recommended and not followed"), "{}", printed.told());
}

/// A case judges its own trace; `check` on the trace later finds the same.
#[test]
fn check_of_a_case_trace_has_the_findings_of_the_case() {
    if !has_root() {
        return;
    }
    const CASE: &str = "csi::lifecycle::file_system_is_set_up_and_torn_down";
    for (sabotage, code, found) in
        [("", 0, "none broken"), ("--sabotage unpublish-leaves-mount", 1, "DRV-060")]
    {
        let driver = format!(
            "{} __fake-csi --endpoint={{endpoint}} --node={{node}} --state-dir={{state}} {sabotage}",
            tests::built().display()
        );
        let run =
            Volproof::new().args("run --report out --timeout 15s --driver-cmd").arg(driver).arg(CASE).run();
        assert_eq!(run.code, Some(code), "{}", run.told());
        let trace = run.directory.path().join(format!("out/cases/{CASE}/trace.jsonl"));
        let checked = Volproof::new().arg("check").arg(trace).run();
        assert_eq!(checked.code, Some(code), "{}", checked.told());
        assert!(checked.stdout.contains(found), "{}", checked.told());
    }
}
