//! The second node of a play, on the same kernel: it starts with the first pod that names it. Its own journal records it.

use std::collections::BTreeSet;

use anyhow::Result;
use harness::journal::Journal;
use harness::node::Node;
use harness::testbed::{NodeRoot, OtherNode, Testbed};
use serde_json::Value;

use super::manifest;
use super::world::{NODE, World};

/// The second node.
pub(super) const OTHER: &str = "node-2";

/// The second node and its pods.
#[derive(Debug)]
pub(super) struct Other {
    /// Once a pod has named it.
    pub(super) node: Option<OtherNode>,
    pods: BTreeSet<String>,
    /// The number of lines of its journal that were printed.
    pub(super) printed: usize,
    /// Its root, where the driver's manifest has two nodes.
    root: Option<NodeRoot>,
}

impl Other {
    /// Makes room for the node. Its root is there before it starts, and outlives it.
    pub(super) fn prepare(bed: &Testbed) -> Result<Self> {
        let wanted = bed.manifest().has_other_node();
        let root = wanted.then(|| NodeRoot::mount(&bed.layout.beside(OTHER, true))).transpose()?;
        Ok(Self { node: None, pods: BTreeSet::new(), printed: 0, root })
    }
}

/// The node that a pod names.
pub(super) fn named(pod: &Value) -> &str {
    pod.pointer("/spec/nodeName").and_then(Value::as_str).filter(|name| !name.is_empty()).unwrap_or(NODE)
}

impl World {
    /// The second node, if it has started.
    pub(super) fn other_node(&self) -> Option<&OtherNode> {
        self.other.node.as_ref()
    }

    fn other_of(&self, pod: &str) -> Option<&OtherNode> {
        self.other_node().filter(|_| self.other.pods.contains(pod))
    }

    pub(super) fn is_on_other(&self, pod: &str) -> bool {
        self.other_of(pod).is_some()
    }

    /// The node that a pod is on.
    pub(super) fn node_of(&self, pod: &str) -> &Node {
        self.other_of(pod).map_or(&self.node, |other| &other.node)
    }

    /// The journal of the node that a pod is on.
    pub(super) fn journal_of(&self, pod: &str) -> &Journal {
        self.other_of(pod).map_or(&self.journal, |other| &other.journal)
    }

    /// Starts the second node, where a pod names it and it does not run yet.
    pub(super) async fn start_second_node(&mut self) -> Result<()> {
        let is_named = self.scenario.pods.iter().any(|pod| named(pod) == OTHER);
        if is_named && self.other.root.is_some() && self.other.node.is_none() {
            self.other.node = Some(self.add_node(OTHER, self.node_options()).await?);
        }
        Ok(())
    }

    /// Notes which node a pod goes to. A node that is not here is the first.
    pub(super) fn place(&mut self, document: &Value) {
        let name = manifest::name(document).to_owned();
        match self.other.node.is_some() && named(document) == OTHER {
            true => self.other.pods.insert(name),
            false => self.other.pods.remove(&name),
        };
    }

    /// The volumes that the second node has at the end, a line each.
    pub(super) async fn other_is_empty(&self) -> Vec<String> {
        let Some(other) = self.other_node() else { return Vec::new() };
        match other.node.dump().await {
            Ok(dump) => Self::with_name(
                dump.actual
                    .iter()
                    .map(|(key, state)| other.journal.symbols().golden(&format!("actual    {key}: {state}"))),
            )
            .collect(),
            Err(error) => vec![format!("{OTHER} does not answer: {error}")],
        }
    }

    /// Lines about the second node, with its name.
    pub(super) fn with_name(lines: impl IntoIterator<Item = String>) -> impl Iterator<Item = String> {
        lines.into_iter().map(|line| format!("{OTHER}  {line}"))
    }
}
