//! Hand-made traces in which each change is explained, or one is not.

use serde_json::{Value, json};

use super::*;
use crate::recording::Reader;
use crate::rule::{Verdict, verdicts};

const TARGET: &str = "/kl/pods/uid-a/volumes/kubernetes.io~csi/pv-v/mount";
const OTHER: &str = "/kl/pods/uid-a/volumes/kubernetes.io~csi/pv-w/mount";

fn mounted(target: &str, by: &str) -> Value {
    json!({"ev": "mount_add", "target": target, "root": "/", "fstype": "ext4", "source": "/dev/loop0", "opts": "rw",
        "super": "rw", "dev": "7:0", "id": 1, "by": by, "seen_by": "fanotify"})
}

fn unmounted(target: &str, by: &str) -> Value {
    json!({"ev": "mount_del", "target": target, "id": 1, "by": by, "seen_by": "fanotify"})
}

fn announced(effect: &str, path: &str) -> Value {
    json!({"ev": "effect", "effect": effect, "path": path, "confirmed": true})
}

fn begins(id: u64) -> Value {
    json!({"ev": "rpc_start", "id": id, "method": "NodePublishVolume", "req": {"volumeId": "v", "targetPath": TARGET}})
}

fn ends(id: u64, code: &str, abandoned: bool) -> Value {
    json!({"ev": "rpc_end", "id": id, "method": "NodePublishVolume", "code": code, "dur_ms": 1, "abandoned": abandoned})
}

fn operation(edge: &str) -> Value {
    json!({"ev": "operation", "name": "volume_mount", "volume": "x^v", "pod": "uid-a", "edge": edge})
}

fn trace(events: Vec<Value>) -> Vec<TraceLine> {
    let mut reader = Reader::default();
    let header = serde_json::from_str(&crate::recording::header()).unwrap();
    reader.event(header).unwrap();
    let node = json!({"ev": "process", "who": "node", "edge": "start", "root": "/kl"});
    let event = |event: Value| reader.event(event.as_object().unwrap().clone()).unwrap().unwrap();
    let events = [vec![node], events].concat().into_iter().map(event).zip(0..);
    events.map(|(event, seq)| TraceLine { seq, t_ms: 0.0, event }).collect()
}

/// Strays and phantoms of a trace, as `stray mount <path> @<line>`.
fn irregular_in(events: Vec<Value>) -> Vec<String> {
    let trace = trace(events);
    let all = found(&trace);
    // The rules say the same.
    let verdicts = verdicts(&trace, RULES.iter().copied(), WITNESSES, Some(&Rest::default()));
    for (id, kind) in [("stray", Kind::Stray), ("phantom", Kind::Phantom)] {
        let count = match &verdicts[id] {
            Verdict::Broken(broken) => broken.len(),
            _ => 0,
        };
        assert_eq!(count, all.iter().filter(|found| found.kind == kind).count(), "{id}");
    }
    all.iter().map(|found| format!("{:?} {} @{}", found.kind, found.what.what, found.seq)).collect()
}

#[test]
fn call_under_way_explains_what_the_driver_mounts() {
    assert!(irregular_in(vec![begins(1), mounted(TARGET, "driver"), ends(1, "OK", false)]).is_empty());
    let late = irregular_in(vec![begins(1), ends(1, "OK", false), mounted(TARGET, "driver")]);
    assert_eq!(late, [format!("Stray mount {TARGET} @3")]);
    // A call for one volume is no reason to touch another.
    let other = irregular_in(vec![begins(1), unmounted(OTHER, "driver"), ends(1, "OK", false)]);
    assert_eq!(other, [format!("Stray umount {OTHER} @2")]);
    // Beside the node's tree a driver does as it likes.
    assert!(irregular_in(vec![mounted("/srv/own", "driver"), mounted("/srv/own", "unknown")]).is_empty());
}

#[test]
fn object_names_the_volume_of_a_directory() {
    let object = |handle: &str| {
        json!({"ev": "api", "verb": "create", "kind": "PersistentVolume", "object": "pv-w", "by": "case",
            "body": {"spec": {"csi": {"volumeHandle": handle}}}})
    };
    let during = |handle| irregular_in(vec![object(handle), begins(1), mounted(OTHER, "driver")]);
    assert!(during("v").is_empty());
    assert_eq!(during("w").len(), 1);
}

#[test]
fn root_of_the_node_is_where_contracts_hold() {
    let node = json!({"ev": "process", "who": "node", "edge": "start", "root": "/run/x/kl"});
    assert!(irregular_in(vec![node, mounted(TARGET, "unknown")]).is_empty());
    assert_eq!(irregular_in(vec![mounted(TARGET, "unknown")]).len(), 1);
}

