//! The traits of a plugin: what every kind of volume can do, and five optional abilities.

use std::fmt;
use std::path::{Path, PathBuf};

use api::ApiSource;
use api::clock::Clock;
use api::names::{NodeName, PluginName, PodUid, SpecName};
use async_trait::async_trait;

use crate::changes::Changes;
use crate::context::OperationContext;
use crate::error::Failure;
use crate::facts::Facts;
use crate::paths::Paths;
use crate::reconstruct::{Found, Rebuilt, Scene, Staged, UnidentifiedStage};
use crate::request::{Expand, MapDevice, MountDevice, Mounted, SetUp, TearDown};
use crate::spec::Spec;
use crate::stats::VolumeStats;

/// A kind of volume.
#[async_trait]
pub trait VolumePlugin: fmt::Debug + Send + Sync + 'static {
    /// The qualified name of the plugin.
    fn name(&self) -> PluginName;

    /// Whether the volume is of this kind.
    fn supports(&self, spec: &Spec) -> bool;

    /// The plugin's name of the volume: the second part of the unique name.
    fn volume_name(&self, spec: &Spec) -> Result<String, Failure>;

    /// Whether a mounted volume is set up again at each sync of its pod.
    fn requires_remount(&self, _spec: &Spec, _facts: &Facts) -> bool {
        false
    }

    /// Whether mounts of this kind take mount options.
    fn takes_mount_options(&self) -> bool {
        false
    }

    /// Whether an SELinux label can be given as a mount option.
    fn takes_selinux_mount(&self, _spec: &Spec, _facts: &Facts) -> bool {
        false
    }

    /// Whether the attach/detach controller must attach the volume before this node may use it.
    fn can_attach(&self, _spec: &Spec, _facts: &Facts) -> bool {
        false
    }

    /// Whether the volume is staged on the node before it is mounted for a pod.
    fn can_device_mount(&self, _spec: &Spec) -> bool {
        false
    }

    /// The path of the volume for a pod, mounted or not.
    fn target(&self, paths: &Paths, pod: &PodUid, inner: &SpecName) -> PathBuf;

    /// Mounts the volume for a pod. Called again for a mounted volume, it must change nothing that is right.
    async fn set_up(&self, cx: &OperationContext, request: &SetUp) -> Result<Mounted, Failure>;

    /// Unmounts the volume from a pod. A missing mount is success.
    async fn tear_down(&self, cx: &OperationContext, request: &TearDown) -> Result<(), Failure>;

    /// Reconstructs the volume of a directory found after a restart. May read the plugin's own files beside the
    /// volume, but never the volume, which may hang.
    async fn reconstruct(&self, scene: &Scene<'_>, found: &Found) -> Result<Rebuilt, Failure>;

    /// Finds volumes in the plugin's own directories that no pod's directory may name: staged volumes, and
    /// published ones whose directory in the pod was not created yet or is removed already.
    async fn find_staged(&self, _scene: &Scene<'_>) -> Vec<Staged> {
        Vec::new()
    }

    /// Finds stages in the plugin's own directories without a usable record.
    async fn find_unidentified_stages(&self, _scene: &Scene<'_>) -> Vec<UnidentifiedStage> {
        Vec::new()
    }

    /// Identifies the volume of a pod's directory that could not be reconstructed and that no pod wants, by
    /// other means than its record. `None` if it stays unknown; never guesses.
    async fn identify_orphan(&self, _scene: &Scene<'_>, _found: &Found) -> Result<Option<Rebuilt>, Failure> {
        Ok(None)
    }

    /// The ability to attach volumes.
    fn attacher(&self) -> Option<&dyn Attacher> {
        None
    }

    /// The ability to stage volumes.
    fn device_mounter(&self) -> Option<&dyn DeviceMounter> {
        None
    }

    /// The ability to map block volumes.
    fn block_mapper(&self) -> Option<&dyn BlockMapper> {
        None
    }

    /// The ability to expand volumes on the node.
    fn expander(&self) -> Option<&dyn Expander> {
        None
    }

    /// The ability to measure volumes.
    fn meter(&self) -> Option<&dyn Meter> {
        None
    }
}

