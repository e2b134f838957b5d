//! The format of `vol_data.json`, the record of the volume in a directory.
//!
//! The record survives a restart of the manager. After a restart, and at every tear-down, the ids for the
//! driver's calls come from it; so it is written before the first call and removed after the undo succeeded, by
//! `stage`, `publish` and `block`. Pure functions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use api::names::{AttachmentName, DriverName, NodeName, SpecName, VolumeHandle, is_path_component};

/// The record's file name; it is beside the target or the staging path, never in it.
pub const FILE_NAME: &str = "vol_data.json";

const SPEC_NAME: &str = "specVolID";
const HANDLE: &str = "volumeHandle";
const DRIVER: &str = "driverName";
const NODE: &str = "nodeName";
const ATTACHMENT: &str = "attachmentID";
const LIFECYCLE: &str = "volumeLifecycleMode";
const SELINUX_CONTEXT: &str = "seLinuxMountContext";

/// The lifecycle of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lifecycle {
    /// The volume has a PersistentVolume; it is staged, and may be attached.
    Persistent,
    /// The volume is part of the pod; the driver creates it at publish and deletes it at unpublish.
    Ephemeral,
}

impl Lifecycle {
    /// The word in CSIDriver objects and in the record.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Persistent => "Persistent",
            Self::Ephemeral => "Ephemeral",
        }
    }
}

/// The content of a record.
///
/// The driver and the handle are always there and never empty: a file without them is an error, since no call
/// may be made with an empty id. A staging directory's record has only these two and the label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeData {
    pub driver: DriverName,
    /// The volume's id in the driver's calls.
    pub handle: VolumeHandle,
    /// The name of the PersistentVolume or of the pod's volume.
    pub spec_name: Option<SpecName>,
    /// The node that wrote the record.
    pub node: Option<NodeName>,
    /// The name of the volume's VolumeAttachment.
    pub attachment: Option<AttachmentName>,
    /// `None` in records of stages and block volumes, which are always persistent.
    pub lifecycle: Option<Lifecycle>,
    /// The SELinux label that the volume is mounted with.
    pub selinux_context: Option<String>,
}

impl VolumeData {
    /// The record of a staging directory.
    pub fn of_stage(driver: impl Into<DriverName>, handle: impl Into<VolumeHandle>) -> Self {
        Self {
            driver: driver.into(),
            handle: handle.into(),
            spec_name: None,
            node: None,
            attachment: None,
            lifecycle: None,
            selinux_context: None,
        }
    }

    /// The lifecycle; persistent if the record has none.
    pub fn lifecycle(&self) -> Lifecycle {
        self.lifecycle.unwrap_or(Lifecycle::Persistent)
    }

