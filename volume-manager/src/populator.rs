//! Pods and claims become desired state.
//!
//! The [`Populator`] knows the pods, what the runtime does with each, and which of them must be looked at
//! again. Looking at one has two halves: [`lookup`] reads its claims and volumes from the API, in a task of
//! its own, and [`Populator::admit`] puts what that gave into the desired state, without touching anything.
//!
//! A pod is looked at when it appears or changes, at each sync (a wait for its volumes is one), when an
//! object it failed on changes, and after a failure again on a ladder. The kubelet's loop runs ten times a
//! second instead and asks again at each sync.

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

use crate::actual::ActualState;
use crate::desired::{DesiredState, Wanted};
use crate::event::PodState;
use crate::operation::pending::delay_after;

pub use lookup::{Found, Resolved};

/// What is known about pods.
#[derive(Debug, Default)]
pub struct Populator {
    pods: BTreeMap<PodUid, Tracked>,
    /// The pods that refer to a claim.
    by_claim: BTreeMap<Namespaced, BTreeSet<PodUid>>,
    /// Pods to look at, in order.
    due: BTreeSet<PodUid>,
    /// Pods that are being looked at.
    looking: BTreeSet<PodUid>,
    /// Pods to look at again after a failure.
    retries: BTreeSet<(Instant, PodUid)>,
    /// How many looks were begun.
    looks: u64,
    sources_ready: bool,
    /// Pods that were known when the sources became ready, and have not been looked at.
    unseen: BTreeSet<PodUid>,
    /// Whether there are none of those any more.
    all_added: bool,
}

/// A pod.
#[derive(Debug, Default)]
struct Tracked {
    /// Its object; `None` before it was added and after it was removed.
    pod: Option<Arc<Pod>>,
    state: PodState,
    /// Whether the next look is a sync.
    sync: bool,
    /// The look under way, by its number.
    looking: Option<u64>,
    /// Whether another one is wanted once it has ended.
    again: bool,
    /// When to look again after a failure.
    retry: Option<Instant>,
    /// How often a look failed in a row.
    failures: u32,
    /// Whether the last look found everything.
    complete: bool,
}

/// What is needed to put a pod's volumes into the books.
pub struct Books<'a> {
    /// What should be.
    pub desired: &'a mut DesiredState,
    /// What is.
    pub actual: &'a mut ActualState,
    /// What is known of the world.
    pub facts: &'a Facts,
    /// The plugins.
    pub registry: &'a Registry,
}

/// A pod that is to be looked at.
#[derive(Debug, Clone)]
pub struct Look {
    pub pod: Arc<Pod>,
    /// Tells this look from earlier ones.
    pub number: u64,
}

impl Populator {
    /// A pod appeared, or its object changed. One whose UID cannot name a directory came through no API
    /// server, and is not known to anybody here.
    pub fn set_pod(&mut self, pod: Arc<Pod>) {
        let uid = pod.uid();
        if !is_path_component(uid.as_str()) {
            tracing::error!(pod = %pod.meta.name, %uid, "the UID of a pod cannot name a directory");
            return;
        }
        for claim in claims_of(&pod) {
            self.by_claim.entry(claim).or_default().insert(uid.clone());
        }
        let tracked = self.pods.entry(uid.clone()).or_default();
        tracked.pod = Some(pod);
        self.request(&uid, true);
    }

