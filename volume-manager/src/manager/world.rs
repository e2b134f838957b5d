//! What the loop learns about the world around its volumes: API objects, drivers, and what its last
//! incarnation left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{Manager, watch};
use crate::actual::ActualState;
use crate::api::{
    self, ApiError, Attachment, Change, Claim, CsiDriver, Kind, Node, Object, PersistentSource, Resource,
    Volume, VolumeMode, VolumeSource,
};
use crate::clock::Instant;
use crate::error::Failure;
use crate::event::{Event, Identified, Registration};
use crate::names::{AttachmentName, DriverName, PodUid, SpecName, VolumeName};
use crate::operation::{NODE_RESIZE_PENDING, OperationName, PodRecord};
use crate::plugin::{Found, RegisteredDriver, Scene, Spec};
use crate::reconstruct::{self, Reconstruction, Recovered};

/// How far the books of the last incarnation have been taken over.
#[derive(Debug, Default)]
pub(super) struct Restart {
    /// Whether the directories have been read back.
    read_back: bool,
    /// Volumes to compare with the node's object.
    uncorrected: BTreeSet<VolumeName>,
    /// Whether the node's object is being read.
    reading_node: bool,
    /// When to read it again, after that failed.
    read_again: Option<Instant>,
    /// Directories that explain nothing, by path.
    failed: BTreeMap<String, Orphan>,
}

/// A directory that could not be read back.
#[derive(Debug)]
struct Orphan {
    found: Found,
    why: String,
    search: Search,
}

/// Whether something else can explain a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Search {
    /// It has not been tried.
    Due,
    /// It is being tried.
    Running,
    /// It was tried, and nothing did. Only a new object can change that.
    Done,
}

/// How long to wait before the node's object is read again.
const READ_AGAIN: Duration = Duration::from_secs(1);

impl Restart {
    /// Whether the directories of the last incarnation have been read back.
    pub(super) fn is_read_back(&self) -> bool {
        self.read_back
    }

    /// Whether what was read back has been compared with the node's object.
    pub(super) fn is_corrected(&self) -> bool {
        self.read_back && self.uncorrected.is_empty()
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.read_again
    }

    pub(super) fn unexplained(&self) -> BTreeMap<String, String> {
        self.failed.iter().map(|(path, orphan)| (path.clone(), orphan.why.clone())).collect()
    }

    /// What of a pod cannot be explained, and so not be unmounted.
    pub(super) fn unexplained_of<'a>(&'a self, pod: &'a PodUid) -> impl Iterator<Item = String> + 'a {
        let of_pod = self.failed.values().filter(move |orphan| &orphan.found.pod == pod);
        of_pod.map(|orphan| orphan.found.inner.to_string())
    }

    /// Whether somebody looks for what a directory stands for.
    pub(super) fn is_searching(&self) -> bool {
        self.failed.values().any(|orphan| orphan.search == Search::Running)
    }

    /// What is under way.
    pub(super) fn busy(&self) -> Vec<String> {
        let mut busy = Vec::new();
        if !self.read_back {
            busy.push("read back what was left".to_owned());
        }
        if self.reading_node {
            busy.push("read the node".to_owned());
        }
        let searched = self.failed.values().filter(|orphan| orphan.search == Search::Running);
        busy.extend(searched.map(|orphan| format!("identify {}", orphan.found.path.display())));
        busy
    }
}

/// The beginning.
impl Manager {
    /// Starts everything that runs for as long as the manager does, and reads back what was left.
    pub(super) fn begin(&mut self) {
        let cx = self.executor.context().clone();
        if cx.config.watch_api {
            for kind in watch::FOLLOWED {
                let (api, clock) = (Arc::clone(&cx.api), Arc::clone(&cx.clock));
                self.executor.background(watch::follow(kind, api, clock, cx.events.sender.clone()));
            }
        } else {
            self.change_facts(|facts| facts.csi_drivers_known = true);
        }
        let host = Arc::clone(&cx.host);
        self.executor.look_up(async move { Event::SeLinux(host.selinux_enabled().await) });
        self.executor.look_up(async move {
            let scene = Scene { host: &*cx.host, paths: &cx.paths, api: &*cx.api };
            Event::Reconstructed(reconstruct::reconstruct(scene, &cx.registry).await)
        });
    }

