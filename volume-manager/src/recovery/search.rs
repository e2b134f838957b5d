//! Searches for the volumes of unidentified directories and stages: when they are started, and what their
//! results mean.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::clock::Instant;
use api::names::SpecName;
use api::{ApiError, Volume};
use plugin_api::{Found, Rebuilt, Spec};

use super::{Call, Identified, Recovery, Step, UnidentifiedDirectory, View, identify};
use crate::reconstruct;

/// The wait before a failed search is repeated.
const SEARCH_AGAIN: Duration = Duration::from_secs(30);

/// The state of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Search {
    /// The search is to be started.
    Due,
    Running,
    /// The search runs, and may have missed an object that has appeared since its start.
    Overtaken,
    /// A call of the search failed; the search is repeated at this time.
    Unanswered(Instant),
    /// The search found nothing. Only a new object can change that.
    Done,
}

impl Search {
    pub(super) fn is_running(self) -> bool {
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

    /// The state at this time: a failed search is due again when its time has come.
    pub(super) fn at(self, now: Instant) -> Self {
        match self {
            Self::Unanswered(again) if again <= now => Self::Due,
            other => other,
        }
    }

    /// When a failed search is repeated.
    pub(super) fn next_due(self) -> Option<Instant> {
        match self {
            Self::Unanswered(again) => Some(again),
            _ => None,
        }
    }
}

impl Recovery {
    /// A directory is left alone while its pod wants it or may run, or an operation runs for it: the mount
    /// adopts it.
    pub(super) fn search_directories(&mut self, view: View<'_>, steps: &mut Vec<Step>) {
        for UnidentifiedDirectory { found, search, .. } in self.directories.values_mut() {
            let is_wanted = || {
                view.desired.wants_inner(&found.pod, &found.inner)
                    || view.pods.may_run(&found.pod)
                    || is_worked_on(view, found)
            };
            if *search == Search::Due && !is_wanted() {
                *search = Search::Running;
                let call = Call::SearchDirectory(found.clone());
                steps.extend([Step::Count("orphan_searches"), Step::Call(call)]);
            }
        }
    }

    pub(super) fn search_stages(&mut self, steps: &mut Vec<Step>) {
        for (stage, search) in self.stages.values_mut().filter(|(_, search)| *search == Search::Due) {
            *search = Search::Running;
            let call = Call::SearchStage(stage.clone());
            steps.extend([Step::Count("lost_searches"), Step::Call(call)]);
        }
    }

    /// An identified volume is unmounted like any other; an unidentified one stays on disk and is reported as
    /// long as anything is mounted.
    pub(super) fn directory_searched(
        &mut self,
        found: &Found,
        result: Identified,
        now: Instant,
        steps: &mut Vec<Step>,
    ) {
        steps.extend([Step::Wake(found.pod.clone()), Step::ReviewInUse]);
        match result {
            Identified::Recovered(recovered) => {
                if self.directories.remove(&found.path).is_some() {
                    self.adopt(recovered, steps);
                }
            }
            Identified::Nothing => drop(self.directories.remove(&found.path)),
            Identified::Unknown(why) => {
                steps.push(Step::Count("orphan_search_errors"));
                self.directory_stays(&found.path, why.map(|failure| failure.chain()), now);
            }
        }
        if !self.is_searching() {
            // Volumes without pods stay staged while a search runs: the searched directory may be such a
            // volume's.
            steps.push(Step::PlanAll);
        }
    }

    fn directory_stays(&mut self, path: &Path, why: Option<String>, now: Instant) {
        let Some(directory) = self.directories.get_mut(path) else { return };
        let then = if why.is_some() { Search::Unanswered(now + SEARCH_AGAIN) } else { Search::Done };
        directory.search = directory.search.ended(then);
        if let Some(why) = why {
            directory.why = why;
        }
        tracing::error!(
            path = %path.display(),
            why = directory.why,
            "unidentified mount stays: neither a record nor a PersistentVolume names its volume"
        );
    }

    /// An identified volume is unmounted like any other, unless a pod wants it; an unidentified one stays staged
    /// and is reported.
    pub(super) fn stage_searched(
        &mut self,
        at: &Path,
        result: Result<Option<Arc<Volume>>, ApiError>,
        view: View<'_>,
        now: Instant,
        steps: &mut Vec<Step>,
    ) {
        steps.push(Step::ReviewInUse);
        let Some((stage, search)) = self.stages.get_mut(at) else { return };
        match result {
            Ok(Some(volume)) => self.stage_identified(at, volume, view, steps),
            Ok(None) => {
                *search = search.ended(Search::Done);
                tracing::error!(path = %at.display(), why = stage.why, "unidentified stage stays: no PersistentVolume belongs to it");
                steps.push(Step::Count("lost_search_errors"));
            }
            Err(error) => {
                *search = search.ended(Search::Unanswered(now + SEARCH_AGAIN));
                tracing::warn!(path = %at.display(), error = api::error::chain(&error), "cannot list PersistentVolumes to identify a stage; retrying in 30 s");
                steps.push(Step::Count("lost_search_errors"));
            }
        }
    }

    fn stage_identified(&mut self, at: &Path, volume: Arc<Volume>, view: View<'_>, steps: &mut Vec<Step>) {
        let Some((stage, _)) = self.stages.remove(at) else { return };
        let Ok(plugin) = view.registry.by_name(&stage.plugin) else { return };
        let rebuilt = Rebuilt {
            spec: Spec::persistent(volume, false),
            device_mount_path: Some(stage.at),
            // The label was in the lost record. The empty label differs from every label that a pod may want,
            // so the volume is unstaged before it is staged with one.
            selinux_label: view.selinux.then(String::new),
        };
        for pod in stage.pods.iter().map(Some).chain([None]) {
            if let Ok(recovered) = reconstruct::recovered(&*plugin, rebuilt.clone(), pod) {
                self.adopt(recovered, steps);
            }
        }
    }

    /// Repeats searches whose volume may be the PersistentVolume that has appeared. Stages whose search failed
    /// are searched for as well: the API answers again.
    pub(super) fn search_again(&mut self, volume: &Arc<Volume>, view: View<'_>) {
        let inner = SpecName::new(&volume.meta.name);
        for directory in self.directories.values_mut().filter(|directory| directory.found.inner == inner) {
            directory.search = directory.search.again();
        }
        for (stage, search) in self.stages.values_mut() {
            if search.next_due().is_some() || identify::is_place_of(view.registry, view.paths, stage, volume)
            {
                *search = search.again();
            }
        }
    }
}

fn is_worked_on(view: View<'_>, found: &Found) -> bool {
    let mut running = view.pending.for_pod(&found.pod);
    running
        .any(|running| view.actual.spec(&running.key.volume).is_some_and(|spec| spec.name() == found.inner))
}