    /// The object of a pod is gone.
    pub fn remove_pod(&mut self, uid: &PodUid) {
        let Some(tracked) = self.pods.get_mut(uid) else { return };
        let Some(pod) = tracked.pod.take() else { return };
        (tracked.looking, tracked.again) = (None, false);
        self.looking.remove(uid);
        self.due.remove(uid);
        self.unseen.remove(uid);
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

    /// What the runtime does with a pod.
    pub fn set_state(&mut self, uid: &PodUid, state: PodState) {
        let tracked = self.pods.entry(uid.clone()).or_default();
        tracked.state = state;
        if state == PodState::RuntimeGone {
            tracked.again = false;
            self.due.remove(uid);
            self.unseen.remove(uid);
            forget_retry(&mut self.retries, tracked, uid);
        }
    }

    /// All pods that were to be known have been given.
    pub fn set_sources_ready(&mut self) {
        if !self.sources_ready {
            self.sources_ready = true;
            self.unseen = self.busy().cloned().collect();
        }
    }

    /// Asks for a look at a pod; `sync` if what is republished from time to time is to be.
    pub fn request(&mut self, uid: &PodUid, sync: bool) {
        let all_added = self.all_added;
        let Some(tracked) = self.pods.get_mut(uid).filter(|tracked| tracked.pod.is_some()) else { return };
        if !tracked.may_be_added(all_added) {
            return;
        }
        tracked.sync |= sync;
        forget_retry(&mut self.retries, tracked, uid);
        match tracked.looking {
            Some(_) => tracked.again = true,
            None => drop(self.due.insert(uid.clone())),
        }
    }

    /// Asks for a look at the pods that refer to a claim and did not get all they want, or at all of them.
    pub fn request_claim(&mut self, claim: &Namespaced, all: bool) {
        let pods = self.by_claim.get(claim).cloned().unwrap_or_default();
        for uid in pods {
            if all || self.pods.get(&uid).is_some_and(|tracked| !tracked.complete) {
                self.request(&uid, false);
            }
        }
    }

    /// The pods that refer to a claim.
    pub fn pods_of(&self, claim: &Namespaced) -> impl Iterator<Item = &PodUid> {
        self.by_claim.get(claim).into_iter().flatten()
    }

    /// The pods to look at now. One that is being looked at waits for the end of that. Nothing is looked at
    /// before the drivers' objects are known: what a volume is called may depend on them.
    pub fn take_due(&mut self, facts: &Facts) -> Vec<Look> {
        if !facts.csi_drivers_known {
            return Vec::new();
        }
        let mut looks = Vec::new();
        for uid in std::mem::take(&mut self.due) {
            let Some(tracked) = self.pods.get_mut(&uid) else { continue };
            let Some(pod) = tracked.pod.clone() else { continue };
            self.looks += 1;
            tracked.looking = Some(self.looks);
            self.looking.insert(uid);
            looks.push(Look { pod, number: self.looks });
        }
        looks
    }

    /// Puts what a look gave into the books, and returns the volumes that concerns. A look that was overtaken
    /// by the pod's end gives nothing.
    pub fn admit(
        &mut self,
        uid: &PodUid,
        found: Resolved,
        mut books: Books<'_>,
        now: Instant,
    ) -> Vec<VolumeName> {
        let all_added = self.all_added;
        let Some(tracked) = self.pods.get_mut(uid) else { return Vec::new() };
        if tracked.looking != Some(found.number) {
            return Vec::new();
        }
        tracked.looking = None;
        self.looking.remove(uid);
        self.unseen.remove(uid);
        if std::mem::take(&mut tracked.again) {
            self.due.insert(uid.clone());
        }
        if !tracked.may_be_added(all_added) {
            return Vec::new();
        }
        let pod = found.pod;
        let mut concerned = Vec::new();
        let mut complete = true;
        for (outer, found) in found.volumes {
            match found.and_then(|found| add_volume(&pod, &outer, found, &mut books)) {
                Ok(volume) => concerned.push(volume),
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
                concerned.extend(require_remounts(uid, &mut books));
            }
        } else {
            tracked.failures += 1;
            let due = now + delay_after(tracked.failures);
            tracked.retry = Some(due);
            self.retries.insert((due, uid.clone()));
        }
        concerned
    }

    /// When the next look after a failure is due.
    pub fn next_retry(&self) -> Option<Instant> {
        self.retries.first().map(|(due, _)| *due)
    }

    /// Asks for the looks whose time has come.
    pub fn expire(&mut self, now: Instant) {
        while self.retries.first().is_some_and(|(due, _)| *due <= now) {
            let (_, uid) = self.retries.pop_first().expect("there was a first one a line above");
            let Some(tracked) = self.pods.get_mut(&uid) else { continue };
            tracked.retry = None;
            match tracked.looking {
                Some(_) => tracked.again = true,
                None => drop(self.due.insert(uid)),
            }
        }
    }

    /// The desired state is complete once every pod known at the start was looked at: only then does a
    /// volume nobody wants mean something. Returns whether that has just become so.
    pub fn settle(&mut self) -> bool {
        if self.all_added || !self.sources_ready || !self.unseen.is_empty() {
            return false;
        }
        self.all_added = true;
        true
    }

    /// Whether every pod known at the start has been looked at.
    pub fn all_added(&self) -> bool {
        self.all_added
    }

    /// Whether all pods that were to be known have been given.
    pub fn sources_ready(&self) -> bool {
        self.sources_ready
    }

    /// The object of a pod.
    pub fn pod(&self, uid: &PodUid) -> Option<&Arc<Pod>> {
        self.pods.get(uid)?.pod.as_ref()
    }

    /// Whether containers of a pod may still run. Those of a pod nobody has heard of may until all pods are
    /// known.
    pub fn may_run(&self, uid: &PodUid) -> bool {
        match self.pods.get(uid) {
            Some(tracked) => tracked.state != PodState::RuntimeGone,
            None => !self.sources_ready,
        }
    }

    /// Whether a pod waits for a look, or is being looked at.
    pub fn is_looking(&self, uid: &PodUid) -> bool {
        self.due.contains(uid) || self.looking.contains(uid)
    }

    /// Whether any pod waits for a look, or is being looked at.
    pub fn is_busy(&self) -> bool {
        !self.due.is_empty() || !self.looking.is_empty()
    }

    /// The pods that are being looked at or are to be.
    pub fn busy(&self) -> impl Iterator<Item = &PodUid> {
        self.looking.union(&self.due)
    }

    /// Every pod with an object.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.values().filter_map(|tracked| tracked.pod.as_ref())
    }

