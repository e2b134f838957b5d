//! Which loop devices are a dead run's. A wrong yes would detach a stranger's disk.

use std::collections::BTreeSet;

use crate::ledger::Entry;
use crate::loop_device::table::BoundLoop;

/// What is known about the machine when a ledger is undone.
#[derive(Debug, Default)]
pub(super) struct Surroundings {
    /// Devices of the sandboxes of runs that are alive.
    pub(super) of_live_runs: BTreeSet<u64>,
    /// Devices of the file systems that are mounted in any living namespace.
    pub(super) mounted: BTreeSet<u64>,
}

/// Whether the ledger says that this attachment was made by its run.
///
/// A device number is given to another file system once its own is gone, so the number in the ledger is not
/// enough. A loop device keeps the file system of its backing file alive; if ours is the one, then it is
/// mounted nowhere, since its sandbox is gone, and the attachment is younger than that sandbox.
pub(super) fn owns(ledger: &[Entry], around: &Surroundings, bound: &BoundLoop) -> bool {
    ledger.iter().any(|entry| match entry {
        Entry::Sandbox { devices, since, .. } => {
            devices.contains(&bound.device)
                && !around.of_live_runs.contains(&bound.device)
                && !around.mounted.contains(&bound.device)
                && since.zip(bound.sequence).is_none_or(|(since, sequence)| sequence > since)
        }
        Entry::Loop { number, device, inode, sequence } => {
            sequence.is_some()
                && (*number, *device, *inode, *sequence)
                    == (bound.number, bound.device, bound.inode, bound.sequence)
        }
        Entry::Run { .. } | Entry::Fuse { .. } | Entry::Cgroup { .. } => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox() -> Vec<Entry> {
        vec![Entry::Sandbox {
            name: "case".into(),
            pid_namespace: 1,
            devices: vec![44, 45],
            since: Some(100),
        }]
    }

    fn bound(device: u64, sequence: u64) -> BoundLoop {
        BoundLoop {
            number: 3,
            device,
            inode: 12,
            over: None,
            backing: "/f".into(),
            sequence: Some(sequence),
            autoclear: false,
        }
    }

    #[test]
    fn what_lies_on_the_dead_sandbox_is_its_own() {
        assert!(owns(&sandbox(), &Surroundings::default(), &bound(45, 101)));
    }

    #[test]
    fn what_lies_elsewhere_is_not() {
        assert!(!owns(&sandbox(), &Surroundings::default(), &bound(46, 101)));
    }

    #[test]
    fn an_older_attachment_on_the_same_number_is_a_strangers() {
        assert!(!owns(&sandbox(), &Surroundings::default(), &bound(45, 100)));
    }

    #[test]
    fn a_device_that_a_live_run_has_now_is_a_strangers() {
        let around = Surroundings { of_live_runs: BTreeSet::from([45]), ..Surroundings::default() };
        assert!(!owns(&sandbox(), &around, &bound(45, 101)));
    }

    #[test]
    fn a_file_system_that_is_still_mounted_somewhere_is_a_strangers() {
        let around = Surroundings { mounted: BTreeSet::from([45]), ..Surroundings::default() };
        assert!(!owns(&sandbox(), &around, &bound(45, 101)));
    }

    #[test]
    fn a_recorded_attachment_is_known_by_its_sequence_alone() {
        let entry = |sequence| Entry::Loop { number: 3, device: 45, inode: 12, sequence };
        assert!(owns(&[entry(Some(101))], &Surroundings::default(), &bound(45, 101)));
        assert!(!owns(&[entry(Some(101))], &Surroundings::default(), &bound(45, 102)));
        assert!(!owns(&[entry(None)], &Surroundings::default(), &bound(45, 101)));
    }
}
