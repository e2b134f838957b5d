//! What a kind of volume must be able to do, and what it may be able to do besides.
//!
//! A [`VolumePlugin`] answers questions about a [`Spec`] without touching anything, makes a volume appear in
//! a pod's directory and takes it back. Four abilities are optional, each a trait of its own that the plugin
//! may return: [`Attacher`], [`DeviceMounter`], [`BlockMapper`] and [`Expander`]. Plugins hold no state about
//! volumes: requests carry all they need, and what an operation learns goes back through
//! [`OperationContext::mark`].
//!
//! A plugin announces risk. Directly before the call whose outcome may stay unknown, and after everything
//! else that can fail, it awaits the mark that says so; if the mark is refused because nobody wants the
//! volume any more, it stops there.

mod atomic_writer;
mod config_map;
mod content;
pub mod csi;
pub(crate) mod downward_api;
pub mod empty_dir;
pub mod host_path;
pub mod image;
pub mod local;
pub mod nfs;
mod projected;
pub mod registry;
mod secret;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::clock::Clock;
use api::error::ErrorClass;
use api::names::{AttachmentName, DriverName, NodeName, OuterName, PluginName, PodUid, SpecName, VolumeName};
use api::{
    AccessMode, ApiSource, Attachment, Bytes, CsiDriver, Node, PersistentSource, Pod, PodVolume, Volume,
    VolumeMode,
};
use async_trait::async_trait;
use host::HostError;
use serde::{Deserialize, Serialize};

use crate::error::Failure;
use crate::operation::OperationContext;
use crate::paths::Paths;

/// What a plugin is told about a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Where it comes from.
    pub source: SpecSource,
    /// Whether the pod's reference to its claim says that it only reads. Nothing else sets this.
    pub read_only: bool,
}

/// Where a volume comes from: never both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SpecSource {
    /// Inline, from a pod.
    Inline(Arc<PodVolume>),
    /// A persistent volume.
    Persistent(Arc<Volume>),
}

impl Spec {
    /// A persistent volume as a pod refers to it.
    pub fn persistent(volume: Arc<Volume>, read_only: bool) -> Self {
        Self { source: SpecSource::Persistent(volume), read_only }
    }

    /// An inline volume.
    pub fn inline(volume: Arc<PodVolume>) -> Self {
        Self { source: SpecSource::Inline(volume), read_only: false }
    }

    /// The inner name: that of the persistent volume, or the volume's name in the pod.
    pub fn name(&self) -> SpecName {
        match &self.source {
            SpecSource::Inline(volume) => SpecName::new(volume.name.as_str()),
            SpecSource::Persistent(volume) => SpecName::new(&volume.meta.name),
        }
    }

    /// The persistent volume, unless it is inline.
    pub fn volume(&self) -> Option<&Arc<Volume>> {
        match &self.source {
            SpecSource::Inline(_) => None,
            SpecSource::Persistent(volume) => Some(volume),
        }
    }

    /// The inline volume, unless it is persistent.
    pub fn pod_volume(&self) -> Option<&Arc<PodVolume>> {
        match &self.source {
            SpecSource::Inline(volume) => Some(volume),
            SpecSource::Persistent(_) => None,
        }
    }

    /// The source of a persistent volume.
    pub fn persistent_source(&self) -> Option<&PersistentSource> {
        self.volume().map(|volume| &volume.source)
    }

    /// A directory or a device. Inline volumes are directories; the populator refuses persistent ones that
    /// do not say.
    pub fn mode(&self) -> VolumeMode {
        self.volume().and_then(|volume| volume.mode).unwrap_or_default()
    }

    /// Whether one pod at a time may have it.
    pub fn is_single_pod(&self) -> bool {
        self.volume().is_some_and(|volume| volume.access_modes == [AccessMode::ReadWriteOncePod])
    }

    /// Whether it may be attached to several nodes at once.
    pub fn may_attach_to_many(&self) -> bool {
        let many = |mode: &AccessMode| matches!(mode, AccessMode::ReadWriteMany | AccessMode::ReadOnlyMany);
        self.volume()
            .is_none_or(|volume| volume.access_modes.is_empty() || volume.access_modes.iter().any(many))
    }
}

