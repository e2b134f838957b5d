//! Recovery: volumes that a previous run left on this node are reconstructed, compared with the node's object,
//! and identified where their directories do not say which volume they are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::clock::Instant;
use api::follow::Following;
use api::names::{PodUid, SpecName, VolumeName};
use api::{ApiError, Node, Volume, VolumeMode};
use plugin_api::error::Failure;
use plugin_api::registry::Registry;
use plugin_api::{Found, PodRecord, Scene, UnidentifiedStage};

use super::{FOLLOWED, Manager};
use crate::event::{Event, Identified};
use crate::reconstruct::{self, Reconstruction, Recovered};

/// How far recovery has come.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// Whether the directories have been read.
    read_back: bool,
    /// Whether some directories could not be read.
    incomplete: bool,
    /// Reconstructed volumes not yet compared with the node's object.
    uncorrected: BTreeSet<VolumeName>,
    /// Whether the node's object is being read.
    reading_node: bool,
    /// When to read the node's object again after a failure.
    read_again: Option<Instant>,
    /// Pods' volume directories that could not be reconstructed, by path.
    pub(super) failed: BTreeMap<String, UnidentifiedDirectory>,
    /// Staged volumes that are not identified, by staging path or global map.
    pub(super) lost: BTreeMap<PathBuf, (UnidentifiedStage, Search)>,
    /// The volumes in the `volumesInUse` that the node's object had when it was first read, without those that
    /// became known since. `None` before it was read.
    named: Option<BTreeSet<VolumeName>>,
}

/// A directory of a pod's volume that could not be reconstructed.
#[derive(Debug)]
pub(super) struct UnidentifiedDirectory {
    pub(super) found: Found,
    why: String,
    search: Search,
}

/// The search for the volume of an unidentified directory or stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Search {
    /// It is to be started.
    Due,
    /// It runs.
    Running,
    /// It runs, and an object has appeared since that it may have missed.
    Overtaken,
    /// It failed because a call failed; it is repeated at this time.
    Unanswered(Instant),
    /// It found nothing. Only a new object can change that.
    Done,
}

impl Search {
    fn is_running(self) -> bool {
        matches!(self, Self::Running | Self::Overtaken)
    }

    /// The state after an object has appeared that may be the one searched for.
    pub(super) fn again(self) -> Self {
        if self.is_running() { Self::Overtaken } else { Self::Due }
    }

    /// The state after a search without a result: `then`, unless an object appeared that it may have missed.
    pub(super) fn ended(self, then: Self) -> Self {
        if self == Self::Overtaken { Self::Due } else { then }
    }
}

/// The wait before the node's object is read again after a failure.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// The wait before a failed search is repeated.
pub(super) const SEARCH_AGAIN: Duration = Duration::from_secs(30);

impl Recovery {
    /// Whether the directories of a previous run have been read.
    pub(super) fn is_read_back(&self) -> bool {
        self.read_back
    }

    /// Whether the reconstructed volumes have been compared with the node's object.
    pub(super) fn is_corrected(&self) -> bool {
        self.read_back && !self.needs_node()
    }

    /// Whether the node's object is needed: for reconstructed volumes, or for the list of volumes in use that
    /// an unidentified volume may be on.
    fn needs_node(&self) -> bool {
        !self.uncorrected.is_empty() || (self.named.is_none() && self.is_in_doubt())
    }

    /// Whether something on disk may be any volume.
    fn is_in_doubt(&self) -> bool {
        self.incomplete || self.searches().any(|search| search != Search::Done)
    }

    fn searches(&self) -> impl Iterator<Item = Search> {
        let of_orphans = self.failed.values().map(|orphan| orphan.search);
        of_orphans.chain(self.lost.values().map(|(_, search)| *search))
    }

    /// Makes failed searches due whose time has come.
    fn expire(&mut self, now: Instant) {
        let of_orphans = self.failed.values_mut().map(|orphan| &mut orphan.search);
        for search in of_orphans.chain(self.lost.values_mut().map(|(_, search)| search)) {
            if matches!(search, Search::Unanswered(again) if *again <= now) {
                *search = Search::Due;
            }
        }
    }

    /// Volumes that the node's object lists as in use and nothing has accounted for. They stay listed while
    /// something on disk is not identified: it may be one of them.
    pub(super) fn kept(&self) -> &BTreeSet<VolumeName> {
        static NONE: BTreeSet<VolumeName> = BTreeSet::new();
        self.named.as_ref().filter(|_| self.is_in_doubt()).unwrap_or(&NONE)
    }

