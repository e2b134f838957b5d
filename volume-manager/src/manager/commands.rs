//! Commands from the owner of the manager, and their answers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

use api::names::{OuterName, PodUid, VolumeName};
use tokio::sync::oneshot;

use super::Manager;
use crate::actual::PodEntry;
use crate::dump::{Dump, Waiting};
use crate::event::{Command, MountedVolume};
use crate::populator::PodState;
use crate::recovery::Progress;
use crate::waits::Goal;
use crate::{desired, in_use, waits};

impl Manager {
    pub(super) fn command(&mut self, command: Command) -> ControlFlow<oneshot::Sender<()>> {
        match command {
            Command::SetPod(pod) => {
                self.waits.observe(waits::Event::Changed(&pod.uid()));
                self.populator.set_pod(pod);
            }
            Command::RemovePod(pod) => {
                self.waits.observe(waits::Event::Changed(&pod));
                self.populator.remove_pod(&pod);
                self.desired.take_errors(&pod);
                // After `RuntimeGone` the pod wants nothing; this may have been the last reason to remember it.
                self.forget_pod(&pod);
            }
            Command::SetPodState(pod, state) => {
                self.populator.set_state(&pod, state);
                if state != PodState::Running {
                    // Before `RuntimeGone` removes its volumes: the answer names those that are missing.
                    self.end_waits(|waits, view| waits.cancel(view, &pod));
                }
                if state == PodState::RuntimeGone {
                    self.remove_wishes(&pod);
                }
            }
            Command::SourcesReady => self.populator.set_sources_ready(),
            Command::WaitMounted(pod, limit, answer) => {
                self.populator.request(&pod, true);
                let object = self.populator.pod(&pod).cloned();
                self.begin_wait(Goal::Mounted(pod, object), limit, answer);
            }
            Command::WaitUnmounted(pod, limit, answer) => {
                self.begin_wait(Goal::Unmounted(pod), limit, answer);
            }
            Command::WaitIdle(limit, answer) => self.begin_wait(Goal::Idle, limit, answer),
            Command::MountedVolumes(pod, answer) => drop(answer.send(self.mounted_volumes(&pod))),
            Command::Measure(pod, answer) => self.measure(pod, answer),
            Command::VolumesInUse(answer) => drop(answer.send(self.in_use.list(self.recovery.progress()))),
            Command::MarkReportedInUse(volumes) => {
                self.in_use.observe(in_use::Event::Reported(volumes));
                self.update_in_use(&BTreeSet::new());
            }
            Command::Dump(answer) => drop(answer.send(self.dump())),
            Command::Subscribe(subscriber) => self.notices.subscribe(subscriber),
            Command::Shutdown(ended) => return ControlFlow::Break(ended),
        }
        ControlFlow::Continue(())
    }

    fn begin_wait(&mut self, goal: Goal, limit: Duration, answer: waits::Answer) {
        let deadline = self.now() + limit;
        self.waits.observe(waits::Event::Begun { goal, deadline, answer });
    }

    /// The volumes that are certainly mounted for a pod, by their current names in the pod.
    fn mounted_volumes(&self, pod: &PodUid) -> BTreeMap<OuterName, MountedVolume> {
        let mut volumes = BTreeMap::new();
        for (volume, entry) in self.actual.volumes_of(pod) {
            let wanted = self.desired.volume(volume).and_then(|wanted| wanted.pods.get(pod));
            let names = wanted.map_or(&entry.record.outer, |by| &by.outer);
            let Some(mounted) = self.mounted_volume(volume, entry) else { continue };
            volumes.extend(names.iter().map(|name| (name.clone(), mounted.clone())));
        }
        volumes
    }

    fn mounted_volume(&self, volume: &VolumeName, entry: &PodEntry) -> Option<MountedVolume> {
        let spec = &entry.record.spec;
        Some(MountedVolume {
            volume: volume.clone(),
            inner: spec.name(),
            plugin: self.actual.volume(volume)?.plugin.clone(),
            mode: spec.mode(),
            mounted: entry.mounted()?.clone(),
            gid: entry.record.gid.clone(),
            read_only: spec.read_only,
        })
    }

    fn dump(&self) -> Dump {
        let now = self.now();
        let mut dump = Dump {
            sources_ready: self.populator.sources_ready(),
            states_synced: self.recovery.progress() >= Progress::Identifying,
            unexplained: self.recovery.unidentified(),
            running: self.pending.running().map(ToString::to_string).collect(),
            expansion_failed: self.actual.expansions_failed().map(ToString::to_string).collect(),
            counters: self.counters.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
            ..Dump::default()
        };
        for (volume, record) in self.actual.volumes() {
            dump.actual.insert(format!("volume {volume}"), record.to_string());
            for (pod, entry) in record.pods.iter() {
                dump.actual.insert(format!("pod {pod} {volume}"), entry.mount.to_string());
                if entry.reconstructed {
                    dump.reconstructed.push(format!("pod {pod} {volume}"));
                }
            }
        }
        for (volume, wanted) in self.desired.volumes() {
            for (pod, by) in wanted.pods.iter() {
                dump.desired.insert(format!("pod {pod} {volume}"), desired::describe(wanted, by));
            }
        }
        for (pod, errors) in self.desired.errors() {
            dump.errors.insert(pod.to_string(), errors.iter().cloned().collect());
        }
        dump.waiting = self
            .pending
            .ladders()
            .map(|(rung, ladder)| Waiting {
                operation: rung.to_string(),
                failures: ladder.failures,
                due_in_ms: ladder
                    .due
                    .saturating_duration_since(now)
                    .as_millis()
                    .try_into()
                    .unwrap_or(u64::MAX),
            })
            .collect();
        dump
    }
}
