//! What the loop learns of what its last incarnation left.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::clock::Instant;
use api::names::{PodUid, SpecName, VolumeName};
use api::{ApiError, Node, Volume, VolumeMode};
use plugin_api::error::Failure;
use plugin_api::registry::Registry;
use plugin_api::{Found, Lost, PodRecord, Scene};

use super::{Manager, watch};
use crate::event::{Event, Identified};
use crate::reconstruct::{self, Reconstruction, Recovered};

/// How far the books of the last incarnation have been taken over.
#[derive(Debug, Default)]
pub(super) struct Restart {
    /// Whether the directories have been read back.
    read_back: bool,
    /// Whether there is more of them that could not be read.
    incomplete: bool,
    /// Volumes to compare with the node's object.
    uncorrected: BTreeSet<VolumeName>,
    /// Whether the node's object is being read.
    reading_node: bool,
    /// When to read it again, after that failed.
    read_again: Option<Instant>,
    /// Directories that explain nothing, by path.
    pub(super) failed: BTreeMap<String, Orphan>,
    /// What plugins have of volumes without knowing of which, by its place.
    pub(super) lost: BTreeMap<PathBuf, (Lost, Search)>,
    /// What the node's object said that it uses, and nothing else speaks for yet. `None` before it was read.
    named: Option<BTreeSet<VolumeName>>,
}

/// A directory that could not be read back.
#[derive(Debug)]
pub(super) struct Orphan {
    pub(super) found: Found,
    why: String,
    search: Search,
}

/// Whether something else can explain a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Search {
    /// It has not been tried.
    Due,
    /// It is being tried.
    Running,
    /// It is being tried, and something has appeared since that it may have missed.
    Overtaken,
    /// It was tried, and nobody could be asked: it is tried again then.
    Unanswered(Instant),
    /// It was tried, and nothing did. Only a new object can change that.
    Done,
}

impl Search {
    fn is_running(self) -> bool {
        matches!(self, Self::Running | Self::Overtaken)
    }

    /// Something has appeared that may be what is looked for.
    pub(super) fn again(self) -> Self {
        if self.is_running() { Self::Overtaken } else { Self::Due }
    }

    /// It has ended in vain. `then` follows, unless there is something it may have missed.
    pub(super) fn ended(self, then: Self) -> Self {
        if self == Self::Overtaken { Self::Due } else { then }
    }
}

/// How long to wait before the node's object is read again.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// How long to wait before something is searched for again that nobody could be asked about.
pub(super) const SEARCH_AGAIN: Duration = Duration::from_secs(30);

impl Restart {
    /// Whether the directories of the last incarnation have been read back.
    pub(super) fn is_read_back(&self) -> bool {
        self.read_back
    }

    /// Whether what was read back has been compared with the node's object.
    pub(super) fn is_corrected(&self) -> bool {
        self.read_back && !self.needs_node()
    }

    /// Whether what was left has to be compared with the node's object.
    fn needs_node(&self) -> bool {
        !self.uncorrected.is_empty() || (self.named.is_none() && self.is_in_doubt())
    }

    /// Whether something was left that may be any volume.
    fn is_in_doubt(&self) -> bool {
        self.incomplete || self.searches().any(|search| search != Search::Done)
    }

    fn searches(&self) -> impl Iterator<Item = Search> {
        let of_orphans = self.failed.values().map(|orphan| orphan.search);
        of_orphans.chain(self.lost.values().map(|(_, search)| *search))
    }

    /// Searches are due again whose time has come.
    fn expire(&mut self, now: Instant) {
        let of_orphans = self.failed.values_mut().map(|orphan| &mut orphan.search);
        for search in of_orphans.chain(self.lost.values_mut().map(|(_, search)| search)) {
            if matches!(search, Search::Unanswered(again) if *again <= now) {
                *search = Search::Due;
            }
        }
    }

    /// What the node goes on to say that it uses, since it may be what was left and nobody knows yet.
    pub(super) fn kept(&self) -> &BTreeSet<VolumeName> {
        static NONE: BTreeSet<VolumeName> = BTreeSet::new();
        self.named.as_ref().filter(|_| self.is_in_doubt()).unwrap_or(&NONE)
    }

    /// A volume is in the books: from now on they speak for it.
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

    /// The directories that explain nothing, by their pods and the volumes that they are named after.
    pub(super) fn orphans(&self) -> BTreeSet<(PodUid, SpecName)> {
        let found = self.failed.values().map(|orphan| &orphan.found);
        found.map(|found| (found.pod.clone(), found.inner.clone())).collect()
    }

    /// What of a pod cannot be explained, and so not be unmounted.
    pub(super) fn unexplained_of<'a>(&'a self, pod: &'a PodUid) -> impl Iterator<Item = String> + 'a {
        let of_pod = self.failed.values().filter(move |orphan| &orphan.found.pod == pod);
        let lost = self.lost.values().filter(|(lost, _)| lost.pods.contains(pod));
        let lost = lost.map(|(lost, _)| lost.at.display().to_string());
        of_pod.map(|orphan| orphan.found.inner.to_string()).chain(lost)
    }

    /// Whether a pod may have more than the books say.
    pub(super) fn is_in_doubt_about(&self, pod: &PodUid) -> bool {
        !self.read_back || self.unexplained_of(pod).next().is_some()
    }

