//! The party at fault, from traces in which a driver, the manager or an unknown party did something wrong.

use contracts::event::{Irregular, TraceLine};
use contracts::promise::Strength;
use harness::Layout;
use serde_json::{Value, json};

use super::*;

const TARGET: &str = "/kl/pods/uid-a/volumes/kubernetes.io~csi/pv-v/mount";
const RECORD: &str = "/kl/pods/uid-a/volumes/kubernetes.io~csi/pv-v/vol_data.json";

/// A trace from its events.
fn trace(events: &[Value]) -> Vec<TraceLine> {
    let line = |(event, seq): (&Value, u64)| {
        let mut line = event.clone();
        line["seq"] = json!(seq);
        line["t_ms"] = json!(0);
        serde_json::from_value(line).expect("an event")
    };
    events.iter().zip(1..).map(line).collect()
}

fn call(id: u64, method: &str, code: &str, injected: Option<&str>) -> Vec<Value> {
    let req = json!({"volumeId": "v", "targetPath": TARGET, "stagingTargetPath": "/s"});
    let mut end = json!({"ev": "rpc_end", "id": id, "method": method, "code": code, "dur_ms": 1, "resp": {}});
    if code != "OK" {
        end["message"] = json!("it did not work");
    }
    if let Some(injected) = injected {
        end["injected"] = json!(injected);
    }
    vec![json!({"ev": "rpc_start", "id": id, "method": method, "req": req}), end]
}

fn write_record() -> Value {
    json!({"ev": "effect", "effect": "write", "path": RECORD, "confirmed": true})
}

fn found(events: &[Value]) -> Vec<Finding> {
    judgement(&trace(events), None, &Symbols::new(Layout::standard())).0
}

/// The party at fault for the broken invariant, and the finding that explains it.
#[track_caller]
fn check(events: &[Value], invariant: &str, party: Party, consequence_of: &str) {
    let found = found(events);
    let broken = found.iter().find(|finding| finding.contract == invariant);
    let broken = broken.unwrap_or_else(|| panic!("{invariant} is not broken: {found:#?}"));
    assert_eq!((broken.party, broken.consequence_of.as_str()), (party, consequence_of), "{broken:#?}");
    let acquits = broken.sentence.contains("Not the driver's fault");
    assert_eq!(acquits, party == Party::Manager, "{}", broken.sentence);
}

#[test]
fn order_of_calls_is_the_managers_alone() {
    check(&call(1, "NodePublishVolume", "OK", None), "INV-001", Party::Manager, "");
}

#[test]
fn removal_that_may_be_the_drivers_is_not_attributed() {
    // Published before its metadata was written, as far as the files show.
    let events = [call(1, "NodeStageVolume", "OK", None), call(2, "NodePublishVolume", "OK", None)].concat();
    check(&events, "INV-050", Party::Unknown, "");
}

/// One headline for two fields would hide one of two faults behind the other.
#[test]
fn two_fields_that_are_missing_are_two_findings() {
    let get = |id: u64, resp: Value| {
        let mut events = call(id, "ControllerGetVolume", "OK", None);
        events[1]["resp"] = resp;
        events
    };
    let nameless = get(1, json!({"volume": {}, "status": {}}));
    let silent = get(
        2,
        json!({"volume": {"volumeId": "v"}, "status": {"volumeCondition": {"abnormal": true, "message": ""}}}),
    );
    let again = get(3, json!({"volume": {}, "status": {}}));
    let found = found(&[nameless, silent, again].concat());
    let causes: Vec<&str> = found.iter().map(|finding| finding.cause.as_str()).collect();
    let lacks = "an answer lacks a field that CSI requires";
    assert_eq!(causes, [format!("{lacks}: volume.volumeId"), format!("{lacks}: volumeCondition.message")]);
    assert_ne!(found[0].key(), found[1].key());
}

#[test]
fn driver_that_broke_a_promise_before_is_named() {
    let twice = "code= delay=0 after=0 forward=false hang=false duplicate=true";
    let lie = call(1, "NodeStageVolume", "Internal", Some(twice));
    let events = [lie, call(2, "NodePublishVolume", "OK", None)].concat();
    check(&events, "INV-001", Party::Unknown, "DRV-100");
    let found = found(&events);
    let at = |contract: &str| found.iter().position(|finding| finding.contract == contract);
    assert!(at("DRV-100") < at("INV-001"), "the driver's fault comes first: {found:#?}");
    assert!(found.iter().all(|finding| finding.is_fault() == finding.contract.starts_with("DRV")));
}