    /// A volume is in the desired or the actual state: whether it is in use follows from there.
    pub(super) fn know(&mut self, volume: &VolumeName) {
        self.named.iter_mut().for_each(|named| _ = named.remove(volume));
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        let searches = self.searches().filter_map(|search| match search {
            Search::Unanswered(again) => Some(again),
            _ => None,
        });
        searches.chain(self.read_again).min()
    }

    pub(super) fn unexplained(&self) -> BTreeMap<String, String> {
        let failed = self.failed.iter().map(|(path, orphan)| (path.clone(), orphan.why.clone()));
        let lost = self.lost.values().map(|(lost, _)| (lost.at.display().to_string(), lost.why.clone()));
        failed.chain(lost).collect()
    }

    /// The unidentified directories, by pod and the PersistentVolume or pod volume they are named after.
    pub(super) fn orphans(&self) -> BTreeSet<(PodUid, SpecName)> {
        let found = self.failed.values().map(|orphan| &orphan.found);
        found.map(|found| (found.pod.clone(), found.inner.clone())).collect()
    }

    /// Directories and stages of a pod that are not identified and therefore must not be unmounted.
    pub(super) fn unexplained_of<'a>(&'a self, pod: &'a PodUid) -> impl Iterator<Item = String> + 'a {
        let of_pod = self.failed.values().filter(move |orphan| &orphan.found.pod == pod);
        let lost = self.lost.values().filter(|(lost, _)| lost.pods.contains(pod));
        let lost = lost.map(|(lost, _)| lost.at.display().to_string());
        of_pod.map(|orphan| orphan.found.inner.to_string()).chain(lost)
    }

    /// Whether recovery may still find volumes of a pod.
    pub(super) fn is_in_doubt_about(&self, pod: &PodUid) -> bool {
        !self.read_back || self.unexplained_of(pod).next().is_some()
    }

    /// Whether a search for the volume of a directory runs.
    pub(super) fn is_searching(&self) -> bool {
        self.failed.values().any(|orphan| orphan.search.is_running())
    }

    /// Recovery's work under way.
    pub(super) fn busy(&self) -> Vec<String> {
        let mut busy = Vec::new();
        if !self.read_back {
            busy.push("reconstruct volumes from disk".to_owned());
        }
        if self.reading_node {
            busy.push("read the node object".to_owned());
        }
        let searched = self.failed.values().filter(|orphan| orphan.search.is_running());
        busy.extend(searched.map(|orphan| format!("identify {}", orphan.found.path.display())));
        busy
    }
}

impl Manager {
    /// Starts the tasks that run as long as the manager does, and the reconstruction.
    pub(super) fn start_background_tasks(&mut self) {
        let cx = self.executor.context().clone();
        if cx.config.watch_api {
            for kind in FOLLOWED {
                let following = Following::new(kind, Arc::clone(&cx.api), Arc::clone(&cx.clock));
                let sender = self.executor.sender().clone();
                self.executor.background(following.send_to(sender, Event::Api));
            }
        } else {
            self.change_facts(|facts| facts.csi_drivers_known = true);
        }
        let (host, registry) = (Arc::clone(&cx.host), Arc::clone(self.executor.registry()));
        self.executor.look_up(async move { Event::SeLinux(host.selinux_enabled().await) });
        self.executor.look_up(async move {
            let scene = Scene { host: &*cx.host, paths: &cx.paths, api: &*cx.api };
            Event::Reconstructed(reconstruct::reconstruct(scene, &registry).await)
        });
    }

    /// Takes in the reconstructed volumes: each is uncertain in the actual state until an operation confirms
    /// it.
    pub(super) fn reconstructed(&mut self, reconstruction: Reconstruction) {
        for (found, failure) in reconstruction.failed {
            self.count("reconstruct_errors");
            let (path, why) = (found.path.display().to_string(), failure.chain());
            tracing::warn!(
                path,
                why,
                "cannot reconstruct a volume from its directory; searching for it among the API's objects"
            );
            self.recovery.failed.insert(path, UnidentifiedDirectory { found, why, search: Search::Due });
        }
        for recovered in reconstruction.volumes {
            self.count("reconstructed");
            // A plugin's own records may identify a volume whose directory could not be reconstructed.
            self.remove_identified_directory(&recovered);
            self.adopt(recovered);
        }
        for lost in reconstruction.lost {
            self.count("reconstruct_errors");
            tracing::warn!(path = %lost.at.display(), why = lost.why, "cannot identify a staged volume; searching for it among the API's objects");
            self.recovery.lost.insert(lost.at.clone(), (lost, Search::Due));
        }
        self.recovery.incomplete = reconstruction.incomplete;
        self.recovery.read_back = true;
        self.identify_by_desired_state();
        self.waits.concern_all();
        self.all_dirty();
    }

