//! Identification of staged volumes without a readable record: by the desired state, or by a search among the
//! PersistentVolumes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::names::PodUid;
use api::{ApiError, Volume, VolumeMode};
use plugin_api::paths::Paths;
use plugin_api::{Rebuilt, Spec, UnidentifiedStage, VolumePlugin};

use super::Manager;
use super::recovery::{SEARCH_AGAIN, Search};
use crate::event::Event;
use crate::reconstruct::{self, Recovered};

impl Manager {
    /// Adopts unidentified directories and stages that belong to desired volumes: a directory named after a
    /// desired volume of its pod, and a stage at the staging path or global map of a desired volume.
    pub(super) fn identify_by_desired_state(&mut self) {
        if self.recovery.failed.is_empty() && self.recovery.lost.is_empty() {
            return;
        }
        for recovered in self.identified_by_desired_state() {
            self.remove_identified_directory(&recovered);
            let at = recovered.rebuilt.device_mount_path.clone();
            self.adopt(recovered);
            if let Some((lost, _)) = at.and_then(|at| self.recovery.lost.remove(&at)) {
                self.in_use_changed = true;
                lost.pods.iter().for_each(|pod| self.waits.concern(pod));
            }
        }
    }

    fn identified_by_desired_state(&self) -> Vec<Recovered> {
        let cx = self.executor.context();
        let mut identified = Vec::new();
        for (volume, wanted) in self.desired.volumes() {
            let Ok(plugin) = self.executor.registry().by_name(&wanted.plugin) else { continue };
            let Some(by) = wanted.pods.values().next() else { continue };
            let at = place(&**plugin, &cx.paths, &by.spec).filter(|_| wanted.device_mountable);
            // The label on disk was in the record and is lost. If a pod that wants the volume has it here
            // already, it is that pod's label. Otherwise it is unknown: the empty label differs from every
            // wanted one, so the volume is unstaged before it is staged with one.
            let has_directory = |pod: &PodUid, inner| {
                let mut orphans = self.recovery.failed.values().map(|orphan| &orphan.found);
                orphans.any(|found| found.pod == *pod && found.inner == inner)
            };
            let mut pods = wanted.pods.iter();
            let known = pods.any(|(pod, by)| {
                self.actual.entry(volume, pod).is_some() || has_directory(pod, by.spec.name())
            });
            let label = if known { wanted.label.clone() } else { String::new() };
            let rebuilt = |spec: &Arc<Spec>| Rebuilt {
                spec: Spec::clone(spec),
                device_mount_path: at.clone(),
                selinux_label: (!wanted.label.is_empty()).then(|| label.clone()),
            };
            let recovered = |spec: &Arc<Spec>, pod: Option<&PodUid>| Recovered {
                volume: volume.clone(),
                plugin: wanted.plugin.clone(),
                rebuilt: rebuilt(spec),
                pod: pod.cloned(),
            };
            let lost = at.as_ref().and_then(|at| self.recovery.lost.get(at));
            if let Some((lost, _)) = lost {
                identified.push(recovered(&by.spec, None));
                identified.extend(lost.pods.iter().map(|pod| recovered(&by.spec, Some(pod))));
            }
            let directories = self.recovery.failed.values().map(|orphan| &orphan.found);
            let of_pods = directories.filter_map(|found| {
                let by = wanted.pods.get(&found.pod)?;
                let same = found.inner == by.spec.name()
                    && found.mode == by.spec.mode()
                    && found.plugin == wanted.plugin;
                same.then(|| recovered(&by.spec, Some(&found.pod)))
            });
            identified.extend(of_pods);
        }
        identified
    }

