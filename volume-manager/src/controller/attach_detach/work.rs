//! What has to be looked at in the next turn: the volumes and nodes that something has happened to, and those that a time
//! limit ends for.

use std::collections::BTreeSet;

use api::clock::Instant;
use api::names::{NodeName, VolumeName};

use super::book::Book;
use super::cluster::{Cluster, Desired, Place};

#[derive(Debug, Default)]
pub(super) struct Work {
    /// All attachments of these may have to change.
    pub(super) volumes: BTreeSet<VolumeName>,
    /// The lists of these may have to be written.
    pub(super) nodes: BTreeSet<NodeName>,
    /// When to look at a volume again because a node has kept it for too long.
    due: BTreeSet<(Instant, VolumeName)>,
}

impl Work {
    /// Everything has to be looked at.
    pub(super) fn extend_with_all(&mut self, book: &Book, cluster: &Cluster) {
        self.volumes.extend(book.entries().map(|(volume, _, _)| volume.clone()));
        self.volumes.extend(cluster.desired.keys().map(|(volume, _)| volume.clone()));
        self.nodes.extend(cluster.nodes.keys().cloned());
    }

    /// An attachment changes, or has ended.
    pub(super) fn add(&mut self, volume: &VolumeName, node: &NodeName) {
        self.volumes.insert(volume.clone());
        self.nodes.insert(node.clone());
    }

    /// Looks at a volume again at that time.
    pub(super) fn wait_until(&mut self, due: Instant, volume: &VolumeName) {
        self.due.insert((due, volume.clone()));
    }

    pub(super) fn take_due(&mut self, now: Instant) {
        while self.due.first().is_some_and(|(due, _)| *due <= now) {
            self.volumes.extend(self.due.pop_first().map(|(_, volume)| volume));
        }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Takes the attachments to look at: those that are, and those that pods want.
    pub(super) fn take_places(&mut self, book: &Book, desired: &Desired) -> BTreeSet<Place> {
        let mut places = BTreeSet::new();
        for volume in std::mem::take(&mut self.volumes) {
            let first = (volume.clone(), NodeName::new(""));
            let wanted = desired.range(first..).map(|(place, _)| place).take_while(|(v, _)| *v == volume);
            places.extend(wanted.cloned());
            places.extend(book.of_volume(&volume).map(|(node, _)| (volume.clone(), node.clone())));
        }
        self.nodes.extend(places.iter().map(|(_, node)| node.clone()));
        places
    }
}
