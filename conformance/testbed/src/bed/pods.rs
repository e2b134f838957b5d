//! Pods of a case: added, waited for and removed.

use std::time::{Duration, Instant};

use harness::node::NodeError;

use super::{Bed, FUTILE, PodSpec, Result, StepError, attach_failure};

/// The wait for a node before its clock is advanced.
const MOMENT: Duration = Duration::from_secs(2);

/// The wait for a pod that is expected not to get its volumes.
const REFUSED: Duration = Duration::from_secs(1);

impl Bed {
    /// Adds a pod to its node. A pod whose claims are made for it gets its node when they are bound, as a scheduler does it.
    pub(crate) async fn add_pod(&self, spec: &PodSpec) -> Result {
        self.put_on(&spec.name, spec.on_other_node);
        let (node, pod) = (self.node_of(&spec.name), spec.pod());
        let ours = |error: NodeError| StepError::ours(&error);
        let claims = self.own_claims(&pod);
        if claims.is_empty() {
            node.add_pod(pod).map_err(ours)?;
        } else {
            node.write_pod(pod).map_err(ours)?;
            self.own_claims_are_bound(&spec.name, &claims).await?;
            node.place_pod(&spec.name).map_err(ours)?;
        }
        self.made.pods.borrow_mut().insert(spec.name.clone());
        Ok(())
    }

    /// Waits until a pod has its volumes.
    pub(crate) async fn wait_mounted(&self, pod: &str) -> Result {
        let (node, journal) = (self.node_of(pod), self.journal_of(pod));
        let begun = journal.length();
        let waited = self.patiently(journal, |limit| node.wait_mounted(pod, limit)).await;
        waited.map_err(|waited| {
            let error = StepError::from(waited);
            match attach_failure::of(&journal.since(begun), pod) {
                Some(failure) => error.because(failure),
                None => error,
            }
        })
    }

    /// Checks that a pod does not get its volumes.
    pub(crate) async fn mount_is_refused(&self, pod: &str) -> Result {
        match self.node_of(pod).wait_mounted(pod, REFUSED).await {
            Err(NodeError::Refused(_)) => Ok(()),
            Err(error) => Err(StepError::ours(&error)),
            Ok(()) => Err(StepError::Broken(vec![format!("The pod `{pod}` has its volumes all the same.")])),
        }
    }

    /// Deletes a pod whose containers have ended.
    pub(crate) async fn remove_pod(&self, pod: &str) -> Result {
        self.end_container(pod).await?;
        self.made.pods.borrow_mut().remove(pod);
        self.made.leaving.borrow_mut().insert(pod.to_owned());
        match self.node_of(pod).remove_pod(pod, false).await {
            // The node has died on order, and learns of the deletion when it starts again.
            Err(NodeError::Exited { .. }) => Ok(()),
            removed => removed.map_err(|error| StepError::ours(&error)),
        }
    }

    /// Waits until nothing of a deleted pod is left on the node.
    pub(crate) async fn wait_gone(&self, pod: &str) -> Result {
        let node = self.node_of(pod);
        self.patiently(self.journal_of(pod), |limit| node.wait_gone(pod, limit)).await?;
        self.made.leaving.borrow_mut().remove(pod);
        Ok(())
    }

    /// Waits until nothing of a deleted pod is left, and advances the node's clock by `time` each time a short wait fails.
    pub(crate) async fn wait_gone_within(&self, pod: &str, time: Duration) -> Result {
        let node = &self.node;
        let end = Instant::now() + self.limit;
        loop {
            match node.wait_gone(pod, MOMENT).await {
                Ok(()) => break,
                Err(NodeError::Refused(_)) if Instant::now() < end => {}
                Err(error) => return Err(StepError::of_node(&error)),
            }
            node.advance(time).await.map_err(|error| StepError::ours(&error))?;
        }
        self.made.leaving.borrow_mut().remove(pod);
        Ok(())
    }

    /// Waits until the node has taken note of all pods.
    pub(crate) async fn wait_noticed(&self) -> Result {
        let node = &self.node;
        node.wait_noticed(FUTILE.min(self.limit)).await.map_err(|error| StepError::of_node(&error))
    }
}
