//! Nodes with their lists of volumes, and pods with their lists of claims.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Node, Pod, metadata};
use crate::json::{text, texts};

/// The taint of a node whose machine is known to be off.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

impl<'a> Node<'a> {
    /// The unique names in `volumesInUse`; `None` if the trace does not have the list.
    pub fn volumes_in_use(self) -> Option<BTreeSet<&'a str>> {
        Some(texts(&self.0["status"]["volumesInUse"])?.collect())
    }

    /// The unique names in `volumesAttached`.
    pub fn volumes_attached(self) -> impl Iterator<Item = &'a str> {
        list(&self.0["status"]["volumesAttached"]).map(|volume| text(volume, "name"))
    }

    /// The labels; `None` if the trace does not have them.
    pub fn labels(self) -> Option<BTreeMap<&'a str, &'a str>> {
        let labels = metadata(self)["labels"].as_object()?.iter();
        Some(labels.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))).collect())
    }

    /// Whether the node is out of service or not ready.
    pub fn is_lost(self) -> bool {
        let mut taints = list(&self.0["spec"]["taints"]);
        let mut conditions = list(&self.0["status"]["conditions"]);
        taints.any(|taint| taint["key"] == OUT_OF_SERVICE)
            || conditions.any(|condition| condition["type"] == "Ready" && condition["status"] != "True")
    }
}

impl<'a> Pod<'a> {
    /// Whether the pod has a node.
    pub fn is_scheduled(self) -> bool {
        !text(self.spec(), "nodeName").is_empty()
    }

    /// The names of the claims that the pod refers to. A trace has them as a list of their own.
    pub fn claims(self) -> impl Iterator<Item = &'a str> {
        texts(&self.spec()["claims"]).into_iter().flatten()
    }

    /// The names of the claims that no container of the pod uses.
    pub fn unused_claims(self) -> impl Iterator<Item = &'a str> {
        texts(&self.spec()["unused"]).into_iter().flatten()
    }

    /// The names of the claims that are made for the pod.
    pub fn ephemeral_claims(self) -> impl Iterator<Item = &'a str> {
        texts(&self.spec()["ephemeral"]).into_iter().flatten()
    }

    fn spec(self) -> &'a Value {
        &self.0["spec"]
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