    pub(super) fn adopt(&mut self, recovered: Recovered) {
        let Recovered { volume, plugin, rebuilt, pod } = recovered;
        let record = pod.clone().map(|pod| PodRecord {
            pod,
            spec: Arc::new(rebuilt.spec.clone()),
            outer: Vec::new(),
            gid: None,
            selinux_label: rebuilt.selinux_label.clone().unwrap_or_default(),
        });
        let before = self.actual_texts(&volume, pod.as_ref());
        self.actual.add_reconstructed(&volume, &plugin, &rebuilt, record);
        self.notify_actual_change(&volume, pod.as_ref(), before);
        pod.iter().for_each(|pod| self.waits.concern(pod));
        // Pods that want the volume may be resolved already, but without its size, which is only looked up for
        // a volume that is known here.
        let wanted = self.desired.volume(&volume).into_iter();
        wanted.flat_map(|wanted| wanted.pods.keys()).for_each(|pod| self.populator.request(pod, false));
        self.recovery.uncorrected.insert(volume.clone());
        self.dirty.insert(volume);
    }

    /// Starts searches whose time has come and reads the node's object if recovery needs it.
    pub(super) fn read_node_if_needed(&mut self, now: Instant) {
        let recovery = &mut self.recovery;
        recovery.expire(now);
        if recovery.read_again.is_some_and(|due| due <= now) {
            recovery.read_again = None;
        }
        if !recovery.needs_node() || recovery.reading_node || recovery.read_again.is_some() {
            return;
        }
        recovery.reading_node = true;
        let cx = self.executor.context();
        let (api, node) = (Arc::clone(&cx.api), cx.config.node.clone());
        self.executor
            .look_up(async move { Event::NodeRead(api::get::<Node>(&*api, "", node.as_str()).await) });
    }

    /// Compares the reconstructed volumes with the node's object. Until that has succeeded nothing is
    /// unmounted; mounts go on.
    pub(super) fn node_read(&mut self, read: Result<Arc<Node>, ApiError>) {
        self.recovery.reading_node = false;
        match read {
            Ok(node) => {
                let attached = node.volumes_attached.iter().map(|attached| (&attached.name, attached));
                let attached: BTreeMap<_, _> = attached.collect();
                let named = || node.volumes_in_use.iter().cloned().collect();
                self.recovery.named.get_or_insert_with(named);
                for volume in std::mem::take(&mut self.recovery.uncorrected) {
                    self.recovery.know(&volume);
                    let before = self.actual_texts(&volume, None);
                    self.actual.correct(&volume, attached.get(&volume).copied());
                    self.notify_actual_change(&volume, None, before);
                }
                self.all_dirty();
            }
            Err(error) => {
                tracing::warn!(
                    error = api::error::chain(&error),
                    "cannot read the node's object; retrying in 1 s"
                );
                self.recovery.read_again = Some(self.now() + READ_AGAIN);
            }
        }
    }

