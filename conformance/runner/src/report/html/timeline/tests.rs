//! Timelines of small traces: marks, links, and the changes of the mount table.

use serde_json::Value;

use super::*;

/// The timeline of a trace with these lines.
fn timeline(lines: &str) -> Option<Timeline> {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace.jsonl");
    std::fs::write(&trace, lines).unwrap();
    Timeline::of(&trace, MOST)
}

#[test]
fn call_of_the_case_is_named_by_what_the_kernel_shows_during_it() {
    let lines = [
        contracts::recording::header(),
        r#"{"seq":1,"t_ms":1.0,"ev":"case","do":"asked","on":"NodeStageVolume {}"}"#.into(),
        r#"{"seq":2,"t_ms":1.0,"ev":"direct_call","id":7,"edge":"start","volume":"v","paths":["/s"]}"#.into(),
        r#"{"seq":3,"t_ms":2.0,"ev":"mount_add","target":"/s","root":"/","fstype":"ext4","source":"/dev/loop0","opts":"rw","super":"rw","dev":"7:0","id":1,"by":"driver","seen_by":"poll"}"#.into(),
        r#"{"seq":4,"t_ms":3.0,"ev":"direct_call","id":7,"edge":"end","volume":"v","paths":["/s"],"answer":{"method":"NodeStageVolume","code":"Internal","message":"no"}}"#.into(),
    ];
    let timeline = timeline(&lines.join("\n")).unwrap();
    let json: Value = serde_json::from_str(&timeline.json()).unwrap();
    let call = serde_json::json!([1.0, 2.0, CALLS, "bad", "NodeStageVolume v /s → Internal no", -1]);
    assert_eq!(json["events"][1], call);
    assert!(timeline.kernel[0].ends_with("by the driver, during NodeStageVolume"), "{:?}", timeline.kernel);
}

#[test]
fn mount_during_a_call_is_linked_to_it_and_stays_until_it_is_unmounted() {
    let mount = |target: &str, id: u64| {
        format!(
            r#"{{"seq":2,"t_ms":2.0,"ev":"mount_add","target":"{target}","root":"/","fstype":"ext4","source":"/dev/loop0","opts":"rw","super":"rw","dev":"7:0","id":{id},"by":"driver","seen_by":"poll"}}"#
        )
    };
    let lines = [
        contracts::recording::header(),
        r#"{"seq":1,"t_ms":1.0,"ev":"rpc_start","id":7,"method":"NodeStageVolume","req":{"volumeId":"</v>"}}"#.into(),
        mount("/a", 1),
        mount("/b", 2),
        r#"{"seq":4,"t_ms":3.0,"ev":"mount_del","target":"/b","id":2,"by":"driver","seen_by":"poll"}"#.into(),
        r#"{"seq":5,"t_ms":5.0,"ev":"rpc_end","id":7,"method":"NodeStageVolume","code":"Internal","message":"no","dur_ms":4.0}"#.into(),
        "half a li".into(),
    ];
    let timeline = timeline(&lines.join("\n")).unwrap();
    let json: Value = serde_json::from_str(&timeline.json()).unwrap();
    let call = serde_json::json!([1.0, 4.0, CALLS, "bad", "NodeStageVolume </v> → Internal no", -1]);
    assert_eq!(json["events"][0], call);
    assert_eq!(json["events"][1][5], 0, "the mount's cause is the call");
    assert!(!timeline.json().contains('<'));
    let mounts = timeline.mounts.difference().into_string();
    assert!(mounts.contains("+ /a  =  ext4 /dev/loop0 (rw)") && !mounts.contains("/b"), "{mounts}");
    let shown = "2.0 ms  + /a  =  ext4 /dev/loop0 (rw)   by the driver, during NodeStageVolume";
    assert_eq!(timeline.kernel[0].trim(), shown);
    assert_eq!(timeline.kernel[2].trim(), "3.0 ms  - /b   by the driver, during NodeStageVolume");
}

#[test]
fn line_of_a_log_is_linked_to_the_call_under_way() {
    let lines = [
        contracts::recording::header(),
        r#"{"seq":1,"t_ms":1.0,"ev":"rpc_start","id":7,"method":"NodeStageVolume","req":{}}"#.into(),
        r#"{"seq":2,"t_ms":5.0,"ev":"rpc_end","id":7,"method":"NodeStageVolume","code":"OK","message":"","dur_ms":4.0}"#.into(),
    ];
    let moment = |t_ms: f64, of: Printer| Moment { t_ms, of, text: format!("at {t_ms}") };
    let moments = [moment(-2.0, Printer::Driver), moment(3.0, Printer::Driver), moment(4.0, Printer::Kernel)];
    let drawn = timeline(&lines.join("\n")).unwrap().with_logs(&moments, 3);
    let json: Value = serde_json::from_str(&drawn.json()).unwrap();
    assert_eq!(json["events"][1], serde_json::json!([0.0, 0.0, DRIVER_LOG, "log", "at -2", -1]));
    assert_eq!(json["events"][2], serde_json::json!([3.0, 0.0, DRIVER_LOG, "log", "at 3", 0]));
    assert_eq!((drawn.marks(), drawn.is_cut), (3, true), "there is no room for the third line");
}

#[test]
fn mounts_are_counted_to_the_end_of_a_trace_that_is_drawn_in_part() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace.jsonl");
    let line = |seq: u64, event: &str| format!("{{\"seq\":{seq},\"t_ms\":{seq}.0,{event}}}\n");
    let mount = r#""ev":"mount_add","target":"/a","root":"/","fstype":"ext4","source":"/dev/loop0","opts":"rw","super":"rw","dev":"7:0","id":1,"by":"driver","seen_by":"poll""#;
    let gone = r#""ev":"mount_del","target":"/a","id":1,"by":"driver","seen_by":"poll""#;
    let step = r#""ev":"case","do":"start","on":"a.rs:1""#;
    let steps = (2..9).map(|seq| line(seq, step)).collect::<String>();
    // It names a mount, and is none.
    let call = r#""ev":"rpc_start","id":7,"method":"NodeStageVolume","req":{"mount_flags":[]}"#;
    let steps = steps + &line(9, call);
    let text = format!("{}\n{}{steps}{}", contracts::recording::header(), line(1, mount), line(10, gone));
    std::fs::write(&trace, text).unwrap();
    let timeline = Timeline::of(&trace, 3).unwrap();
    assert_eq!((timeline.marks(), timeline.is_cut, timeline.kernel.len()), (3, true, 2));
    assert!(timeline.mounts.difference().into_string().is_empty(), "{:?}", timeline.mounts);
    assert!(!Timeline::of(&trace, MOST).unwrap().is_cut);
}

#[test]
fn trace_that_is_not_there_or_empty_has_no_timeline() {
    assert!(Timeline::of(Path::new("/no/such/trace"), MOST).is_none());
    assert!(timeline("").is_none());
}
