//! The populator turns pods and claims into the desired state.
//!
//! It keeps the pods, the state of their containers, and which pods have to be resolved again. Resolving a pod
//! has two halves: [`lookup`] reads its claims and volumes from the API in a task of its own, and
//! [`Populator::admit`] puts the result into the desired state.
//!
//! A pod is resolved when it appears or changes, at each sync (the start of a wait for its volumes requests one), when
//! a claim or PersistentVolume changes that its last resolution failed on, and with a back-off after a failure. The
//! kubelet's populator polls ten times a second instead, and resolves a pod again at each sync.

pub mod lookup;
mod selinux;
mod size;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::clock::Instant;
use api::names::{Namespaced, OuterName, PodUid, SpecName, VolumeName, is_path_component};
use api::{Bytes, Pod};
use plugin_api::registry::{PickError, Registry};
use plugin_api::{Facts, Spec, VolumePlugin};
use serde::{Deserialize, Serialize};

use crate::actual::ActualState;
use crate::desired::{DesiredState, Wanted};
use crate::few::Few;
use crate::operation::pending::delay_after;

pub use lookup::{Found, Resolved};

/// The pods of this node and their resolution.
#[derive(Debug, Default)]
pub struct Populator {
    pods: BTreeMap<PodUid, Tracked>,
    /// The pods that refer to a claim.
    by_claim: BTreeMap<Namespaced, Few<PodUid, ()>>,
    /// Pods to resolve, sorted.
    due: BTreeSet<PodUid>,
    /// Pods that are being resolved.
    resolving: BTreeSet<PodUid>,
    /// Pods to resolve again after a failure.
    retries: BTreeSet<(Instant, PodUid)>,
    /// The number of resolutions that have started.
    started: u64,
    sources_ready: bool,
    /// Pods that were due or being resolved when the sources became ready, and have not been resolved since.
    unresolved: BTreeSet<PodUid>,
    /// Whether every pod of `unresolved` has been resolved. Stays set from then on.
    all_added: bool,
}

/// The state of a pod's containers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PodState {
    /// The pod's containers may run.
    #[default]
    Running,
    /// The containers are being stopped: no new volume is mounted, mounted volumes stay.
    Terminating,
    /// All containers are gone for good: the volumes may be unmounted.
    RuntimeGone,
}

/// A pod, as the populator knows it.
#[derive(Debug, Default)]
struct Tracked {
    /// The object; `None` before it was added and after it was removed.
    pod: Option<Arc<Pod>>,
    state: PodState,
    /// Whether the next resolution also requires remounts, as a sync of the kubelet does.
    sync: bool,
    /// The serial number of the resolution under way.
    running: Option<u64>,
    /// Whether to resolve the pod again when that resolution has ended.
    again: bool,
    /// When to resolve the pod again after a failure.
    retry: Option<Instant>,
    /// Failed resolutions in a row.
    failures: u32,
    /// Whether the last resolution found every volume.
    complete: bool,
}

/// The states that the volumes of a resolved pod are recorded in, and the facts needed for that.
pub struct Books<'a> {
    pub desired: &'a mut DesiredState,
    pub actual: &'a mut ActualState,
    /// Facts about the node, drivers and attachments.
    pub facts: &'a Facts,
    pub registry: &'a Registry,
}

/// A pod to resolve.
#[derive(Debug, Clone)]
pub struct DuePod {
    /// The pod's, with the text that the books have.
    pub uid: PodUid,
    pub pod: Arc<Pod>,
    /// The serial number of this resolution, to recognise outdated results.
    pub number: u64,
}

impl Populator {
    /// Adds a pod or replaces its object. A pod whose UID cannot name a directory is ignored: no API server
    /// would have admitted it.
    pub fn set_pod(&mut self, pod: Arc<Pod>) {
        let uid = pod.uid();
        if !is_path_component(uid.as_str()) {
            tracing::error!(pod = %pod.meta.name, %uid, "pod ignored: its UID cannot name a directory");
            return;
        }
        for claim in claims_of(&pod) {
            self.by_claim.entry(claim).or_default().insert(uid.clone(), ());
        }
        let tracked = self.pods.entry(uid.clone()).or_default();
        tracked.pod = Some(pod);
        self.request(&uid, true);
    }