#[test]
fn abandoned_call_goes_on_until_one_succeeds_at_its_path() {
    let lost = || vec![begins(1), ends(1, "DeadlineExceeded", true)];
    let after =
        |more: Vec<Value>| irregular_in([lost(), more, vec![mounted(TARGET, "driver")]].concat()).len();
    assert_eq!(after(vec![]), 0);
    assert_eq!(after(vec![begins(2), ends(2, "Aborted", false)]), 0);
    assert_eq!(after(vec![begins(2), ends(2, "OK", false)]), 1);
}

#[test]
fn direct_call_explains_until_it_ends() {
    let direct =
        |edge: &str| json!({"ev": "direct_call", "id": 9, "edge": edge, "volume": "v", "paths": [TARGET]});
    assert!(irregular_in(vec![direct("start"), mounted(TARGET, "driver"), direct("end")]).is_empty());
    assert_eq!(irregular_in(vec![direct("start"), direct("end"), mounted(TARGET, "driver")]).len(), 1);
}

#[test]
fn node_announces_what_it_mounts() {
    assert!(irregular_in(vec![mounted(TARGET, "node"), announced("bind", TARGET)]).is_empty());
    assert_eq!(irregular_in(vec![mounted(TARGET, "node")]), [format!("Stray mount {TARGET} @1")]);
    // The announcement may come until the journal is looked at while no operation is under way.
    let looked = || json!({"ev": "looked"});
    let busy = vec![
        operation("start"),
        mounted(TARGET, "node"),
        looked(),
        announced("mount", TARGET),
        operation("end"),
    ];
    assert!(irregular_in(busy).is_empty());
    let idle = irregular_in(vec![mounted(TARGET, "node"), looked(), announced("mount", TARGET)]);
    assert_eq!(idle, [format!("Stray mount {TARGET} @2"), format!("Phantom mount {TARGET} @3")]);
    // A dying node cannot announce its last effect.
    let exit = json!({"ev": "process", "who": "node", "edge": "exit"});
    assert!(irregular_in(vec![mounted(TARGET, "node"), exit]).is_empty());
}

#[test]
fn announcement_that_the_kernel_does_not_show_is_a_phantom() {
    assert_eq!(irregular_in(vec![announced("umount", TARGET)]), [format!("Phantom umount {TARGET} @1")]);
    let mut link = announced("link", "/kl/x");
    assert!(irregular_in(vec![link.clone()]).is_empty());
    link["confirmed"] = json!(false);
    assert_eq!(irregular_in(vec![link]), ["Phantom link /kl/x @1"]);
}

#[test]
fn two_mounts_of_an_unnamed_process_are_one_of_the_node_and_one_of_the_driver() {
    let mut unnamed = mounted(TARGET, "driver");
    unnamed["unnamed"] = json!(true);
    let call =
        |more: Vec<Value>| irregular_in([vec![begins(1), unnamed.clone(), unnamed.clone()], more].concat());
    // The node announces one mount; the other is the driver's, whose call is under way.
    assert!(call(vec![announced("mount", TARGET), ends(1, "OK", false)]).is_empty());
    assert!(call(vec![ends(1, "OK", false)]).is_empty());
}

#[test]
fn lost_mount_events_are_reported() {
    let lost = json!({"ev": "mounts_lost", "why": "the queue overflowed"});
    assert_eq!(irregular_in(vec![lost]), ["Stray the queue overflowed @1"]);
}

#[test]
fn call_is_no_reason_to_cover_the_nodes_root() {
    for above in ["/kl", "/kl/plugins"] {
        let covered = irregular_in(vec![begins(1), mounted(above, "driver"), ends(1, "OK", false)]);
        assert_eq!(covered, [format!("Stray mount {above} @2")]);
    }
    let own = "/kl/plugins/my.csi/data";
    assert!(irregular_in(vec![begins(1), mounted(own, "driver"), mounted("/", "driver")]).is_empty());
}

#[test]
fn mount_that_only_drivers_make_is_the_drivers_although_its_process_is_gone() {
    let staging = "/kl/plugins/kubernetes.io/csi/my.csi/0a1b/globalmount";
    let subpath = "/kl/pods/uid-a/volume-subpaths/pv-v/web/0";
    let by =
        |events: Vec<Value>| found(&trace(events)).into_iter().map(|found| found.what.by).collect::<Vec<_>>();
    for target in [TARGET, staging, "/kl"] {
        assert_eq!(by(vec![mounted(target, "unknown")]), [Actor::Driver], "{target}");
    }
    assert_eq!(by(vec![mounted(subpath, "unknown")]), [Actor::Unknown]);
    // A driver that cannot be seen was not known for the driver when it was alive, either.
    let node = json!({"ev": "process", "who": "node", "edge": "start", "root": "/kl", "hides_driver": true});
    assert_eq!(by(vec![node, mounted(TARGET, "unknown")]), [Actor::Unknown]);
}

#[test]
fn node_whose_record_was_removed_between_calls_was_meddled_with() {
    let meddled = json!({"ev": "meddled", "how": "remove", "path": "/kl/pods/uid-a", "by": "driver"});
    assert_eq!(irregular_in(vec![meddled]), ["Stray remove /kl/pods/uid-a @1"]);
}
