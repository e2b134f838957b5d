//! Which loop devices are a dead run's. A wrong yes would detach a stranger's disk.

use std::collections::{BTreeMap, BTreeSet};

use crate::ledger::Entry;
use crate::loop_device::table::BoundLoop;

/// The mounts and devices of the machine when a ledger is undone.
#[derive(Debug, Default)]
pub(super) struct Surroundings {
    /// Devices of the sandboxes of runs that are alive.
    pub(super) of_live_runs: BTreeSet<u64>,
    /// Devices of the file systems that are mounted in each namespace with a process in it.
    pub(super) mounted: BTreeMap<u64, BTreeSet<u64>>,
}

/// Whose an attachment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The dead run made it.
    Run,
    /// The dead run made it, but a process is still in its mount namespace.
    StillMounted,
    /// Another process or user made it.
    Stranger,
}

/// The entry of the ledger about an attachment.
///
/// A device number is given to another file system once its own is gone, so the number in the ledger is not
/// enough. A loop device keeps the file system of its backing file alive; if ours is the one, then it is
/// mounted in no namespace but the sandbox's, and the attachment is younger than that sandbox.
pub(super) fn owner(ledger: &[Entry], around: &Surroundings, bound: &BoundLoop) -> Owner {
    let made_it = |entry: &Entry| match entry {
        Entry::Sandbox { devices, since, .. } => {
            devices.contains(&bound.device)
                && !around.of_live_runs.contains(&bound.device)
                && since.zip(bound.sequence).is_none_or(|(since, sequence)| sequence > since)
        }
        Entry::Loop { number, device, inode, sequence } => {
            sequence.is_some()
                && (*number, *device, *inode, *sequence)
                    == (bound.number, bound.device, bound.inode, bound.sequence)
        }
        // These entries name nothing to undo, or are undone elsewhere.
        Entry::Run { .. }
        | Entry::KeptSandbox { .. }
        | Entry::Cgroups { .. }
        | Entry::SharedRoot { .. }
        | Entry::Driver { .. }
        | Entry::DriverCall { .. }
        | Entry::Scratch { .. }
        | Entry::Socket { .. }
        | Entry::Prepared { .. }
        | Entry::CleanedUp { .. }
        | Entry::Kept { .. } => false,
    };
    let mut mounted = around.mounted.iter().filter(|(_, devices)| devices.contains(&bound.device));
    match ledger.iter().find(|entry| made_it(entry)) {
        Some(Entry::Sandbox { mount_namespace, .. }) => match mounted.next() {
            None => Owner::Run,
            Some((namespace, _)) if namespace == mount_namespace => Owner::StillMounted,
            Some(_) => Owner::Stranger,
        },
        Some(_) => Owner::Run,
        None => Owner::Stranger,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Life;

    fn sandbox() -> Vec<Entry> {
        let nobody = Life { pid: 0, started: 0 };
        vec![Entry::Sandbox {
            name: "case".into(),
            keeper: nobody,
            init: nobody,
            mount_namespace: 7,
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
    fn mount_on_a_dead_sandbox_is_its_own() {
        assert_eq!(owner(&sandbox(), &Surroundings::default(), &bound(45, 101)), Owner::Run);
    }

    #[test]
    fn mount_elsewhere_is_not_the_sandboxes() {
        assert_eq!(owner(&sandbox(), &Surroundings::default(), &bound(46, 101)), Owner::Stranger);
    }

    #[test]
    fn an_older_attachment_on_the_same_number_is_a_strangers() {
        assert_eq!(owner(&sandbox(), &Surroundings::default(), &bound(45, 100)), Owner::Stranger);
    }

    #[test]
    fn a_device_that_a_live_run_has_now_is_a_strangers() {
        let around = Surroundings { of_live_runs: BTreeSet::from([45]), ..Surroundings::default() };
        assert_eq!(owner(&sandbox(), &around, &bound(45, 101)), Owner::Stranger);
    }

    fn mounted_in(namespace: u64) -> Surroundings {
        let mounted = BTreeMap::from([(namespace, BTreeSet::from([45]))]);
        Surroundings { mounted, ..Surroundings::default() }
    }

    #[test]
    fn a_file_system_that_is_mounted_elsewhere_is_a_strangers() {
        assert_eq!(owner(&sandbox(), &mounted_in(8), &bound(45, 101)), Owner::Stranger);
    }

    #[test]
    fn mount_that_a_process_still_sees_is_kept() {
        assert_eq!(owner(&sandbox(), &mounted_in(7), &bound(45, 101)), Owner::StillMounted);
    }

    #[test]
    fn a_recorded_attachment_is_known_by_its_sequence_alone() {
        let entry = |sequence| Entry::Loop { number: 3, device: 45, inode: 12, sequence };
        assert_eq!(owner(&[entry(Some(101))], &Surroundings::default(), &bound(45, 101)), Owner::Run);
        assert_eq!(owner(&[entry(Some(101))], &Surroundings::default(), &bound(45, 102)), Owner::Stranger);
        assert_eq!(owner(&[entry(None)], &Surroundings::default(), &bound(45, 101)), Owner::Stranger);
    }
}
