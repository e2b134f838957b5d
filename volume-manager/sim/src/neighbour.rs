//! The other node: it lists the volumes that its pods want as in use, uses them as soon as they are attached,
//! and releases them some time after the last of these pods. It mounts nothing, and nothing fails on it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::names::{PluginName, VolumeName};
use api::{Claim, Kind, Node, PersistentSource, Pod, Volume};
use contracts::event::{Disturbance, Event};
use tokio::time::Instant;
use volume_manager::plugin::csi;

use crate::api::SimulatedApi;
use crate::objects::NEIGHBOUR;
use crate::trace::Trace;

/// The time from the last pod to the release of its volume.
const RELEASE_DELAY: Duration = Duration::from_secs(2);

/// Runs as long as the simulation.
pub(crate) fn start(api: SimulatedApi, trace: Trace) {
    let neighbour = Neighbour { api, trace, used: BTreeMap::new() };
    tokio::spawn(neighbour.run());
}

struct Neighbour {
    api: SimulatedApi,
    trace: Trace,
    /// The volumes in use, with the time of release for those that no pod wants.
    used: BTreeMap<VolumeName, Option<Instant>>,
}

impl Neighbour {
    async fn run(mut self) {
        let mut pods = self.api.follow(Kind::Pod);
        let mut nodes = self.api.follow(Kind::Node);
        loop {
            while pods.try_recv().is_ok() || nodes.try_recv().is_ok() {}
            self.look();
            let due = self.used.values().flatten().min().copied();
            tokio::select! {
                biased;
                _ = pods.recv() => {}
                _ = nodes.recv() => {}
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            }
        }
    }

    fn look(&mut self) {
        let Some(node) = self.api.find::<Node>("", NEIGHBOUR) else { return };
        let (wanted, now) = (self.wanted(), Instant::now());
        self.used.retain(|_, until| until.is_none_or(|until| until > now));
        for (volume, until) in &mut self.used {
            match wanted.contains_key(volume) {
                true => *until = None,
                false => _ = until.get_or_insert(now + RELEASE_DELAY),
            }
        }
        for (volume, handle) in &wanted {
            // It uses only volumes that it has listed as in use.
            let may_begin = node.volumes_in_use.contains(volume) && node.attached(volume).is_some();
            if may_begin && self.used.insert(volume.clone(), None).is_none() {
                let disturbance = Disturbance::UsedElsewhere { volume: handle.clone() };
                self.trace.record(Event::Disturbed(disturbance));
            }
        }
        let in_use: BTreeSet<&VolumeName> = wanted.keys().chain(self.used.keys()).collect();
        let in_use: Vec<VolumeName> = in_use.into_iter().cloned().collect();
        if in_use != node.volumes_in_use {
            self.api.change("", NEIGHBOUR, |node: &mut Node| node.volumes_in_use = in_use);
        }
    }

    /// The volumes that its pods want, with their handles.
    fn wanted(&self) -> BTreeMap<VolumeName, String> {
        let pods = self.api.all::<Pod>();
        let claims = pods.iter().filter(|pod| pod.node == NEIGHBOUR).flat_map(|pod| pod.claims());
        let volumes = claims.filter_map(|claim| {
            let claim = self.api.find::<Claim>("default", &claim)?;
            let volume = self.api.find::<Volume>("", &claim.spec.volume)?;
            let PersistentSource::Csi(csi) = &volume.source else { return None };
            let name = format!("{}^{}", csi.driver, csi.handle);
            Some((VolumeName::shared(&PluginName::new(csi::NAME), &name), csi.handle.to_string()))
        });
        volumes.collect()
    }
}
