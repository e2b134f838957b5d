//! Ordinary manifests as something that can be played: pods with their claims, snapshots, classes, secrets, config maps
//! and services.
//!
//! Claims are bound to persistent volumes that are written down, or to volumes that the driver makes for them. Reads texts
//! and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use api::{Claim, Object};
use serde::Deserialize;
use serde_json::Value;

use super::scenario::{Bad, DriverOptions, Scenario, known};
use super::{manifest, names, yaml};

/// The content of the files.
#[derive(Debug, Clone, Default)]
pub(crate) struct Files {
    /// The objects as a scenario without steps.
    pub(crate) scenario: Scenario,
    /// The CSIDriver object, if a file has one.
    pub(crate) driver: Option<Value>,
    /// Claims, snapshots, classes and persistent volumes.
    pub(crate) claims: Vec<Value>,
    /// The provisioners that classes name, with the classes.
    pub(crate) provisioners: BTreeMap<String, String>,
}

/// The kinds that count here.
const KINDS: &[&str] = &[
    "Pod",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StorageClass",
    "VolumeAttributesClass",
    "VolumeSnapshot",
    "VolumeSnapshotClass",
    "VolumeSnapshotContent",
    "VolumeGroupSnapshot",
    "VolumeGroupSnapshotClass",
    "VolumeGroupSnapshotContent",
    "CSIDriver",
    "Secret",
    "ConfigMap",
    "Service",
    "List",
];

/// The kinds whose controllers make pods, which nothing here does.
const OF_PODS: &[&str] =
    &["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob"];

/// The kinds that the controllers of claims and volumes act on.
const OF_CLAIMS: &[&str] = &[
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StorageClass",
    "VolumeAttributesClass",
    "VolumeSnapshot",
    "VolumeSnapshotClass",
    "VolumeSnapshotContent",
    "VolumeGroupSnapshot",
    "VolumeGroupSnapshotClass",
    "VolumeGroupSnapshotContent",
];

/// The provisioner of classes whose volumes are written down.
pub(super) const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// The only namespace that manifests of a script may name.
const NAMESPACE: &str = "default";

impl Files {
    /// Reads files, each with its name.
    pub(crate) fn parse(files: &[(String, String)]) -> Result<Self, (String, Bad)> {
        let (mut all, mut seen) = (Vec::new(), BTreeSet::new());
        for (name, text) in files {
            let from = all.len();
            documents(text, &mut all).map_err(|bad| (name.clone(), bad))?;
            for document in all.iter().skip(from) {
                check(document, &mut seen).map_err(|bad| (name.clone(), bad))?;
            }
        }
        let first = || files.first().map(|(name, _)| name.clone()).unwrap_or_default();
        Self::of(&all).map_err(|bad| (first(), bad))
    }

    fn of(documents: &[Value]) -> Result<Self, Bad> {
        let of_kind =
            |kind: &'static str| documents.iter().filter(move |document| text(document, "/kind") == kind);
        let pods: Vec<Value> = of_kind("Pod").cloned().collect();
        if pods.is_empty() {
            return Err(Bad::at(0, "there is no pod in it"));
        }
        for pod in &pods {
            manifest::check_pod(pod).map_err(|(_, bad)| bad)?;
            check_mounts(pod)?;
            claims_are_there(pod, of_kind("PersistentVolumeClaim"))?;
        }
        let mut files = Self {
            driver: of_kind("CSIDriver").next().cloned(),
            provisioners: of_kind("StorageClass")
                .map(|class| (text(class, "/provisioner").to_owned(), manifest::name(class).to_owned()))
                .collect(),
            ..Self::default()
        };
        let of_claims = documents.iter().filter(|document| OF_CLAIMS.contains(&text(document, "/kind")));
        files.claims = of_claims.cloned().collect();
        files.scenario = Scenario {
            name: "files".to_owned(),
            driver: DriverOptions::default(),
            pods,
            config_maps: of_kind("ConfigMap").cloned().collect(),
            secrets: of_kind("Secret").cloned().collect(),
            services: of_kind("Service").cloned().collect(),
            ..Scenario::default()
        };
        Ok(files)
    }

