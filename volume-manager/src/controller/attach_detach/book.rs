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
    /// The volumes of each node.
    by_node: BTreeMap<NodeName, BTreeSet<VolumeName>>,
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
        self.by_node.entry(node.clone()).or_default().insert(volume.clone());
        self.entries.insert((volume, node), entry);
    }

    pub(super) fn remove(&mut self, volume: &VolumeName, node: &NodeName) {
        self.entries.remove(&(volume.clone(), node.clone()));
        if let Some(volumes) = self.by_node.get_mut(node) {
            volumes.remove(volume);
            if volumes.is_empty() {
                self.by_node.remove(node);
            }
        }
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&VolumeName, &NodeName, &Entry)> {
        self.entries.iter().map(|((volume, node), entry)| (volume, node, entry))
    }

    /// The attachments of a volume.
    pub(super) fn of_volume<'a>(
        &'a self,
        volume: &'a VolumeName,
    ) -> impl Iterator<Item = (&'a NodeName, &'a Entry)> {
        let first = (volume.clone(), NodeName::new(""));
        let of_volume = self.entries.range(first..).take_while(move |((v, _), _)| v == volume);
        of_volume.map(|((_, node), entry)| (node, entry))
    }

    /// The volumes that are, or may be, attached to a node.
    pub(super) fn of_node(&self, node: &NodeName) -> impl Iterator<Item = &VolumeName> {
        self.by_node.get(node).into_iter().flatten()
    }

    /// The other nodes that a volume certainly is attached to.
    pub(super) fn elsewhere<'a>(
        &'a self,
        volume: &'a VolumeName,
        node: &'a NodeName,
    ) -> impl Iterator<Item = &'a NodeName> {
        let others = self.of_volume(volume).filter(move |(n, entry)| *n != node && entry.certain);
        others.map(|(node, _)| node)
    }

    /// `volumesAttached` for the status of a node.
    pub(super) fn report(&self, node: &NodeName) -> Vec<AttachedVolume> {
        let of_node = self.of_node(node).filter_map(|volume| Some((volume, self.get(volume, node)?)));
        of_node
            .filter(|(_, entry)| entry.reported)
            .map(|(volume, entry)| AttachedVolume {
                name: volume.clone(),
                device_path: entry.device_path.clone(),
            })
            .collect()
    }

    /// Takes over `volumesInUse` of a node's status. Returns the volumes for which that is new.
    pub(super) fn take_in_use(&mut self, name: &NodeName, node: &Node) -> Vec<VolumeName> {
        let in_use: BTreeSet<_> = node.volumes_in_use.iter().collect();
        let mut changed = Vec::new();
        for volume in self.by_node.get(name).into_iter().flatten() {
            let Some(entry) = self.entries.get_mut(&(volume.clone(), name.clone())) else { continue };
            if entry.in_use != in_use.contains(volume) {
                entry.in_use = !entry.in_use;
                changed.push(volume.clone());
            }
        }
        changed
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
