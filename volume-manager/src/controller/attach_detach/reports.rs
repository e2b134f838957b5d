//! The writes of `volumesAttached` to nodes' statuses: the writes under way, the last written list of each node, and the
//! nodes whose list is unknown because a write failed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::AttachedVolume;
use api::clock::Instant;
use api::names::{NodeName, VolumeName};

/// The pause after a failed write.
const AGAIN: Duration = Duration::from_secs(1);

/// The writes of nodes' statuses.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// Nodes that are being written to.
    writing: BTreeSet<NodeName>,
    /// Nodes whose last write has failed. It may have been done all the same, or be done yet.
    doubtful: BTreeSet<NodeName>,
    /// When to write again what has failed.
    again: BTreeMap<NodeName, Instant>,
    /// The last written list of each node.
    last_written: BTreeMap<NodeName, BTreeSet<VolumeName>>,
}

impl Reports {
    /// Whether the list of a node may be written now.
    pub(super) fn may_write(&self, node: &NodeName, now: Instant) -> bool {
        !self.writing.contains(node) && self.again.get(node).is_none_or(|again| *again <= now)
    }

    /// Whether the list of a node has to be written even if it seems unchanged.
    pub(super) fn is_doubtful(&self, node: &NodeName) -> bool {
        self.doubtful.contains(node)
    }

    /// The last list that was certainly written to a node. The node's object in the watch may be older.
    pub(super) fn last_written(&self, node: &NodeName) -> Option<&BTreeSet<VolumeName>> {
        self.last_written.get(node)
    }

    /// Whether nothing is on its way to a node, and nothing may be.
    pub(super) fn is_settled(&self, node: &NodeName) -> bool {
        !self.writing.contains(node) && !self.doubtful.contains(node)
    }

    pub(super) fn begun(&mut self, node: NodeName) {
        self.writing.insert(node);
    }

    pub(super) fn written(&mut self, node: &NodeName, report: &[AttachedVolume]) {
        self.writing.remove(node);
        self.doubtful.remove(node);
        self.again.remove(node);
        self.last_written.insert(node.clone(), names(report));
    }

    pub(super) fn failed(&mut self, node: NodeName, now: Instant) {
        self.writing.remove(&node);
        self.doubtful.insert(node.clone());
        self.again.insert(node, now + AGAIN);
    }

    /// The nodes whose last write has failed, and may be tried again.
    pub(super) fn due(&self, now: Instant) -> impl Iterator<Item = &NodeName> {
        self.again.iter().filter(move |(_, again)| **again <= now).map(|(node, _)| node)
    }

    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        self.again.values().filter(|again| **again > now).min().copied()
    }
}

pub(super) fn names(report: &[AttachedVolume]) -> BTreeSet<VolumeName> {
    report.iter().map(|volume| volume.name.clone()).collect()
}