    /// What was left has been read back: it enters the book of what is, as what may be.
    pub(super) fn reconstructed(&mut self, reconstruction: Reconstruction) {
        for recovered in reconstruction.volumes {
            self.count("reconstructed");
            self.take_over(recovered);
        }
        for (found, failure) in reconstruction.failed {
            self.count("reconstruct_errors");
            let (path, why) = (found.path.display().to_string(), failure.chain());
            tracing::warn!(path, why, "a directory explains no volume");
            self.restart.failed.insert(path, Orphan { found, why, search: Search::Due });
        }
        self.restart.read_back = true;
        self.waits.concern_all();
        self.all_dirty();
    }

    fn take_over(&mut self, recovered: Recovered) {
        let Recovered { volume, plugin, rebuilt, pod } = recovered;
        let record = pod.clone().map(|pod| PodRecord {
            pod,
            spec: Arc::new(rebuilt.spec.clone()),
            outer: Vec::new(),
            gid: None,
            selinux_label: rebuilt.selinux_label.clone().unwrap_or_default(),
        });
        self.actual.add_reconstructed(&volume, &plugin, &rebuilt, record);
        let text = |actual: &ActualState| actual.volume(&volume).map(ToString::to_string);
        let now = text(&self.actual).unwrap_or_default();
        self.tell_state("actual", format!("volume {volume}"), String::new(), now);
        if let Some(pod) = pod {
            self.waits.concern(&pod);
            let now = self.actual.entry(&volume, &pod).map(|entry| entry.mount.to_string());
            self.tell_state("actual", format!("pod {pod} {volume}"), String::new(), now.unwrap_or_default());
        }
        self.restart.uncorrected.insert(volume.clone());
        self.dirty.insert(volume);
    }

    /// Reads the node's object while anything is to be compared with it.
    pub(super) fn restart_turn(&mut self, now: Instant) {
        let restart = &mut self.restart;
        if restart.read_again.is_some_and(|due| due <= now) {
            restart.read_again = None;
        }
        if restart.uncorrected.is_empty() || restart.reading_node || restart.read_again.is_some() {
            return;
        }
        restart.reading_node = true;
        let cx = self.executor.context();
        let (api, node) = (Arc::clone(&cx.api), cx.config.node.clone());
        self.executor
            .look_up(async move { Event::NodeRead(api::get::<Node>(&*api, "", node.as_str()).await) });
    }

    /// The node's object was read: what was read back is corrected by it. Until that has worked nothing is
    /// unmounted, but mounts go on.
    pub(super) fn node_read(&mut self, read: Result<Arc<Node>, ApiError>) {
        self.restart.reading_node = false;
        match read {
            Ok(node) => {
                let attached = node.volumes_attached.iter().map(|attached| (&attached.name, attached));
                let attached: BTreeMap<_, _> = attached.collect();
                for volume in std::mem::take(&mut self.restart.uncorrected) {
                    self.actual.correct(&volume, attached.get(&volume).copied());
                }
                self.all_dirty();
            }
            Err(error) => {
                tracing::warn!(error = crate::error::chain(&error), "cannot read the node");
                self.restart.read_again = Some(self.now() + READ_AGAIN);
            }
        }
    }

    /// Looks for other explanations of directories that explain nothing, once both books are complete. One
    /// that a pod wants is left alone: mounting it again will adopt it.
    pub(super) fn search_orphans(&mut self) {
        if !self.populator.all_added() || !self.restart.is_corrected() {
            return;
        }
        let wanted = |found: &Found| {
            self.desired.wants_inner(&found.pod, &found.inner) || self.populator.may_run(&found.pod)
        };
        let mut searches = Vec::new();
        for orphan in self.restart.failed.values_mut() {
            if orphan.search == Search::Due && !wanted(&orphan.found) {
                orphan.search = Search::Running;
                searches.push(orphan.found.clone());
            }
        }
        for found in searches {
            self.count("orphan_searches");
            let cx = self.executor.context().clone();
            self.executor.look_up(async move {
                let scene = Scene { host: &*cx.host, paths: &cx.paths, api: &*cx.api };
                let identified = match identify(scene, &cx, &found).await {
                    Ok(Some(recovered)) => Identified::Recovered(recovered),
                    _ if !is_mounted(scene, &found).await => Identified::Nothing,
                    Ok(None) => Identified::Unknown(None),
                    Err(failure) => Identified::Unknown(Some(failure)),
                };
                Event::Identified(found, identified)
            });
        }
    }