    /// Whether somebody looks for what a directory stands for.
    pub(super) fn is_searching(&self) -> bool {
        self.failed.values().any(|orphan| orphan.search.is_running())
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
        let searched = self.failed.values().filter(|orphan| orphan.search.is_running());
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
                let sender = self.executor.sender().clone();
                self.executor.background(watch::follow(kind, api, clock, sender));
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

    /// What was left has been read back: it enters the book of what is, as what may be.
    pub(super) fn reconstructed(&mut self, reconstruction: Reconstruction) {
        for (found, failure) in reconstruction.failed {
            self.count("reconstruct_errors");
            let (path, why) = (found.path.display().to_string(), failure.chain());
            tracing::warn!(path, why, "a directory explains no volume");
            self.restart.failed.insert(path, Orphan { found, why, search: Search::Due });
        }
        for recovered in reconstruction.volumes {
            self.count("reconstructed");
            // What a plugin keeps for the pod may tell what its directory could not.
            self.explained(&recovered);
            self.take_over(recovered);
        }
        for lost in reconstruction.lost {
            self.count("reconstruct_errors");
            tracing::warn!(path = %lost.at.display(), why = lost.why, "nothing here says what is staged");
            self.restart.lost.insert(lost.at.clone(), (lost, Search::Due));
        }
        self.restart.incomplete = reconstruction.incomplete;
        self.restart.read_back = true;
        self.explain_by_wishes();
        self.waits.concern_all();
        self.all_dirty();
    }

    pub(super) fn take_over(&mut self, recovered: Recovered) {
        let Recovered { volume, plugin, rebuilt, pod } = recovered;
        let record = pod.clone().map(|pod| PodRecord {
            pod,
            spec: Arc::new(rebuilt.spec.clone()),
            outer: Vec::new(),
            gid: None,
            selinux_label: rebuilt.selinux_label.clone().unwrap_or_default(),
        });
        let before = self.texts(&volume, pod.as_ref());
        self.actual.add_reconstructed(&volume, &plugin, &rebuilt, record);
        self.told_since(&volume, pod.as_ref(), before);
        pod.iter().for_each(|pod| self.waits.concern(pod));
        // Pods that want it may have been looked at already; how large it was is found by a look that knows it.
        let wanted = self.desired.volume(&volume).into_iter();
        wanted.flat_map(|wanted| wanted.pods.keys()).for_each(|pod| self.populator.request(pod, false));
        self.restart.uncorrected.insert(volume.clone());
        self.dirty.insert(volume);
    }

    /// Reads the node's object while anything is to be compared with it.
    pub(super) fn restart_turn(&mut self, now: Instant) {
        let restart = &mut self.restart;
        restart.expire(now);
        if restart.read_again.is_some_and(|due| due <= now) {
            restart.read_again = None;
        }
        if !restart.needs_node() || restart.reading_node || restart.read_again.is_some() {
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
                let named = || node.volumes_in_use.iter().cloned().collect();
                self.restart.named.get_or_insert_with(named);
                for volume in std::mem::take(&mut self.restart.uncorrected) {
                    self.restart.know(&volume);
                    let before = self.texts(&volume, None);
                    self.actual.correct(&volume, attached.get(&volume).copied());
                    self.told_since(&volume, None, before);
                }
                self.all_dirty();
            }
            Err(error) => {
                tracing::warn!(error = api::error::chain(&error), "cannot read the node");
                self.restart.read_again = Some(self.now() + READ_AGAIN);
            }
        }
    }

    /// Looks for other explanations of directories that explain nothing, once both books are complete. One
    /// that a pod wants, or that is being worked on for it, is left alone: mounting it again will adopt it.
    pub(super) fn search_orphans(&mut self) {
        if !self.populator.all_added() || !self.restart.is_corrected() {
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
        for orphan in self.restart.failed.values_mut() {
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
                    // All that was in it has been taken back, or nothing was begun.
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

    /// A search has ended: what was found is taken over and leaves like any other volume; what was not stays
    /// reported as long as anything is mounted. Nothing is guessed, and no mount is forgotten.
    pub(super) fn identified(&mut self, found: Found, identified: Identified) {
        let path = found.path.display().to_string();
        self.waits.concern(&found.pod);
        // What is kept in the node's list for its sake may go.
        self.in_use_changed = true;
        match identified {
            Identified::Recovered(recovered) => {
                if self.restart.failed.remove(&path).is_some() {
                    self.take_over(recovered);
                }
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
        let again = self.now() + SEARCH_AGAIN;
        let Some(orphan) = self.restart.failed.get_mut(path) else { return };
        let then = if why.is_some() { Search::Unanswered(again) } else { Search::Done };
        orphan.search = orphan.search.ended(then);
        if let Some(why) = why {
            orphan.why = why;
        }
        tracing::error!(path, why = orphan.why, "nobody knows what is mounted here, so it stays");
    }

    /// A directory of a pod that explained nothing is explained now. Another of the same name is not.
    pub(super) fn explained(&mut self, recovered: &Recovered) {
        let spec = &recovered.rebuilt.spec;
        let is_it = |found: &Found| {
            recovered.pod.as_ref() == Some(&found.pod)
                && recovered.plugin == found.plugin
                && (spec.name(), spec.mode()) == (found.inner.clone(), found.mode)
        };
        self.restart.failed.retain(|_, orphan| !is_it(&orphan.found));
    }

    /// A volume object appeared: it may be the one a directory was named after.
    pub(super) fn search_again(&mut self, volume: &Volume) {
        let inner = SpecName::new(&volume.meta.name);
        for orphan in self.restart.failed.values_mut().filter(|orphan| orphan.found.inner == inner) {
            orphan.search = orphan.search.again();
        }
        self.trace_again(volume);
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

/// Whether nothing is in the directory of a volume, nor mounted there.
async fn is_empty(scene: Scene<'_>, found: &Found) -> bool {
    found.mode == VolumeMode::Filesystem
        && !is_mounted(scene, found).await
        && scene.host.read_dir(&found.path).await.is_ok_and(|entries| entries.is_empty())
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
