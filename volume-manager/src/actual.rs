//! The actual state of the world: what is, what may be, and what failed to be.
//!
//! One record per volume that this node has or may have, one entry in it per pod. Operations change it
//! through [`ActualState::apply`] and nothing else; reconstruction and the populator have three narrow doors
//! of their own at the end. Nothing here touches anything: it is a book.

mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::error::ErrorClass;
use api::names::{PluginName, PodUid, VolumeName};
use api::{AttachedVolume, Bytes};
use plugin_api::{PodRecord, Rebuilt, Spec, Transition};

pub use record::{Attachability, Device, PodEntry, PodMount, VolumeRecord};

/// The book of what is.
#[derive(Debug, Clone, Default)]
pub struct ActualState {
    volumes: BTreeMap<VolumeName, VolumeRecord>,
    /// The volumes that have an entry for a pod: the same entries, found from the other side.
    by_pod: BTreeMap<PodUid, BTreeSet<VolumeName>>,
    /// Volumes whose growing failed for good. Outlives their records.
    expansion_failed: BTreeSet<VolumeName>,
}

/// What the reconciler wants to know about a volume in a pod that wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodView {
    /// There is no record of the volume.
    NotAttached,
    /// It is mounted with another SELinux label, and that one must go first.
    LabelMismatch,
    /// The pod does not have it.
    NotMounted,
    /// The pod may have it.
    Uncertain,
    /// The pod has it, and it is to be brought up to date.
    NeedsRemount,
    /// The pod has it, and it is smaller than it should be.
    NeedsGrow {
        /// How large it is.
        from: Bytes,
    },
    /// The pod has it.
    Mounted,
}

impl ActualState {
    /// The record of a volume.
    pub fn volume(&self, volume: &VolumeName) -> Option<&VolumeRecord> {
        self.volumes.get(volume)
    }

    /// All records.
    pub fn volumes(&self) -> impl Iterator<Item = (&VolumeName, &VolumeRecord)> {
        self.volumes.iter()
    }

    /// The entry of a pod in a volume.
    pub fn entry(&self, volume: &VolumeName, pod: &PodUid) -> Option<&PodEntry> {
        self.volumes.get(volume)?.pods.get(pod)
    }

    /// Every volume a pod has or may have.
    pub fn volumes_of(&self, pod: &PodUid) -> impl Iterator<Item = (&VolumeName, &PodEntry)> {
        let volumes = self.by_pod.get(pod).into_iter().flatten();
        volumes.filter_map(move |volume| Some((volume, self.entry(volume, pod)?)))
    }

    /// Whether a pod has a volume, or may have one.
    pub fn has_pod(&self, pod: &PodUid) -> bool {
        self.by_pod.contains_key(pod)
    }

    /// Whether growing a volume failed for good.
    pub fn expansion_failed(&self, volume: &VolumeName) -> bool {
        self.expansion_failed.contains(volume)
    }

    /// All volumes whose growing failed for good.
    pub fn expansions_failed(&self) -> impl Iterator<Item = &VolumeName> {
        self.expansion_failed.iter()
    }

    /// How a volume stands for a pod that wants it with a label and a size.
    ///
    /// A remount hides a growth: it is served first. And a volume a pod only may have is mounted again before
    /// anything else is asked of it.
    pub fn view(&self, volume: &VolumeName, pod: &PodUid, label: &str, size: Bytes, grows: bool) -> PodView {
        let Some(record) = self.volumes.get(volume) else { return PodView::NotAttached };
        if record.selinux_label.as_deref().is_some_and(|actual| actual != label) {
            return PodView::LabelMismatch;
        }
        let Some(entry) = record.pods.get(pod) else { return PodView::NotMounted };
        match &entry.mount {
            PodMount::Attempted | PodMount::Uncertain => PodView::Uncertain,
            PodMount::Mounted(_) if entry.needs_remount => PodView::NeedsRemount,
            PodMount::Mounted(_) if grows && record.is_smaller_than(size) => {
                PodView::NeedsGrow { from: record.size }
            }
            PodMount::Mounted(_) => PodView::Mounted,
        }
    }
}