    /// A search has ended: what was found is taken over and leaves like any other volume; what was not stays
    /// reported as long as anything is mounted. Nothing is guessed, and no mount is forgotten.
    pub(super) fn identified(&mut self, found: Found, identified: Identified) {
        let path = found.path.display().to_string();
        self.waits.concern(&found.pod);
        match identified {
            Identified::Recovered(recovered) => {
                self.restart.failed.remove(&path);
                self.take_over(recovered);
            }
            Identified::Nothing => drop(self.restart.failed.remove(&path)),
            Identified::Unknown(why) => self.orphan_stays(&path, why.map(|failure| failure.chain())),
        }
        if !self.restart.is_searching() {
            // Volumes that no pod seemed to have were kept staged for its sake.
            self.all_dirty();
        }
    }

    fn orphan_stays(&mut self, path: &str, why: Option<String>) {
        self.count("orphan_search_errors");
        let Some(orphan) = self.restart.failed.get_mut(path) else { return };
        orphan.search = Search::Done;
        if let Some(why) = why {
            orphan.why = why;
        }
        tracing::error!(path, why = orphan.why, "nobody knows what is mounted here, so it stays");
    }

    /// A pod got, or gave back, a volume whose directory explained nothing: it is explained now.
    pub(super) fn explained(&mut self, pod: &PodUid, inner: &SpecName) {
        self.restart.failed.retain(|_, Orphan { found, .. }| &found.pod != pod || &found.inner != inner);
    }

    /// A volume object appeared: it may be the one a directory was named after.
    fn search_again(&mut self, volume: &Volume) {
        let inner = SpecName::new(&volume.meta.name);
        for orphan in self.restart.failed.values_mut().filter(|orphan| orphan.found.inner == inner) {
            if orphan.search == Search::Done {
                orphan.search = Search::Due;
            }
        }
    }
}

async fn identify(
    scene: Scene<'_>,
    cx: &crate::operation::OperationContext,
    found: &Found,
) -> Result<Option<Recovered>, Failure> {
    let plugin = cx.registry.by_name(&found.plugin)?;
    let identified = plugin.identify_orphan(&scene, found).await?;
    identified.map(|rebuilt| reconstruct::recovered(&**plugin, rebuilt, found)).transpose()
}

/// Whether anything is mounted that a directory stands for. The table of mounts is asked and not the
/// directory, which may hang. If that cannot be read, something may be.
async fn is_mounted(scene: Scene<'_>, found: &Found) -> bool {
    let Ok(table) = scene.host.mount_table().await else { return true };
    table.entries().iter().any(|entry| match found.mode {
        VolumeMode::Filesystem => entry.mount_point.starts_with(&found.path),
        VolumeMode::Block => {
            let of_pod = entry.mount_point.file_name().is_some_and(|name| name == found.pod.as_str());
            of_pod && entry.mount_point.components().any(|part| part.as_os_str() == found.inner.as_str())
        }
    })
}

/// What changes.
impl Manager {
    pub(super) fn api_changed(&mut self, kind: Kind, change: Change) {
        match change {
            Change::Synced if kind == Kind::CsiDriver => {
                self.change_facts(|facts| facts.csi_drivers_known = true);
            }
            Change::Synced => {}
            Change::Applied(Object::CsiDriver(driver)) => self.driver_changed(&driver, true),
            Change::Deleted(Object::CsiDriver(driver)) => self.driver_changed(&driver, false),
            Change::Applied(Object::Node(node)) => self.node_changed(node),
            Change::Applied(Object::Claim(claim)) => self.claim_changed(&claim),
            Change::Deleted(Object::Claim(claim)) => _ = self.turns.remove(&claim.key().namespaced_name()),
            Change::Applied(Object::Volume(volume)) => self.volume_changed(&volume),
            Change::Applied(Object::Attachment(attachment)) => self.attachment_changed(attachment, true),
            Change::Deleted(Object::Attachment(attachment)) => self.attachment_changed(attachment, false),
            Change::Applied(_) | Change::Deleted(_) => {}
        }
    }

    fn driver_changed(&mut self, driver: &Arc<CsiDriver>, exists: bool) {
        let name = DriverName::new(&driver.meta.name);
        self.change_facts(|facts| {
            if exists {
                facts.csi_drivers.insert(name.clone(), Arc::clone(driver));
            } else {
                facts.csi_drivers.remove(&name);
            }
        });
        let facts = Arc::clone(&self.facts.borrow());
        let registry = Arc::clone(&self.executor.context().registry);
        let concerned = self.desired.volumes().filter(|(_, wanted)| {
            let spec = wanted.pods.values().next().map(|by| &by.spec);
            let not_attachable = |spec: &Arc<Spec>| {
                registry.by_name(&wanted.plugin).is_ok_and(|plugin| !plugin.can_attach(spec, &facts))
            };
            wanted.attachable && spec.is_some_and(not_attachable)
        });
        // Only in this direction: what some pod already has without an attachment stays as it is.
        let concerned: Vec<_> = concerned.map(|(volume, _)| volume.clone()).collect();
        for volume in concerned {
            self.desired.set_not_attachable(&volume);
            self.dirty.insert(volume);
        }
    }