/// What the manager knows of the world beyond its volumes, as of its last look. Shared, never changed in
/// place: operations take the newest with [`OperationContext::facts`].
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// CSIDriver objects by name.
    pub csi_drivers: BTreeMap<DriverName, Arc<CsiDriver>>,
    /// Whether all CSIDriver objects have been seen at least once. Until then no decision may rest on the
    /// absence of one.
    pub csi_drivers_known: bool,
    /// This node's object, if it was seen.
    pub node: Option<Arc<Node>>,
    /// Whether it never will be: nobody follows it, and what it says is asked for where it matters.
    pub node_unfollowed: bool,
    /// The volumes that it says are attached: the same, to be looked up.
    pub attached: Arc<BTreeSet<VolumeName>>,
    /// Attachments to this node that could not be made, by name.
    pub attachments: BTreeMap<AttachmentName, Arc<Attachment>>,
    /// Drivers that can be reached on this node.
    pub registered: BTreeMap<DriverName, RegisteredDriver>,
    /// Whether this node enforces SELinux.
    pub selinux: bool,
}

impl Facts {
    /// This node's object was seen. Returns what it says is attached and did not say before.
    pub fn see_node(&mut self, node: Arc<Node>) -> Vec<VolumeName> {
        let attached: BTreeSet<_> =
            node.volumes_attached.iter().map(|attached| attached.name.clone()).collect();
        let new = attached.difference(&self.attached).cloned().collect();
        (self.node, self.attached) = (Some(node), Arc::new(attached));
        new
    }
}

/// A driver that has registered with this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisteredDriver {
    /// Its socket.
    pub endpoint: PathBuf,
    /// Counts the registrations of this manager's life: another number is another instance, and nothing
    /// learned about the former one holds.
    pub instance: u64,
}

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
    async fn find_lost(&self, _scene: &Scene<'_>) -> Vec<Lost> {
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

/// Makes the volume appear for a pod.
#[derive(Debug, Clone)]
pub struct SetUp {
    /// The volume.
    pub spec: Arc<Spec>,
    /// The pod.
    pub pod: Arc<Pod>,
    /// The volume's name in the pod, the first if it has several.
    pub outer: OuterName,
    /// Where its device is or, for CSI, the name of its attachment; empty if it is not attached.
    pub device_path: String,
    /// The user that all containers run as.
    pub user: Option<u32>,
    /// The group the volume is given to.
    pub group: Option<u32>,
    /// Whether a volume whose root already has the group is left alone.
    pub group_on_root_mismatch: bool,
    /// How large it should be, for kinds that can limit themselves.
    pub size_limit: Option<Bytes>,
    /// The SELinux label to mount with; empty for none.
    pub selinux_label: String,
    /// What is known of the volume in this pod. Whatever fails, a mount that may exist keeps its directory
    /// and its record.
    pub before: Before,
}

/// What is known of a volume in a pod when an operation begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Before {
    /// It is not there.
    Absent,
    /// It may be there.
    Uncertain,
    /// It is there, and is only to be brought up to date.
    Mounted,
}

/// What clearing up after a failed call has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Undo {
    /// Nothing of the call is left.
    Complete,
    /// The call has had its effect although it answered an error: only the call that undoes it can take that away.
    Needed,
}

impl Before {
    /// Removes what was made for a failed attempt, unless the attempt or an earlier one may have left something
    /// that needs it. If the driver's effect shows, or something cannot be removed, the outcome is uncertain, so
    /// that the step is undone: nothing else would remember it.
    ///
    /// The kubelet removes after any final error, and forgets what it could not remove and what the driver has done.
    /// An earlier attempt with an open outcome may have worked without a mount to show for it, and its undo needs
    /// the record.
    pub(crate) async fn tidy(
        self,
        failure: Failure,
        removal: impl Future<Output = Result<Undo, HostError>>,
    ) -> Failure {
        if self != Self::Absent || failure.class() == ErrorClass::Uncertain {
            return failure;
        }
        match removal.await {
            Ok(Undo::Complete) => failure,
            Ok(Undo::Needed) => {
                tracing::warn!("a failed call has had its effect; it will be undone");
                failure.with_class(ErrorClass::Uncertain)
            }
            Err(error) => {
                let error = api::error::chain(&error);
                tracing::warn!(error, "cannot remove what a failed attempt made; it will be undone");
                failure.with_class(ErrorClass::Uncertain)
            }
        }
    }
}

/// A volume that was set up: what the runtime is told about it, and how it is taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounted {
    /// Where it is: a directory, or the link to its device.
    pub path: PathBuf,
    /// Whether containers may not write to it.
    pub read_only: bool,
    /// Whether its ownership is ours to change.
    pub managed: bool,
    /// Whether the runtime has to label its files.
    pub selinux_relabel: bool,
}