    /// The paths of the machine that volumes are.
    pub(crate) fn host_paths(&self) -> Vec<String> {
        let volumes = |pod: &Value| pod.pointer("/spec/volumes").and_then(Value::as_array).cloned();
        let in_pods = self.scenario.pods.iter().filter_map(volumes).flatten();
        let in_pods = in_pods.map(|volume| text(&volume, "/hostPath/path").to_owned());
        let persistent = self.claims.iter().map(|volume| text(volume, "/spec/hostPath/path").to_owned());
        in_pods.chain(persistent).filter(|path| !path.is_empty()).collect()
    }

    /// Why these cannot be played with this driver, if they cannot. A class that no claim is of does no harm.
    pub(crate) fn refuse(&self, driver: &str) -> Result<(), Bad> {
        let is_used =
            |class: &str| self.claims.iter().chain(&self.scenario.pods).any(|of| names_class(of, class));
        match self.provisioners.iter().find(|(provisioner, class)| {
            ![driver, NO_PROVISIONER].contains(&provisioner.as_str()) && is_used(class)
        }) {
            None => Ok(()),
            Some((provisioner, class)) => Err(Bad {
                line: 0,
                what: format!(
                    "the class `{class}` is of the provisioner `{provisioner}`, but the driver is `{driver}`"
                ),
                hint: Some("--driver and --driver-cmd choose the driver".to_owned()),
            }),
        }
    }
}

/// Whether a claim, or the template of one in a pod, is of this class, or may be by default.
fn names_class(document: &Value, class: &str) -> bool {
    match document {
        Value::Object(fields) => fields.iter().any(|(key, value)| match key.as_str() {
            "storageClassName" => value == class,
            "storageclass.kubernetes.io/is-default-class" => value == "true",
            _ => names_class(value, class),
        }),
        Value::Array(values) => values.iter().any(|value| names_class(value, class)),
        _ => false,
    }
}

/// Refuses a document that is no object, or one whose kind and name are `seen` already.
fn check(document: &Value, seen: &mut BTreeSet<(String, String)>) -> Result<(), Bad> {
    names::check(document)?;
    let (kind, namespace) = (text(document, "/kind"), text(document, "/metadata/namespace"));
    let name = manifest::name(document);
    known_kind(kind)?;
    if !seen.insert((kind.to_owned(), name.to_owned())) {
        return Err(Bad::at(0, format!("there are two objects of kind {kind} with the name `{name}`")));
    }
    if !["", NAMESPACE].contains(&namespace) {
        let what =
            format!("{kind} `{name}` is in the namespace `{namespace}`, and there is `{NAMESPACE}` only");
        return Err(Bad::at(0, what));
    }
    // Each document must be an object.
    let objects = manifest::objects(document.clone(), "")
        .map_err(|error| Bad::at(0, testbed::failure::chain(&error).join(": ")))?;
    let mut claims = objects.iter().filter_map(|object| match object {
        Object::Claim(claim) => Some(claim),
        _ => None,
    });
    claims.try_for_each(|claim| required_of(claim))?;
    if kind == "StorageClass" { check_class(document) } else { Ok(()) }
}

/// Refuses a class that an API server refuses.
fn check_class(class: &Value) -> Result<(), Bad> {
    let name = manifest::name(class);
    if text(class, "/provisioner").is_empty() {
        return Err(Bad::at(
            0,
            format!("no API server takes StorageClass `{name}`: it has no `provisioner`"),
        ));
    }
    let choices = [
        ("volumeBindingMode", ["Immediate", "WaitForFirstConsumer"]),
        ("reclaimPolicy", ["Delete", "Retain"]),
    ];
    for (field, [one, other]) in choices {
        let value = text(class, &format!("/{field}"));
        if !["", one, other].contains(&value) {
            let what = format!(
                "no API server takes StorageClass `{name}`: `{field}` is `{value}`, and can be `{one}` or `{other}`"
            );
            return Err(Bad::at(0, what));
        }
    }
    Ok(())
}