    /// A pod without an object that has nothing left is forgotten.
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
    /// Whether the pod may get volumes. A pod that is ending gets no new ones; but at the start those it has
    /// must become known, as long as its containers may still use them.
    fn may_be_added(&self, all_added: bool) -> bool {
        match self.state {
            PodState::Running => true,
            PodState::Terminating => !all_added,
            PodState::RuntimeGone => false,
        }
    }
}

/// The claims a pod refers to.
fn claims_of(pod: &Pod) -> impl Iterator<Item = Namespaced> {
    pod.claims().map(|claim| Namespaced::new(&pod.meta.namespace, claim))
}

/// Puts one volume of a pod into the desired state: the kubelet's `AddPodToVolume`.
fn add_volume(
    pod: &Arc<Pod>,
    outer: &OuterName,
    found: Found,
    books: &mut Books<'_>,
) -> Result<VolumeName, String> {
    let spec = Arc::new(found.spec);
    let inner = checked_inner(&spec)?;
    let plugin = books.registry.pick(&spec).map_err(|error| match error {
        PickError::None { .. } | PickError::Several { .. } => {
            format!("failed to get Plugin from volumeSpec for volume \"{inner}\" err={error}")
        }
    })?;
    let attachable = plugin.can_attach(&spec, books.facts);
    let device_mountable = plugin.can_device_mount(&spec);
    let volume = unique_name(&**plugin, pod, &spec, attachable || device_mountable)?;
    let labels = selinux::labels(pod, outer, &spec, &**plugin, books.facts)?;
    let wanted = books.desired.volume(&volume);
    if let Some(wanted) = wanted.filter(|wanted| !wanted.pods.contains_key(&pod.uid())) {
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
        pods: BTreeMap::new(),
    };
    books.desired.add(&volume, new, Arc::clone(pod), Arc::clone(&spec), outer.clone());
    keep_sizes(&volume, &spec, found.claim_capacity, books);
    Ok(volume)
}

/// Names become directories, and an object that came through no API server may hold any name.
fn checked_inner(spec: &Spec) -> Result<SpecName, String> {
    let inner = spec.name();
    if is_path_component(inner.as_str()) {
        Ok(inner)
    } else {
        Err(format!("volume name \"{inner}\" cannot name a directory"))
    }
}

/// The name under which pods meet in a volume, or have it to themselves.
fn unique_name(
    plugin: &dyn VolumePlugin,
    pod: &Pod,
    spec: &Spec,
    shared: bool,
) -> Result<VolumeName, String> {
    if !shared {
        return Ok(VolumeName::of_pod(&plugin.name(), &pod.uid(), &spec.name()));
    }
    let name = plugin.volume_name(spec).map_err(|error| {
        format!("failed to GetUniqueVolumeNameFromSpec for volume \"{}\": {}", spec.name(), error.chain())
    })?;
    Ok(VolumeName::shared(&plugin.name(), &name))
}

/// How large the volume should be, and how large it was when nobody had grown it yet.
fn keep_sizes(volume: &VolumeName, spec: &Spec, claim_capacity: Option<Bytes>, books: &mut Books<'_>) {
    let (Some(persistent), Some(claim)) = (spec.volume(), claim_capacity) else { return };
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