/// Takes the volume back from a pod.
#[derive(Debug, Clone)]
pub struct TearDown {
    /// The pod, which may be long gone.
    pub pod: PodUid,
    /// The volume's inner name.
    pub inner: SpecName,
    /// The volume, as far as it is known.
    pub spec: Option<Arc<Spec>>,
}

/// What reconstruction may look at.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// The node. Nothing may be changed through it; only `find_staged` may remove empty directories.
    pub host: &'a dyn host::Host,
    /// The layout.
    pub paths: &'a Paths,
    /// The API, for what the disk does not say. It may be unreachable.
    pub api: &'a dyn ApiSource,
}

/// A directory of a pod that stands for a volume.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Found {
    /// The pod whose directory it is in.
    pub pod: PodUid,
    /// The plugin whose directory it is in.
    pub plugin: PluginName,
    /// Its name.
    pub inner: SpecName,
    /// Its path.
    pub path: PathBuf,
    /// A directory under `volumes` or one under `volumeDevices`.
    pub mode: VolumeMode,
}

/// What a directory turned out to stand for.
#[derive(Debug, Clone, PartialEq)]
pub struct Rebuilt {
    /// The volume, as far as it is known.
    pub spec: Spec,
    /// Where its step per node is or would be, for kinds that have one.
    pub device_mount_path: Option<PathBuf>,
    /// The SELinux label it was mounted with; `None` if that is unknown.
    pub selinux_label: Option<String>,
}

/// A volume that a plugin's own directories tell of.
#[derive(Debug, Clone, PartialEq)]
pub struct Staged {
    /// The volume, as far as it is known.
    pub rebuilt: Rebuilt,
    /// A pod that it may be published for; `None` if all that is known is that it may be staged.
    pub pod: Option<PodUid>,
}

/// A volume that is, or may be, on the node, while nothing there says any more which one it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// The plugin.
    pub plugin: PluginName,
    /// Where its step per node is or would be, which is the place of no other volume.
    pub at: PathBuf,
    /// How it is used.
    pub mode: VolumeMode,
    /// The pods that it may be published for.
    pub pods: BTreeSet<PodUid>,
    /// Why it is lost.
    pub why: String,
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
    /// The API.
    pub api: &'a dyn ApiSource,
    /// The time.
    pub clock: &'a dyn Clock,
    /// CSIDriver objects and the like.
    pub facts: &'a Facts,
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

/// Does the step per node.
#[derive(Debug, Clone)]
pub struct MountDevice {
    /// The volume.
    pub spec: Arc<Spec>,
    /// Where its device is or, for CSI, the name of its attachment; empty if it is not attached.
    pub device_path: String,
    /// Where it is done.
    pub path: PathBuf,
    /// The group of the pod that happens to be first.
    pub group: Option<u32>,
    /// The SELinux label to mount with; empty for none.
    pub selinux_label: String,
    /// Whether it may be done already. Whatever fails, what may exist keeps its directory and its record.
    pub before: Before,
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

/// Hands over a device.
#[derive(Debug, Clone)]
pub struct MapDevice {
    /// The volume.
    pub spec: Arc<Spec>,
    /// The pod.
    pub pod: Arc<Pod>,
    /// Where its device is or, for CSI, the name of its attachment; empty if it is not attached.
    pub device_path: String,
    /// Whether the step per node may be done already.
    pub device_before: Before,
    /// Whether the step per pod may be done already.
    pub before: Before,
}

/// Grows volumes on the node.
#[async_trait]
pub trait Expander: fmt::Debug + Send + Sync {
    /// Whether growing the volume leaves something to do on the node.
    fn requires_resize(&self) -> bool;

    /// Does it.
    async fn expand(&self, cx: &OperationContext, request: &Expand) -> Result<(), Failure>;
}

/// Grows a volume on the node.
#[derive(Debug, Clone)]
pub struct Expand {
    /// The volume.
    pub spec: Arc<Spec>,
    /// How large it should be.
    pub new_size: Bytes,
    /// How large it was.
    pub old_size: Bytes,
    /// Where it is: the pod's directory, or the device.
    pub volume_path: PathBuf,
    /// Where its device is or, for CSI, the name of its attachment.
    pub device_path: String,
    /// Where it is staged; empty if nowhere.
    pub staging_path: PathBuf,
}
