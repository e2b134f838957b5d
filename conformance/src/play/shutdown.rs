//! Graceful shutdown of the node, as a step of a scenario.

use std::time::Duration;

use harness::node::GracePeriod;
use testbed::failure::chain;

use super::world::World;

/// The time of a shutdown, and the part of it for critical pods, as in the documentation of Kubernetes.
const TOTAL: Duration = Duration::from_secs(30);
const CRITICAL: Duration = Duration::from_secs(10);

impl World {
    /// Ends the pods of the node by their priority, and the node when their volumes are unmounted and unstaged, or when the
    /// time is over.
    pub(super) async fn shut_down_node(&mut self) -> Result<(), Vec<String>> {
        let groups = self.node.begin_shutdown(&GracePeriod::of(TOTAL, CRITICAL));
        for group in groups.map_err(|error| chain(&error))? {
            // As in a cluster: the next group does not wait for a pod whose volumes stay mounted.
            self.node.end_group(&group).await.map_err(|error| chain(&error))?;
        }
        let idle = self.node.wait_idle(CRITICAL).await;
        self.node.kill().await;
        self.log.node_was_killed();
        idle.map_err(|error| chain(&error))
    }
}
