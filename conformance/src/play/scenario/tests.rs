//! Valid scenarios, and the errors of invalid ones.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::{Action, Scenario};
use crate::play::manifest;

const POD: &str = "\
name: x
volumes:
- {name: v1}
pods:
- metadata: {name: a}
  spec:
    containers:
    - name: c
      volumeMounts:
      - {name: data, mountPath: /data}
    volumes:
    - name: data
      persistentVolumeClaim: {claimName: v1}
steps:
- {do: addPod, pod: a}
";

#[test]
fn byte_order_mark_before_a_scenario_is_skipped() {
    assert_eq!(Scenario::parse(&format!("\u{feff}{POD}")).map(|scenario| scenario.name), Ok("x".to_owned()));
}

/// Appends steps, and expects a line, a complaint and a hint.
#[track_caller]
fn refused(steps: &str, line: usize, what: &str, hint: &str) {
    bad(&format!("{POD}{steps}\n"), line, what, hint);
}

#[track_caller]
fn bad(text: &str, line: usize, what: &str, hint: &str) {
    let error = Scenario::parse(text).expect_err("it cannot be meant");
    assert_eq!((error.line, error.what.as_str()), (line, what));
    assert_eq!(error.hint.unwrap_or_default(), hint);
}

#[test]
fn each_recorded_scenario_can_be_read() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/scenarios");
    let mut count = 0;
    for entry in fs::read_dir(directory).expect("the scenarios are part of the repository") {
        let path = entry.expect("it can be listed").path();
        let text = fs::read_to_string(&path).expect("it can be read");
        let scenario = Scenario::parse(&text).unwrap_or_else(|bad| panic!("{}: {bad:?}", path.display()));
        for pod in &scenario.pods {
            manifest::pod(pod, "/host").unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
        count += 1;
    }
    assert_eq!(count, 26);
}

#[test]
fn omitted_fields_have_the_recorded_defaults() {
    let scenario = Scenario::parse(POD).expect("it is a scenario");
    assert_eq!(scenario.volumes[0].size_mi, 16);
    assert_eq!(scenario.volumes[0].access_modes, ["ReadWriteOnce"]);
    assert!(!scenario.driver.attach_required);
    assert_eq!(scenario.steps[0].action, Action::AddPod);
}

#[test]
fn an_unknown_step_names_the_one_that_was_meant() {
    refused("- {do: waitMountd, pod: a}", 16, "unknown step `waitMountd`", "did you mean `waitMounted`?");
}

#[test]
fn an_unknown_key_names_the_one_that_was_meant() {
    refused("- {do: removePod, podd: a}", 16, "unknown key `podd`", "did you mean `pod`?");
    let text = POD.replace("name: x\n", "name: x\ndriver: {attachRequire: true}\n");
    bad(&text, 2, "unknown key `attachRequire`", "did you mean `attachRequired`?");
    let rule = "- {do: inject, rule: {method: NodeStageVolume, tims: 2}}";
    refused(rule, 16, "unknown key `tims`", "did you mean `times`?");
}

#[test]
fn a_key_of_another_step_is_refused() {
    refused(
        "- {do: waitIdle, pod: a}",
        16,
        "the step waitIdle has no use for `pod`",
        "known here: timeoutMs",
    );
    refused("- {do: sleep}", 16, "the step sleep needs `ms`", "");
}

#[test]
fn a_name_that_stands_for_nothing_is_refused() {
    refused("- {do: addPod, pod: b}", 16, "there is no pod `b`", "did you mean `a`?");
    refused("- {do: expand, volume: v2, sizeMi: 3}", 16, "there is no volume `v2`", "did you mean `v1`?");
    let rule = "- {do: inject, rule: {method: NodeStagVolume}}";
    refused(rule, 16, "there is no method `NodeStagVolume`", "did you mean `NodeStageVolume`?");
    let rule = "- {do: inject, rule: {method: NodeStageVolume, volume: $VOLID_v1}}";
    refused(rule, 16, "there is no volume `$VOLID_v1`", "known here: v1");
    let rule = "- {do: inject, rule: {method: NodeStageVolume, code: Intenal}}";
    refused(rule, 16, "there is no code `Intenal`", "did you mean `Internal`?");
}

#[test]
fn a_pod_that_names_no_volume_is_refused() {
    let text = POD.replace("- {name: data, mountPath", "- {name: dta, mountPath");
    bad(&text, 10, "there is no volume in the pod `a` named `dta`", "did you mean `data`?");
    let start = POD.find("    volumes:\n").expect("it is there");
    let end = POD.find("steps:").expect("it is there");
    let text = format!("{}{}", &POD[..start], &POD[end..]);
    bad(&text, 5, "the pod `a` names no volume", "");
}

#[test]
fn manifests_are_read_as_kubernetes_reads_them() {
    let pod = json!({
        "metadata": {"name": "a"},
        "spec": {"containers": [], "volumes": [
            {"name": "c", "configMap": {"name": "m", "defaultMode": "0440"}},
            {"name": "e", "emptyDir": {"medium": "Memory", "sizeLimit": 8}},
            {"name": "h", "hostPath": {"path": "ROOTPATH/x"}},
        ]},
    });
    let pod = manifest::pod(&pod, "/host").expect("it is a pod");
    let volumes = format!("{:?}", pod.volumes);
    assert!(volumes.contains("default_mode: 288"), "{volumes}");
    assert!(volumes.contains("Bytes(8)"), "{volumes}");
    assert!(volumes.contains("\"/host/x\""), "{volumes}");
}

#[test]
fn octal_numbers_of_yaml_arrive_as_they_were_meant() {
    let text =
        POD.replace("persistentVolumeClaim: {claimName: v1}", "configMap: {name: m, defaultMode: 0440}");
    let scenario = Scenario::parse(&text).expect("it is a scenario");
    let pod = manifest::pod(&scenario.pods[0], "").expect("it is a pod");
    assert!(format!("{:?}", pod.volumes).contains("default_mode: 288"), "{:?}", pod.volumes);
}

#[test]
fn yaml_is_read_as_kubernetes_reads_it() {
    let text = POD.replace("name: data\n      persistent", "<<: *named\n      persistent");
    let text =
        text.replace("volumes:\n- {name: v1}", "volumes:\n- &named {name: data}\n- {name: v1, block: no}");
    let steps = "- &wait {do: waitMounted, pod: a}\n- {<<: *wait, timeoutMs: 5}\n- {do: removePod, pod: a, force: yes}\n";
    let scenario = Scenario::parse(&format!("{text}{steps}")).expect("it is a scenario");
    assert_eq!(scenario.steps[2].timeout_ms, Some(5));
    assert_eq!((scenario.steps[2].line, scenario.steps[3].force), (18, Some(true)));
    assert_eq!(scenario.pods[0]["spec"]["volumes"][0]["name"], "data");
}
