//! A CSI volume as a driver's calls need it, from a PersistentVolume or an inline volume.
//!
//! Pure functions. The volume is a copy: additions for a call do not change the API object.

use std::collections::BTreeMap;

use api::names::{
    AttachmentName, DriverName, Namespaced, NodeName, PodUid, SpecName, VolumeHandle, escape,
    is_path_component,
};
use api::{AccessMode, PersistentSource, Pod, VolumeSource};
use plugin_api::error::{Failure, Unfit};
use plugin_api::{Spec, SpecSource};

use super::error::CsiError;
use super::volume_data::{Lifecycle, VolumeData};

/// A volume of a CSI driver.
#[derive(Debug, Clone)]
pub(crate) struct CsiVolume {
    pub(crate) inner: SpecName,
    pub(crate) driver: DriverName,
    pub(crate) handle: VolumeHandle,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) fs_type: String,
    pub(crate) attributes: BTreeMap<String, String>,
    /// From the PersistentVolume's field; the annotation for mount options is not used.
    pub(crate) mount_options: Vec<String>,
    pub(crate) access_modes: Vec<AccessMode>,
    pub(crate) read_only: bool,
    pub(crate) stage_secret: Option<Namespaced>,
    pub(crate) publish_secret: Option<Namespaced>,
    pub(crate) expand_secret: Option<Namespaced>,
}

impl CsiVolume {
    /// The volume of a spec. The pod is used for inline volumes only: for the handle and for the secret's
    /// namespace.
    pub(crate) fn of(spec: &Spec, pod: &Pod) -> Result<Self, Failure> {
        Self::build(spec, &pod.uid(), &pod.meta.namespace)
    }

    /// The volume of a PersistentVolume's spec.
    pub(crate) fn persistent(spec: &Spec) -> Result<Self, Failure> {
        match spec.source {
            SpecSource::Persistent(_) => Self::build(spec, &PodUid::new(""), ""),
            SpecSource::Inline(_) => Err(foreign(spec)),
        }
    }

    /// The volume by the pod's uid, for a teardown: the pod's object may not be known then.
    pub(crate) fn of_uid(spec: &Spec, pod: &PodUid) -> Result<Self, Failure> {
        Self::build(spec, pod, "")
    }

    fn build(spec: &Spec, pod: &PodUid, namespace: &str) -> Result<Self, Failure> {
        let inner = spec.name();
        let volume = match &spec.source {
            SpecSource::Persistent(volume) => {
                let PersistentSource::Csi(csi) = &volume.source else { return Err(foreign(spec)) };
                Self {
                    driver: csi.driver.clone(),
                    handle: csi.handle.clone(),
                    lifecycle: Lifecycle::Persistent,
                    fs_type: csi.fs_type.clone(),
                    attributes: csi.attributes.clone(),
                    mount_options: volume.mount_options.clone(),
                    access_modes: volume.access_modes.clone(),
                    read_only: spec.read_only,
                    stage_secret: csi.node_stage_secret.as_deref().cloned(),
                    publish_secret: csi.node_publish_secret.as_deref().cloned(),
                    expand_secret: csi.node_expand_secret.as_deref().cloned(),
                    inner,
                }
            }
            SpecSource::Inline(volume) => {
                let VolumeSource::Csi(csi) = &volume.source else { return Err(foreign(spec)) };
                Self {
                    driver: csi.driver.clone(),
                    handle: VolumeHandle::ephemeral(pod, &inner),
                    lifecycle: Lifecycle::Ephemeral,
                    fs_type: csi.fs_type.clone(),
                    attributes: csi.attributes.clone(),
                    mount_options: Vec::new(),
                    access_modes: Vec::new(),
                    read_only: csi.read_only,
                    stage_secret: None,
                    publish_secret: csi.secret.as_ref().map(|name| Namespaced::new(namespace, name)),
                    expand_secret: None,
                    inner,
                }
            }
        };
        volume.checked().map_err(Failure::from)
    }

    /// Checks that driver name and volume name can name directories and that the handle is not empty.
    fn checked(self) -> Result<Self, CsiError> {
        let what = if !is_path_component(self.driver.as_str()) {
            "driver name"
        } else if !is_path_component(&escape(self.inner.as_str())) {
            "name"
        } else if self.handle.as_str().is_empty() {
            "handle"
        } else {
            return Ok(self);
        };
        Err(CsiError::BadName { volume: self.inner, what })
    }

    /// The name of the volume's VolumeAttachment.
    pub(crate) fn attachment(&self, node: &NodeName) -> AttachmentName {
        AttachmentName::of(&self.handle, &self.driver, node)
    }

    /// The record for the pod's directory.
    pub(crate) fn data(&self, node: &NodeName, selinux_context: &str) -> VolumeData {
        VolumeData {
            spec_name: Some(self.inner.clone()),
            node: Some(node.clone()),
            attachment: Some(self.attachment(node)),
            lifecycle: Some(self.lifecycle),
            selinux_context: Some(selinux_context.to_owned()).filter(|label| !label.is_empty()),
            ..VolumeData::of_stage(self.driver.clone(), self.handle.clone())
        }
    }
}

fn foreign(spec: &Spec) -> Failure {
    let (plugin, volume) = (super::NAME.to_owned(), spec.name().to_string());
    Unfit::WrongSource { plugin, volume }.into()
}
