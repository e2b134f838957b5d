//! Plans the next attachments and detachments: a pure function.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

use api::clock::Instant;
use api::names::{NodeName, VolumeName};

use super::book::{Book, Entry};
use super::cluster::{Cluster, Desired, Place, Wanted};
use super::reports::Reports;

/// The time after which an unwanted volume is detached by force from a node that is not ready.
pub(super) const PATIENCE: Duration = Duration::from_secs(360);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Tell the node no longer that the volume is attached. Detaching waits until that is written.
    Unreport(VolumeName, NodeName),
    Detach {
        volume: VolumeName,
        node: NodeName,
        /// Why the node's word does not count. If it does, its object is asked once more.
        forced: Option<&'static str>,
    },
    Attach(VolumeName, NodeName),
    /// Emit an event at the pods that another node has the volume.
    Conflict(VolumeName, NodeName, String),
}

/// What should be done next about these attachments: first what must go, then what must come.
///
/// A volume in use by its node stays, unless the node has been gone for too long or was declared gone.
pub(super) fn plan(
    cluster: &Cluster,
    reports: &Reports,
    (places, desired): (&BTreeSet<Place>, &Desired),
    book: &Book,
    now: Instant,
    force: bool,
) -> Vec<Step> {
    let unwanted = places.iter().filter(|place| !desired.contains_key(place));
    let detaches = unwanted.filter_map(|(volume, node)| {
        detach(cluster, reports, volume, node, book.get(volume, node)?, now, force)
    });
    let wanted = places.iter().filter_map(|place| Some((place, desired.get(place)?)));
    let attaches = wanted.filter_map(|((volume, node), wanted)| attach(desired, book, volume, node, wanted));
    detaches.chain(attaches).collect()
}

fn detach(
    cluster: &Cluster,
    reports: &Reports,
    volume: &VolumeName,
    node: &NodeName,
    entry: &Entry,
    now: Instant,
    force: bool,
) -> Option<Step> {
    let late = entry.unwanted_since.is_some_and(|since| now >= since + PATIENCE) && force;
    let timed_out = late && !cluster.is_ready(node);
    let declared_gone = cluster.is_out_of_service(node);
    if entry.in_use && !timed_out && !declared_gone {
        return None;
    }
    // A node without an object has no list to write.
    if let Some(known) = cluster.nodes.get(node) {
        let is_written = reports.last_written(node).is_some_and(|last| last.contains(volume));
        if entry.reported || known.attached(volume).is_some() || is_written {
            return Some(Step::Unreport(volume.clone(), node.clone()));
        }
        // A write under way may list the volume again.
        if !reports.is_settled(node) {
            return None;
        }
    }
    let forced = match (declared_gone, timed_out) {
        (true, _) => Some("out-of-service"),
        (false, true) => Some("timeout"),
        (false, false) => None,
    };
    Some(Step::Detach { volume: volume.clone(), node: node.clone(), forced })
}

fn attach(
    desired: &Desired,
    book: &Book,
    volume: &VolumeName,
    node: &NodeName,
    wanted: &Wanted,
) -> Option<Step> {
    if book.get(volume, node).is_some_and(|entry| entry.certain) {
        return None;
    }
    // A volume that is only possibly attached elsewhere is no conflict: its attachment object decides.
    let taken = !wanted.spec.may_attach_to_many() && book.elsewhere(volume, node).next().is_some();
    if !taken {
        return Some(Step::Attach(volume.clone(), node.clone()));
    }
    let message = conflict(desired, volume, node, wanted);
    Some(Step::Conflict(volume.clone(), node.clone(), message))
}

/// The text about the pods or node that have the volume, without names of other namespaces.
fn conflict(desired: &Desired, volume: &VolumeName, node: &NodeName, wanted: &Wanted) -> String {
    let namespace = wanted.pods.values().next().map(|pod| pod.meta.namespace.as_str()).unwrap_or_default();
    let first = (volume.clone(), NodeName::new(""));
    let of_volume = desired.range(first..).take_while(|((v, _), _)| v == volume);
    let others = of_volume.filter(|((_, n), _)| n != node);
    let pods: Vec<_> = others.flat_map(|(_, other)| other.pods.values()).collect();
    let (known, foreign): (Vec<_>, Vec<_>) = pods.into_iter().partition(|p| p.meta.namespace == namespace);
    let names: Vec<_> = known.iter().map(|pod| pod.meta.name.as_str()).collect();
    let users = match (names.is_empty(), foreign.len()) {
        (true, 0) => "exclusively attached to one node and can't be attached to another".to_owned(),
        (true, n) => format!("used by {n} pod(s) in different namespaces"),
        (false, 0) => format!("used by pod(s) {}", names.join(", ")),
        (false, n) => format!("used by pod(s) {} and {n} pod(s) in different namespaces", names.join(", ")),
    };
    format!("Multi-Attach error for volume \"{}\" Volume is already {users}", wanted.spec.name())
}
