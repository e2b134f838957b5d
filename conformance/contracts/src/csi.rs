//! CSI messages as rules read them: the one place that names their fields.
//!
//! A trace has whole messages as JSON in the protobuf mapping; fields of a newer CSI stay in them unread. A missing field
//! reads as its default, as in protobuf.

use serde_json::{Map, Value};

use crate::event::{RpcEnd, RpcStart};
use crate::json::{object, text};

mod answer;

/// The fields of answers that are held against what CSI demands of every answer.
pub const ANSWERED_FIELDS: &[(&str, &str)] = answer::FIELDS;

macro_rules! fields {
    ($($name:ident = $field:literal in $message:literal,)*) => {
        $(pub(crate) const $name: &str = $field;)*

        /// Each field that is read here, after the message it is of.
        pub const FIELDS: &[(&str, &str)] = &[$(($message, $field),)*];
    };
}

fields! {
    VOLUME_ID = "volumeId" in "NodeStageVolumeRequest",
    STAGING = "stagingTargetPath" in "NodeStageVolumeRequest",
    TARGET = "targetPath" in "NodePublishVolumeRequest",
    VOLUME_PATH = "volumePath" in "NodeExpandVolumeRequest",
    READONLY = "readonly" in "NodePublishVolumeRequest",
    SECRETS = "secrets" in "NodePublishVolumeRequest",
    VOLUME_CONTEXT = "volumeContext" in "NodePublishVolumeRequest",
    PUBLISH_CONTEXT = "publishContext" in "NodePublishVolumeRequest",
    CAPABILITY = "volumeCapability" in "NodePublishVolumeRequest",
    NODE_ID = "nodeId" in "ControllerPublishVolumeRequest",
    NAME = "name" in "CreateVolumeRequest",
    RANGE = "capacityRange" in "CreateVolumeRequest",
    REQUIRED = "requiredBytes" in "CapacityRange",
    LIMIT = "limitBytes" in "CapacityRange",
    BLOCK = "block" in "VolumeCapability",
    MOUNT = "mount" in "VolumeCapability",
    ACCESS_MODE = "accessMode" in "VolumeCapability",
    MODE = "mode" in "VolumeCapability.AccessMode",
    FS_TYPE = "fsType" in "VolumeCapability.MountVolume",
    FLAGS = "mountFlags" in "VolumeCapability.MountVolume",
    GROUP = "volumeMountGroup" in "VolumeCapability.MountVolume",
    VOLUME = "volume" in "CreateVolumeResponse",
    CREATED_ID = "volumeId" in "Volume",
    CAPACITY = "capacityBytes" in "Volume",
    CAPABILITIES = "capabilities" in "NodeGetCapabilitiesResponse",
    RPC = "rpc" in "NodeServiceCapability",
    TYPE = "type" in "NodeServiceCapability.RPC",
    PLUGIN_NAME = "name" in "GetPluginInfoResponse",
    INFO_NODE_ID = "nodeId" in "NodeGetInfoResponse",
    GROWN = "capacityBytes" in "ControllerExpandVolumeResponse",
    MUTABLE = "mutableParameters" in "ControllerModifyVolumeRequest",
    CONTENT = "volumeContentSource" in "CreateVolumeRequest",
    COPIED = "volume" in "VolumeContentSource",
    COPIED_ID = "volumeId" in "VolumeContentSource.VolumeSource",
    CUT = "sourceVolumeId" in "CreateSnapshotRequest",
    SNAPSHOT = "snapshot" in "CreateSnapshotResponse",
    SNAPSHOT_ID = "snapshotId" in "Snapshot",
    IN_GROUP = "groupSnapshotId" in "Snapshot",
    GROUP_SNAPSHOT = "groupSnapshot" in "CreateVolumeGroupSnapshotResponse",
    GROUP_ID = "groupSnapshotId" in "VolumeGroupSnapshot",
    MEMBERS = "snapshots" in "VolumeGroupSnapshot",
}