    /// Removes a pod whose object is deleted; its containers may still run.
    pub fn remove_pod(&mut self, uid: &PodUid) {
        let Some(tracked) = self.pods.get_mut(uid) else { return };
        let Some(pod) = tracked.pod.take() else { return };
        (tracked.running, tracked.again) = (None, false);
        self.resolving.remove(uid);
        self.due.remove(uid);
        self.unresolved.remove(uid);
        forget_retry(&mut self.retries, tracked, uid);
        for claim in claims_of(&pod) {
            if let Some(pods) = self.by_claim.get_mut(&claim) {
                pods.remove(uid);
                if pods.is_empty() {
                    self.by_claim.remove(&claim);
                }
            }
        }
    }

    /// Sets the state of a pod's containers.
    pub fn set_state(&mut self, uid: &PodUid, state: PodState) {
        let tracked = self.pods.entry(uid.clone()).or_default();
        tracked.state = state;
        if state == PodState::RuntimeGone {
            tracked.again = false;
            self.due.remove(uid);
            self.unresolved.remove(uid);
            forget_retry(&mut self.retries, tracked, uid);
        }
    }

    /// Records that all pods bound to this node have been added.
    pub fn set_sources_ready(&mut self) {
        if !self.sources_ready {
            self.sources_ready = true;
            self.unresolved = self.busy().cloned().collect();
        }
    }

    /// Asks for a pod to be resolved; with `sync`, volumes are remounted if their plugin requires it.
    pub fn request(&mut self, uid: &PodUid, sync: bool) {
        let all_added = self.all_added;
        let Some(tracked) = self.pods.get_mut(uid).filter(|tracked| tracked.pod.is_some()) else { return };
        if !tracked.may_be_added(all_added) {
            return;
        }
        tracked.sync |= sync;
        forget_retry(&mut self.retries, tracked, uid);
        match tracked.running {
            Some(_) => tracked.again = true,
            None => {
                self.due.insert(uid.clone());
            }
        }
    }

    /// Asks for the pods of a claim to be resolved: all of them, or only those whose last resolution failed.
    pub fn request_claim(&mut self, claim: &Namespaced, all: bool) {
        let pods: Vec<_> = self.pods_of(claim).cloned().collect();
        for uid in pods {
            if all || self.pods.get(&uid).is_some_and(|tracked| !tracked.complete) {
                self.request(&uid, false);
            }
        }
    }

    /// The pods that refer to a claim.
    pub fn pods_of(&self, claim: &Namespaced) -> impl Iterator<Item = &PodUid> {
        self.by_claim.get(claim).into_iter().flat_map(Few::keys)
    }

    /// Takes the pods to resolve now. Nothing is resolved before the CSIDriver objects are known: the name of a
    /// volume may depend on them.
    pub fn take_due(&mut self, facts: &Facts) -> Vec<DuePod> {
        if !facts.csi_drivers_known {
            return Vec::new();
        }
        let mut due = Vec::new();
        for uid in std::mem::take(&mut self.due) {
            let Some(tracked) = self.pods.get_mut(&uid) else { continue };
            let Some(pod) = tracked.pod.clone() else { continue };
            self.started += 1;
            tracked.running = Some(self.started);
            self.resolving.insert(uid.clone());
            due.push(DuePod { uid, pod, number: self.started });
        }
        due
    }