    /// Starts searches for the volumes of unidentified directories, once the desired and the actual state are
    /// complete. A directory is left alone while its pod wants it or may run, or an operation runs for it: the
    /// mount adopts it.
    pub(super) fn search_unidentified_directories(&mut self) {
        if !self.populator.all_added() || !self.recovery.is_corrected() {
            return;
        }
        let worked_on = |found: &Found| {
            let mut running = self.pending.for_pod(&found.pod);
            running.any(|running| {
                self.actual.spec(&running.key.volume).is_some_and(|spec| spec.name() == found.inner)
            })
        };
        let wanted = |found: &Found| {
            self.desired.wants_inner(&found.pod, &found.inner)
                || self.populator.may_run(&found.pod)
                || worked_on(found)
        };
        let mut searches = Vec::new();
        for orphan in self.recovery.failed.values_mut() {
            if orphan.search == Search::Due && !wanted(&orphan.found) {
                orphan.search = Search::Running;
                searches.push(orphan.found.clone());
            }
        }
        for found in searches {
            self.count("orphan_searches");
            let (cx, registry) = (self.executor.context().clone(), Arc::clone(self.executor.registry()));
            self.executor.look_up(async move {
                let scene = Scene { host: &*cx.host, paths: &cx.paths, api: &*cx.api };
                let identified = match is_empty(scene, &found).await {
                    // The directory's content was removed by an operation, or was never created.
                    true => Identified::Nothing,
                    false => match identify(scene, &registry, &found).await {
                        Ok(Some(recovered)) => Identified::Recovered(recovered),
                        _ if !is_mounted(scene, &found).await => Identified::Nothing,
                        Ok(None) => Identified::Unknown(None),
                        Err(failure) => Identified::Unknown(Some(failure)),
                    },
                };
                Event::Identified(found, identified)
            });
        }
    }

    /// Takes in the result of a search. An identified volume enters the actual state and is unmounted like any
    /// other; an unidentified one stays on disk and is reported as long as anything is mounted.
    pub(super) fn directory_search_ended(&mut self, found: Found, identified: Identified) {
        let path = found.path.display().to_string();
        self.waits.concern(&found.pod);
        // Volumes that were listed as in use only because of this directory may leave the list.
        self.in_use_changed = true;
        match identified {
            Identified::Recovered(recovered) => {
                if self.recovery.failed.remove(&path).is_some() {
                    self.adopt(recovered);
                }
            }
            Identified::Nothing => drop(self.recovery.failed.remove(&path)),
            Identified::Unknown(why) => {
                self.directory_stays_unidentified(&path, why.map(|failure| failure.chain()))
            }
        }
        if !self.recovery.is_searching() {
            // Volumes without pods stay staged while a search runs: the searched directory may be such a
            // volume's.
            self.all_dirty();
        }
    }

    fn directory_stays_unidentified(&mut self, path: &str, why: Option<String>) {
        self.count("orphan_search_errors");
        let again = self.now() + SEARCH_AGAIN;
        let Some(orphan) = self.recovery.failed.get_mut(path) else { return };
        let then = if why.is_some() { Search::Unanswered(again) } else { Search::Done };
        orphan.search = orphan.search.ended(then);
        if let Some(why) = why {
            orphan.why = why;
        }
        tracing::error!(
            path,
            why = orphan.why,
            "unidentified mount stays: neither a record nor a PersistentVolume names its volume"
        );
    }

    /// Forgets the unidentified directory of a pod's volume that is identified now. Another volume of the same
    /// name does not count.
    pub(super) fn remove_identified_directory(&mut self, recovered: &Recovered) {
        let spec = &recovered.rebuilt.spec;
        let is_match = |found: &Found| {
            recovered.pod.as_ref() == Some(&found.pod)
                && recovered.plugin == found.plugin
                && (spec.name(), spec.mode()) == (found.inner.clone(), found.mode)
        };
        self.recovery.failed.retain(|_, orphan| !is_match(&orphan.found));
    }

    /// Repeats searches whose volume may be the PersistentVolume that has appeared.
    pub(super) fn search_for_volume_again(&mut self, volume: &Volume) {
        let inner = SpecName::new(&volume.meta.name);
        for orphan in self.recovery.failed.values_mut().filter(|orphan| orphan.found.inner == inner) {
            orphan.search = orphan.search.again();
        }
        self.search_stages_again(volume);
    }
}

async fn identify(
    scene: Scene<'_>,
    registry: &Registry,
    found: &Found,
) -> Result<Option<Recovered>, Failure> {
    let plugin = registry.by_name(&found.plugin)?;
    let identified = plugin.identify_orphan(&scene, found).await?;
    identified.map(|rebuilt| reconstruct::recovered(&**plugin, rebuilt, Some(&found.pod))).transpose()
}

/// Whether the directory of a filesystem volume is empty and nothing is mounted in it.
async fn is_empty(scene: Scene<'_>, found: &Found) -> bool {
    found.mode == VolumeMode::Filesystem
        && !is_mounted(scene, found).await
        && scene.host.read_dir(&found.path).await.is_ok_and(|entries| entries.is_empty())
}

/// Whether anything is mounted for a directory. Reads the mount table and not the directory, which may hang. If
/// the table cannot be read, the answer is yes.
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
