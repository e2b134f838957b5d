//! `vol_data.json`: what a volume's directory says about the volume in it.
//!
//! The file outlives the manager's memory. After a restart, and at every tear-down, the ids that go to
//! the driver come from it, so it is written before the driver is asked for anything and removed after
//! the undo succeeded. This file knows its format only; who writes it when is said in `stage`,
//! `publish` and `block`. It touches nothing: bytes in, bytes out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use api::names::{AttachmentName, DriverName, NodeName, SpecName, VolumeHandle, is_path_component};

/// The file's name, beside the target or the staging directory, never in it.
pub const FILE_NAME: &str = "vol_data.json";

const SPEC_NAME: &str = "specVolID";
const HANDLE: &str = "volumeHandle";
const DRIVER: &str = "driverName";
const NODE: &str = "nodeName";
const ATTACHMENT: &str = "attachmentID";
const LIFECYCLE: &str = "volumeLifecycleMode";
const SELINUX_CONTEXT: &str = "seLinuxMountContext";

/// How long a volume lives: as long as its claim, or as long as its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lifecycle {
    /// It has a PersistentVolume; it is staged, and may be attached.
    Persistent,
    /// It is written in the pod; the driver makes it at publish and forgets it at unpublish.
    Ephemeral,
}

impl Lifecycle {
    /// The word used in CSIDriver objects and in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Persistent => "Persistent",
            Self::Ephemeral => "Ephemeral",
        }
    }
}

/// The content of one `vol_data.json`.
///
/// The driver and the handle are always there and never empty: a file without them is an error, because
/// no call may go out with an empty id. The rest depends on whose directory it is: a staging directory
/// knows nothing but the two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeData {
    /// Who serves the volume.
    pub driver: DriverName,
    /// The volume's id, as the driver knows it.
    pub handle: VolumeHandle,
    /// The PersistentVolume's name, or the pod volume's.
    pub spec_name: Option<SpecName>,
    /// The node that wrote the file.
    pub node: Option<NodeName>,
    /// The name its VolumeAttachment has or would have.
    pub attachment: Option<AttachmentName>,
    /// Absent in staging and block directories, where only persistent volumes have one.
    pub lifecycle: Option<Lifecycle>,
    /// The label the volume was mounted with, if it was mounted with one.
    pub selinux_context: Option<String>,
}

impl VolumeData {
    /// What a staging directory's file holds.
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

    /// The lifecycle; a file that does not say is a persistent volume's.
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

    /// Reads the content of the file at `path`.
    ///
    /// Tolerant where it harms nobody (unknown keys, any order, missing optional keys), strict where a
    /// wrong answer would reach a driver: the ids must be there, be strings, and not be empty.
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
            // Neither key: some other program's JSON. One of the two: ours, and damaged.
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

/// Why a `vol_data.json` cannot be used. Each says which file, none guesses an id.
#[derive(Debug, thiserror::Error)]
pub enum VolumeDataError {
    /// There is no such file.
    #[error("cannot find `{path}`")]
    Missing {
        /// The file that should be there.
        path: PathBuf,
    },
    /// It is there, and reading it failed.
    #[error("cannot read `{path}`")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: host::HostError,
    },
    /// What is there is no file, or far too long for one of ours.
    #[error("cannot use `{path}`: it is no file of ours")]
    NoFile {
        /// What is there.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: host::HostError,
    },
    /// Nothing in it: the node went down between truncation and write.
    #[error("cannot use `{path}`: it is empty")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// It ends in the middle of a value.
    #[error("cannot use `{path}`: it ends too early")]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Where it ends.
        #[source]
        source: serde_json::Error,
    },
    /// It is not JSON.
    #[error("cannot use `{path}`: it is not JSON")]
    NotJson {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        #[source]
        source: serde_json::Error,
    },
    /// It is JSON, but a list, a number or a string.
    #[error("cannot use `{path}`: it is not a JSON object")]
    NotAnObject {
        /// The file.
        path: PathBuf,
    },
    /// A key we read holds something else than a string.
    #[error("cannot use `{path}`: `{key}` is not a string")]
    NotAString {
        /// The file.
        path: PathBuf,
        key: &'static str,
    },
    /// A JSON object that names neither driver nor volume: somebody else's.
    #[error("cannot use `{path}`: it names neither a driver nor a volume")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// An id is missing or empty. A call with it would hit no volume, or all of them.
    #[error("cannot use `{path}`: `{key}` is empty")]
    EmptyId {
        /// The file.
        path: PathBuf,
        key: &'static str,
    },
    /// A driver whose name would lead out of the drivers' directory.
    #[error("cannot use `{path}`: its `driverName` cannot name a directory")]
    BadDriver {
        /// The file.
        path: PathBuf,
    },
    /// It names another volume than the one whose directory it is in.
    #[error("cannot use `{path}`: it is another volume's")]
    AnothersVolume {
        /// The file.
        path: PathBuf,
    },
    /// A lifecycle that does not exist.
    #[error("cannot use `{path}`: its `volumeLifecycleMode` is neither Persistent nor Ephemeral")]
    UnknownLifecycle {
        /// The file.
        path: PathBuf,
    },
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