    /// Puts the volumes of a resolved pod into the desired state, and returns them. An outdated result, or one
    /// of a pod that has ended since, changes nothing.
    pub fn admit(
        &mut self,
        uid: &PodUid,
        resolved: Resolved,
        mut books: Books<'_>,
        now: Instant,
    ) -> Vec<VolumeName> {
        let all_added = self.all_added;
        let Some(tracked) = self.pods.get_mut(uid) else { return Vec::new() };
        if tracked.running != Some(resolved.number) {
            return Vec::new();
        }
        tracked.running = None;
        self.resolving.remove(uid);
        self.unresolved.remove(uid);
        if std::mem::take(&mut tracked.again) {
            self.due.insert(uid.clone());
        }
        if !tracked.may_be_added(all_added) {
            return Vec::new();
        }
        let pod = resolved.pod;
        let mut volumes = Vec::new();
        let mut complete = true;
        for (outer, result) in resolved.volumes {
            match result.and_then(|found| add_volume(uid, &pod, &outer, found, &mut books)) {
                Ok(volume) => volumes.push(volume),
                Err(error) => {
                    complete = false;
                    books.desired.add_error(uid, error);
                }
            }
        }
        tracked.complete = complete;
        if complete {
            tracked.failures = 0;
            books.desired.take_errors(uid);
            if std::mem::take(&mut tracked.sync) {
                volumes.extend(require_remounts(uid, &mut books));
            }
        } else {
            tracked.failures += 1;
            let due = now + delay_after(tracked.failures);
            tracked.retry = Some(due);
            self.retries.insert((due, uid.clone()));
        }
        volumes
    }

    /// When the next resolution after a failure is due.
    pub fn next_retry(&self) -> Option<Instant> {
        self.retries.first().map(|(due, _)| *due)
    }

    /// Makes each pod due whose back-off after a failure has ended.
    pub fn expire(&mut self, now: Instant) {
        while self.retries.first().is_some_and(|(due, _)| *due <= now) {
            let (_, uid) = self.retries.pop_first().expect("there was a first one a line above");
            let Some(tracked) = self.pods.get_mut(&uid) else { continue };
            tracked.retry = None;
            match tracked.running {
                Some(_) => tracked.again = true,
                None => {
                    self.due.insert(uid);
                }
            }
        }
    }

    /// Marks the desired state as complete once every pod known at the start has been resolved: before that, a volume
    /// that no resolved pod wants may still be wanted by another. Returns true only for the call that marks it.
    pub fn settle(&mut self) -> bool {
        if self.all_added || !self.sources_ready || !self.unresolved.is_empty() {
            return false;
        }
        self.all_added = true;
        true
    }

    /// Whether every pod known at the start has been resolved.
    pub fn all_added(&self) -> bool {
        self.all_added
    }

    /// Whether all pods bound to this node have been added.
    pub fn sources_ready(&self) -> bool {
        self.sources_ready
    }

    pub fn pod(&self, uid: &PodUid) -> Option<&Arc<Pod>> {
        self.pods.get(uid)?.pod.as_ref()
    }

    /// Whether containers of a pod may still run. An unknown pod counts as running until all pods have been added.
    pub fn may_run(&self, uid: &PodUid) -> bool {
        match self.pods.get(uid) {
            Some(tracked) => tracked.state != PodState::RuntimeGone,
            None => !self.sources_ready,
        }
    }

    /// Whether a pod is being resolved or is due.
    pub fn is_resolving(&self, uid: &PodUid) -> bool {
        self.due.contains(uid) || self.resolving.contains(uid)
    }

    /// Whether any pod is being resolved or is due.
    pub fn is_busy(&self) -> bool {
        !self.due.is_empty() || !self.resolving.is_empty()
    }

    /// The pods that are being resolved or are due.
    pub fn busy(&self) -> impl Iterator<Item = &PodUid> {
        self.resolving.union(&self.due)
    }

    /// The objects of all pods.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.values().filter_map(|tracked| tracked.pod.as_ref())
    }

    /// Forgets a pod whose object was removed. To be called when it has no volume left.
    pub fn forget(&mut self, uid: &PodUid) {
        if self.pods.get(uid).is_some_and(|tracked| tracked.pod.is_none()) {
            self.pods.remove(uid);
        }
    }
}

fn forget_retry(retries: &mut BTreeSet<(Instant, PodUid)>, tracked: &mut Tracked, uid: &PodUid) {
    if let Some(due) = tracked.retry.take() {
        retries.remove(&(due, uid.clone()));
    }
}