    /// One line of JSON, as the kubelet writes it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut entries = BTreeMap::from([(DRIVER, self.driver.as_str()), (HANDLE, self.handle.as_str())]);
        let optional = [
            (SPEC_NAME, self.spec_name.as_ref().map(SpecName::as_str)),
            (NODE, self.node.as_ref().map(NodeName::as_str)),
            (ATTACHMENT, self.attachment.as_ref().map(AttachmentName::as_str)),
            (LIFECYCLE, self.lifecycle.map(Lifecycle::as_str)),
            (SELINUX_CONTEXT, self.selinux_context.as_deref()),
        ];
        entries.extend(optional.into_iter().filter_map(|(key, value)| Some((key, value?))));
        let mut line = serde_json::to_vec(&entries).expect("a map of strings is always valid JSON");
        line.push(b'\n');
        line
    }

    /// Parses the content of the file at `path`.
    ///
    /// Unknown keys, any order and missing optional keys are accepted. The ids must be there, be strings, and
    /// not be empty: a wrong id would reach a driver.
    pub fn parse(path: &Path, content: &[u8]) -> Result<Self, VolumeDataError> {
        let path = || path.to_path_buf();
        if content.iter().all(u8::is_ascii_whitespace) {
            return Err(VolumeDataError::Empty { path: path() });
        }
        let value: serde_json::Value = serde_json::from_slice(content).map_err(|source| {
            if source.is_eof() {
                VolumeDataError::Truncated { path: path(), source }
            } else {
                VolumeDataError::NotJson { path: path(), source }
            }
        })?;
        let serde_json::Value::Object(mut object) = value else {
            return Err(VolumeDataError::NotAnObject { path: path() });
        };
        let mut take = |key: &'static str| match object.remove(key) {
            None | Some(serde_json::Value::Null) => Ok(None),
            Some(serde_json::Value::String(value)) => Ok(Some(value)),
            Some(_) => Err(VolumeDataError::NotAString { path: path(), key }),
        };
        let driver = take(DRIVER)?;
        let handle = take(HANDLE)?;
        let data =
            (take(SPEC_NAME)?, take(NODE)?, take(ATTACHMENT)?, take(LIFECYCLE)?, take(SELINUX_CONTEXT)?);
        let (spec_name, node, attachment, lifecycle, selinux_context) = data;
        let (driver, handle) = match (driver, handle) {
            // Without both keys it is another program's JSON; with one of them it is a damaged record.
            (None, None) => return Err(VolumeDataError::Foreign { path: path() }),
            (driver, handle) => (driver.unwrap_or_default(), handle.unwrap_or_default()),
        };
        for (key, value) in [(DRIVER, &driver), (HANDLE, &handle)] {
            if value.is_empty() {
                return Err(VolumeDataError::EmptyId { path: path(), key });
            }
        }
        if !is_path_component(&driver) {
            return Err(VolumeDataError::BadDriver { path: path() });
        }
        let lifecycle = match lifecycle.as_deref() {
            None | Some("") => None,
            Some("Persistent") => Some(Lifecycle::Persistent),
            Some("Ephemeral") => Some(Lifecycle::Ephemeral),
            Some(_) => return Err(VolumeDataError::UnknownLifecycle { path: path() }),
        };
        let known = |value: Option<String>| value.filter(|value| !value.is_empty());
        Ok(Self {
            driver: driver.into(),
            handle: handle.into(),
            spec_name: known(spec_name).map(SpecName::from),
            node: known(node).map(NodeName::from),
            attachment: known(attachment).map(AttachmentName::from),
            lifecycle,
            selinux_context: known(selinux_context),
        })
    }
}

