//! Carries out the steps of recovery: calls run in tasks of their own, and their results come back as events.

use std::sync::Arc;

use api::Node;
use api::clock::Instant;
use api::names::VolumeName;
use plugin_api::{PodRecord, Scene};

use super::Manager;
use crate::event::{Event, Notice};
use crate::reconstruct::{self, Recovered};
use crate::recovery::{self, Call, Step, identify};
use crate::{in_use, waits};

impl Manager {
    /// Reads the volumes on disk, for recovery.
    pub(super) fn reconstruct(&mut self) {
        let (cx, registry) = (self.executor.context().clone(), Arc::clone(self.executor.registry()));
        self.executor.look_up(async move {
            let scene = Scene { host: &*cx.host, paths: &cx.paths, api: &*cx.api };
            let reconstruction = reconstruct::reconstruct(scene, &registry).await;
            Event::Recovery(recovery::Event::Reconstructed(reconstruction))
        });
    }

    /// Carries out what follows from the events of recovery. Returns whether anything did.
    pub(super) fn recover(&mut self, now: Instant) -> bool {
        let mut recovered = false;
        loop {
            let cx = self.executor.context();
            let view = recovery::View {
                desired: &self.desired,
                actual: &self.actual,
                pods: &self.populator,
                pending: &self.pending,
                registry: self.executor.registry(),
                paths: &cx.paths,
                selinux: cx.facts().selinux,
            };
            let steps = self.recovery.decide(view, now);
            if steps.is_empty() {
                return recovered;
            }
            recovered = true;
            steps.into_iter().for_each(|step| self.recover_step(step));
        }
    }

    fn recover_step(&mut self, step: Step) {
        match step {
            Step::Adopt(recovered) => self.adopt(recovered),
            Step::Correct(volume, attached) => {
                let before = self.notices.actual(&self.actual, &volume, None);
                self.actual.correct(&volume, attached.as_ref());
                self.notices.actual_changed(&self.actual, &volume, None, before);
                self.in_use.observe(in_use::Event::Accounted(volume));
            }
            Step::ListInUse(volumes) => self.in_use.observe(in_use::Event::FirstRead(volumes)),
            Step::ReviewInUse => self.in_use.observe(in_use::Event::Identified),
            Step::Call(call) => self.look_up(call),
            Step::Announce(known) => self.notices.send(|| Notice::Knows(known)),
            Step::Wake(pod) => self.waits.observe(waits::Event::Changed(&pod)),
            Step::WakeAll => self.waits.observe(waits::Event::AllChanged),
            Step::PlanAll => self.all_dirty(),
            Step::Count(counter) => self.count(counter),
        }
    }

    fn adopt(&mut self, recovered: Recovered) {
        let Recovered { volume, plugin, rebuilt, pod } = recovered;
        let record = pod.clone().map(|pod| PodRecord {
            pod,
            spec: Arc::new(rebuilt.spec.clone()),
            outer: Vec::new(),
            gid: None,
            selinux_label: rebuilt.selinux_label.clone().unwrap_or_default(),
        });
        let before = self.notices.actual(&self.actual, &volume, pod.as_ref());
        self.actual.add_reconstructed(&volume, &plugin, &rebuilt, record);
        self.notices.actual_changed(&self.actual, &volume, pod.as_ref(), before);
        if let Some(pod) = &pod {
            self.waits.observe(waits::Event::Changed(pod));
        }
        self.request_pods_of(&volume);
        self.dirty.insert(volume);
    }

    /// Resolves the pods again that want a volume: if they are resolved already, then without its size, which is
    /// only looked up for a volume that is known here.
    fn request_pods_of(&mut self, volume: &VolumeName) {
        let wanted = self.desired.volume(volume).into_iter();
        wanted.flat_map(|wanted| wanted.pods.keys()).for_each(|pod| self.populator.request(pod, false));
    }

    /// Runs a call that recovery asks for.
    fn look_up(&mut self, call: Call) {
        let (cx, registry) = (self.executor.context().clone(), Arc::clone(self.executor.registry()));
        self.executor.look_up(async move {
            let event = match call {
                Call::SearchDirectory(found) => {
                    let scene = Scene { host: &*cx.host, paths: &cx.paths, api: &*cx.api };
                    let identified = identify::directory(scene, &registry, &found).await;
                    recovery::Event::DirectorySearched(found, identified)
                }
                Call::SearchStage(stage) => {
                    let found = identify::stage(&*cx.api, &cx.paths, &registry, &stage).await;
                    recovery::Event::StageSearched(stage.at, found)
                }
                Call::ReadNode => {
                    let node = api::get::<Node>(&*cx.api, "", cx.config.node.as_str()).await;
                    recovery::Event::NodeRead(node)
                }
            };
            Event::Recovery(event)
        });
    }
}