impl Tracked {
    /// Whether volumes of the pod may be added. A terminating pod gets no new volumes. At the start, though, the
    /// volumes that it already has must be added: its containers may still use them.
    fn may_be_added(&self, all_added: bool) -> bool {
        match self.state {
            PodState::Running => true,
            PodState::Terminating => !all_added,
            PodState::RuntimeGone => false,
        }
    }
}

/// The claims that a pod refers to.
fn claims_of(pod: &Pod) -> impl Iterator<Item = Namespaced> {
    pod.claims().map(|claim| Namespaced::new(&pod.meta.namespace, claim))
}

/// Adds one volume of a pod to the desired state: the kubelet's `AddPodToVolume`.
fn add_volume(
    uid: &PodUid,
    pod: &Arc<Pod>,
    outer: &OuterName,
    found: Found,
    books: &mut Books<'_>,
) -> Result<VolumeName, String> {
    let spec = Arc::new(found.spec);
    let spec_name = directory_name(&spec)?;
    let plugin = books.registry.pick(&spec).map_err(|error| match error {
        PickError::None { .. } | PickError::Several { .. } => {
            format!("failed to get Plugin from volumeSpec for volume \"{spec_name}\" err={error}")
        }
    })?;
    let attachable = plugin.can_attach(&spec, books.facts);
    let device_mountable = plugin.can_device_mount(&spec);
    let volume = unique_name(&*plugin, uid, &spec, attachable || device_mountable)?;
    let labels = selinux::labels(pod, outer, &spec, &*plugin, books.facts)?;
    let wanted = books.desired.volume(&volume);
    if let Some(wanted) = wanted.filter(|wanted| !wanted.pods.contains_key(uid)) {
        selinux::check_conflict(&volume, wanted, &labels)?;
    }
    let new = Wanted {
        plugin: plugin.name(),
        attachable,
        device_mountable,
        gid: found.gid,
        reported_in_use: false,
        size_limit: size::limit(pod, &spec),
        size: spec.volume().map(|volume| volume.capacity).unwrap_or_default(),
        label: labels.effective,
        original_label: labels.original,
        pods: Few::default(),
    };
    books.desired.add(&volume, new, uid.clone(), Arc::clone(pod), Arc::clone(&spec), outer.clone());
    record_sizes(&volume, &spec, found.claim_capacity, books);
    Ok(volume)
}

/// The name of the volume's spec, if it can name a directory: no API server may have checked the object.
fn directory_name(spec: &Spec) -> Result<SpecName, String> {
    let spec_name = spec.name();
    if is_path_component(spec_name.as_str()) {
        Ok(spec_name)
    } else {
        Err(format!("volume name \"{spec_name}\" cannot name a directory"))
    }
}

/// The unique name of the volume: with the pod's UID if the volume is not shared by pods.
fn unique_name(
    plugin: &dyn VolumePlugin,
    pod: &PodUid,
    spec: &Spec,
    shared: bool,
) -> Result<VolumeName, String> {
    if !shared {
        return Ok(VolumeName::of_pod(&plugin.name(), pod, &spec.name()));
    }
    let name = plugin.volume_name(spec).map_err(|error| {
        format!("failed to GetUniqueVolumeNameFromSpec for volume \"{}\": {}", spec.name(), error.chain())
    })?;
    Ok(VolumeName::shared(&plugin.name(), &name))
}

/// Sets the wanted size to that of the PersistentVolume, and an unknown actual size to the claim's capacity.
fn record_sizes(volume: &VolumeName, spec: &Spec, claim_capacity: Option<Bytes>, books: &mut Books<'_>) {
    let (Some(persistent), Some(claim)) = (spec.volume(), claim_capacity) else { return };
    // A volume that its pod uses read-only is not resized.
    if spec.read_only {
        return;
    }
    books.desired.set_size(volume, persistent.capacity);
    books.actual.initialize_size(volume, claim);
}

fn require_remounts(pod: &PodUid, books: &mut Books<'_>) -> Vec<VolumeName> {
    let (registry, facts) = (books.registry, books.facts);
    books.actual.require_remount(pod, |record| {
        registry.by_name(&record.plugin).is_ok_and(|plugin| plugin.requires_remount(&record.spec, facts))
    })
}

#[cfg(test)]
mod tests;
