//! Ordinary manifests as something that can be played: pods with their claims, classes, secrets, config maps and
//! services.
//!
//! Claims become volumes of the driver, as a provisioner would make them; persistent volumes that are written down
//! are taken as they are. Reads texts and nothing else.

use std::collections::BTreeMap;

use api::{Bytes, Object};
use serde::Deserialize;
use serde_json::Value;

use super::scenario::{Bad, DriverOptions, Scenario, VolumeConf, known};
use super::{manifest, names, yaml};

/// What stands in the files.
#[derive(Debug, Clone, Default)]
pub(crate) struct Files {
    /// The same as a scenario without steps.
    pub(crate) scenario: Scenario,
    /// What the driver's object says, if somebody wrote it down.
    pub(crate) driver: Option<Value>,
    /// Persistent volumes that exist already, and the claims that are bound to them.
    pub(crate) bound: Vec<(Value, Value)>,
    /// The provisioners that classes name, with the classes.
    pub(crate) provisioners: BTreeMap<String, String>,
}

/// The kinds that count here.
const KINDS: &[&str] = &[
    "Pod",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StorageClass",
    "CSIDriver",
    "Secret",
    "ConfigMap",
    "Service",
    "List",
];

/// The one namespace.
const NAMESPACE: &str = "default";

impl Files {
    /// Reads files, each with its name.
    pub(crate) fn parse(files: &[(String, String)]) -> Result<Self, (String, Bad)> {
        let mut all = Vec::new();
        for (name, text) in files {
            documents(text, &mut all).map_err(|bad| (name.clone(), bad))?;
        }
        let first = || files.first().map(|(name, _)| name.clone()).unwrap_or_default();
        Self::of(&all).map_err(|bad| (first(), bad))
    }

    fn of(documents: &[Value]) -> Result<Self, Bad> {
        let of_kind =
            |kind: &'static str| documents.iter().filter(move |document| text(document, "/kind") == kind);
        for document in documents {
            names::check(document)?;
            let (kind, namespace) = (text(document, "/kind"), text(document, "/metadata/namespace"));
            let name = manifest::name(document);
            known("kind", kind, KINDS)?;
            if !["", NAMESPACE].contains(&namespace) {
                let what = format!(
                    "{kind} `{name}` is in the namespace `{namespace}`, and there is `{NAMESPACE}` only"
                );
                return Err(Bad::at(0, what));
            }
            // Whatever a document is, it must be one.
            manifest::objects(document.clone(), "")
                .map_err(|error| Bad::at(0, testbed::failure::chain(&error).join(": ")))?;
        }
        let pods: Vec<Value> = of_kind("Pod").cloned().collect();
        if pods.is_empty() {
            return Err(Bad::at(0, "there is no pod in it"));
        }
        for pod in &pods {
            manifest::check_pod(pod).map_err(|(_, bad)| bad)?;
            claims_are_there(pod, of_kind("PersistentVolumeClaim"))?;
        }
        let mut files = Self {
            driver: of_kind("CSIDriver").next().cloned(),
            provisioners: of_kind("StorageClass")
                .map(|class| (text(class, "/provisioner").to_owned(), manifest::name(class).to_owned()))
                .collect(),
            ..Self::default()
        };
        let mut volumes = Vec::new();
        for claim in of_kind("PersistentVolumeClaim") {
            let wanted = text(claim, "/spec/volumeName");
            let exists = of_kind("PersistentVolume").find(|volume| {
                let reserved = text(volume, "/spec/claimRef/name") == manifest::name(claim);
                reserved || (!wanted.is_empty() && manifest::name(volume) == wanted)
            });
            match exists {
                Some(volume) => files.bound.push((volume.clone(), claim.clone())),
                None => {
                    let class = text(claim, "/spec/storageClassName");
                    volumes
                        .push(conf(claim, of_kind("StorageClass").find(|one| manifest::name(one) == class)));
                }
            }
        }
        files.scenario = Scenario {
            name: "files".to_owned(),
            driver: DriverOptions::default(),
            volumes,
            pods,
            config_maps: of_kind("ConfigMap").cloned().collect(),
            secrets: of_kind("Secret").cloned().collect(),
            services: of_kind("Service").cloned().collect(),
            ..Scenario::default()
        };
        Ok(files)
    }

