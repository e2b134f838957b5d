//! Comparison of the recordings with copies that have one change each: changes that count and changes that do not.

use std::fs;
use std::path::Path;

use super::{Trace, compare};

/// All recordings, by name.
fn recordings() -> Vec<(String, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/traces");
    let entries = fs::read_dir(directory).expect("the recordings are part of the repository");
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.expect("it can be listed").path();
        let name = path.file_stem().expect("it is a file").to_string_lossy().into_owned();
        (name, fs::read_to_string(&path).expect("it can be read"))
    };
    let mut all: Vec<_> = entries.map(read).collect();
    all.sort();
    all
}

/// The differences of a changed text; `None` if it is the same story.
fn differences(text: &str, changed: &str) -> Option<String> {
    let (one, two) = (Trace::parse(text).expect("a trace"), Trace::parse(changed).expect("a trace"));
    let comparison = compare(&one, &two);
    (!comparison.same).then(|| comparison.to_string())
}

/// Changes every recording that a change is possible in, and expects each to be found out, in a section of that name.
#[track_caller]
fn is_found(about: &str, change: impl Fn(&str) -> Option<String>) {
    let mut changed = 0;
    for (name, text) in recordings() {
        let Some(other) = change(&text) else { continue };
        assert_ne!(text, other, "{name} was not changed");
        changed += 1;
        let found =
            differences(&text, &other).unwrap_or_else(|| panic!("{name}: the change was not noticed"));
        assert!(found.contains(about), "{name} says nothing of {about}:\n{found}");
    }
    assert!(changed > 0, "no recording could be changed so");
}

/// Checks that a change does not count.
#[track_caller]
fn is_passed_over(change: impl Fn(&str) -> String) {
    let mut changed = 0;
    for (name, text) in recordings() {
        let other = change(&text);
        changed += usize::from(other != text);
        assert_eq!(differences(&text, &other), None, "{name}");
    }
    assert!(changed > 0, "no recording could be changed so");
}

/// Replaces the first occurrence of a text, if there is one.
fn first(from: &str, to: &str) -> impl Fn(&str) -> Option<String> {
    move |text| text.contains(from).then(|| text.replacen(from, to, 1))
}

/// Does something to the first line that something holds of.
fn on_line(text: &str, holds: impl Fn(&str) -> bool, change: impl Fn(&str) -> String) -> Option<String> {
    let line = text.lines().find(|line| holds(line))?;
    Some(text.replacen(line, &change(line), 1))
}

#[test]
fn recording_equals_itself() {
    for (name, text) in recordings() {
        assert_eq!(differences(&text, &text), None, "{name}");
    }
    assert_eq!(recordings().len(), 26);
}

#[test]
fn another_stage_path_is_found() {
    is_found("calls and mounts", |text| {
        let stages = |line: &str| line.contains("rpc_start") && line.contains("NodeStageVolume");
        on_line(text, stages, |line| line.replace("globalmount", "global").replace("/staging/", "/stage/"))
    });
}

#[test]
fn another_order_of_calls_is_found() {
    is_found("calls and mounts", |text| {
        let line = |method: &str| {
            let starts = format!("\"method\":\"{method}\",\"req\"");
            text.lines().position(|line| line.contains(&starts))
        };
        let (stage, publish) = (line("NodeStageVolume")?, line("NodePublishVolume")?);
        let mut lines: Vec<&str> = text.lines().collect();
        lines.swap(stage, publish);
        Some(lines.join("\n"))
    });
}

#[test]
fn another_order_of_publishing_to_two_pods_is_found() {
    is_found("calls and mounts", |text| {
        let of_pod = |pod: &str| {
            let target = format!("pods/{pod}/volumes/kubernetes.io~csi/pv-v1/mount");
            let publishes = |line: &&str| line.contains("NodePublishVolume") && line.contains(&target);
            text.lines().position(|line| publishes(&line))
        };
        let (a, b) = (of_pod("uid-a")?, of_pod("uid-b")?);
        let mut lines: Vec<&str> = text.lines().collect();
        lines.swap(a, b);
        Some(lines.join("\n"))
    });
}

#[test]
fn another_mode_is_found() {
    is_found("tree", first("globalmount drwxr-x---", "globalmount drwxr-xr-x"));
    is_found("tree", first("vol_data.json -rw-r--r--", "vol_data.json -rw-r-----"));
    is_found("tree", first("dgtrwxrwxrwx 0:2345", "dtrwxrwxrwx 0:2345"));
}

#[test]
fn another_owner_is_found() {
    is_found("tree", first("dgrwxrwxr-x 0:2345", "dgrwxrwxr-x 0:0"));
}

