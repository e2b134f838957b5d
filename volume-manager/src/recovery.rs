//! Recovery after a restart: volumes that a previous run left on this node are reconstructed, compared with the
//! node's object, and identified where their directories do not say which volume they are.
//!
//! [`Recovery`] observes events, and [`Recovery::decide`] returns the next steps. Neither does IO: the manager runs the
//! steps, and their results come back as events.

mod desired;
pub(crate) mod identify;
mod search;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::clock::Instant;
use api::names::{PodUid, SpecName, VolumeName};
use api::{ApiError, AttachedVolume, Node, Volume};
use plugin_api::error::Failure;
use plugin_api::paths::Paths;
use plugin_api::registry::Registry;
use plugin_api::{Found, UnidentifiedStage};
use serde::{Deserialize, Serialize};

use self::search::Search;
use crate::actual::ActualState;
use crate::desired::DesiredState;
use crate::operation::pending::Pending;
use crate::populator::Populator;
use crate::reconstruct::{Reconstruction, Recovered};

/// The wait before the node's object is read again after a failure.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// The volumes that a previous run left on this node, as far as they are not in the actual state yet.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    /// Events whose consequences are not decided yet.
    events: Vec<Event>,
    /// Whether the directories have been read.
    read_back: bool,
    /// Whether some directories could not be read.
    incomplete: bool,
    /// Whether the desired state has changed since directories and stages were compared with it.
    desired_changed: bool,
    /// Reconstructed volumes not yet compared with the node's object.
    uncorrected: BTreeSet<VolumeName>,
    /// Whether the node's object was ever read.
    node_read: bool,
    /// Whether the node's object is being read.
    reading_node: bool,
    /// When to read the node's object again after a failure.
    read_again: Option<Instant>,
    /// Pods' volume directories that could not be reconstructed, by path.
    directories: BTreeMap<PathBuf, UnidentifiedDirectory>,
    /// Staged volumes that are not identified, by staging path or global map.
    stages: BTreeMap<PathBuf, (UnidentifiedStage, Search)>,
}

/// A directory of a pod's volume that could not be reconstructed.
#[derive(Debug)]
struct UnidentifiedDirectory {
    found: Found,
    why: String,
    search: Search,
}

/// What the manager comes to know after its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Knowledge {
    /// The volumes on disk are reconstructed.
    Volumes,
    /// Each pod that was bound to the node at the start is resolved.
    Pods,
    /// The reconstructed volumes are compared with the node's object.
    Node,
}

impl Knowledge {
    /// The word in traces.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Volumes => "volumes",
            Self::Pods => "pods",
            Self::Node => "node",
        }
    }
}

/// The progress of recovery. It may go back from `Complete`: a volume that is identified late has to be compared with
/// the node's object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Progress {
    /// The directories have not been read.
    Reconstructing,
    /// The node's object is needed: for reconstructed volumes, or because an unidentified one may be on its list
    /// of volumes in use.
    Comparing,
    /// Something on disk may be any volume.
    Identifying,
    Complete,
}

#[derive(Debug)]
pub(crate) enum Event {
    /// The volumes on disk were reconstructed.
    Reconstructed(Reconstruction),
    /// The node's object was read.
    NodeRead(Result<Arc<Node>, ApiError>),
    /// The search for the volume of an unidentified directory has ended.
    DirectorySearched(Found, Identified),
    /// The search for the PersistentVolume of an unidentified stage has ended; the path is the staging path or
    /// global map.
    StageSearched(PathBuf, Result<Option<Arc<Volume>>, ApiError>),
    /// A PersistentVolume has appeared or changed.
    VolumeSeen(Arc<Volume>),
    /// Pods may want more volumes than before.
    DesiredChanged,
}

/// The result of a search for the volume of an unidentified directory.
#[derive(Debug)]
pub(crate) enum Identified {
    Recovered(Recovered),
    /// Nothing is mounted there.
    Nothing,
    /// Something is mounted there, and its volume is still unknown. The failure is that of the search, if it
    /// failed.
    Unknown(Option<Failure>),
}

/// A consequence of events, to be carried out by the manager.
#[derive(Debug)]
pub(crate) enum Step {
    /// Add a volume to the actual state, as uncertain.
    Adopt(Recovered),
    /// Compare a reconstructed volume with the node's object, which lists it as attached or does not.
    Correct(VolumeName, Option<AttachedVolume>),
    /// Note the volumes in use of the node's object, as it was first read.
    ListInUse(Vec<VolumeName>),
    /// Send the notice about what is known now.
    Announce(Knowledge),
    /// Run a call. What it finds is an event.
    Call(Call),
    /// Look whether volumes leave `volumesInUse` that were on it only because of an unidentified volume.
    ReviewInUse,
    /// Check the waits for a pod.
    Wake(PodUid),
    /// Check all waits.
    WakeAll,
    /// Plan all volumes.
    PlanAll,
    /// Add to a counter.
    Count(&'static str),
}

/// A call that takes time.
#[derive(Debug)]
pub(crate) enum Call {
    /// Reads the node's object.
    ReadNode,
    /// Searches for the volume of a directory.
    SearchDirectory(Found),
    /// Searches for the PersistentVolume of a stage.
    SearchStage(UnidentifiedStage),
}

/// The rest of the manager's state that decisions depend on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) desired: &'a DesiredState,
    pub(crate) actual: &'a ActualState,
    pub(crate) pods: &'a Populator,
    pub(crate) pending: &'a Pending,
    pub(crate) registry: &'a Registry,
    pub(crate) paths: &'a Paths,
    /// Whether the node enforces SELinux.
    pub(crate) selinux: bool,
}