/// Why a record cannot be used. Each variant names the file; no id is ever guessed.
#[derive(Debug, thiserror::Error)]
pub enum VolumeDataError {
    /// The file does not exist.
    #[error("cannot find `{path}`")]
    Missing { path: PathBuf },
    /// The file exists, but reading it failed.
    #[error("cannot read `{path}`")]
    Unreadable {
        path: PathBuf,
        #[source]
        source: host::HostError,
    },
    /// Not a regular file, or one that is far too long for a record.
    #[error("cannot use `{path}`: it is no file of ours")]
    NoFile {
        path: PathBuf,
        #[source]
        source: host::HostError,
    },
    /// The file is empty: the node crashed between truncation and write.
    #[error("cannot use `{path}`: it is empty")]
    Empty { path: PathBuf },
    /// The file ends in the middle of a value.
    #[error("cannot use `{path}`: it ends too early")]
    Truncated {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    /// The content is not JSON.
    #[error("cannot use `{path}`: it is not JSON")]
    NotJson {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    /// The JSON is a list, a number or a string.
    #[error("cannot use `{path}`: it is not a JSON object")]
    NotAnObject { path: PathBuf },
    /// The value of a known key is not a string.
    #[error("cannot use `{path}`: `{key}` is not a string")]
    NotAString { path: PathBuf, key: &'static str },
    /// The JSON object names neither driver nor volume: another program's file.
    #[error("cannot use `{path}`: it names neither a driver nor a volume")]
    Foreign { path: PathBuf },
    /// An id is missing or empty. A call with it would be about no volume, or about all of them.
    #[error("cannot use `{path}`: `{key}` is empty")]
    EmptyId { path: PathBuf, key: &'static str },
    /// The driver's name cannot name a directory.
    #[error("cannot use `{path}`: its `driverName` cannot name a directory")]
    BadDriver { path: PathBuf },
    /// The record names another volume than the one whose directory it is in.
    #[error("cannot use `{path}`: it is another volume's")]
    AnothersVolume { path: PathBuf },
    /// The lifecycle is unknown.
    #[error("cannot use `{path}`: its `volumeLifecycleMode` is neither Persistent nor Ephemeral")]
    UnknownLifecycle { path: PathBuf },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> VolumeData {
        VolumeData {
            spec_name: Some("pv-v1".into()),
            node: Some("node-1".into()),
            attachment: Some("csi-1".into()),
            lifecycle: Some(Lifecycle::Persistent),
            selinux_context: None,
            ..VolumeData::of_stage("hostpath.csi.k8s.io", "vol-1")
        }
    }

    fn parse(content: &str) -> Result<VolumeData, String> {
        VolumeData::parse(Path::new("/d/vol_data.json"), content.as_bytes())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn has_the_keys_of_each_kind_of_directory_in_one_line() {
        let text = |data: &VolumeData| String::from_utf8(data.to_bytes()).unwrap();
        assert_eq!(
            text(&full()),
            concat!(
                r#"{"attachmentID":"csi-1","driverName":"hostpath.csi.k8s.io","nodeName":"node-1","#,
                r#""specVolID":"pv-v1","volumeHandle":"vol-1","volumeLifecycleMode":"Persistent"}"#,
                "\n"
            )
        );
        assert_eq!(text(&VolumeData::of_stage("d", "h")), "{\"driverName\":\"d\",\"volumeHandle\":\"h\"}\n");
    }

    #[test]
    fn reads_back_what_it_wrote() {
        let labelled = VolumeData { selinux_context: Some("u:r:t:s0".into()), ..full() };
        let ephemeral = VolumeData { lifecycle: Some(Lifecycle::Ephemeral), ..full() };
        for data in [full(), labelled, ephemeral, VolumeData::of_stage("d", "h")] {
            let bytes = data.to_bytes();
            assert_eq!(VolumeData::parse(Path::new("/f"), &bytes).unwrap(), data);
        }
    }

    #[test]
    fn tolerates_unknown_keys_and_missing_ones() {
        let data = parse(r#" {"volumeHandle":"h","later":{"a":1},"driverName":"d","nodeName":""} "#).unwrap();
        assert_eq!(data, VolumeData::of_stage("d", "h"));
        assert_eq!(data.lifecycle(), Lifecycle::Persistent);
    }

    #[test]
    fn names_what_is_wrong() {
        for (content, says) in [
            ("", "it is empty"),
            (" \n", "it is empty"),
            (r#"{"driverName":"d","volumeHan"#, "it ends too early"),
            ("{driver}", "it is not JSON"),
            ("\0\0\0\0", "it is not JSON"),
            (r#"["driverName"]"#, "it is not a JSON object"),
            (r#""driverName""#, "it is not a JSON object"),
            (r#"{"driverName":7,"volumeHandle":"h"}"#, "`driverName` is not a string"),
            (r#"{"driverName":"d","volumeHandle":["h"]}"#, "`volumeHandle` is not a string"),
            (r#"{"name":"somebody else's"}"#, "it names neither a driver nor a volume"),
            ("{}", "it names neither a driver nor a volume"),
            (r#"{"driverName":"d","volumeHandle":""}"#, "`volumeHandle` is empty"),
            (r#"{"driverName":"d"}"#, "`volumeHandle` is empty"),
            (r#"{"driverName":null,"volumeHandle":"h"}"#, "`driverName` is empty"),
            (r#"{"driverName":"../d","volumeHandle":"h"}"#, "`driverName` cannot name a directory"),
            (r#"{"driverName":"..","volumeHandle":"h"}"#, "`driverName` cannot name a directory"),
            (r#"{"driverName":"d","volumeHandle":"h","nodeName":{}}"#, "`nodeName` is not a string"),
            (
                r#"{"driverName":"d","volumeHandle":"h","volumeLifecycleMode":"Eternal"}"#,
                "volumeLifecycleMode",
            ),
        ] {
            let error = parse(content).expect_err(content);
            assert!(error.starts_with("cannot use `/d/vol_data.json`: "), "{error}");
            assert!(error.contains(says), "{content}: {error}");
        }
    }
}