#[test]
fn another_link_is_found() {
    let link = "-\\u003e $ROOT/kl/plugins/kubernetes.io/csi/volumeDevices/publish/pv-v1/uid-a";
    is_found("tree", first(link, "-\\u003e /dev/loop2"));
}

#[test]
fn another_key_of_the_metadata_is_found() {
    is_found(
        "vol_data.json",
        first("\"volumeLifecycleMode\":\"Persistent\"", "\"lifecycle\":\"Persistent\""),
    );
    is_found("vol_data.json", first("\"specVolID\":\"pv-v1\"", "\"specVolID\":\"v1\""));
    is_found("vol_data.json", first("\"attachmentID\":\"$VA_v1\",", ""));
}

#[test]
fn another_reason_of_an_event_is_found() {
    is_found("events of pod/a", first("\"reason\":\"FailedMount\"", "\"reason\":\"FailedMapVolume\""));
    is_found("events of pod/a", first("\"reason\":\"SuccessfulMountVolume\"", "\"reason\":\"Mounted\""));
}

#[test]
fn another_uncertain_mark_is_found() {
    is_found("states", |text| {
        let snaps =
            |line: &str| line.contains("\"ev\":\"snapshot\"") && line.contains("VolumeMountUncertain");
        on_line(text, snaps, |line| line.replace("VolumeMountUncertain", "VolumeMounted"))
    });
    is_found("states", |text| {
        let snaps = |line: &str| line.contains("\"ev\":\"snapshot\"") && line.contains("\"VolumeMounted\"");
        on_line(text, snaps, |line| line.replacen("\"VolumeMounted\"", "\"VolumeMountUncertain\"", 1))
    });
}

#[test]
fn another_field_of_a_request_is_found() {
    is_found("calls and mounts", first("\"readonly\":true,", ""));
    is_found("calls and mounts", first("\"requiredBytes\":\"33554432\"", "\"requiredBytes\":\"16777216\""));
    is_found("calls and mounts", first("\"mount\":{\"fsType\":\"ext4\"}", "\"mount\":{}"));
    is_found("calls and mounts", first("\"csi.storage.k8s.io/ephemeral\":\"true\",", ""));
}

#[test]
fn another_code_and_a_missing_call_are_found() {
    is_found("calls and mounts", |text| {
        let ends = |line: &str| line.contains("rpc_end") && line.contains("NodePublishVolume");
        on_line(text, ends, |line| line.replacen("\"code\":\"", "\"code\":\"Not", 1))
    });
    is_found("calls and mounts", |text| {
        let unstages = |line: &&str| line.contains("\"method\":\"NodeUnstageVolume\"");
        text.lines()
            .any(|line| unstages(&line))
            .then(|| text.lines().filter(|line| !unstages(line)).collect::<Vec<_>>().join("\n"))
    });
}

#[test]
fn another_mount_is_found() {
    is_found("calls and mounts", |text| {
        let gone = |line: &&str| line.contains("\"ev\":\"mount_del\"");
        text.lines()
            .any(|line| gone(&line))
            .then(|| text.lines().filter(|line| !gone(line)).collect::<Vec<_>>().join("\n"))
    });
    is_found("calls and mounts", first("\"opts\":\"ro,relatime\"", "\"opts\":\"rw,relatime\""));
    is_found("mounts", first("size=8192k", "size=4096k"));
    is_found("mounts", first("opts=ro,relatime", "opts=rw,relatime"));
}

#[test]
fn another_claim_and_another_lock_are_found() {
    is_found("claims", |text| {
        let snaps =
            |line: &str| line.contains("\"ev\":\"snapshot\"") && line.contains("\"storage\":\"32Mi\"");
        on_line(text, snaps, |line| line.replacen("\"storage\":\"32Mi\"", "\"storage\":\"16Mi\"", 1))
    });
    is_found("loop devices", first("volumeDevices/pv-v1/dev/uid-a)\"", "volumeDevices/pv-v1/dev/uid-b)\""));
}

#[test]
fn another_error_of_a_wait_is_found() {
    is_found("answer to the wait", first("context canceled", "context deadline exceeded"));
    is_found("answer to the wait", first("failed to process volumes=[data]", "failed to process volumes=[]"));
}

#[test]
fn a_missing_snapshot_is_found() {
    is_found("snapshot `final`", |text| {
        let is_final = |line: &&str| line.contains("\"label\":\"final\"");
        Some(text.lines().filter(|line| !is_final(line)).collect::<Vec<_>>().join("\n"))
    });
}