impl Recovery {
    /// Notes an event. Only [`decide`](Self::decide) draws conclusions, together with the steps that carry them
    /// out: recovery must not look further than the actual state is.
    pub(crate) fn observe(&mut self, event: Event) {
        let about_unidentified = matches!(event, Event::VolumeSeen(_) | Event::DesiredChanged);
        if about_unidentified && self.directories.is_empty() && self.stages.is_empty() {
            // There are thousands of these. Directories and stages that are still to be taken in are compared
            // with all volumes anyway.
            return;
        }
        self.events.push(event);
    }

    /// The next steps. Call it again once they are done, until there are none: an adopted volume changes the state that
    /// later steps depend on.
    pub(crate) fn decide(&mut self, view: View<'_>, now: Instant) -> Vec<Step> {
        let mut steps = Vec::new();
        for event in std::mem::take(&mut self.events) {
            self.take_in(event, view, now, &mut steps);
        }
        if steps.is_empty() && std::mem::take(&mut self.desired_changed) {
            self.adopt_desired(view, &mut steps);
        }
        if steps.is_empty() {
            self.expire(now);
            self.read_node(&mut steps);
            // The desired and the actual state are complete before anything is searched for: most of it belongs
            // to a pod that wants it, and is identified without a search.
            if view.pods.all_added() && self.progress() >= Progress::Identifying {
                self.search_directories(view, &mut steps);
                self.search_stages(&mut steps);
            }
        }
        steps
    }

    fn take_in(&mut self, event: Event, view: View<'_>, now: Instant, steps: &mut Vec<Step>) {
        match event {
            Event::Reconstructed(reconstruction) => self.reconstructed(reconstruction, steps),
            Event::NodeRead(Ok(node)) => self.compare(&node, steps),
            Event::NodeRead(Err(error)) => {
                let error = api::error::chain(&error);
                tracing::warn!(error, "cannot read the node's object; retrying in 1 s");
                self.reading_node = false;
                self.read_again = Some(now + READ_AGAIN);
            }
            Event::DirectorySearched(found, identified) => {
                self.directory_searched(&found, identified, now, steps);
            }
            Event::StageSearched(at, found) => self.stage_searched(&at, found, view, now, steps),
            Event::VolumeSeen(volume) => self.search_again(&volume, view),
            Event::DesiredChanged => self.desired_changed = true,
        }
    }

    fn reconstructed(&mut self, reconstruction: Reconstruction, steps: &mut Vec<Step>) {
        for (found, failure) in reconstruction.failed {
            let (path, why) = (found.path.clone(), failure.chain());
            tracing::warn!(path = %path.display(), why, "cannot reconstruct a volume from its directory; searching for it among the API's objects");
            steps.push(Step::Count("reconstruct_errors"));
            self.directories.insert(path, UnidentifiedDirectory { found, why, search: Search::Due });
        }
        for recovered in reconstruction.volumes {
            steps.push(Step::Count("reconstructed"));
            // A plugin's own records may identify a volume whose directory could not be reconstructed.
            self.remove_directory_of(&recovered);
            self.adopt(recovered, steps);
        }
        for stage in reconstruction.lost {
            tracing::warn!(path = %stage.at.display(), why = stage.why, "cannot identify a staged volume; searching for it among the API's objects");
            steps.push(Step::Count("reconstruct_errors"));
            self.stages.insert(stage.at.clone(), (stage, Search::Due));
        }
        self.incomplete = reconstruction.incomplete;
        self.read_back = true;
        self.desired_changed = true;
        steps.extend([Step::Announce(Knowledge::Volumes), Step::WakeAll, Step::PlanAll]);
    }

    fn adopt(&mut self, recovered: Recovered, steps: &mut Vec<Step>) {
        self.uncorrected.insert(recovered.volume.clone());
        steps.push(Step::Adopt(recovered));
    }

    /// Compares the reconstructed volumes with the node's object. Until that has succeeded nothing is unmounted;
    /// mounts go on.
    fn compare(&mut self, node: &Node, steps: &mut Vec<Step>) {
        self.reading_node = false;
        if !std::mem::replace(&mut self.node_read, true) {
            steps.push(Step::ListInUse(node.volumes_in_use.clone()));
        }
        let attached: BTreeMap<_, _> =
            node.volumes_attached.iter().map(|attached| (&attached.name, attached)).collect();
        for volume in std::mem::take(&mut self.uncorrected) {
            let attached = attached.get(&volume).map(|attached| (*attached).clone());
            steps.push(Step::Correct(volume, attached));
        }
        steps.extend([Step::Announce(Knowledge::Node), Step::PlanAll]);
    }

