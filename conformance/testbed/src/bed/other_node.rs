//! The other node of a case: its pods, its loss and its return.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use harness::journal::Journal;
use harness::node::Node;
use harness::testbed::OtherNode;

use super::{Bed, Result, StepError};
use crate::failure::chain;

pub(crate) const NAME: &str = "node-2";

impl Bed {
    /// Starts the other node, where it does not run yet.
    pub(crate) async fn add_other_node(&self) -> Result {
        if self.other.get().is_some() {
            return Ok(());
        }
        let options = self.node_options();
        let other = self.add_node(NAME, options).await.map_err(|error| StepError::of_testbed(&error))?;
        drop(self.other.set(other));
        Ok(())
    }

    /// The other node, if the case has one.
    pub fn other(&self) -> Option<&OtherNode> {
        self.other.get()
    }

    pub(crate) fn the_other(&self) -> Result<&OtherNode> {
        self.other().ok_or_else(|| StepError::Ours(vec!["the case has one node".to_owned()]))
    }

    /// The root of the other node, and the directories below it that are empty when it has no volumes.
    pub fn other_root(&self) -> Option<(PathBuf, [PathBuf; 2])> {
        let root = self.other()?.layout.root().to_owned();
        let volumes = [root.join("pods"), root.join("plugins/kubernetes.io")];
        Some((root, volumes))
    }

    /// Notes which node a pod is for.
    pub(super) fn put_on(&self, pod: &str, other: bool) {
        let mut on_other = self.made.on_other.borrow_mut();
        match other {
            true => on_other.insert(pod.to_owned()),
            false => on_other.remove(pod),
        };
    }

    /// The node that a pod is for.
    pub(super) fn node_of(&self, pod: &str) -> &Node {
        self.other_of(pod).map_or(&self.node, |other| &other.node)
    }

    /// The journal of the node that a pod is for.
    pub(crate) fn journal_of(&self, pod: &str) -> &Journal {
        self.other_of(pod).map_or(&self.journal, |other| &other.journal)
    }

    fn other_of(&self, pod: &str) -> Option<&OtherNode> {
        self.other().filter(|_| self.made.on_other.borrow().contains(pod))
    }

    /// The other node's machine ends. Of its pods nothing but the objects is left, and those go by force.
    pub(crate) async fn lose_other(&self) -> Result {
        self.the_other()?.lose().await.map_err(|error| StepError::of_testbed(&error))
    }

    pub(crate) async fn other_comes_back(&self) -> Result {
        let back = self.the_other()?.come_back(&self.testbed).await;
        back.map_err(|error| StepError::of_testbed(&error))
    }

    /// Adds the taint that declares the other node out of service, or removes it.
    pub(crate) fn declare_out_of_service(&self, is_out: bool) -> Result {
        let declared = self.the_other()?.declare_out_of_service(is_out);
        declared.map_err(|error| StepError::of_testbed(&error))
    }

    /// Deletes a pod's object without waiting for its node.
    pub(crate) async fn forget_pod(&self, pod: &str) -> Result {
        self.made.pods.borrow_mut().remove(pod);
        self.made.leaving.borrow_mut().insert(pod.to_owned());
        self.node_of(pod).remove_pod(pod, true).await.map_err(|error| StepError::ours(&error))
    }

    /// Time passes in the cluster and on its nodes.
    pub(crate) async fn time_passes(&self, by: Duration) -> Result {
        self.clock.advance(by);
        for node in [Some(&self.node), self.other().map(|other| &other.node)].into_iter().flatten() {
            if node.is_running() {
                node.advance(by).await.map_err(|error| StepError::ours(&error))?;
            }
        }
        Ok(())
    }

    /// Starts a lost node again, so that it can clean up. Returns the error if it does not start.
    pub(super) async fn other_is_up(&self) -> Option<String> {
        let other = self.other()?;
        other.proxy().clear("");
        if other.node.is_running() {
            return None;
        }
        let back = other.come_back(&self.testbed).await;
        back.err().map(|error| format!("the other node does not start again: {}", chain(&error).join(": ")))
    }

    /// Waits until the other node is idle. Returns the operations under way if it is not.
    pub(super) async fn other_rests(&self, end: Instant) -> Option<String> {
        let other = self.other()?;
        let idle = self.until(&other.journal, end, |limit| other.node.wait_idle(limit)).await;
        idle.err().map(|waited| format!("on {}: {}", other.name(), waited.lines().join(": ")))
    }
}