/// The only writer for what operations learn.
impl ActualState {
    /// Puts what an operation has learned into the book.
    ///
    /// # Panics
    ///
    /// If the transition cannot happen in the state the volume is in. Operations that could meet are kept
    /// apart by their keys, so that is our bug, and going on would be acting on a false book.
    pub fn apply(&mut self, volume: &VolumeName, transition: Transition) {
        use Transition as T;
        match (self.volumes.get_mut(volume), transition) {
            (None, T::Attached { spec, plugin, attachable, device_path, claim_size }) => {
                let attachability = if attachable { Attachability::Yes } else { Attachability::No };
                let mut record = VolumeRecord::new(spec, plugin, attachability, device_path);
                record.size = claim_size.unwrap_or_default();
                self.volumes.insert(volume.clone(), record);
            }
            (Some(record), T::Attached { attachable, device_path, claim_size, .. }) => {
                if attachable && record.has_lost_attachment() {
                    record.attachability = Attachability::Yes;
                }
                record.device_path = device_path;
                record.set_unknown_size(claim_size.unwrap_or_default());
            }
            (Some(record), T::AttachmentFound) => record.attachability = Attachability::Yes,
            (Some(record), T::Detached) if record.pods.is_empty() && record.device == Device::NotMounted => {
                self.volumes.remove(volume);
            }
            (_, T::ExpansionFailed(true)) => {
                self.expansion_failed.insert(volume.clone());
            }
            (_, T::ExpansionFailed(false)) => {
                self.expansion_failed.remove(volume);
            }
            (Some(record), T::Resized(size)) => record.size = size,
            (Some(record), T::ExpansionBlocked) => record.expansion_blocked = true,
            (Some(record), transition) => match transition.pod().cloned() {
                Some(pod) => {
                    record.apply_to_pod(volume, &pod, transition);
                    let has_entry = record.pods.contains_key(&pod);
                    self.index(volume, &pod, has_entry);
                }
                None => record.apply_to_device(volume, transition),
            },
            (None, transition) => impossible(volume, &"no record", &transition),
        }
    }

    /// An operation has ended, and with it every attempt of its own. What is still marked as an attempt has
    /// no result: it was cut short, and may or may not be.
    pub fn settle(&mut self, volume: &VolumeName, pod: Option<&PodUid>) {
        let Some(record) = self.volumes.get_mut(volume) else { return };
        if let Some(pod) = pod {
            if let Some(entry) = record.pods.get_mut(pod).filter(|e| e.mount == PodMount::Attempted) {
                entry.mount = PodMount::Uncertain;
            }
            if let Device::Attempted { at } = &record.device {
                record.device = Device::Uncertain { at: at.clone() };
            }
        }
    }

    fn index(&mut self, volume: &VolumeName, pod: &PodUid, has_entry: bool) {
        if has_entry {
            self.by_pod.entry(pod.clone()).or_default().insert(volume.clone());
        } else if let Some(volumes) = self.by_pod.get_mut(pod) {
            volumes.remove(volume);
            if volumes.is_empty() {
                self.by_pod.remove(pod);
            }
        }
    }
}

impl VolumeRecord {
    /// What is known of the step per node, and what a report about it makes of that.
    ///
    /// Once the step may have been done, only its success or that of its undo settles it: an error that says
    /// "this attempt did nothing" says nothing about the attempts before.
    fn apply_to_device(&mut self, volume: &VolumeName, transition: Transition) {
        use Device as D;
        use ErrorClass as E;
        use Transition as T;
        self.device = match (&self.device, transition) {
            (D::NotMounted | D::Attempted { .. }, T::DeviceUncertain { path }) => D::Attempted { at: path },
            (D::Uncertain { .. }, T::DeviceUncertain { path }) => D::Uncertain { at: path },

            (_, T::DeviceMounted { path, device_path, selinux_label }) => {
                if !device_path.is_empty() {
                    self.device_path = device_path;
                }
                self.labelled(selinux_label);
                D::Mounted { at: path }
            }

            (D::NotMounted | D::Attempted { .. }, T::DeviceFailed { class: E::Final | E::Transient, .. }) => {
                D::NotMounted
            }
            (
                D::NotMounted | D::Attempted { .. },
                T::DeviceFailed { path, class: E::Uncertain, selinux_label },
            ) => {
                self.labelled(selinux_label);
                D::Uncertain { at: path }
            }
            (D::Uncertain { at }, T::DeviceFailed { .. }) => D::Uncertain { at: at.clone() },

            (D::Mounted { at } | D::Uncertain { at }, T::DeviceUndoing) => D::Uncertain { at: at.clone() },
            (D::Mounted { .. } | D::Uncertain { .. }, T::DeviceUnmounted) => D::NotMounted,

            (state, transition) => impossible(volume, state, &transition),
        };
    }

    /// The step per node was, or may have been, done with a label.
    fn labelled(&mut self, label: String) {
        if !label.is_empty() {
            self.selinux_label = Some(label);
        }
    }

