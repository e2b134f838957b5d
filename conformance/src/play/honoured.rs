//! The fields of manifests that mean something in a cluster and nothing here: each is named, and none ignored in silence.
//! Touches nothing.

use serde_json::Value;

use super::files::Files;
use super::manifest;
use super::other_node::{OTHER, named};
use super::world::NODE;

/// The node of a pod is its manifest's choice.
const UNSCHEDULED: &str = "nothing chooses a node here; `nodeName` does";

/// The fields by kind, with the reason.
const NOT_HONOURED: &[(&str, &str, &str)] = &[
    ("Pod", "/spec/nodeSelector", UNSCHEDULED),
    ("Pod", "/spec/affinity", UNSCHEDULED),
    ("Pod", "/spec/topologySpreadConstraints", UNSCHEDULED),
];

impl Files {
    /// The fields that are not honoured, one line each. `alone`: why there is no second node, if there is none.
    pub(crate) fn notes(&self, alone: Option<&str>) -> Vec<String> {
        let pods = self.scenario.pods.iter().map(|pod| ("Pod", pod));
        let others =
            self.claims.iter().map(|document| (document["kind"].as_str().unwrap_or_default(), document));
        pods.chain(others).flat_map(|(kind, document)| of_one(kind, document, alone)).collect()
    }
}

fn of_one(kind: &str, document: &Value, alone: Option<&str>) -> Vec<String> {
    let name = manifest::name(document);
    let is_there = |pointer: &str| document.pointer(pointer).is_some_and(|value| !value.is_null());
    let unhonoured = NOT_HONOURED.iter().filter(|(of, pointer, _)| *of == kind && is_there(pointer));
    let line = |field: &str, why: &str| format!("`{field}` of {kind} `{name}` is not honoured: {why}");
    let field = |pointer: &str| pointer.trim_start_matches('/').replace('/', ".");
    let mut notes: Vec<String> = unhonoured.map(|(_, pointer, why)| line(&field(pointer), why)).collect();
    if kind == "Pod" {
        notes.extend(of_pod(document, alone).into_iter().map(|(field, why)| line(&field, &why)));
    }
    for field in ["dataSource", "dataSourceRef"] {
        let source =
            document.pointer(&format!("/spec/{field}/kind")).and_then(Value::as_str).unwrap_or_default();
        if kind == "PersistentVolumeClaim"
            && !["", "PersistentVolumeClaim", "VolumeSnapshot"].contains(&source)
        {
            let why = format!("nothing here fills a volume from an object of kind `{source}`");
            notes.push(line(&format!("spec.{field}"), &why));
        }
    }
    notes
}

/// The fields of a pod that are not honoured: images, their programs, and another node.
fn of_pod(pod: &Value, alone: Option<&str>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let why = match (named(pod), alone) {
        (NODE, _) | (OTHER, None) => None,
        (_, None) => Some(format!("the nodes here are `{NODE}` and `{OTHER}`")),
        (_, Some(reason)) => Some(format!("there is one node here, `{NODE}`; {reason}")),
    };
    found.extend(why.map(|why| ("spec.nodeName".to_owned(), why)));
    if pod.pointer("/spec/hostUsers") == Some(&Value::Bool(false)) {
        found.push(("spec.hostUsers".to_owned(), "no ids are mapped for a pod here".to_owned()));
    }
    let list =
        |key: &str| pod.pointer(&format!("/spec/{key}")).and_then(Value::as_array).into_iter().flatten();
    for volume in list("volumes").filter(|volume| volume.get("image").is_some()) {
        let name = volume["name"].as_str().unwrap_or_default();
        found.push((format!("spec.volumes[{name}].image"), "no image is pulled here".to_owned()));
    }
    for kind in ["initContainers", "containers"] {
        for container in
            list(kind).filter(|container| container.get("command").or(container.get("args")).is_some())
        {
            let name = container["name"].as_str().unwrap_or_default();
            let why = "there are no images; `-- CMD` runs a program of this machine".to_owned();
            found.push((format!("spec.{kind}[{name}].command"), why));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "\
kind: Pod
metadata: {name: web}
spec:
  nodeName: node-2
  hostUsers: false
  nodeSelector: {disk: fast}
  containers: [{name: c, command: [sleep], volumeMounts: [{name: d, mountPath: /d}]}]
  volumes: [{name: d, persistentVolumeClaim: {claimName: data}}, {name: i, image: {reference: x}}]
---
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  dataSourceRef: {apiGroup: example.com, kind: Backup, name: s}
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Mi}}
";

    #[test]
    fn fields_that_are_not_honoured_are_named() {
        let files = Files::parse(&[("all.yaml".to_owned(), ALL.to_owned())]).expect("it can be played");
        let fields = [
            "spec.nodeSelector",
            "spec.nodeName",
            "spec.hostUsers",
            "spec.volumes[i].image",
            "spec.containers[c].command",
            "spec.dataSourceRef",
        ];
        let notes = files.notes(Some("`nodes = 2` adds another"));
        assert_eq!(notes.len(), fields.len(), "{notes:?}");
        for (note, field) in notes.iter().zip(fields) {
            assert!(note.starts_with(&format!("`{field}` of ")), "{note}");
        }
        assert!(!files.notes(None).iter().any(|note| note.starts_with("`spec.nodeName`")));
    }
}
