//! The actual state: the volumes that are, or may be, attached, staged and published on this node.
//!
//! There is one record per volume, with one entry per pod. Operations change it only through
//! [`ActualState::apply`]; recovery and the populator have the methods at the end. Nothing here touches the
//! host or the API.

mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::error::ErrorClass;
use api::names::{PluginName, PodUid, VolumeName};
use api::{AttachedVolume, Bytes};
use plugin_api::{PodRecord, Rebuilt, Spec, Transition};

use crate::few::Few;

pub use record::{Attachability, Device, PodEntry, PodMount, VolumeRecord};

#[derive(Debug, Clone, Default)]
pub struct ActualState {
    /// Boxed, since a node of the map has room for more entries than are in it.
    volumes: BTreeMap<VolumeName, Box<VolumeRecord>>,
    /// The volumes that have an entry for a pod: an index over `volumes`.
    by_pod: BTreeMap<PodUid, Few<VolumeName, ()>>,
    /// Volumes whose last expansion ended with a final error. Kept when the record is removed.
    expansion_failed: BTreeSet<VolumeName>,
}

/// The state of a volume for a pod that wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodView {
    /// There is no record of the volume.
    NotAttached,
    /// The volume is mounted with another SELinux label and must be unmounted first.
    LabelMismatch,
    /// The volume is not mounted for the pod.
    NotMounted,
    /// The volume may be mounted for the pod.
    Uncertain,
    /// The volume is mounted for the pod and has to be updated.
    NeedsRemount,
    /// The volume is mounted for the pod and smaller than wanted.
    NeedsGrow {
        /// The present size.
        from: Bytes,
    },
    /// The volume is mounted for the pod as wanted.
    Mounted,
}

impl ActualState {
    pub fn volume(&self, volume: &VolumeName) -> Option<&VolumeRecord> {
        self.volumes.get(volume).map(|record| &**record)
    }

    /// The records of all volumes.
    pub fn volumes(&self) -> impl Iterator<Item = (&VolumeName, &VolumeRecord)> {
        self.volumes.iter().map(|(volume, record)| (volume, &**record))
    }

    /// The entry of a pod in a volume's record.
    pub fn entry(&self, volume: &VolumeName, pod: &PodUid) -> Option<&PodEntry> {
        self.volumes.get(volume)?.pods.get(pod)
    }

    /// The volumes that are or may be mounted for a pod.
    pub fn volumes_of(&self, pod: &PodUid) -> impl Iterator<Item = (&VolumeName, &PodEntry)> {
        let volumes = self.by_pod.get(pod).into_iter().flat_map(Few::keys);
        volumes.filter_map(move |volume| Some((volume, self.entry(volume, pod)?)))
    }

    /// Whether any volume is or may be mounted for a pod.
    pub fn has_pod(&self, pod: &PodUid) -> bool {
        self.by_pod.contains_key(pod)
    }

    /// Whether the last expansion of a volume ended with a final error.
    pub fn expansion_failed(&self, volume: &VolumeName) -> bool {
        self.expansion_failed.contains(volume)
    }

    /// All volumes whose last expansion ended with a final error.
    pub fn expansions_failed(&self) -> impl Iterator<Item = &VolumeName> {
        self.expansion_failed.iter()
    }

    /// The state of a volume for a pod that wants it with a label and a size.
    ///
    /// An uncertain mount is repeated before anything else is planned for it, and a remount comes before an
    /// expansion.
    pub fn view(&self, volume: &VolumeName, pod: &PodUid, label: &str, size: Bytes, grows: bool) -> PodView {
        let Some(record) = self.volumes.get(volume) else { return PodView::NotAttached };
        if record.selinux_label.as_deref().is_some_and(|actual| actual != label) {
            return PodView::LabelMismatch;
        }
        let Some(entry) = record.pods.get(pod) else { return PodView::NotMounted };
        match &entry.mount {
            PodMount::Attempted | PodMount::Uncertain => PodView::Uncertain,
            PodMount::Mounted(_) if entry.needs_remount => PodView::NeedsRemount,
            PodMount::Mounted(_) if grows && record.must_grow_to(size) => {
                PodView::NeedsGrow { from: record.size }
            }
            PodMount::Mounted(_) => PodView::Mounted,
        }
    }
}