    /// What is known of the step per pod, and what a report about it makes of that.
    ///
    /// A volume that is mounted is never made less by a mount: a remount that fails leaves what is there.
    fn apply_to_pod(&mut self, volume: &VolumeName, pod: &PodUid, transition: Transition) {
        use ErrorClass as E;
        use PodMount as P;
        use Transition as T;
        let before = self.pods.get(pod).map(|entry| entry.mount.clone());
        match (before, transition) {
            (None | Some(P::Attempted), T::PodUncertain(record)) => self.put(record, P::Attempted),
            (Some(P::Uncertain), T::PodUncertain(record)) => self.put(record, P::Uncertain),
            (Some(P::Mounted(_)), T::PodUncertain(_)) => {}

            (Some(P::Mounted(_)), T::PodMounted(_, mounted)) => {
                let entry = self.pods.get_mut(pod).expect("it was there a line above");
                entry.mount = P::Mounted(mounted);
                entry.needs_remount = false;
            }
            (_, T::PodMounted(record, mounted)) => self.put(record, P::Mounted(mounted)),

            (None | Some(P::Attempted), T::PodFailed(_, E::Final | E::Transient)) => {
                self.pods.remove(pod);
            }
            (None | Some(P::Attempted), T::PodFailed(record, E::Uncertain)) => {
                self.put(record, P::Uncertain);
            }
            (Some(P::Uncertain | P::Mounted(_)), T::PodFailed(..)) => {}

            (Some(P::Uncertain | P::Mounted(_)), T::PodUndoing(_)) => {
                let entry = self.pods.get_mut(pod).expect("it was there a line above");
                entry.mount = P::Uncertain;
            }
            (None | Some(P::Uncertain | P::Mounted(_)), T::PodUnmounted(_)) => {
                self.pods.remove(pod);
            }

            (state, transition) => impossible(volume, &state, &transition),
        }
    }

    /// Makes the entry of a pod anew. The first pod settles the label of a volume whose label is unknown.
    fn put(&mut self, record: PodRecord, mount: PodMount) {
        let mounted = matches!(mount, PodMount::Mounted(_));
        self.selinux_label.get_or_insert_with(|| record.selinux_label.clone());
        let before = self.pods.remove(&record.pod);
        let reconstructed = !mounted && before.is_some_and(|entry| entry.reconstructed);
        let entry = PodEntry { mount, needs_remount: false, reconstructed, record };
        self.pods.insert(entry.record.pod.clone(), entry);
    }
}

#[cold]
fn impossible(volume: &VolumeName, state: &dyn std::fmt::Debug, transition: &Transition) -> ! {
    panic!("volume {volume} is {state:?}, and cannot become {transition:?}")
}

/// What does not come from operations.
impl ActualState {
    /// The directories of the last incarnation stand for a volume: it may be attached, staged and, if they
    /// are a pod's, published. What the book knows already stays.
    pub fn add_reconstructed(
        &mut self,
        volume: &VolumeName,
        plugin: &PluginName,
        rebuilt: &Rebuilt,
        pod: Option<PodRecord>,
    ) {
        let record = self.volumes.entry(volume.clone()).or_insert_with(|| {
            let spec = Arc::new(rebuilt.spec.clone());
            VolumeRecord::new(spec, plugin.clone(), Attachability::Unknown, String::new())
        });
        if let (Device::NotMounted, Some(at)) = (&record.device, &rebuilt.device_mount_path) {
            record.device = Device::Uncertain { at: at.clone() };
        }
        if record.selinux_label.is_none() {
            record.selinux_label.clone_from(&rebuilt.selinux_label);
        }
        let Some(pod) = pod.filter(|pod| !record.pods.contains_key(&pod.pod)) else { return };
        let uid = pod.pod.clone();
        let entry =
            PodEntry { mount: PodMount::Uncertain, needs_remount: false, reconstructed: true, record: pod };
        record.pods.insert(uid.clone(), entry);
        self.index(volume, &uid, true);
    }

    /// What the node's object says about a volume that was reconstructed: whether it is attached, and where.
    /// Only what is still unknown is touched.
    pub fn correct(&mut self, volume: &VolumeName, attached: Option<&AttachedVolume>) {
        let Some(record) = self.volumes.get_mut(volume) else { return };
        if let (Some(attached), Device::Uncertain { .. }) = (attached, &record.device) {
            record.device_path.clone_from(&attached.device_path);
        }
        if record.attachability == Attachability::Unknown {
            record.attachability = if attached.is_some() { Attachability::Yes } else { Attachability::No };
        }
    }

    /// Asks for every volume of a pod that wants it to be brought up to date, and names those.
    pub fn require_remount(
        &mut self,
        pod: &PodUid,
        wants: impl Fn(&VolumeRecord) -> bool,
    ) -> Vec<VolumeName> {
        let mut required = Vec::new();
        for volume in self.by_pod.get(pod).into_iter().flatten() {
            let Some(record) = self.volumes.get_mut(volume) else { continue };
            if !wants(record) {
                continue;
            }
            if let Some(entry) = record.pods.get_mut(pod) {
                entry.needs_remount = true;
                required.push(volume.clone());
            }
        }
        required
    }

    /// What the claim of a volume could hold, if the book does not know.
    pub fn initialize_size(&mut self, volume: &VolumeName, size: Bytes) {
        if let Some(record) = self.volumes.get_mut(volume) {
            record.set_unknown_size(size);
        }
    }
}

/// The spec of a record, for those who only have its name.
impl ActualState {
    /// What the plugin is told about a volume.
    pub fn spec(&self, volume: &VolumeName) -> Option<&Arc<Spec>> {
        self.volumes.get(volume).map(|record| &record.spec)
    }
}

#[cfg(test)]
mod tests;