    /// Volumes wait for the node's object to say that they are attached.
    fn node_changed(&mut self, node: Arc<Node>) {
        if node.meta.name != self.executor.context().config.node.as_str() {
            return;
        }
        let dirty = &mut self.dirty;
        self.facts.send_modify(|facts| dirty.extend(Arc::make_mut(facts).see_node(node)));
    }

    /// Pods that failed on the claim are looked at again, and a volume whose turn has come is grown at once.
    fn claim_changed(&mut self, claim: &Claim) {
        self.populator.request_claim(&claim.key().namespaced_name(), false);
        if !self.turn_comes(claim) {
            return;
        }
        let actual = &self.actual;
        let concerned = self.pending.end_back_off(|rung| {
            let inner = actual.spec(&rung.key.volume).map(|spec| spec.name());
            rung.name == OperationName::Expand
                && inner.is_some_and(|inner| inner.as_str() == claim.spec.volume)
        });
        self.dirty.extend(concerned);
    }

    /// Whether a claim has come to say that it is the node's turn. What goes on to say so is no news, nor is
    /// what the node itself writes there on its way, and least of all a reason to try again.
    fn turn_comes(&mut self, claim: &Claim) -> bool {
        let name = claim.key().namespaced_name();
        if claim.status.resize != NODE_RESIZE_PENDING {
            self.turns.remove(&name);
            return false;
        }
        let size = claim.status.allocated;
        self.turns.insert(name, size) != Some(size)
    }

    /// A volume that has grown is looked at again on behalf of the pods that have it.
    fn volume_changed(&mut self, volume: &Volume) {
        self.search_again(volume);
        let Some(reference) = &volume.claim else { return };
        let inner = SpecName::new(&volume.meta.name);
        let grown = self.populator.pods_of(&reference.claim).any(|pod| {
            self.desired
                .volumes_of(pod)
                .any(|(_, wanted, by)| by.spec.name() == inner && wanted.size < volume.capacity)
        });
        self.populator.request_claim(&reference.claim, grown);
    }

    fn attachment_changed(&mut self, attachment: Arc<Attachment>, exists: bool) {
        if attachment.node != self.executor.context().config.node.as_str() {
            return;
        }
        let name = AttachmentName::new(&attachment.meta.name);
        let failed = exists && attachment.attach_error.is_some();
        if failed || self.facts.borrow().attachments.contains_key(&name) {
            self.change_facts(|facts| {
                if failed {
                    facts.attachments.insert(name, attachment);
                } else {
                    facts.attachments.remove(&name);
                }
            });
        }
    }

    /// A driver came or went. When it comes, whatever failed for want of it need not wait any longer.
    pub(super) fn registered(&mut self, registration: Registration) {
        match registration {
            Registration::Removed { driver } => {
                self.change_facts(|facts| drop(facts.registered.remove(&driver)));
            }
            Registration::Added { driver, endpoint } => {
                self.registrations += 1;
                let instance = self.registrations;
                self.change_facts(|facts| {
                    facts.registered.insert(driver.clone(), RegisteredDriver { endpoint, instance });
                });
                let (actual, desired) = (&self.actual, &self.desired);
                let concerned = self.pending.end_back_off(|rung| {
                    let volume = &rung.key.volume;
                    let wanted = desired.volume(volume).and_then(|wanted| wanted.pods.values().next());
                    let spec = actual.spec(volume).or(wanted.map(|by| &by.spec));
                    spec.and_then(|spec| driver_of(spec)) == Some(&driver)
                });
                self.dirty.extend(concerned);
            }
        }
    }
}

/// The CSI driver of a volume, if it has one.
fn driver_of(spec: &Spec) -> Option<&DriverName> {
    match (spec.persistent_source(), spec.pod_volume().map(|volume| &volume.source)) {
        (Some(PersistentSource::Csi(csi)), _) => Some(&csi.driver),
        (_, Some(VolumeSource::Csi(csi))) => Some(&csi.driver),
        _ => None,
    }
}
