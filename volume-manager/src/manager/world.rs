//! What the loop learns of what its last incarnation left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{Manager, watch};
use crate::actual::ActualState;
use crate::api::{self, ApiError, Node, Volume, VolumeMode};
use crate::clock::Instant;
use crate::error::Failure;
use crate::event::{Event, Identified};
use crate::names::{PodUid, SpecName, VolumeName};
use crate::operation::PodRecord;
use crate::plugin::{Found, Scene};
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
        // Pods that want it may have been looked at already; how large it was is found by a look that knows it.
        let wanted = self.desired.volume(&volume).into_iter();
        wanted.flat_map(|wanted| wanted.pods.keys()).for_each(|pod| self.populator.request(pod, false));
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
    pub(super) fn search_again(&mut self, volume: &Volume) {
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