#[test]
fn driver_that_broke_a_promise_afterwards_has_not_led_to_it() {
    let twice = "code= delay=0 after=0 forward=false hang=false duplicate=true";
    let lie = call(2, "NodeStageVolume", "Internal", Some(twice));
    let events = [call(1, "NodePublishVolume", "OK", None), lie].concat();
    check(&events, "INV-001", Party::Manager, "");
}

#[test]
fn driver_that_refused_a_call_may_have_led_to_it() {
    let refused = call(1, "NodeStageVolume", "Internal", None);
    let publish = call(2, "NodePublishVolume", "OK", None);
    check(&[refused, publish.clone()].concat(), "INV-001", Party::Unknown, "");
    // The proxy refused the call in the driver's place, or its end is unknown.
    let injected = "code=Internal delay=0 after=0 forward=false hang=false";
    let ours = call(1, "NodeStageVolume", "Internal", Some(injected));
    check(&[ours, publish.clone()].concat(), "INV-001", Party::Manager, "");
    let aborted = call(1, "NodeStageVolume", "Aborted", None);
    check(&[aborted, publish].concat(), "INV-001", Party::Manager, "");
}

/// A controller that deletes a volume whose claim is there.
fn delete_claimed(id: u64) -> Vec<Value> {
    let object = |kind: &str, name: &str, body: Value| json!({"ev": "api", "verb": "create", "kind": kind, "object": name, "by": "controller", "body": body});
    let volume = json!({
        "metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": "d"}},
        "spec": {
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {"namespace": "n", "name": "c", "uid": "1"},
            "csi": {"volumeHandle": "v"},
        },
    });
    let claim = object("PersistentVolumeClaim", "n/c", json!({"metadata": {"uid": "1"}}));
    let objects = vec![claim, object("PersistentVolume", "pv", volume)];
    [objects, call(id, "DeleteVolume", "OK", None)].concat()
}

#[test]
fn controller_is_distinguished_from_the_volume_manager() {
    check(&delete_claimed(1), "INV-090", Party::Manager, "");
    let found = found(&delete_claimed(1));
    let broken = found.iter().find(|finding| finding.contract == "INV-090").expect("it was deleted");
    assert!(broken.sentence.contains("a controller of the cluster broke its own rule"), "{broken:#?}");
    assert!(!without_verdict(&broken.sentence).contains("broke"), "{broken:#?}");
}

#[test]
fn driver_is_not_accused_of_a_controllers_order() {
    let refused = call(1, "NodeUnstageVolume", "Internal", None);
    check(&[refused, delete_claimed(2)].concat(), "INV-090", Party::Unknown, "");
    // Nor at the end, where an unstaging that was refused explains what is left on a node.
    let made = vec![
        json!({"ev": "api", "verb": "create", "kind": "PersistentVolumeClaim", "object": "n/c", "by": "case", "body": {"metadata": {"uid": "1"}}}),
        json!({"ev": "rpc_start", "id": 3, "method": "CreateVolume", "req": {"name": "pvc-1"}}),
        json!({"ev": "rpc_end", "id": 3, "method": "CreateVolume", "code": "OK", "dur_ms": 1, "resp": {"volume": {"volumeId": "w"}}}),
        json!({"ev": "api", "verb": "delete", "kind": "PersistentVolumeClaim", "object": "n/c", "by": "controller", "body": null}),
    ];
    let events =
        [call(1, "NodeStageVolume", "OK", None), call(2, "NodeUnstageVolume", "Internal", None), made];
    let events = events.concat();
    let found = judgement(&trace(&events), Some(&Rest::default()), &Symbols::new(Layout::standard())).0;
    let left = found.iter().find(|finding| finding.contract == "INV-089").expect("the volume is left");
    assert_eq!(left.party, Party::Unknown, "{left:#?}");
}