/// Measures the volumes of pods.
#[async_trait]
pub trait Meter: fmt::Debug + Send + Sync {
    /// The usage and the condition of a pod's volume.
    async fn stats(&self, cx: &OperationContext, spec: &Spec, pod: &PodUid) -> Result<VolumeStats, Failure>;
}

/// Attaches volumes to nodes: one method for the node, the others for the attach/detach controller.
#[async_trait]
pub trait Attacher: fmt::Debug + Send + Sync {
    /// Checks with the API whether the volume is attached to this node. Returns the device's path or, for CSI,
    /// the name of the attachment.
    async fn wait_for_attach(
        &self,
        cx: &OperationContext,
        spec: &Spec,
        device_path: &str,
    ) -> Result<String, Failure>;

    /// Attaches the volume to a node and waits until it is attached. Returns the device's path if it is known.
    async fn attach(&self, remote: &Remote<'_>, spec: &Spec, node: &NodeName) -> Result<String, Failure>;

    /// Detaches the volume that the plugin calls `volume` from a node and waits until it is detached.
    async fn detach(&self, remote: &Remote<'_>, volume: &str, node: &NodeName) -> Result<(), Failure>;

    /// Whether the volume is still attached to the node.
    async fn is_attached(&self, remote: &Remote<'_>, spec: &Spec, node: &NodeName) -> Result<bool, Failure>;
}

/// The context of a plugin in the attach/detach controller, where there is no node.
#[derive(Debug, Clone, Copy)]
pub struct Remote<'a> {
    pub api: &'a dyn ApiSource,
    pub clock: &'a dyn Clock,
    /// Facts about CSIDriver objects and attachments.
    pub facts: &'a Facts,
    /// Notifications about the objects that the controller follows.
    pub changes: &'a Changes,
}

/// Stages volumes on the node: for CSI drivers with NodeStageVolume, for local volumes by a mount.
#[async_trait]
pub trait DeviceMounter: fmt::Debug + Send + Sync {
    /// The staging path.
    fn device_mount_path(&self, paths: &Paths, spec: &Spec) -> Result<PathBuf, Failure>;

    /// Stages the volume.
    async fn mount_device(&self, cx: &OperationContext, request: &MountDevice) -> Result<(), Failure>;

    /// Unstages the volume. A missing stage is success. `spec` may be reconstructed from disk.
    async fn unmount_device(&self, cx: &OperationContext, path: &Path, spec: &Spec) -> Result<(), Failure>;

    /// All other paths at which the stage is mounted.
    async fn device_mount_refs(&self, cx: &OperationContext, path: &Path) -> Result<Vec<PathBuf>, Failure>;
}

#[async_trait]
pub trait BlockMapper: fmt::Debug + Send + Sync {
    /// The global map: the directory in which the device is bound once per pod.
    fn global_map_path(&self, paths: &Paths, spec: &Spec) -> Result<PathBuf, Failure>;

    /// The symlink to the device in the pod's directory.
    fn pod_device(&self, paths: &Paths, pod: &PodUid, inner: &SpecName) -> PathBuf;

    /// Writes the volume's record, before anything else is done.
    async fn prepare(&self, cx: &OperationContext, request: &MapDevice) -> Result<(), Failure>;

    /// Stages the volume. Returns the staging path if the driver stages.
    async fn set_up_device(
        &self,
        cx: &OperationContext,
        request: &MapDevice,
    ) -> Result<Option<PathBuf>, Failure>;

    /// Publishes the volume for a pod. Returns the path of the published device.
    async fn map_pod_device(&self, cx: &OperationContext, request: &MapDevice) -> Result<PathBuf, Failure>;

    /// Unpublishes the volume from a pod.
    async fn unmap_pod_device(&self, cx: &OperationContext, request: &TearDown) -> Result<(), Failure>;

    /// Unstages the volume.
    async fn tear_down_device(&self, cx: &OperationContext, spec: &Spec) -> Result<(), Failure>;
}

/// Expands volumes on the node.
#[async_trait]
pub trait Expander: fmt::Debug + Send + Sync {
    /// Whether an expanded volume needs an expansion on the node, too.
    fn requires_resize(&self) -> bool;

    async fn expand(&self, cx: &OperationContext, request: &Expand) -> Result<(), Failure>;
}