#[test]
fn times_and_numbers_are_passed_over() {
    is_passed_over(|text| text.replace("\"t_ms\":", "\"t_ms\":1"));
    is_passed_over(|text| text.replace("\"dur_ms\":", "\"dur_ms\":7"));
    is_passed_over(|text| text.replace("/loop2", "/loop17").replace("/loop3", "/loop18"));
    is_passed_over(|text| text.replace("2026_11_21", "2027_01_02"));
    is_passed_over(|text| text.replace("type=ext4", "type=xfs").replace("/dev/vda", "/dev/sda"));
    is_passed_over(|text| text.replace("\"seen_by\":\"poll\"", "\"seen_by\":\"fanotify\""));
}

#[test]
fn how_often_something_failed_is_passed_over() {
    // The last of several failures in a row, which a manager that is slower would not have had.
    is_passed_over(|text| {
        let id = |line: &str| Some(line.split("\"id\":").nth(1)?.split(',').next()?.to_owned());
        let failures: Vec<String> =
            text.lines().filter(|line| line.contains("\"code\":\"Internal\"")).filter_map(id).collect();
        let Some(last) = failures.last().filter(|_| failures.len() > 1) else { return text.to_owned() };
        let is_last = |line: &str| line.contains("\"ev\":\"rpc_") && id(line).as_ref() == Some(last);
        text.lines().filter(|line| !is_last(line)).collect::<Vec<_>>().join("\n")
    });
}

#[test]
fn secrets_are_passed_over_and_their_names_are_not() {
    let with = |secrets: &'static str| {
        move |text: &str| {
            let published = "\"method\":\"NodePublishVolume\",\"req\":{";
            text.replacen(published, &format!("{published}\"secrets\":{secrets},"), 1)
        }
    };
    for (name, text) in recordings().into_iter().filter(|(_, text)| text.contains("NodePublishVolume")) {
        let (one, same, other) = (r#"{"p":"x"}"#, r#"{"p":"***"}"#, r#"{"q":"x"}"#);
        assert_eq!(differences(&with(one)(&text), &with(same)(&text)), None, "{name}");
        assert!(differences(&with(one)(&text), &with(other)(&text)).is_some(), "{name}");
    }
}

#[test]
fn how_far_other_volumes_are_when_a_pod_turns_out_wrong_is_passed_over() {
    is_passed_over(|text| {
        text.replace(
            "unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: error",
            "unmounted volumes=[data more], unattached volumes=[], failed to process volumes=[data]: error",
        )
    });
    is_found(
        "answer to the wait",
        first(
            "unmounted volumes=[data], unattached volumes=[], failed to process volumes=[]: context",
            "unmounted volumes=[data more], unattached volumes=[], failed to process volumes=[]: context",
        ),
    );
}

#[test]
fn side_that_notices_a_hang_first_is_ignored() {
    let hang = |code: &'static str| {
        move |text: &str| {
            on_line(
                text,
                |line| line.contains("rpc_end") && line.contains("\"injected\""),
                |line| {
                    let (head, rest) = line.split_once("\"code\":\"").expect("it has ended");
                    let (_, rest) = rest.split_once('"').expect("it is a text");
                    let (rest, tail) = rest.split_once("\"injected\":\"").expect("something was injected");
                    let (_, tail) = tail.split_once('"').expect("it is a text");
                    let injected = "code= delay=0 after=0 forward=false hang=true";
                    format!("{head}\"code\":\"{code}\"{rest}\"injected\":\"{injected}\"{tail}")
                },
            )
        }
    };
    let mut changed = 0;
    for (name, text) in recordings() {
        let (Some(one), Some(other)) = (hang("Canceled")(&text), hang("DeadlineExceeded")(&text)) else {
            continue;
        };
        changed += 1;
        assert_eq!(differences(&one, &other), None, "{name}");
        assert!(differences(&one, &text).is_some(), "{name}");
    }
    assert!(changed > 0, "no recording could be changed so");
}

#[test]
fn questions_for_abilities_are_passed_over() {
    is_passed_over(|text| {
        text.lines().filter(|line| !line.contains("NodeGetCapabilities")).collect::<Vec<_>>().join("\n")
    });
}

#[test]
fn file_without_a_trace_is_refused() {
    for (text, line) in [("", None), ("{\"ev\":\"step\"}\n", None), ("\n{}\n", Some(2)), ("x\n", Some(1))] {
        let error = Trace::parse(text).expect_err(text).to_string();
        match line {
            Some(line) => assert!(error.starts_with(&format!("line {line} ")), "{error}"),
            None => assert_eq!(error, "it holds no call, no mount and no snapshot"),
        }
    }
}
