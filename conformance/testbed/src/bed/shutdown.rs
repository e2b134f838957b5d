//! Graceful shutdown of the node.

use std::time::Duration;

use harness::node::GracePeriod;

use super::{Bed, Result, StepError};

/// The time of a shutdown, and the part of it for critical pods. Volumes that take longer are waited for as at the end of any
/// pod, so that the finding names what they wait for.
const TOTAL: Duration = Duration::from_secs(5);
const CRITICAL: Duration = Duration::from_secs(2);

impl Bed {
    /// Ends the pods of the node by their priority, waits until their volumes are unmounted and unstaged, and ends the node.
    pub(crate) async fn shut_down_node(&self) -> Result {
        let node = &self.node;
        let groups = node.begin_shutdown(&GracePeriod::of(TOTAL, CRITICAL));
        for group in groups.map_err(|error| StepError::ours(&error))? {
            for pod in &group.pods {
                self.end_container(pod).await?;
            }
            let late = node.end_group(&group).await.map_err(|error| StepError::of_node(&error))?;
            if late.is_empty() {
                continue;
            }
            for pod in &group.pods {
                // Names the call that the volumes wait for.
                self.patiently(&self.journal, |limit| node.wait_unmounted(pod, limit)).await?;
            }
        }
        self.patiently(&self.journal, |limit| node.wait_idle(limit)).await?;
        node.kill().await;
        Ok(())
    }
}
