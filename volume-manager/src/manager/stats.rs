//! The statistics of a pod's volumes, which plugins collect in tasks beside the loop.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::names::{OuterName, PodUid};
use tokio::sync::oneshot;

use super::Manager;
use crate::event::Measured;

impl Manager {
    /// Asks the plugins of a pod's mounted volumes one after the other, as the kubelet does for one pod.
    pub(super) fn measure(&mut self, pod: PodUid, answer: oneshot::Sender<BTreeMap<OuterName, Measured>>) {
        let mounted: Vec<_> = self
            .actual
            .volumes_of(&pod)
            .filter(|(_, entry)| entry.mounted().is_some())
            .filter_map(|(volume, entry)| {
                let name = entry.record.outer.first()?.clone();
                let plugin = self.executor.registry().by_name(&self.actual.volume(volume)?.plugin).ok()?;
                Some((name, plugin, entry.record.spec.clone()))
            })
            .collect();
        let cx = self.executor.context().clone();
        self.executor.background(async move {
            let mut measured = BTreeMap::new();
            for (name, plugin, spec) in mounted {
                let Some(meter) = plugin.meter() else { continue };
                let stats = meter.stats(&cx, &spec, &pod).await;
                measured.insert(name, stats.map_err(|failure| Arc::from(failure.chain())));
            }
            // The send fails when the caller no longer waits.
            let _ = answer.send(measured);
        });
    }
}