/// Refuses a claim without the fields that an API server requires: a driver would be asked for an impossible volume.
fn required_of(claim: &Claim) -> Result<(), Bad> {
    let missing = match (claim.spec.access_modes.is_empty(), claim.spec.request.0) {
        (true, _) => "`spec.accessModes` is empty",
        (false, 0) => "`spec.resources.requests.storage` is missing or 0",
        (false, _) => return Ok(()),
    };
    let what = format!("no API server takes PersistentVolumeClaim `{}`: {missing}", claim.meta.name);
    Err(Bad::at(0, what))
}

/// Refuses a pod whose containers have a volume nowhere, or two at one path, as an API server does.
fn check_mounts(pod: &Value) -> Result<(), Bad> {
    let entries = |of: &Value, key: &str| of.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    for (kind, container) in ["initContainers", "containers"]
        .into_iter()
        .flat_map(|kind| entries(&pod["spec"], kind).into_iter().map(move |container| (kind, container)))
    {
        for (list, field) in [("volumeMounts", "mountPath"), ("volumeDevices", "devicePath")] {
            let mut seen = BTreeSet::new();
            for entry in entries(&container, list) {
                let path = text(&entry, &format!("/{field}")).to_owned();
                let wrong = match (path.is_empty(), seen.insert(path.clone())) {
                    (true, _) => "is missing".to_owned(),
                    (false, false) => format!("is `{path}` a second time"),
                    (false, true) => continue,
                };
                let (pod, container, volume) =
                    (manifest::name(pod), text(&container, "/name"), text(&entry, "/name"));
                let what = format!(
                    "no API server takes Pod `{pod}`: `spec.{kind}[{container}].{list}[{volume}].{field}` {wrong}"
                );
                return Err(Bad::at(0, what));
            }
        }
    }
    Ok(())
}

/// Refuses an unknown kind.
fn known_kind(kind: &str) -> Result<(), Bad> {
    if !OF_PODS.contains(&kind) {
        return known("kind", kind, KINDS);
    }
    let hint = "write the Pods and PersistentVolumeClaims that it makes, as `kubectl get -o yaml` shows them";
    Err(Bad {
        line: 0,
        what: format!("nothing makes the pods of a {kind} here"),
        hint: Some(hint.to_owned()),
    })
}

/// Checks that the files have the claims of a pod: a missing one would be waited for in vain.
fn claims_are_there<'a>(pod: &Value, claims: impl Iterator<Item = &'a Value> + Clone) -> Result<(), Bad> {
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array).into_iter().flatten();
    let wanted = volumes.map(|volume| text(volume, "/persistentVolumeClaim/claimName"));
    let mut missing =
        wanted.filter(|name| !name.is_empty() && !claims.clone().any(|claim| manifest::name(claim) == *name));
    match missing.next() {
        None => Ok(()),
        Some(name) => Err(Bad {
            line: 0,
            what: format!("the pod `{}` wants the claim `{name}`, which is in no file", manifest::name(pod)),
            hint: Some("give the file of the claim as well".to_owned()),
        }),
    }
}