/// The method through which operations change the state.
impl ActualState {
    /// Applies what an operation has learned.
    ///
    /// # Panics
    ///
    /// If the transition is impossible in the volume's state. Keys keep operations apart that could cause one,
    /// so that is a bug of ours, and going on would mean to act on a wrong state.
    pub fn apply(&mut self, volume: &VolumeName, transition: Transition) {
        use Transition as T;
        match (self.volumes.get_mut(volume), transition) {
            (None, T::Attached { spec, plugin, attachable, device_path, claim_size }) => {
                let attachability = if attachable { Attachability::Yes } else { Attachability::No };
                let mut record = VolumeRecord::new(spec, plugin, attachability, device_path);
                record.size = claim_size.unwrap_or_default();
                self.volumes.insert(volume.clone(), Box::new(record));
            }
            (Some(record), T::Attached { attachable, device_path, claim_size, .. }) => {
                if attachable && record.has_lost_attachment() {
                    record.attachability = Attachability::Yes;
                }
                record.device_path = device_path;
                record.set_size_if_unknown(claim_size.unwrap_or_default());
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

    /// Makes the attempts of an operation that has ended uncertain, for a pod's operation. An attempt that is
    /// still marked as such reported no result: it was cut short.
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
            self.by_pod.entry(pod.clone()).or_default().insert(volume.clone(), ());
        } else if let Some(volumes) = self.by_pod.get_mut(pod) {
            volumes.remove(volume);
            if volumes.is_empty() {
                self.by_pod.remove(pod);
            }
        }
    }
}

impl VolumeRecord {
    /// Applies a report about the stage.
    ///
    /// Once the volume may be staged, only a successful stage or unstage settles it: an error that says "this
    /// attempt did nothing" says nothing about earlier attempts.
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

    /// Records the label that the volume is, or may be, staged with.
    fn labelled(&mut self, label: String) {
        if !label.is_empty() {
            self.selinux_label = Some(label);
        }
    }

    /// Applies a report about a pod's mount.
    ///
    /// A failed mount of a mounted volume changes nothing: a remount that fails leaves the mount as it is.
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

    /// Replaces the entry of a pod. If the volume's label is unknown, it becomes the label of this pod.
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

/// Changes that do not come from operations.
impl ActualState {
    /// Adds a volume that was found on disk: it may be staged and, if a pod's directory names it, published.
    /// Adds volumes that reconstruction found, unless they are known already.
    pub fn add_reconstructed(
        &mut self,
        volume: &VolumeName,
        plugin: &PluginName,
        rebuilt: &Rebuilt,
        pod: Option<PodRecord>,
    ) {
        let record = self.volumes.entry(volume.clone()).or_insert_with(|| {
            let spec = Arc::new(rebuilt.spec.clone());
            Box::new(VolumeRecord::new(spec, plugin.clone(), Attachability::Unknown, String::new()))
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

    /// Compares a reconstructed volume with the node's object, which lists it as attached or does not. Sets
    /// whether it is attached if that is unknown, and the device's path if it is listed and the stage is
    /// uncertain.
    pub fn correct(&mut self, volume: &VolumeName, attached: Option<&AttachedVolume>) {
        let Some(record) = self.volumes.get_mut(volume) else { return };
        if let (Some(attached), Device::Uncertain { .. }) = (attached, &record.device) {
            record.device_path.clone_from(&attached.device_path);
        }
        if record.attachability == Attachability::Unknown {
            record.attachability = if attached.is_some() { Attachability::Yes } else { Attachability::No };
        }
    }

    /// Marks the volumes of a pod that `wants` selects as to be mounted again, and returns them.
    pub fn require_remount(
        &mut self,
        pod: &PodUid,
        wants: impl Fn(&VolumeRecord) -> bool,
    ) -> Vec<VolumeName> {
        let mut required = Vec::new();
        for volume in self.by_pod.get(pod).into_iter().flat_map(Few::keys) {
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

    /// Sets the size of a volume if it is unknown.
    pub fn initialize_size(&mut self, volume: &VolumeName, size: Bytes) {
        if let Some(record) = self.volumes.get_mut(volume) {
            record.set_size_if_unknown(size);
        }
    }
}

impl ActualState {
    pub fn spec(&self, volume: &VolumeName) -> Option<&Arc<Spec>> {
        self.volumes.get(volume).map(|record| &record.spec)
    }
}

#[cfg(test)]
mod tests;
