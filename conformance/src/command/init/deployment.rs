//! Reads a driver's deployment files: the objects in YAML that a manifest can be made from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use harness::yaml;
use serde_json::Value;

/// The objects that were found, by kind.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) drivers: Vec<Document>,
    pub(super) classes: Vec<Document>,
    pub(super) snapshot_classes: Vec<Document>,
    /// DaemonSets, Deployments and StatefulSets.
    pub(super) workloads: Vec<Document>,
    pub(super) test_drivers: Vec<PathBuf>,
    pub(super) definitions: Vec<PathBuf>,
    /// Files and directories that were skipped, each with the reason.
    pub(super) unread: Vec<String>,
    /// Files with an object that was read from another file before.
    pub(super) repeated: BTreeSet<PathBuf>,
}

/// One object of a file.
#[derive(Debug, Clone)]
pub(super) struct Document {
    pub(super) file: PathBuf,
    pub(super) value: Value,
}

impl Document {
    pub(super) fn name(&self) -> &str {
        self.value["metadata"]["name"].as_str().unwrap_or_default()
    }

    pub(super) fn kind(&self) -> &str {
        self.value["kind"].as_str().unwrap_or_default()
    }

    /// Whether the pods of this workload run on nodes with Windows.
    fn is_for_windows(&self) -> bool {
        let selector = &self.value["spec"]["template"]["spec"]["nodeSelector"];
        ["kubernetes.io/os", "beta.kubernetes.io/os"].iter().any(|label| selector[*label] == "windows")
    }
}

/// Reads the YAML files below a directory: those of the directory itself first, and each object once. Beside its own files a
/// directory of a version is an earlier one.
pub(super) fn read(directory: &Path) -> std::io::Result<Found> {
    let mut files = Vec::new();
    collect(directory, &mut files)?;
    files.sort_by_key(|file| (file.components().count(), file.clone()));
    let mut found = Found::default();
    if files.iter().any(|file| file.parent() == Some(directory)) {
        let versions = versions(directory)?;
        files.retain(|file| !versions.iter().any(|version| file.starts_with(version)));
        if let (Some(first), Some(last)) = (versions.first(), versions.last()) {
            found.unread.push(format!(
                "directories of versions ({}), {} to {}: give one of them to `--from` to read it",
                versions.len(),
                first.display(),
                last.display()
            ));
        }
    }
    for file in files {
        if let Err(why) = take(&file, &mut found) {
            found.unread.push(format!("{}: {why}", file.display()));
        }
    }
    Ok(found)
}

/// The directories in a directory that are named as a version is, such as `v1.2.0`.
fn versions(directory: &Path) -> std::io::Result<BTreeSet<PathBuf>> {
    let entries = std::fs::read_dir(directory)?.collect::<std::io::Result<Vec<_>>>()?;
    let is_version = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let digits = name.strip_prefix('v').unwrap_or(&name);
        path.is_dir() && digits.contains('.') && digits.starts_with(|first: char| first.is_ascii_digit())
    };
    Ok(entries.into_iter().map(|entry| entry.path()).filter(is_version).collect())
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "yaml" || end == "yml") {
            files.push(path);
        }
    }
    Ok(())
}

fn take(file: &Path, found: &mut Found) -> Result<(), String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    if text.contains("{{") {
        return Err(
            "a template; give `--from` what `helm template` or `kustomize build` makes of it".to_owned()
        );
    }
    yaml::check_depth(&text).map_err(|deep| format!("line {}: {deep}", deep.line))?;
    for value in serde_yaml_ng::Deserializer::from_str(yaml::without_mark(&text)) {
        let value: Value = serde::Deserialize::deserialize(value).map_err(|error| error.to_string())?;
        sort(file, value, found);
    }
    Ok(())
}

fn sort(file: &Path, value: Value, found: &mut Found) {
    let file = file.to_owned();
    if value["DriverInfo"].is_object() {
        found.test_drivers.push(file);
        return;
    }
    let document = Document { file: file.clone(), value };
    let known = [&found.drivers, &found.classes, &found.snapshot_classes, &found.workloads];
    let is_same = |other: &Document| (other.kind(), other.name()) == (document.kind(), document.name());
    if known.into_iter().flatten().any(is_same) {
        found.repeated.insert(file);
        return;
    }
    match document.kind() {
        "List" => {
            let items = document.value["items"].as_array().cloned().unwrap_or_default();
            items.into_iter().for_each(|item| sort(&file, item, found));
        }
        "CSIDriver" => found.drivers.push(document),
        "StorageClass" => found.classes.push(document),
        "VolumeSnapshotClass" => found.snapshot_classes.push(document),
        "DaemonSet" | "Deployment" | "StatefulSet" if document.is_for_windows() => {
            found.unread.push(format!("{}: {} is for Windows", file.display(), document.name()));
        }
        "DaemonSet" | "Deployment" | "StatefulSet" => found.workloads.push(document),
        "CustomResourceDefinition" if !found.definitions.contains(&file) => found.definitions.push(file),
        _ => {}
    }
}

/// The container of a workload in which the driver runs.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) container: Value,
    /// The host's path of each of its mounts, by the path in the container.
    pub(super) mounts: BTreeMap<String, String>,
}

/// Parts of the image names of CSI's own sidecars.
const SIDECARS: [&str; 10] = [
    "node-driver-registrar",
    "driver-registrar",
    "livenessprobe",
    "csi-provisioner",
    "csi-attacher",
    "csi-resizer",
    "csi-snapshotter",
    "snapshot-controller",
    "health-monitor",
    "kube-rbac-proxy",
];

/// The driver's container of a workload: the first that is no sidecar and has the path of a socket.
pub(super) fn driver(workload: &Document) -> Option<Driver> {
    let spec = &workload.value["spec"]["template"]["spec"];
    let containers = spec["containers"].as_array()?;
    let is_sidecar = |container: &&Value| {
        let image = container["image"].as_str().unwrap_or_default();
        let name = image.rsplit('/').next().unwrap_or_default();
        SIDECARS.iter().any(|sidecar| name.contains(sidecar))
    };
    let candidates: Vec<&Value> = containers.iter().filter(|container| !is_sidecar(container)).collect();
    let speaks = |container: &&&Value| {
        let mut words = container["args"].to_string() + &container["command"].to_string();
        words += &container["env"].to_string();
        words.contains(".sock") || words.to_lowercase().contains("endpoint")
    };
    let container = candidates.iter().find(speaks).or(candidates.first())?;
    let volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
    let host_path = |name: &Value| {
        let volume = volumes.iter().find(|volume| volume["name"] == *name)?;
        volume["hostPath"]["path"].as_str().map(str::to_owned)
    };
    let mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
    let mounts = mounts
        .iter()
        .filter_map(|mount| Some((mount["mountPath"].as_str()?.to_owned(), host_path(&mount["name"])?)));
    Some(Driver { container: (*container).clone(), mounts: mounts.collect() })
}
