//! Commands from the owner of the manager, and their answers.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use api::names::{OuterName, PodUid, VolumeName};
use tokio::sync::oneshot;

use super::Manager;
use super::dump::{Dump, Waiting};
use super::waits::Goal;
use crate::actual::PodEntry;
use crate::desired;
use crate::event::{Command, MountedVolume, PodState};
use crate::operation::pending::{Rung, Running};

impl Manager {
    pub(super) fn command(&mut self, command: Command) -> ControlFlow<oneshot::Sender<()>> {
        match command {
            Command::SetPod(pod) => {
                self.waits.concern(&pod.uid());
                self.populator.set_pod(pod);
            }
            Command::RemovePod(pod) => {
                self.waits.concern(&pod);
                self.populator.remove_pod(&pod);
                self.desired.take_errors(&pod);
                // After `RuntimeGone` the pod wants nothing; this may have been the last reason to remember it.
                self.forget_pod(&pod);
            }
            Command::SetPodState(pod, state) => {
                self.populator.set_state(&pod, state);
                if state != PodState::Running {
                    // Before `RuntimeGone` removes its volumes: the answer names those that are missing.
                    self.cancel_waits_for_volumes_of(&pod);
                }
                if state == PodState::RuntimeGone {
                    self.remove_wishes(&pod);
                }
            }
            Command::SourcesReady => self.populator.set_sources_ready(),
            Command::WaitMounted(pod, limit, answer) => {
                self.populator.request(&pod, true);
                let object = self.populator.pod(&pod).cloned();
                self.waits.add(Goal::Mounted(pod, object), self.now() + limit, answer);
            }
            Command::WaitUnmounted(pod, limit, answer) => {
                self.waits.add(Goal::Unmounted(pod), self.now() + limit, answer);
            }
            Command::WaitIdle(limit, answer) => self.waits.add(Goal::Idle, self.now() + limit, answer),
            Command::MountedVolumes(pod, answer) => drop(answer.send(self.mounted_volumes(&pod))),
            Command::VolumesInUse(answer) => drop(answer.send(self.volumes_in_use())),
            Command::MarkReportedInUse(volumes) => self.mark_reported(volumes),
            Command::Dump(answer) => drop(answer.send(self.dump())),
            Command::Subscribe(subscriber) => self.subscribers.push(subscriber),
            Command::Shutdown(ended) => return ControlFlow::Break(ended),
        }
        ControlFlow::Continue(())
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
            states_synced: self.recovery.is_corrected(),
            unexplained: self.recovery.unexplained(),
            running: self.pending.running().map(running).collect(),
            expansion_failed: self.actual.expansions_failed().map(ToString::to_string).collect(),
            counters: self.counters.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
            ..Dump::default()
        };
        for (volume, record) in self.actual.volumes() {
            dump.actual.insert(format!("volume {volume}"), record.to_string());
            for (pod, entry) in &record.pods {
                dump.actual.insert(format!("pod {pod} {volume}"), entry.mount.to_string());
                if entry.reconstructed {
                    dump.reconstructed.push(format!("pod {pod} {volume}"));
                }
            }
        }
        for (volume, wanted) in self.desired.volumes() {
            for (pod, by) in &wanted.pods {
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
                operation: waiting(rung),
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

pub(super) fn running(running: &Running) -> String {
    let pod = running.pod.as_ref().map(|pod| format!(" {pod}")).unwrap_or_default();
    format!("{} {}{pod}", running.name, running.key.volume)
}

fn waiting(rung: &Rung) -> String {
    let pod = rung.key.pod.as_ref().map(|pod| format!(" {pod}")).unwrap_or_default();
    format!("{} {}{pod}", rung.name, rung.key.volume)
}
