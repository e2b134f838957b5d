//! Which volumes are attached to which nodes, certainly or perhaps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::clock::Instant;
use api::names::{NodeName, VolumeName};
use api::{AttachedVolume, Node};
use plugin_api::Spec;

/// The book of attachments.
#[derive(Debug, Clone, Default)]
pub(super) struct Book {
    entries: BTreeMap<(VolumeName, NodeName), Entry>,
}

/// The attachment of a volume to a node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    /// Whether the volume certainly is attached. If not, it is uncertain: an attach or detach has failed.
    pub(super) certain: bool,
    /// The argument of the plugin's calls; unknown after a restart until a pod names the volume.
    pub(super) spec: Option<Arc<Spec>>,
    /// The path of its device on the node; empty if unknown.
    pub(super) device_path: String,
    /// Whether `volumesAttached` of the node's status lists the volume.
    pub(super) reported: bool,
    /// Whether the node uses the volume, or may be about to.
    pub(super) in_use: bool,
    /// Since when no pod wants the volume.
    pub(super) unwanted_since: Option<Instant>,
}

impl Entry {
    pub(super) fn new(certain: bool, spec: Option<Arc<Spec>>, device_path: String) -> Self {
        Self { certain, spec, device_path, reported: certain, in_use: certain, unwanted_since: None }
    }
}

impl Book {
    pub(super) fn get(&self, volume: &VolumeName, node: &NodeName) -> Option<&Entry> {
        self.entries.get(&(volume.clone(), node.clone()))
    }

    pub(super) fn get_mut(&mut self, volume: &VolumeName, node: &NodeName) -> Option<&mut Entry> {
        self.entries.get_mut(&(volume.clone(), node.clone()))
    }

    pub(super) fn put(&mut self, volume: VolumeName, node: NodeName, entry: Entry) {
        self.entries.insert((volume, node), entry);
    }

    pub(super) fn remove(&mut self, volume: &VolumeName, node: &NodeName) {
        self.entries.remove(&(volume.clone(), node.clone()));
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&VolumeName, &NodeName, &Entry)> {
        self.entries.iter().map(|((volume, node), entry)| (volume, node, entry))
    }

    /// The other nodes that a volume certainly is attached to.
    pub(super) fn elsewhere<'a>(
        &'a self,
        volume: &'a VolumeName,
        node: &'a NodeName,
    ) -> impl Iterator<Item = &'a NodeName> {
        let first = (volume.clone(), NodeName::new(""));
        let of_volume = self.entries.range(first..).take_while(move |((v, _), _)| v == volume);
        let others = of_volume.filter(move |((_, n), entry)| n != node && entry.certain);
        others.map(|((_, node), _)| node)
    }

    /// `volumesAttached` for the status of a node.
    pub(super) fn report(&self, node: &NodeName) -> Vec<AttachedVolume> {
        let of_node = self.entries.iter().filter(|((_, n), entry)| n == node && entry.reported);
        of_node
            .map(|((volume, _), entry)| AttachedVolume {
                name: volume.clone(),
                device_path: entry.device_path.clone(),
            })
            .collect()
    }

    /// Takes over `volumesInUse` of a node's status.
    pub(super) fn take_in_use(&mut self, name: &NodeName, node: &Node) {
        let in_use: BTreeSet<_> = node.volumes_in_use.iter().collect();
        for ((volume, _), entry) in self.entries.iter_mut().filter(|((_, node), _)| node == name) {
            entry.in_use = in_use.contains(volume);
        }
    }

    /// Records whether a pod wants the volume. While an operation makes the attachment `busy`, the volume may be
    /// about to be detached: then it is not reported again as attached.
    pub(super) fn set_wanted(
        &mut self,
        (volume, node): &(VolumeName, NodeName),
        wanted: bool,
        busy: bool,
        now: Instant,
    ) {
        if let Some(entry) = self.get_mut(volume, node) {
            if wanted {
                entry.unwanted_since = None;
                entry.reported = entry.certain && (entry.reported || !busy);
            } else {
                entry.unwanted_since.get_or_insert(now);
            }
        }
    }
}