#[test]
fn driver_that_never_unstages_an_unpublished_volume_is_at_fault() {
    let staged = || call(1, "NodeStageVolume", "OK", None);
    let at_end = |events: &[Value]| {
        let rest = Rest::default();
        let found = judgement(&trace(events), Some(&rest), &Symbols::new(Layout::standard())).0;
        let stays = found.into_iter().find(|finding| ["DRV-184", "INV-007"].contains(&&*finding.contract));
        stays.expect("the volume stays staged")
    };
    let refused = || call(4, "NodeUnstageVolume", "Internal", None);
    let found = at_end(&[staged(), refused()].concat());
    assert_eq!((found.party, found.contract.as_str()), (Party::Driver, "DRV-184"), "{found:#?}");
    assert!(
        found.sentence.contains("that was unpublished everywhere was refused, with Internal"),
        "{found:#?}"
    );
    // It is one fault, also where the case has met the refusal itself.
    let mut all = vec![found, promise_broken("DRV-184", "NodeUnpublishVolume", "another call")];
    unite_not_undone(&mut all, "NodeUnstageVolume");
    assert_eq!(all.len(), 1, "{all:#?}");
    // CSI has the code for a volume that does not exist any more, and for no other.
    let unknown = || call(6, "NodeUnstageVolume", "NotFound", None);
    assert!(at_end(&[staged(), unknown()].concat()).is_fault());
    let found = at_end(&[staged(), call(5, "DeleteVolume", "OK", None), unknown()].concat());
    assert_eq!(found.strength, Some(Strength::Advice), "{found:#?}");
    // As long as it may be published, a caller may not even ask.
    let publish = call(2, "NodePublishVolume", "DeadlineExceeded", None);
    let found = at_end(&[staged(), publish, refused()].concat());
    assert_eq!(found.party, Party::Unknown, "{found:#?}");
}

#[test]
fn driver_that_unmounts_unasked_is_named() {
    let node = json!({"ev": "process", "who": "node", "edge": "start", "root": "/kl"});
    let stray = json!({"ev": "mount_del", "target": TARGET, "id": 1, "by": "driver", "seen_by": "fanotify"});
    let mut events = vec![node, write_record(), stray];
    events.extend(call(1, "NodePublishVolume", "OK", None));
    check(&events, "INV-001", Party::Unknown, "stray");
}

#[test]
fn recommendations_are_no_faults() {
    let events = [
        call(1, "NodeStageVolume", "OK", None),
        call(2, "NodePublishVolume", "OK", None),
        call(3, "NodeUnstageVolume", "OK", None),
    ]
    .concat();
    let found = found(&events);
    let advice = found.iter().find(|finding| finding.contract == "DRV-075").expect("it was unstaged");
    assert_eq!(advice.strength, Some(Strength::Advice));
    assert!(!advice.is_fault());
}

#[test]
fn promise_broken_in_the_body_explains_what_the_manager_did() {
    let mut found = found(&call(1, "NodePublishVolume", "OK", None));
    assert!(found.iter().any(|finding| finding.party == Party::Manager));
    blame(&mut found, "DRV-090");
    for finding in found.iter().filter(|finding| finding.contract.starts_with("INV")) {
        assert_eq!(finding.consequence_of, "DRV-090");
        assert!(!finding.sentence.contains("Not the driver's fault"), "{}", finding.sentence);
        assert!(!finding.sentence.contains("not known"), "{}", finding.sentence);
    }
}

#[test]
fn call_that_is_missing_is_one_fault() {
    let missing = [promise_broken("DRV-002", "ValidateVolumeCapabilities", "not implemented")];
    let consequence = |method: &str| {
        let mut broken = promise_broken("DRV-027", method, "answered UNIMPLEMENTED");
        explain_by_missing_call(&missing, &mut broken);
        broken.consequence_of
    };
    assert_eq!(consequence("ValidateVolumeCapabilities"), "DRV-002");
    assert_eq!(consequence("CreateVolume"), "");
}