/// A path that a request names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathField {
    Target,
    Staging,
    Volume,
}

impl PathField {
    /// The name of the field.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Target => TARGET,
            Self::Staging => STAGING,
            Self::Volume => VOLUME_PATH,
        }
    }
}

/// The fields of a request, whichever call it is of.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a>(&'a Value);

impl RpcStart {
    pub fn request(&self) -> Request<'_> {
        Request(&self.req)
    }
}

impl<'a> Request<'a> {
    pub fn of(json: &'a Value) -> Self {
        Self(json)
    }

    pub fn volume_id(self) -> &'a str {
        text(self.0, VOLUME_ID)
    }

    pub fn target_path(self) -> &'a str {
        self.path(PathField::Target)
    }

    pub fn staging_path(self) -> &'a str {
        self.path(PathField::Staging)
    }

    pub fn path(self, field: PathField) -> &'a str {
        text(self.0, field.as_str())
    }

    /// The node that a volume is to be attached to or detached from.
    pub fn node_id(self) -> &'a str {
        text(self.0, NODE_ID)
    }

    /// The name of a volume to be made.
    pub fn name(self) -> &'a str {
        text(self.0, NAME)
    }

    /// The attributes that a volume is to have.
    pub fn mutable_parameters(self) -> Map<String, Value> {
        object(&self.0[MUTABLE])
    }

    /// The volume that a new volume or a snapshot is a copy of.
    pub fn copied_volume(self) -> &'a str {
        match text(self.0, CUT) {
            "" => text(&self.0[CONTENT][COPIED], COPIED_ID),
            cut => cut,
        }
    }

    /// The snapshot that is to be deleted.
    pub fn snapshot_id(self) -> &'a str {
        text(self.0, SNAPSHOT_ID)
    }

    /// The group snapshot that is to be deleted.
    pub fn group_id(self) -> &'a str {
        text(self.0, GROUP_ID)
    }

    pub fn is_readonly(self) -> bool {
        self.0[READONLY] == true
    }

    pub fn volume_context(self) -> Map<String, Value> {
        object(&self.0[VOLUME_CONTEXT])
    }

    pub fn publish_context(self) -> Map<String, Value> {
        object(&self.0[PUBLISH_CONTEXT])
    }

    /// The keys of the secrets that the request carries.
    pub fn secret_keys(self) -> impl Iterator<Item = &'a String> {
        self.0[SECRETS].as_object().into_iter().flat_map(Map::keys)
    }

    pub fn capability(self) -> Capability<'a> {
        Capability(&self.0[CAPABILITY])
    }

    /// The least and the most bytes that were asked for; none where there is no limit.
    pub fn capacity_range(self) -> (Option<i64>, Option<i64>) {
        let range = &self.0[RANGE];
        let positive = |field: &str| bytes(&range[field]).filter(|bytes| *bytes > 0);
        (positive(REQUIRED), positive(LIMIT))
    }

    /// The request as the specification compares two: secrets may differ.
    pub fn without_secrets(self) -> Value {
        let mut request = self.0.clone();
        if let Some(fields) = request.as_object_mut() {
            fields.remove(SECRETS);
        }
        request
    }
}

/// The way a volume is to be used.
#[derive(Debug, Clone, Copy)]
pub struct Capability<'a>(&'a Value);

impl<'a> Capability<'a> {
    pub fn is_block(self) -> bool {
        self.0[BLOCK].is_object()
    }