    fn adopt_desired(&mut self, view: View<'_>, steps: &mut Vec<Step>) {
        if self.directories.is_empty() && self.stages.is_empty() {
            return;
        }
        for recovered in desired::identify(self, view) {
            let unidentified = (self.directories.len(), self.stages.len());
            self.remove_directory_of(&recovered);
            if let Some(at) = &recovered.rebuilt.device_mount_path {
                self.stages.remove(at);
            }
            if (self.directories.len(), self.stages.len()) != unidentified {
                steps.push(Step::ReviewInUse);
            }
            self.adopt(recovered, steps);
        }
    }

    /// Forgets the unidentified directory of a pod's volume that is identified now. Another volume of the same
    /// name does not count.
    fn remove_directory_of(&mut self, recovered: &Recovered) {
        let spec = &recovered.rebuilt.spec;
        let is_match = |found: &Found| {
            recovered.pod.as_ref() == Some(&found.pod)
                && recovered.plugin == found.plugin
                && (spec.name(), spec.mode()) == (found.inner.clone(), found.mode)
        };
        self.directories.retain(|_, directory| !is_match(&directory.found));
    }

    /// Makes failed calls due whose time has come.
    fn expire(&mut self, now: Instant) {
        let of_directories = self.directories.values_mut().map(|directory| &mut directory.search);
        for search in of_directories.chain(self.stages.values_mut().map(|(_, search)| search)) {
            *search = search.at(now);
        }
        self.read_again = self.read_again.filter(|due| *due > now);
    }

    fn read_node(&mut self, steps: &mut Vec<Step>) {
        if self.needs_node() && !self.reading_node && self.read_again.is_none() {
            self.reading_node = true;
            steps.push(Step::Call(Call::ReadNode));
        }
    }

    /// Whether the node's object is needed: for reconstructed volumes, or for the list of volumes in use that
    /// an unidentified volume may be on.
    fn needs_node(&self) -> bool {
        !self.uncorrected.is_empty() || (!self.node_read && self.is_in_doubt())
    }

    /// Whether something on disk may be any volume.
    fn is_in_doubt(&self) -> bool {
        self.incomplete || self.searches().any(|search| search != Search::Done)
    }

    fn searches(&self) -> impl Iterator<Item = Search> {
        let of_directories = self.directories.values().map(|directory| directory.search);
        of_directories.chain(self.stages.values().map(|(_, search)| *search))
    }
}

/// The state of recovery, for the other parts of the manager.
impl Recovery {
    pub(crate) fn progress(&self) -> Progress {
        match self.read_back {
            false => Progress::Reconstructing,
            true if self.needs_node() => Progress::Comparing,
            true if self.is_in_doubt() => Progress::Identifying,
            true => Progress::Complete,
        }
    }

    /// The time of the next call that is repeated after a failure.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.searches().filter_map(Search::next_due).chain(self.read_again).min()
    }

    /// Whether a search for the volume of a directory runs.
    pub(crate) fn is_searching(&self) -> bool {
        self.directories.values().any(|directory| directory.search.is_running())
    }

    /// The unidentified directories, by pod and the PersistentVolume or pod volume they are named after.
    pub(crate) fn unidentified_names(&self) -> BTreeSet<(PodUid, SpecName)> {
        let found = self.directories.values().map(|directory| &directory.found);
        found.map(|found| (found.pod.clone(), found.inner.clone())).collect()
    }

    /// The unidentified directories and stages, by path, with the reason.
    pub(crate) fn unidentified(&self) -> BTreeMap<String, String> {
        let text = |path: &Path| path.display().to_string();
        let directories =
            self.directories.iter().map(|(path, directory)| (text(path), directory.why.clone()));
        let stages = self.stages.iter().map(|(path, (stage, _))| (text(path), stage.why.clone()));
        directories.chain(stages).collect()
    }

    /// Directories and stages of a pod that are not identified and therefore must not be unmounted.
    pub(crate) fn unidentified_of<'a>(&'a self, pod: &'a PodUid) -> impl Iterator<Item = String> + 'a {
        let directories = self.directories.values().filter(move |directory| &directory.found.pod == pod);
        let stages = self.stages.values().filter(|(stage, _)| stage.pods.contains(pod));
        let stages = stages.map(|(stage, _)| stage.at.display().to_string());
        directories.map(|directory| directory.found.inner.to_string()).chain(stages)
    }

    /// Whether recovery may still find volumes of a pod.
    pub(crate) fn is_in_doubt_about(&self, pod: &PodUid) -> bool {
        !self.read_back || self.unidentified_of(pod).next().is_some()
    }

    /// Recovery's work under way.
    pub(crate) fn busy(&self) -> Vec<String> {
        let mut busy = Vec::new();
        if !self.read_back {
            busy.push("reconstruct volumes from disk".to_owned());
        }
        if self.reading_node {
            busy.push("read the node object".to_owned());
        }
        let searched = self.directories.values().filter(|directory| directory.search.is_running());
        busy.extend(searched.map(|directory| format!("identify {}", directory.found.path.display())));
        busy
    }
}

#[cfg(test)]
mod tests;