    /// Why these cannot be played with this driver, if they cannot.
    pub(crate) fn refuse(&self, driver: &str) -> Result<(), Bad> {
        match self.provisioners.iter().find(|(provisioner, _)| *provisioner != driver) {
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

/// A claim that no file has would be waited for in vain: nobody else makes one here.
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

/// What a provisioner would be asked for.
fn conf(claim: &Value, class: Option<&Value>) -> VolumeConf {
    let amount = claim.pointer("/spec/resources/requests/storage");
    let amount = amount.map(|amount| amount.as_str().map_or_else(|| amount.to_string(), str::to_owned));
    let bytes = amount.and_then(|amount| Bytes::from_quantity(&amount)).unwrap_or_default();
    let list = |document: Option<&Value>, pointer: &str| {
        let items = document.and_then(|document| document.pointer(pointer)).and_then(Value::as_array);
        let texts = items.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        texts.collect::<Vec<_>>()
    };
    let fs_type = class.and_then(|class| class.pointer("/parameters/csi.storage.k8s.io~1fstype"));
    VolumeConf {
        name: manifest::name(claim).to_owned(),
        size_mi: bytes.0.div_ceil(1 << 20).max(1),
        block: text(claim, "/spec/volumeMode") == "Block",
        access_modes: list(Some(claim), "/spec/accessModes"),
        fs_type: fs_type.and_then(Value::as_str).unwrap_or_default().to_owned(),
        pv_read_only: false,
        mount_options: list(class, "/mountOptions"),
    }
}

/// The objects of a volume that exists and of the claim that is bound to it.
pub(super) fn bound(volume: &Value, claim: &Value) -> Vec<Object> {
    let read = |document: &Value| manifest::objects(document.clone(), "").unwrap_or_default();
    let mut objects = read(claim);
    objects.extend(read(volume));
    objects
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
    fn a_claim_becomes_what_its_class_says() {
        let files = files(&[POD, CLAIM]).expect("they can be played");
        let volume = &files.scenario.volumes[0];
        assert_eq!((volume.name.as_str(), volume.size_mi, volume.fs_type.as_str()), ("data", 20, "xfs"));
        assert_eq!(
            (&volume.access_modes[..], &volume.mount_options[..]),
            (&["ReadWriteMany".to_owned()][..], &["noatime".to_owned()][..])
        );
        assert!(files.refuse("a.example.com").is_ok());
        let bad = files.refuse("b.example.com").expect_err("it is another driver");
        assert_eq!(
            bad.what,
            "the class `fast` is of the provisioner `a.example.com`, but the driver is `b.example.com`"
        );
    }

    #[test]
    fn a_volume_that_is_written_down_is_not_made() {
        let volume = "\
kind: PersistentVolume
metadata: {name: disk}
spec: {claimRef: {namespace: default, name: data}, hostPath: {path: /x}}
";
        let files = files(&[POD, CLAIM, volume]).expect("they can be played");
        assert!(files.scenario.volumes.is_empty());
        assert_eq!(bound(&files.bound[0].0, &files.bound[0].1).len(), 2);
    }

    #[test]
    fn a_service_beside_a_pod_is_taken_with_it() {
        let service = "kind: Service\nmetadata: {name: db}\nspec: {ports: [{port: 5432}]}\n";
        let files = files(&[POD, CLAIM, service]).expect("they can be played");
        assert_eq!(files.scenario.services.len(), 1);
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
        let (_, bad) = what(&["kind: Pot\nmetadata: {name: x}\n"]);
        assert_eq!(bad.hint.as_deref(), Some("did you mean `Pod`?"));
        let (_, bad) = what(&[&POD.replace("name: d, mountPath", "name: e, mountPath"), CLAIM]);
        assert_eq!(bad.what, "there is no volume in the pod `web` named `e`");
    }
}