#[test]
fn answer_to_a_request_that_lacked_a_field_is_no_fault_of_its_own() {
    let lacks =
        |method| promise_broken("DRV-170", method, "an answer lacks `volume.volumeId`, which CSI requires");
    let mut found = [lacks("ControllerGetVolume"), lacks("CreateVolume")];
    excuse_answer(&mut found, &promise_broken("DRV-010", "ControllerGetVolume", "another"));
    assert!(found.iter().all(Finding::is_fault));
    excuse_answer(&mut found, &promise_broken("DRV-090", "ControllerGetVolume", "answered OK"));
    assert_eq!(found.map(|finding| finding.is_fault()), [false, true]);

    let mut found = [lacks("ControllerGetVolume"), lacks("GetVolume")];
    let several = "Without any of the required fields, GetSnapshot answered NotFound, ControllerGetVolume answered OK, \
                   and not InvalidArgument.";
    excuse_answer(&mut found, &promise_broken("DRV-090", "GetSnapshot", several));
    assert_eq!(found.map(|finding| finding.is_fault()), [false, true]);
}

#[test]
fn secret_in_the_drivers_log_breaks_its_promise() {
    assert_eq!(secret_in_log("driver.log").contract, "DRV-094");
    assert_ne!(secret_in_log("trace.jsonl").party, Party::Driver);
}

#[test]
fn slow_machine_excuses_nothing_that_the_driver_did_unasked() {
    let what = Irregular { what: "umount /var/lib/kubelet".into(), by: Actor::Driver };
    let did = [Found { kind: Kind::Stray, seq: 1, what }];
    let mut found = irregular(&did, &Symbols::new(Layout::standard()));
    assert!(excuse_slowness(&mut found));
    assert!(found[0].is_fault() && found[0].party == Party::Driver, "{found:?}");
}

#[test]
fn busy_machine_is_no_excuse_but_full_disk_is() {
    let busy = environment("the machine was overloaded: for 30 s, 9 tasks competed for each processor", &[]);
    assert!(!busy.sentence.contains(ACQUITTAL), "{}", busy.sentence);
    let full = |others: &[Finding]| environment("the disk is full: make room", others).sentence;
    assert!(full(&[]).starts_with(ACQUITTAL));
    assert!(full(&[promise_broken("DRV-161", "NodeStageVolume", "x")]).starts_with(ACQUITTAL), "advice");
    assert!(full(&[promise_broken("DRV-050", "NodePublishVolume", "x")]).starts_with(NOT_KNOWN));
}

#[test]
fn slow_machine_excuses_no_broken_promise_of_the_driver() {
    let [broken, manager] =
        ["DRV-101", "INV-001"].map(|contract| promise_broken(contract, "NodePublishVolume", "x"));
    let manager = Finding { party: Party::Manager, ..manager };
    let mut findings = vec![manager.clone(), broken.clone()];
    assert!(excuse_slowness(&mut findings));
    assert_eq!(findings.iter().filter(|finding| finding.is_fault()).collect::<Vec<_>>(), [&broken]);

    let mut findings = vec![manager];
    assert!(!excuse_slowness(&mut findings));
    assert!(!findings.iter().any(Finding::is_fault));
}

#[test]
fn last_call_that_the_driver_did_not_answer_was_under_way_at_its_end() {
    let under_way = |events: &[Value]| call_at_the_end(&trace(events)).map(str::to_owned);
    let answered = call(1, "NodeStageVolume", "OK", None);
    let lost = call(2, "NodePublishVolume", "Unavailable", None);
    assert_eq!(under_way(&answered), None);
    assert_eq!(under_way(&[answered.clone(), lost.clone()].concat()), Some("NodePublishVolume".to_owned()));
    assert_eq!(under_way(&[&answered[..], &lost[..1]].concat()), Some("NodePublishVolume".to_owned()));
    assert_eq!(under_way(&[lost, answered].concat()), None);
}

#[test]
fn case_in_the_words_of_a_rule_makes_the_finding_of_the_rule() {
    let detail = promise_broken_in_body(
        "DRV-068",
        "NodeUnpublishVolume",
        "unpublishing again was refused (NotFound no (x))",
    );
    assert_eq!(detail.cause, "unpublishing again was refused");
    assert_eq!(detail.sentence, "NodeUnpublishVolume: unpublishing again was refused (NotFound no (x)).");
    // A sentence of a case's own stays as it is.
    let own = "The target is there (a file).";
    assert_eq!(promise_broken_in_body("DRV-061", "NodeUnpublishVolume", own).cause, own);
    let name = "Each (of two) has it (yes)";
    assert_eq!(promise_broken_in_body("DRV-061", "NodeUnpublishVolume", name).cause, name);
}
