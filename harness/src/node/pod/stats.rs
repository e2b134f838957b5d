//! The statistics of a pod's volumes, which a node asks for each minute, and the warnings that follow from them.

use std::sync::Arc;
use std::time::Duration;

use api::clock::Clock;
use api::names::{OuterName, PodUid};
use api::{Kind, Notification, Object, Reference, Severity};
use tokio::sync::watch;
use volume_manager::PodState;
use volume_manager::event::Measured;

use super::{Pods, Worker};

/// The time between two measurements of a pod's volumes.
const PERIOD: Duration = Duration::from_secs(60);

impl Pods {
    /// Measures the volumes of a pod again and again, as long as its containers may run.
    pub(super) async fn keep_measured(self, uid: PodUid, worker: Arc<Worker>) {
        let mut state = worker.state.subscribe();
        loop {
            tokio::select! {
                biased;
                () = ends(&mut state) => return,
                () = self.around.clock.sleep(PERIOD) => {}
            }
            for (volume, measured) in self.around.manager.stats(&uid).await {
                self.warn_of_condition(&worker, &volume, measured).await;
            }
        }
    }

    /// Tells the user of a volume that its driver calls abnormal.
    async fn warn_of_condition(&self, worker: &Worker, volume: &OuterName, measured: Measured) {
        let condition = match measured {
            Ok(stats) => stats.abnormal,
            Err(error) => {
                tracing::debug!(%volume, %error, "the volume has no statistics");
                None
            }
        };
        let Some(condition) = condition else { return };
        let about = Reference::to(Kind::Pod, &worker.pod.borrow().meta);
        let message = format!("Volume {volume}: {condition}");
        let warning = Notification::about(about, Severity::Warning, "VolumeConditionAbnormal", message);
        if let Err(error) = self.around.api.create(Object::Notification(Arc::new(warning))).await {
            tracing::warn!(%error, "cannot write an event");
        }
    }
}

/// Returns when the pod is terminating.
async fn ends(state: &mut watch::Receiver<PodState>) {
    drop(state.wait_for(|state| *state != PodState::Running).await);
}
