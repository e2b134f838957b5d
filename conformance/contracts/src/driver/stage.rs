//! Promises about answers to `NodeStageVolume`.

use crate::event::Actor;
use crate::rule::books::is_unknown;
use crate::rule::{Checked, Rule, Witness};

use super::{answered, depth, is_in_force, is_repeated, plain_flags, succeeded, top};

pub(super) static STAGED_ONCE: Rule = Rule {
    id: "DRV-041",
    sentence: "staging again changes nothing: one mount, not two on top of each other",
    witnesses: &[Witness::Rpc, Witness::Kernel],
    check: Checked::Each(|books, line, report| {
        let Some((call, end)) = answered(books, line, "NodeStageVolume") else { return };
        if end.code != "OK" {
            return;
        }
        if is_repeated(books, call, end) {
            report.tried();
        }
        if depth(books, call.staging()) > 1 {
            report.broken(&call.method, "the volume is mounted twice at its staging path", call.staging());
        }
    }),
};

pub(super) static FAILED_LEAVES_NOTHING: Rule = Rule {
    id: "DRV-045",
    sentence: "a call that fails for good leaves nothing behind",
    witnesses: &[Witness::Rpc, Witness::Kernel],
    check: Checked::Each(|books, line, report| {
        let Some((call, end)) = answered(books, line, "NodeStageVolume") else { return };
        if end.code == "OK" || is_unknown(&end.code) {
            return;
        }
        // A mount of an earlier call, or of one that may have staged the volume, may stay.
        let known = books.volume(call.volume());
        if known.is_some_and(|known| known.staged.contains_key(call.staging())) {
            return;
        }
        report.tried();
        // A mount that lay there before is another call's.
        let is_new = depth(books, call.staging()) > call.mounted;
        if is_new && top(books, call.staging()).is_some_and(|mount| mount.by == Actor::Driver) {
            report.broken(&call.method, "the call failed for good, and left its mount", call.staging());
        }
    }),
};

/// File systems that a disk can hold. Types are compared only if both are among them.
const DISK_FILE_SYSTEMS: &[&str] = &["ext2", "ext3", "ext4", "xfs", "btrfs"];

pub(super) static AS_ASKED: Rule = Rule {
    id: "DRV-043",
    sentence: "the file system is of the type that was asked for",
    witnesses: &[Witness::Rpc, Witness::Kernel],
    check: Checked::Each(|books, line, report| {
        let Some(call) = succeeded(books, line, "NodeStageVolume") else { return };
        let asked = call.request().capability().fs_type();
        let Some(mount) = top(books, call.staging()) else { return };
        let comparable = [asked, &mount.fstype].iter().all(|kind| DISK_FILE_SYSTEMS.contains(kind));
        // A directory of some disk, bound, shows the file system of that disk.
        if !comparable || mount.root != "/" {
            return;
        }
        report.tried();
        if mount.fstype != asked {
            let detail = format!("{} is {}, not {asked}", call.staging(), mount.fstype);
            report.broken(&call.method, "another file system than was asked for", detail);
        }
    }),
};

pub(super) static FLAGS_IN_FORCE: Rule = Rule {
    id: "DRV-044",
    sentence: "mount flags given for staging are in force, or staging fails",
    witnesses: &[Witness::Rpc, Witness::Kernel],
    check: Checked::Each(|books, line, report| {
        let Some(call) = succeeded(books, line, "NodeStageVolume") else { return };
        let Some(mount) = top(books, call.staging()) else { return };
        for flag in plain_flags(call) {
            report.tried();
            if is_in_force(flag, mount) {
                continue;
            }
            let detail = format!("{flag} at {}", call.staging());
            report.broken(&call.method, "a mount flag is not in force at the staging path", detail);
        }
    }),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps, passes_over};

    #[test]
    fn staging_again_adds_no_mount() {
        let rule = &STAGED_ONCE;
        keeps(rule, "mount staging:v1\nstage v1\nstage v1\numount staging:v1\nunstage v1", &[]);
        let twice = "the volume is mounted twice at its staging path";
        breaks(rule, twice, "mount staging:v1\nstage v1\nmount staging:v1\nstage v1", &[]);
    }

    #[test]
    fn call_that_fails_for_good_leaves_no_mount_of_its_own() {
        let rule = &FAILED_LEAVES_NOTHING;
        let left = "the call failed for good, and left its mount";
        breaks(rule, left, "stage v1 begins\nmount staging:v1\nstage v1 ends Internal", &[]);
        let undone = "stage v1 begins\nmount staging:v1\numount staging:v1\nstage v1 ends Internal";
        keeps(rule, undone, &[]);
        // An unstage that answered OK and unmounted nothing is another fault.
        keeps(rule, "mount staging:v1\nstage v1 FailedPrecondition", &[]);
        passes_over(rule, "stage v1 begins\nmount staging:v1\nstage v1 ends Unavailable", &[]);
    }

    #[test]
    fn the_file_system_is_the_one_asked_for() {
        let rule = &AS_ASKED;
        keeps(rule, "mount staging:v1 fstype=ext4\nstage v1", &[]);
        passes_over(rule, "mount staging:v1 fstype=nfs4\nstage v1", &[]);
        passes_over(rule, "mount staging:v1 fstype=xfs root=/volumes/1\nstage v1", &[]);
        let other = "another file system than was asked for";
        breaks(rule, other, "mount staging:v1 fstype=xfs\nstage v1", &[]);
    }

    #[test]
    fn flags_for_staging_are_in_force() {
        let rule = &FLAGS_IN_FORCE;
        let stage = |mounted: &str| {
            let asked = r#"{"volumeCapability":{"mount":{"mountFlags":["noatime","discard"]}}}"#;
            format!("mount staging:v1 {mounted}\nstage v1 {asked}")
        };
        keeps(rule, &stage("rw noatime"), &[]);
        breaks(rule, "a mount flag is not in force at the staging path", &stage("rw relatime"), &[]);
    }
}
