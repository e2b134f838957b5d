//! VolumeAttachments, and the CSIDriver that tells whether a driver needs them.

use serde_json::{Map, Value};

use super::{Attachment, CsiDriver};
use crate::json::{object, text};

impl<'a> Attachment<'a> {
    /// The name of the persistent volume.
    pub fn volume_name(self) -> Option<&'a str> {
        self.0["spec"]["source"]["persistentVolumeName"].as_str()
    }

    /// The name of the node that the volume is attached to.
    pub fn node(self) -> &'a str {
        text(&self.0["spec"], "nodeName")
    }

    pub fn is_attached(self) -> bool {
        self.0["status"]["attached"] == true
    }

    /// The driver's answer to ControllerPublishVolume, which its calls on the node get as their publish context.
    pub fn metadata(self) -> Map<String, Value> {
        object(&self.0["status"]["attachmentMetadata"])
    }
}

impl<'a> CsiDriver<'a> {
    /// Whether the driver's volumes are attached, as they are unless the object says otherwise.
    pub fn requires_attach(self) -> bool {
        self.0["spec"]["attachRequired"] != false
    }

    /// `None`, `File` or `ReadWriteOnceWithFSType`; empty if the object does not have it.
    pub fn fs_group_policy(self) -> &'a str {
        text(&self.0["spec"], "fsGroupPolicy")
    }
}