    /// Starts searches for the volumes of unidentified stages, once the desired and the actual state are
    /// complete.
    pub(super) fn search_unidentified_stages(&mut self) {
        if !self.populator.all_added() || !self.recovery.is_corrected() {
            return;
        }
        let due = self.recovery.lost.values_mut().filter(|(_, search)| *search == Search::Due);
        let due: Vec<UnidentifiedStage> = due
            .map(|(lost, search)| {
                *search = Search::Running;
                lost.clone()
            })
            .collect();
        for lost in due {
            self.count("lost_searches");
            let (cx, registry) = (self.executor.context().clone(), Arc::clone(self.executor.registry()));
            self.executor.look_up(async move {
                let all = api::list::<Volume>(&*cx.api).await;
                let plugin = registry.by_name(&lost.plugin).ok();
                let is_match = |volume: &Arc<Volume>| {
                    plugin.is_some_and(|plugin| is_place_of(&**plugin, &cx.paths, &lost, volume))
                };
                let found = all.map(|all| all.into_iter().find(is_match));
                Event::StageSearched(lost.at, found)
            });
        }
    }

    /// Takes in the result of a search. An identified volume enters the actual state and is unmounted like any
    /// other, unless a pod wants it; an unidentified one stays staged and is reported.
    pub(super) fn stage_search_ended(&mut self, at: &PathBuf, found: Result<Option<Arc<Volume>>, ApiError>) {
        // Volumes that were listed as in use only because of this stage may leave the list.
        self.in_use_changed = true;
        let again = self.now() + SEARCH_AGAIN;
        let Some((lost, search)) = self.recovery.lost.get_mut(at) else { return };
        let volume = match found {
            Ok(Some(volume)) => volume,
            Ok(None) => {
                *search = search.ended(Search::Done);
                tracing::error!(path = %at.display(), why = lost.why, "unidentified stage stays: no PersistentVolume belongs to it");
                return self.count("lost_search_errors");
            }
            Err(error) => {
                *search = search.ended(Search::Unanswered(again));
                tracing::warn!(path = %at.display(), error = api::error::chain(&error), "cannot list PersistentVolumes to identify a stage; retrying in 30 s");
                return self.count("lost_search_errors");
            }
        };
        let Some((lost, _)) = self.recovery.lost.remove(at) else { return };
        let Ok(plugin) = self.executor.registry().by_name(&lost.plugin).cloned() else { return };
        let spec = Spec::persistent(volume, false);
        // The label was in the lost record. The empty label differs from every label that a pod may want, so
        // the volume is unstaged before it is staged with one.
        let selinux_label = self.executor.context().facts().selinux.then(String::new);
        let rebuilt = Rebuilt { spec, device_mount_path: Some(lost.at), selinux_label };
        let of_all = lost.pods.iter().map(Some).chain([None]);
        for recovered in of_all.filter_map(|pod| reconstruct::recovered(&*plugin, rebuilt.clone(), pod).ok())
        {
            self.adopt(recovered);
        }
    }

    /// Repeats searches whose volume may be the PersistentVolume that has appeared, and those that failed: the
    /// API answers again.
    pub(super) fn search_stages_again(&mut self, volume: &Volume) {
        let cx = self.executor.context();
        for (lost, search) in self.recovery.lost.values_mut() {
            let is_match = || {
                let plugin = self.executor.registry().by_name(&lost.plugin);
                plugin.is_ok_and(|plugin| is_place_of(&**plugin, &cx.paths, lost, volume))
            };
            if matches!(search, Search::Unanswered(_)) || is_match() {
                *search = search.again();
            }
        }
    }
}

/// The staging path, or for a block volume the global map.
fn place(plugin: &dyn VolumePlugin, paths: &Paths, spec: &Spec) -> Option<PathBuf> {
    match spec.mode() {
        VolumeMode::Filesystem => plugin.device_mounter()?.device_mount_path(paths, spec).ok(),
        VolumeMode::Block => plugin.block_mapper()?.global_map_path(paths, spec).ok(),
    }
}

fn is_place_of(plugin: &dyn VolumePlugin, paths: &Paths, lost: &UnidentifiedStage, volume: &Volume) -> bool {
    let spec = Spec::persistent(Arc::new(volume.clone()), false);
    let same = |at: &Path| at == lost.at && spec.mode() == lost.mode;
    plugin.supports(&spec) && place(plugin, paths, &spec).is_some_and(|at| same(&at))
}