    /// The access mode by its name in the specification.
    pub fn mode(self) -> &'a str {
        text(&self.0[ACCESS_MODE], MODE)
    }

    pub fn fs_type(self) -> &'a str {
        text(&self.0[MOUNT], FS_TYPE)
    }

    pub fn mount_group(self) -> &'a str {
        text(&self.0[MOUNT], GROUP)
    }

    pub fn mount_flags(self) -> impl Iterator<Item = &'a str> {
        self.0[MOUNT][FLAGS].as_array().into_iter().flatten().filter_map(Value::as_str)
    }

    /// The capability without its volume mount group and SELinux label, which differ by pod.
    pub fn without_the_pods(self) -> Value {
        let mut capability = self.0.clone();
        if let Some(mount) = capability.get_mut(MOUNT).and_then(Value::as_object_mut) {
            mount.remove(GROUP);
            if let Some(flags) = mount.get_mut(FLAGS).and_then(Value::as_array_mut) {
                flags.retain(|flag| !flag.as_str().is_some_and(|flag| flag.starts_with("context=")));
            }
            mount.retain(|_, value| !value.as_array().is_some_and(Vec::is_empty) && value != "");
        }
        capability
    }
}

/// The fields of an answer that went well.
#[derive(Debug, Clone, Copy)]
pub struct Response<'a>(&'a Value);

impl RpcEnd {
    pub fn response(&self) -> Response<'_> {
        Response(&self.resp)
    }
}

impl<'a> Response<'a> {
    pub(crate) fn of(json: &'a Value) -> Self {
        Self(json)
    }

    /// A field that is longer than CSI allows, and how long it is.
    pub(crate) fn too_long(self) -> Option<String> {
        answer::too_long(self.0)
    }

    /// A number that must not be negative and is; nothing where there is no such number at all.
    pub(crate) fn negative(self) -> Option<Option<String>> {
        answer::has_number(self.0).then(|| answer::negative(self.0))
    }

    /// A field that CSI requires and that is not there.
    pub(crate) fn missing(self, method: &str) -> Option<String> {
        answer::missing(method, self.0)
    }

    /// Whether the condition of a volume that is well has no message; `None` if the answer has none of such a volume.
    pub(crate) fn is_well_without_words(self) -> Option<bool> {
        answer::is_well_without_words(self.0)
    }

    /// The first required field that a snapshot in an answer lacks; `None` if the answer is not about snapshots.
    pub(crate) fn missing_of_snapshot(self, method: &str) -> Option<Option<String>> {
        answer::missing_of_snapshot(method, self.0)
    }

    /// The handle of a volume that was made.
    pub fn created_volume(self) -> &'a str {
        text(&self.0[VOLUME], CREATED_ID)
    }

    /// The handle of a snapshot that was taken.
    pub fn taken_snapshot(self) -> &'a str {
        text(&self.0[SNAPSHOT], SNAPSHOT_ID)
    }

    /// The handle of a group snapshot that was taken.
    pub fn taken_group(self) -> &'a str {
        text(&self.0[GROUP_SNAPSHOT], GROUP_ID)
    }

    /// The handles of the snapshots of a group that name their group.
    pub fn members(self) -> impl Iterator<Item = &'a str> {
        let members = self.0[GROUP_SNAPSHOT][MEMBERS].as_array().into_iter().flatten();
        let members = members.filter(|member| !text(member, IN_GROUP).is_empty());
        members.map(|member| text(member, SNAPSHOT_ID))
    }

    /// The size of a volume after its expansion.
    pub fn grown_bytes(self) -> Option<i64> {
        bytes(&self.0[GROWN]).filter(|bytes| *bytes > 0)
    }

    /// The size of a new volume; zero if the driver does not know it.
    pub fn created_bytes(self) -> Option<i64> {
        bytes(&self.0[VOLUME][CAPACITY]).filter(|bytes| *bytes > 0)
    }

    /// The calls that a node or a controller service reports as its capabilities.
    pub fn capabilities(self) -> impl Iterator<Item = &'a str> {
        let listed = self.0[CAPABILITIES].as_array().into_iter().flatten();
        listed.filter_map(|entry| entry[RPC][TYPE].as_str())
    }

    pub fn plugin_name(self) -> &'a str {
        text(self.0, PLUGIN_NAME)
    }

    pub fn node_id(self) -> &'a str {
        text(self.0, INFO_NODE_ID)
    }
}

/// A number of 64 bits, which JSON has as text.
fn bytes(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}
