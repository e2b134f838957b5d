//! The traits of a plugin: what every kind of volume can do, and its four optional abilities.

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

/// A kind of volume.
#[async_trait]
pub trait VolumePlugin: fmt::Debug + Send + Sync + 'static {
    /// Its qualified name.
    fn name(&self) -> PluginName;

    /// Whether the volume is of this kind.
    fn supports(&self, spec: &Spec) -> bool;

    /// What it calls the volume: the second part of the unique name.
    fn volume_name(&self, spec: &Spec) -> Result<String, Failure>;

    /// Whether a mounted volume is set up again at each sync of its pod.
    fn requires_remount(&self, _spec: &Spec, _facts: &Facts) -> bool {
        false
    }

    /// Whether mounts of this kind take options at all.
    fn takes_mount_options(&self) -> bool {
        false
    }

    /// Whether a label can be given as a mount option. An error only if that cannot be known yet.
    fn takes_selinux_mount(&self, _spec: &Spec, _facts: &Facts) -> bool {
        false
    }

    /// Whether the controller must attach the volume before this node may use it.
    fn can_attach(&self, _spec: &Spec, _facts: &Facts) -> bool {
        false
    }

    /// Whether the volume has a step of its own per node, before the one per pod.
    fn can_device_mount(&self, _spec: &Spec) -> bool {
        false
    }

    /// Where the volume appears for a pod, whether or not it is there.
    fn target(&self, paths: &Paths, pod: &PodUid, inner: &SpecName) -> PathBuf;

    /// Makes the volume appear for a pod. Called again for a volume that is there already: it must then
    /// leave what is right alone.
    async fn set_up(&self, cx: &OperationContext, request: &SetUp) -> Result<Mounted, Failure>;

    /// Takes the volume back from a pod. What is not there is success.
    async fn tear_down(&self, cx: &OperationContext, request: &TearDown) -> Result<(), Failure>;

    /// Rebuilds what a directory found after a restart stands for. May read files of ours beside the
    /// volume, never the volume itself, which may hang.
    async fn reconstruct(&self, scene: &Scene<'_>, found: &Found) -> Result<Rebuilt, Failure>;

    /// Finds volumes that the plugin's own directories tell of and those of pods may not any more: staged
    /// ones, and ones that are published although the pod's directory was not yet, or is no longer, there.
    async fn find_staged(&self, _scene: &Scene<'_>) -> Vec<Staged> {
        Vec::new()
    }

    /// Finds what the plugin's own directories hold of volumes without saying of which.
    async fn find_unidentified_stages(&self, _scene: &Scene<'_>) -> Vec<UnidentifiedStage> {
        Vec::new()
    }

    /// For a directory that could not be reconstructed and that no pod wants: finds out what it is by other
    /// means than its own record, or says that nobody knows. Never guesses.
    async fn identify_orphan(&self, _scene: &Scene<'_>, _found: &Found) -> Result<Option<Rebuilt>, Failure> {
        Ok(None)
    }

    /// Its side towards the controller, if volumes of this kind can be attached.
    fn attacher(&self) -> Option<&dyn Attacher> {
        None
    }

    /// Its step per node, if it has one.
    fn device_mounter(&self) -> Option<&dyn DeviceMounter> {
        None
    }

    /// Its way of handing over devices, if it can.
    fn block_mapper(&self) -> Option<&dyn BlockMapper> {
        None
    }

    /// Its way of growing volumes on the node, if it can.
    fn expander(&self) -> Option<&dyn Expander> {
        None
    }
}

/// Attaches volumes to nodes: two methods for the controller, one for the node.
#[async_trait]
pub trait Attacher: fmt::Debug + Send + Sync {
    /// Whether the volume is attached to this node, as the API says now. Returns where its device is or, for
    /// CSI, the name of its attachment.
    async fn wait_for_attach(
        &self,
        cx: &OperationContext,
        spec: &Spec,
        device_path: &str,
    ) -> Result<String, Failure>;

    /// Attaches the volume to a node and waits for it. Returns where its device is, if that is known.
    async fn attach(&self, remote: &Remote<'_>, spec: &Spec, node: &NodeName) -> Result<String, Failure>;

    /// Detaches the volume the plugin calls `volume` from a node and waits for it.
    async fn detach(&self, remote: &Remote<'_>, volume: &str, node: &NodeName) -> Result<(), Failure>;

    /// Whether the volume is still attached to the node.
    async fn is_attached(&self, remote: &Remote<'_>, spec: &Spec, node: &NodeName) -> Result<bool, Failure>;
}

/// What a plugin works with in the controller, where there is no node.
#[derive(Debug, Clone, Copy)]
pub struct Remote<'a> {
    pub api: &'a dyn ApiSource,
    /// The time.
    pub clock: &'a dyn Clock,
    /// CSIDriver objects and the like.
    pub facts: &'a Facts,
    /// What the controller hears of the objects that it follows.
    pub changes: &'a Changes,
}

/// The step per node. For a CSI driver that is staging, network file system or not.
#[async_trait]
pub trait DeviceMounter: fmt::Debug + Send + Sync {
    /// Where it is done.
    fn device_mount_path(&self, paths: &Paths, spec: &Spec) -> Result<PathBuf, Failure>;

    /// Does it.
    async fn mount_device(&self, cx: &OperationContext, request: &MountDevice) -> Result<(), Failure>;

    /// Undoes it. What is not there is success. `spec` may be no more than what a directory told.
    async fn unmount_device(&self, cx: &OperationContext, path: &Path, spec: &Spec) -> Result<(), Failure>;

    /// Every other place that shows the same mount.
    async fn device_mount_refs(&self, cx: &OperationContext, path: &Path) -> Result<Vec<PathBuf>, Failure>;
}

/// Hands over devices.
#[async_trait]
pub trait BlockMapper: fmt::Debug + Send + Sync {
    /// Where the device is bound once per pod.
    fn global_map_path(&self, paths: &Paths, spec: &Spec) -> Result<PathBuf, Failure>;

    /// The link that reaches the device from a pod.
    fn pod_device(&self, paths: &Paths, pod: &PodUid, inner: &SpecName) -> PathBuf;

    /// Writes down what a later incarnation must know, before anything is done.
    async fn prepare(&self, cx: &OperationContext, request: &MapDevice) -> Result<(), Failure>;

    /// Does the step per node. Returns where the driver staged the device, if it did.
    async fn set_up_device(
        &self,
        cx: &OperationContext,
        request: &MapDevice,
    ) -> Result<Option<PathBuf>, Failure>;

    /// Does the step per pod. Returns where the device is from then on.
    async fn map_pod_device(&self, cx: &OperationContext, request: &MapDevice) -> Result<PathBuf, Failure>;

    /// Undoes the step per pod.
    async fn unmap_pod_device(&self, cx: &OperationContext, request: &TearDown) -> Result<(), Failure>;

    /// Undoes the step per node.
    async fn tear_down_device(&self, cx: &OperationContext, spec: &Spec) -> Result<(), Failure>;
}

/// Grows volumes on the node.
#[async_trait]
pub trait Expander: fmt::Debug + Send + Sync {
    /// Whether growing the volume leaves something to do on the node.
    fn requires_resize(&self) -> bool;

    /// Does it.
    async fn expand(&self, cx: &OperationContext, request: &Expand) -> Result<(), Failure>;
}