/// The documents of a file; of a list, its items.
fn documents(text: &str, all: &mut Vec<Value>) -> Result<(), Bad> {
    let text = harness::yaml::without_mark(text);
    harness::yaml::check_depth(text).map_err(|deep| Bad::at(deep.line, deep.to_string()))?;
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        let read = |document| {
            let mut value = serde_yaml_ng::Value::deserialize(document)?;
            yaml::as_kubernetes_reads(&mut value)?;
            serde_yaml_ng::from_value::<Value>(value)
        };
        let value = read(document).map_err(|error: serde_yaml_ng::Error| {
            let what = error.to_string();
            let what = what.split(" at line ").next().unwrap_or(&what).to_owned();
            Bad::at(error.location().map_or(0, |place| place.line()), what)
        })?;
        match (value.is_null(), value.pointer("/items").and_then(Value::as_array)) {
            (true, _) => {}
            (_, Some(items)) => all.extend(items.iter().cloned()),
            _ => all.push(value),
        }
    }
    Ok(())
}

fn text<'a>(document: &'a Value, pointer: &str) -> &'a str {
    document.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIM: &str = "\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteMany]
  storageClassName: fast
  resources: {requests: {storage: 20Mi}}
---
kind: StorageClass
metadata: {name: fast}
provisioner: a.example.com
parameters: {csi.storage.k8s.io/fstype: xfs}
mountOptions: [noatime]
";

    const POD: &str = "\
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: c, volumeMounts: [{name: d, mountPath: /d}]}]
  volumes: [{name: d, persistentVolumeClaim: {claimName: data}}]
