//! Reads the manifest of the Kubernetes external storage end-to-end tests.
//!
//! Such a file describes the volumes of a driver in a cluster, and not how to start the driver. Of its capabilities those
//! are taken that no driver can be asked for. Reads the file and the StorageClass that it names, and nothing else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Deserialize;

use super::{Manifest, Size, nearest};
use crate::yaml;

/// The used parts of the file; others are ignored, if the tests know them.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TestDriver {
    driver_info: DriverInfo,
    #[serde(default)]
    storage_class: StorageClassChoice,
    #[serde(default)]
    inline_volumes: Vec<InlineVolume>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InlineVolume {
    #[serde(default)]
    attributes: BTreeMap<String, String>,
    #[serde(default)]
    read_only: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DriverInfo {
    name: String,
    #[serde(default)]
    supported_fs_type: Option<BTreeMap<String, serde_yaml_ng::Value>>,
    #[serde(default)]
    supported_size_range: SizeRange,
    #[serde(default)]
    required_mount_option: Option<BTreeMap<String, serde_yaml_ng::Value>>,
    #[serde(default)]
    capabilities: BTreeMap<String, bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SizeRange {
    #[serde(default)]
    min: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StorageClassChoice {
    #[serde(default)]
    from_file: Option<PathBuf>,
    #[serde(default)]
    from_existing_class_name: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StorageClass {
    #[serde(default)]
    parameters: BTreeMap<String, String>,
    #[serde(default)]
    mount_options: Vec<String>,
}

/// The keys of such a file, of its `DriverInfo` and of its `Capabilities`.
const KEYS: [(&str, &[&str]); 3] = [
    (
        "",
        &[
            "StorageClass",
            "SnapshotClass",
            "VolumeAttributesClass",
            "DriverInfo",
            "InlineVolumes",
            "ClientNodeName",
            "Timeouts",
        ],
    ),
    (
        "/DriverInfo",
        &[
            "Name",
            "InTreePluginName",
            "TestTags",
            "MaxFileSize",
            "SupportedSizeRange",
            "SupportedFsType",
            "SupportedMountOption",
            "RequiredMountOption",
            "Capabilities",
            "RequiredAccessModes",
            "TopologyKeys",
            "NumAllowedTopologies",
            "StressTestOptions",
            "VolumeSnapshotStressTestOptions",
            "VolumeModifyStressTestOptions",
            "PerformanceTestOptions",
        ],
    ),
    (
        "/DriverInfo/Capabilities",
        &[
            "persistence",
            "block",
            "fsGroup",
            "volumeMountGroup",
            "exec",
            "snapshotDataSource",
            "pvcDataSource",
            "multipods",
            "RWX",
            "controllerExpansion",
            "nodeExpansion",
            "offlineExpansion",
            "onlineExpansion",
            "volumeLimits",
            "singleNodeVolume",
            "topology",
            "FSResizeFromSourceNotSupported",
            "readWriteOncePod",
            "multiplePVsSameID",
            "capacity",
            "groupSnapshot",
        ],
    ),
];

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestDriverError {
    #[error("cannot read `{path}`")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot use `{path}`")]
    Invalid {
        path: PathBuf,
        #[source]
        source: serde_yaml_ng::Error,
    },
    #[error("cannot use the size in `{path}`")]
    Size {
        path: PathBuf,
        #[source]
        source: super::QuantityError,
    },
    /// It has a key that the tests do not know either.
    #[error("cannot use `{path}`: unknown key `{key}`")]
    UnknownKey { path: PathBuf, key: String, meant: Option<&'static str> },
    /// It needs an object of a api.
    #[error("cannot use `{path}`: {what} is in a cluster, and there is none")]
    InCluster { path: PathBuf, what: String },
}

impl TestDriverError {
    /// The remedy in a line.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::InCluster { .. } => {
                Some("write the value into a driver.toml: `volproof init` makes one".to_owned())
            }
            Self::UnknownKey { meant: Some(meant), .. } => Some(format!("did you mean `{meant}`?")),
            _ => None,
        }
    }
}

/// Prefix of parameters that the driver never gets.
const FOR_THE_CLUSTER: &str = "csi.storage.k8s.io/";

impl Manifest {
    /// Takes the driver's name and its volumes' properties from the file.
    ///
    /// # Errors
    /// When the file cannot be used, or needs a api.
    pub fn with_testdriver(mut self, path: &Path) -> Result<Self, TestDriverError> {
        check_keys(path)?;
        let TestDriver { driver_info, storage_class, inline_volumes } = read(path)?;
        self.name = Some(driver_info.name);
        if let Some(least) = driver_info.supported_size_range.min.as_deref() {
            let least: Size =
                least.parse().map_err(|source| TestDriverError::Size { path: path.to_owned(), source })?;
            // The least it makes may be less than a file system needs.
            self.volume.size = (least.bytes() > self.volume_size()).then_some(least).or(self.volume.size);
        }
        let types = driver_info.supported_fs_type.unwrap_or_default();
        // An empty type stands for the driver's own choice.
        self.volume.fs_types = types.into_keys().filter(|fs_type| !fs_type.is_empty()).collect();
        let can = |capability: &str| driver_info.capabilities.get(capability).copied();
        self.volume.block = can("block").or(self.volume.block);
        self.volume.persistent = can("persistence").unwrap_or(self.volume.persistent);
        self.volume.mount_options =
            driver_info.required_mount_option.unwrap_or_default().into_keys().collect();
        if let Some(volume) = inline_volumes.into_iter().next() {
            (self.volume.inline, self.volume.inline_attributes) = (true, volume.attributes);
            self.volume.inline_read_only = volume.read_only;
        }
        if let Some(class) = storage_class.from_existing_class_name {
            let what = format!("the StorageClass `{class}`");
            return Err(TestDriverError::InCluster { path: path.to_owned(), what });
        }
        if let Some(file) = storage_class.from_file {
            self.take_class(&path.parent().unwrap_or(Path::new("")).join(file))?;
        }
        Ok(self)
    }

    fn take_class(&mut self, path: &Path) -> Result<(), TestDriverError> {
        let StorageClass { mut parameters, mount_options } = read(path)?;
        for option in mount_options {
            if !self.volume.mount_options.contains(&option) {
                self.volume.mount_options.push(option);
            }
        }
        let of_cluster: Vec<String> =
            parameters.keys().filter(|key| key.starts_with(FOR_THE_CLUSTER)).cloned().collect();
        for key in of_cluster {
            let value = parameters.remove(&key).unwrap_or_default();
            let word = &key[FOR_THE_CLUSTER.len()..];
            match word {
                "fstype" => {
                    self.volume.fs_types.retain(|fs_type| *fs_type != value);
                    self.volume.fs_types.insert(0, value);
                }
                _ if word.ends_with("secret-name") => {
                    let what = format!("the secret `{value}`");
                    return Err(TestDriverError::InCluster { path: path.to_owned(), what });
                }
                _ => {}
            }
        }
        self.volume.parameters = parameters;
        Ok(())
    }
}

fn check_keys(path: &Path) -> Result<(), TestDriverError> {
    let document: serde_json::Value = read(path)?;
    for (place, known) in KEYS {
        let fields = document.pointer(place).and_then(serde_json::Value::as_object);
        for key in fields.into_iter().flat_map(|fields| fields.keys()) {
            if !known.iter().any(|known| known.eq_ignore_ascii_case(key)) {
                let meant = nearest(key, known.iter().copied());
                return Err(TestDriverError::UnknownKey { path: path.to_owned(), key: key.clone(), meant });
            }
        }
    }
    Ok(())
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, TestDriverError> {
    let failed = |source| TestDriverError::Read { path: path.to_owned(), source };
    let text = fs::read_to_string(path).map_err(failed)?;
    let text = yaml::without_mark(&text);
    let read = match yaml::check_depth(text) {
        Ok(()) => serde_yaml_ng::from_str(text),
        Err(deep) => Err(serde::de::Error::custom(format_args!("line {}: {deep}", deep.line))),
    };
    read.map_err(|source| TestDriverError::Invalid { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(driver: &str, class: &str) -> Result<Manifest, TestDriverError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("testdriver.yaml");
        fs::write(&path, driver).unwrap();
        fs::write(directory.path().join("class.yaml"), class).unwrap();
        Manifest::from_command("./my-driver").unwrap().with_testdriver(&path)
    }

    const DRIVER: &str = "
StorageClass:
  FromFile: class.yaml
SnapshotClass:
  FromName: true
DriverInfo:
  Name: block.csi.example.com
  Capabilities: {persistence: true, block: true}
  SupportedFsType: {xfs: {}, ext4: , \"\": {}}
  SupportedSizeRange: {Min: 1Gi, Max: 5Ti}
";

    #[test]
    fn name_size_types_and_parameters_are_taken() {
        let class = "parameters: {tier: fast, csi.storage.k8s.io/fstype: xfs}\nprovisioner: any";
        let manifest = manifest(DRIVER, class).unwrap();
        assert_eq!(manifest.name.as_deref(), Some("block.csi.example.com"));
        assert_eq!(manifest.volume_size(), 1 << 30);
        assert_eq!(manifest.volume.fs_types, ["xfs", "ext4"]);
        assert_eq!(manifest.volume.parameters, BTreeMap::from([("tier".to_owned(), "fast".to_owned())]));
        assert_eq!(manifest.command.len(), 1);
    }

    #[test]
    fn capabilities_that_no_driver_reports_are_taken() {
        let text =
            DRIVER.replace("block: true", "block: false").replace("persistence: true", "persistence: false");
        let text = format!(
            "{text}  RequiredMountOption: {{noatime: {{}}}}\nInlineVolumes: [{{Attributes: {{a: b}}, ReadOnly: true}}]\n"
        );
        let volume = manifest(&text, "mountOptions: [nosuid]").unwrap().volume;
        assert_eq!((volume.block, volume.persistent, volume.inline), (Some(false), false, true));
        assert_eq!(volume.mount_options, ["noatime", "nosuid"]);
        assert_eq!(volume.inline_attributes, BTreeMap::from([("a".to_owned(), "b".to_owned())]));
        assert!(volume.inline_read_only);
    }

    #[test]
    fn unknown_key_is_named_with_the_nearest() {
        for (from, to, meant) in [
            ("SnapshotClass", "SnapshotClas", "SnapshotClass"),
            ("persistence", "persistance", "persistence"),
        ] {
            let error = manifest(&DRIVER.replace(from, to), "{}").unwrap_err();
            assert!(error.to_string().ends_with(&format!("unknown key `{to}`")), "{error}");
            assert_eq!(error.hint(), Some(format!("did you mean `{meant}`?")));
        }
    }

    #[test]
    fn minimum_size_never_makes_volumes_smaller() {
        let small = DRIVER.replace("1Gi", "1Mi");
        assert_eq!(manifest(&small, "{}").unwrap().volume_size(), super::super::DEFAULT_SIZE);
    }

    #[test]
    fn object_of_a_cluster_is_an_error() {
        let secret = "parameters: {csi.storage.k8s.io/provisioner-secret-name: admin}";
        let error = manifest(DRIVER, secret).unwrap_err();
        assert!(error.to_string().contains("the secret `admin` is in a cluster"), "{error}");
        let existing = DRIVER.replace("FromFile: class.yaml", "FromExistingClassName: fast");
        let error = manifest(&existing, "{}").unwrap_err();
        assert!(error.to_string().contains("the StorageClass `fast`"), "{error}");
    }
}
