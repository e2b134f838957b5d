//! The node's `volumesInUse`: the attach/detach controller detaches no volume that is on that list.
//!
//! A volume is in use while a pod wants it and it can be attached, and while it is attached. One that a restart finds on
//! disk and in the node's list stays in use until it is torn down. Nothing here does IO: the list is written by the
//! node's owner, who reports what was written.

use std::collections::BTreeSet;

use api::names::VolumeName;

use crate::actual::{ActualState, VolumeRecord};
use crate::desired::DesiredState;
use crate::recovery::Progress;

/// The volumes in use, and those that the node's object is known to list.
#[derive(Debug)]
pub(crate) struct InUse {
    volumes: BTreeSet<VolumeName>,
    /// Whether the list may differ from the one that was last published.
    changed: bool,
    /// Volumes that the node's object was last seen to list and that are still in use.
    reported: BTreeSet<VolumeName>,
    /// Volumes that were reported, or no longer are, since the last decision.
    news: BTreeSet<VolumeName>,
    /// Volumes that the node's object listed when it was first read, without those that became known since.
    unaccounted: BTreeSet<VolumeName>,
    /// Reconstructed volumes that the node's object listed when it was first read. The object may not list them as
    /// attached yet, and they may be mounted all the same.
    inherited: BTreeSet<VolumeName>,
}

#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// The node's object was read for the first time, with this list.
    FirstRead(Vec<VolumeName>),
    /// The node's object was written or read with this list.
    Reported(Vec<VolumeName>),
    /// A reconstructed volume was compared with the node's object.
    Accounted(VolumeName),
    /// Something on disk was identified, or a search for its volume has ended.
    Identified,
}

/// Sets whether a volume of the desired state is reported in use, and plans it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) volume: VolumeName,
    pub(crate) reported: bool,
}

impl Default for InUse {
    fn default() -> Self {
        Self {
            volumes: BTreeSet::new(),
            // An empty list is published as well: the node's object may have an old one.
            changed: true,
            reported: BTreeSet::new(),
            news: BTreeSet::new(),
            unaccounted: BTreeSet::new(),
            inherited: BTreeSet::new(),
        }
    }
}

impl InUse {
    pub(crate) fn observe(&mut self, event: Event) {
        match event {
            Event::FirstRead(list) => self.unaccounted.extend(list),
            Event::Reported(list) => {
                // The list is older than `volumes`: a volume that has left `volumes` since is ignored, because
                // the next write removes it.
                let reported = list.into_iter().filter(|volume| self.volumes.contains(volume)).collect();
                let before = std::mem::replace(&mut self.reported, reported);
                self.news.extend(before.symmetric_difference(&self.reported).cloned());
            }
            Event::Accounted(volume) => {
                if let Some(volume) = self.unaccounted.take(&volume) {
                    self.inherited.insert(volume);
                }
            }
            Event::Identified => self.changed = true,
        }
    }

    /// Takes in the desired and the actual state of volumes that have changed. Returns the marks of those that
    /// were reported, or no longer are, and of those that pods want again while they are still reported.
    pub(crate) fn decide(
        &mut self,
        desired: &DesiredState,
        actual: &ActualState,
        changed: &BTreeSet<VolumeName>,
    ) -> Vec<Mark> {
        let mut marks = std::mem::take(&mut self.news);
        for volume in changed {
            self.update(desired, actual, volume);
            let is_unmarked = desired.volume(volume).is_some_and(|wanted| !wanted.reported_in_use);
            if is_unmarked && self.reported.contains(volume) {
                marks.insert(volume.clone());
            }
        }
        let mark = |volume| Mark { reported: self.reported.contains(&volume), volume };
        marks.into_iter().map(mark).collect()
    }

    fn update(&mut self, desired: &DesiredState, actual: &ActualState, volume: &VolumeName) {
        let is_wanted = desired.volume(volume).is_some_and(|wanted| wanted.attachable);
        let record = actual.volume(volume);
        if record.is_none() {
            self.inherited.remove(volume);
        }
        if is_wanted || record.is_some_and(VolumeRecord::is_attached) || self.inherited.contains(volume) {
            self.unaccounted.remove(volume);
            self.changed |= self.volumes.insert(volume.clone());
        } else if self.volumes.remove(volume) {
            self.changed = true;
            // It must be reported again when it returns: the node's object may have lost it in between.
            self.reported.remove(volume);
        }
    }

    /// The list; `None` until recovery has compared the reconstructed volumes with the node's object: the
    /// attach/detach controller may detach a volume that the list lacks, even if it is mounted.
    pub(crate) fn list(&self, recovery: Progress) -> Option<Vec<VolumeName>> {
        let none = BTreeSet::new();
        // Volumes that nothing has accounted for stay listed while something on disk is not identified: it may
        // be one of them.
        let doubtful = if recovery < Progress::Complete { &self.unaccounted } else { &none };
        let all = || self.volumes.union(doubtful).cloned().collect();
        (recovery >= Progress::Identifying).then(all)
    }

    /// Whether the list has to be published: it may have changed since the last time that this was asked.
    pub(crate) fn take_changed(&mut self, recovery: Progress) -> bool {
        recovery >= Progress::Identifying && std::mem::take(&mut self.changed)
    }
}

#[cfg(test)]
mod tests;