";

    fn files(texts: &[&str]) -> Result<Files, (String, Bad)> {
        let name = |(number, text): (usize, &&str)| (format!("{number}.yaml"), (*text).to_owned());
        Files::parse(&texts.iter().enumerate().map(name).collect::<Vec<_>>())
    }

    #[test]
    fn two_objects_of_a_name_are_refused() {
        let snapshot = "kind: VolumeSnapshot\nmetadata: {name: monday}\nspec: {source: {persistentVolumeClaimName: data}}\n";
        let (name, bad) = files(&[POD, CLAIM, snapshot, snapshot]).expect_err("one of them is not meant");
        assert_eq!(name, "3.yaml");
        assert_eq!(bad.what, "there are two objects of kind VolumeSnapshot with the name `monday`");
    }

    #[test]
    fn controller_of_pods_is_named_as_one() {
        let (_, bad) = files(&["kind: StatefulSet\nmetadata: {name: db}\n"]).expect_err("nothing makes pods");
        assert_eq!(bad.what, "nothing makes the pods of a StatefulSet here");
        assert!(bad.hint.is_some_and(|hint| hint.contains("PersistentVolumeClaims")));
    }

    #[test]
    fn class_of_another_provisioner_is_refused() {
        let files = files(&[POD, CLAIM]).expect("they can be played");
        assert_eq!(files.claims.len(), 2);
        assert!(files.refuse("a.example.com").is_ok());
        let bad = files.refuse("b.example.com").expect_err("it is another driver");
        assert_eq!(
            bad.what,
            "the class `fast` is of the provisioner `a.example.com`, but the driver is `b.example.com`"
        );
    }

    #[test]
    fn class_that_no_claim_is_of_is_of_any_provisioner() {
        let class = "kind: StorageClass\nmetadata: {name: slow}\nprovisioner: b.example.com\n";
        assert!(files(&[POD, CLAIM, class]).expect("they can be played").refuse("a.example.com").is_ok());
        let default = &class.replace(
            "name: slow",
            "name: slow, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}",
        );
        let files = files(&[POD, CLAIM, default]).expect("they can be played");
        assert!(files.refuse("a.example.com").is_err(), "a claim without a class may be of it");
    }

    #[test]
    fn class_that_an_api_server_refuses_is_refused() {
        for (line, field) in [
            ("provisioner: ''", "it has no `provisioner`"),
            ("provisioner: a.example.com\nreclaimPolicy: Never", "`reclaimPolicy` is `Never`"),
            (
                "provisioner: a.example.com\nvolumeBindingMode: Sometimes",
                "`volumeBindingMode` is `Sometimes`",
            ),
        ] {
            let class = format!("kind: StorageClass\nmetadata: {{name: slow}}\n{line}\n");
            let (name, bad) = files(&[POD, CLAIM, &class]).map(|_| ()).expect_err("an API server refuses it");
            assert_eq!(name, "2.yaml");
            assert!(bad.what.contains(field), "{bad:?}");
        }
    }

    #[test]
    fn class_without_a_provisioner_is_for_volumes_that_are_written_down() {
        let class =
            "kind: StorageClass\nmetadata: {name: local}\nprovisioner: kubernetes.io/no-provisioner\n";
        assert!(files(&[POD, CLAIM, class]).expect("they can be played").refuse("a.example.com").is_ok());
    }

    #[test]
    fn claim_without_a_required_field_is_refused() {
        for (field, other) in
            [("accessModes: [ReadWriteMany]", "accessModes: []"), ("storage: 20Mi", "cpu: 1")]
        {
            let claim = CLAIM.replace(field, other);
            let (name, bad) = files(&[POD, &claim]).map(|_| ()).expect_err("an API server refuses it");
            assert_eq!(name, "1.yaml");
            assert!(bad.what.starts_with("no API server takes PersistentVolumeClaim `data`"), "{bad:?}");
        }
    }

    #[test]
    fn volume_without_a_path_or_at_a_used_one_is_refused() {
        let mount = "{name: d, mountPath: /d}";
        for (other, wrong) in [
            ("{name: d}".to_owned(), "volumeMounts[d].mountPath` is missing"),
            (format!("{mount}, {mount}"), "volumeMounts[d].mountPath` is `/d` a second time"),
        ] {
            let pod = POD.replace(mount, &other);
            let (name, bad) = files(&[&pod, CLAIM]).map(|_| ()).expect_err("an API server refuses it");
            assert_eq!(name, "0.yaml");
            assert!(bad.what.ends_with(wrong), "{bad:?}");
        }
        let device = POD.replace("volumeMounts: [{name: d, mountPath: /d}]", "volumeDevices: [{name: d}]");
        let (_, bad) = files(&[&device, CLAIM]).map(|_| ()).expect_err("an API server refuses it");
        assert!(bad.what.ends_with("volumeDevices[d].devicePath` is missing"), "{bad:?}");
    }

    #[test]
    fn a_service_beside_a_pod_is_taken_with_it() {
        let service = "kind: Service\nmetadata: {name: db}\nspec: {ports: [{port: 5432}]}\n";
        let files = files(&[POD, CLAIM, service]).expect("they can be played");
        assert_eq!(files.scenario.services.len(), 1);
    }

    #[test]
    fn byte_order_mark_before_a_manifest_is_skipped() {
        let marked = [POD, CLAIM].map(|text| format!("\u{feff}{text}"));
        let files = files(&[&marked[0], &marked[1]]).expect("they can be played");
        assert_eq!(files.claims.len(), 2);
    }

    #[test]
    fn unplayable_object_is_reported_with_its_file() {
        let what = |texts: &[&str]| files(texts).map(|_| ()).expect_err("it cannot be played");
        let (name, bad) = what(&[POD, "a: [\n"]);
        assert_eq!(name, "1.yaml");
        assert!(bad.line > 0, "{bad:?}");
        let (_, bad) = what(&[POD]);
        assert_eq!(bad.what, "the pod `web` wants the claim `data`, which is in no file");
        let (_, bad) = what(&[CLAIM]);
        assert_eq!(bad.what, "there is no pod in it");
        let (name, bad) = what(&[POD, "kind: Pot\nmetadata: {name: x}\n"]);
        assert_eq!(name, "1.yaml");
        assert_eq!(bad.hint.as_deref(), Some("did you mean `Pod`?"));
        let (_, bad) = what(&[&POD.replace("name: d, mountPath", "name: e, mountPath"), CLAIM]);
        assert_eq!(bad.what, "there is no volume in the pod `web` named `e`");
    }
}
