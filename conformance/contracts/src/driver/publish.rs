//! Promises about answers to `NodePublishVolume`.

use crate::event::{Event, Mount, Touch, TraceLine};
use crate::rule::books::Progress;
use crate::rule::{Books, Checked, Report, Rule, Violation, Witness};

use super::{answered, depth, has, is_block, is_in_force, is_repeated, plain_flags, succeeded, top};

const PUBLISH: &str = "NodePublishVolume";

/// Something is mounted at the target of a block volume, and it is no device.
const NOT_THE_DEVICE: &str = "a block target is not a device";

/// The cause for a publish that was OK and shows no mount.
pub const NOT_MOUNTED: &str = "nothing is mounted at the target";

/// The cause of a finding about a read-only publish that can be written.
pub const FOR_WRITING: &str = "a read-only publish is mounted for writing";

/// The cause of a finding about a volume that was published before it was staged.
pub const NOT_STAGED: &str = "a volume was published that is not staged";

/// The cause of a finding about mount flags.
pub const FLAG_NOT_IN_FORCE: &str = "a mount flag is not in force at the target";

/// The end of the detail of [`NOT_MOUNTED`] for a block volume.
const NO_DEVICE: &str = " is no device";

/// Whether the finding is that a driver answered OK for a block volume and made no device.
pub fn lacks_device(found: &Violation) -> bool {
    found.cause == NOT_THE_DEVICE || found.cause == NOT_MOUNTED && found.detail.ends_with(NO_DEVICE)
}

pub(super) static READ_ONLY: Rule = Rule {
    id: "DRV-050",
    sentence: "what is published read-only cannot be written through its target",
    witnesses: &[Witness::Rpc, Witness::Kernel],
    check: Checked::Each(|books, line, report| {
        let Some(call) = succeeded(books, line, PUBLISH) else { return };
        let read_only = call.request().is_readonly() && !is_block(call);
        let Some(mount) = top(books, call.target()).filter(|_| read_only) else { return };
        report.tried();
        if !has(&mount.opts, "ro") && !has(&mount.super_opts, "ro") {
            report.broken(PUBLISH, FOR_WRITING, call.target());
        }
    }),
};

pub(super) static ITS_OWN_VOLUME: Rule = Rule {
    id: "DRV-051",
    sentence: "a target shows the volume that was asked for, and no other",
    witnesses: &[Witness::Rpc, Witness::Kernel],
    check: Checked::Each(its_own_volume),
};

fn its_own_volume(books: &Books, line: &TraceLine, report: &mut Report) {
    let Some(call) = succeeded(books, line, PUBLISH) else { return };
    let Some(shown) = top(books, call.target()).map(Identity::of) else { return };
    let shows = |volume: &str| {
        let Some(known) = books.volume(volume) else { return false };
        let paths = known.staged.keys().chain(known.published.keys()).filter(|path| *path != call.target());
        paths.filter_map(|path| top(books, path)).any(|mount| Identity::of(mount) == shown)
    };
    // Two handles may refer to one volume on purpose, and inline volumes may share their content. Two volumes that the
    // driver has created are different.
    let is_made = |volume: &str| books.volume(volume).is_some_and(|known| known.created && !known.deleted);
    let mut others =
        books.volumes.keys().filter(|other| *other != call.volume() && is_made(other)).peekable();
    if !is_made(call.volume()) || others.peek().is_none() {
        return;
    }
    report.tried();
    if let Some(other) = others.find(|other| shows(other)).filter(|_| !shows(call.volume())) {
        report.broken(PUBLISH, "the target shows another volume", format!("{} shows {other}", call.target()));
    }
}

/// The identity of a volume in the mount table: a bound device node is the device, and any other mount a part of a file
/// system. Subdirectories of one export may share device and root, and differ in their source.
#[derive(PartialEq, Eq)]
enum Identity<'a> {
    Device(&'a str),
    Directory { device: &'a str, root: &'a str, source: &'a str },
}

impl<'a> Identity<'a> {
    fn of(mount: &'a Mount) -> Identity<'a> {
        match &mount.rdev {
            Some(device) => Identity::Device(device),
            None => Identity::Directory { device: &mount.dev, root: &mount.root, source: &mount.source },
        }
    }
}

pub(super) static A_DEVICE: Rule = Rule {
    id: "DRV-052",
    sentence: "the target of a raw device is the node of that device",
    witnesses: &[Witness::Rpc, Witness::Kernel],
    check: Checked::Each(|books, line, report| {
        let Some(call) = succeeded(books, line, PUBLISH) else { return };
        // A driver may also make a node or a link at the target: then nothing is mounted there.
        let Some(mount) = top(books, call.target()).filter(|_| is_block(call)) else { return };
        report.tried();
        if mount.rdev.is_none() {
            report.broken(PUBLISH, NOT_THE_DEVICE, call.target());
        }
    }),
};

pub(super) static MOUNTED_ONCE: Rule = Rule {
    id: "DRV-053",
    sentence: "publishing again changes nothing: one mount at the target, not two",
    witnesses: &[Witness::Rpc, Witness::Kernel],
    check: Checked::Each(|books, line, report| {
        let Some((call, end)) = answered(books, line, PUBLISH) else { return };
        if end.code != "OK" {
            return;
        }
        if is_repeated(books, call, end) {
            report.tried();
        }
        if depth(books, call.target()) > 1 {
            report.broken(PUBLISH, "the volume is mounted twice at its target", call.target());
        }
    }),
};

pub(super) static ONLY_WHAT_IS_STAGED: Rule = Rule {
    id: "DRV-054",
    sentence: "a volume that is not staged is not published: nobody is shown an empty directory instead",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(|books, line, report| {
        let Some((call, end)) = answered(books, line, PUBLISH) else { return };
        // An inline volume is never staged: it is its caller who leaves out the staging path.
        if books.stages != Some(true) || call.staging().is_empty() {
            return;
        }
        let known = books.volume(call.volume());
        if known.is_some_and(|known| known.staged.contains_key(call.staging())) {
            return;
        }
        report.tried();
        if end.code == "OK" {
            report.broken(PUBLISH, NOT_STAGED, call.target());
        }
    }),
};

pub(super) static MOUNTED: Rule = Rule {
    id: "DRV-055",
    sentence: "when publishing was OK the volume is mounted at the target, which the driver has created",
    witnesses: &[Witness::Rpc, Witness::Kernel],
    check: Checked::Each(mounted),
};

fn mounted(books: &Books, line: &TraceLine, report: &mut Report) {
    if let Event::Touched(touched) = &line.event
        && touched.how == Touch::NoDevice
    {
        report.broken(PUBLISH, NOT_MOUNTED, format!("{}{NO_DEVICE}", touched.path));
        return;
    }
    let Some(call) = succeeded(books, line, PUBLISH) else { return };
    let is_mounted = top(books, call.target()).is_some();
    // A device need not be mounted: a device node at the target is enough, and the mount table does not show it.
    if is_mounted || !is_block(call) {
        report.tried();
    }
    if !is_mounted && !is_block(call) {
        report.broken(PUBLISH, NOT_MOUNTED, call.target());
    }
}

pub(super) static FLAGS_IN_FORCE: Rule = Rule {
    id: "DRV-057",
    sentence: "mount flags given for publishing are in force at the target",
    witnesses: &[Witness::Rpc, Witness::Kernel],
    check: Checked::Each(|books, line, report| {
        let Some(call) = succeeded(books, line, PUBLISH) else { return };
        let Some(mount) = top(books, call.target()) else { return };
        for flag in plain_flags(call) {
            report.tried();
            if is_in_force(flag, mount) {
                continue;
            }
            let detail = format!("{flag} at {}", call.target());
            report.broken(PUBLISH, FLAG_NOT_IN_FORCE, detail);
        }
    }),
};

pub(super) static SINGLE_WRITER: Rule = Rule {
    id: "DRV-059",
    sentence: "a volume for a single writer has a single target",
    witnesses: &[Witness::Rpc],
    check: Checked::Each(|books, line, report| {
        let Some((call, end)) = answered(books, line, PUBLISH) else { return };
        let single = call.request().capability().mode() == "SINGLE_NODE_SINGLE_WRITER";
        let mut others = books.volume(call.volume()).into_iter().flat_map(|known| &known.published);
        let second = others.find(|(target, step)| *target != call.target() && **step == Progress::Done);
        let Some((other, _)) = second.filter(|_| single) else { return };
        report.tried();
        if end.code == "OK" {
            report.broken(PUBLISH, "a single writer got a second target", other);
        }
    }),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps, passes_over};

    #[test]
    fn read_only_is_judged_by_the_mount() {
        let rule = &READ_ONLY;
        let publish = |options: &str, readonly: bool| {
            format!("mount target:v1/a {options}\npublish v1 a {{\"readonly\":{readonly}}}")
        };
        keeps(rule, &publish("ro relatime", true), &[]);
        passes_over(rule, &publish("rw relatime", false), &[]);
        breaks(rule, "a read-only publish is mounted for writing", &publish("rw relatime", true), &[]);
    }

    fn created(volumes: &[&str]) -> String {
        let create = |volume: &&str| {
            format!("calls CreateVolume {{}} {{\"volume\":{{\"volumeId\":\"{volume}\"}}}} OK\n")
        };
        volumes.iter().map(create).collect()
    }

    #[test]
    fn a_target_shows_its_own_volume() {
        let rule = &ITS_OWN_VOLUME;
        let made = created(&["v1", "v2", "b1", "b2"]);
        let staged = "mount staging:v1 dev=7:1\nstage v1\nmount staging:v2 dev=7:2\nstage v2\n";
        let publish = |dev: &str| format!("{staged}mount target:v1/a dev={dev}\npublish v1 a");
        keeps(rule, &[&made, &publish("7:1")[..]].concat(), &[]);
        // A driver may publish another mount than the staged one.
        keeps(rule, &[&made, &publish("0:42")[..]].concat(), &[]);
        let other = "the target shows another volume";
        breaks(rule, other, &[&made, &publish("7:2")[..]].concat(), &[]);
        let block = "mount target:b2/a rdev=7:2\npublish b2 a\nmount target:b1/a rdev=7:2\npublish b1 a";
        breaks(rule, other, &[&made, block].concat(), &[]);
    }

    #[test]
    fn similar_directories_are_distinguished_by_their_mounts() {
        let rule = &ITS_OWN_VOLUME;
        let publish = |volume: &str, source: &str| {
            let mount = format!("mount target:{volume}/a fstype=nfs4 dev=0:55 source={source}\n");
            format!("{mount}publish {volume} a\n")
        };
        let made = created(&["v1", "v2"]);
        // One superblock, and `/` for both in the mount table.
        let exports = [publish("v1", "127.0.0.1:/pvc-data"), publish("v2", "127.0.0.1:/pvc-logs")].concat();
        keeps(rule, &[made.as_str(), &exports].concat(), &[]);
        // Two handles that no CreateVolume of this trace returned may name the same volume.
        let shared = [publish("v1", "127.0.0.1:/pvc-data"), publish("v2", "127.0.0.1:/pvc-data")].concat();
        passes_over(rule, &shared, &[]);
        passes_over(rule, &[created(&["v1"]), shared.clone()].concat(), &[]);
        breaks(rule, "the target shows another volume", &[made, shared].concat(), &[]);
    }

    #[test]
    fn a_block_target_is_a_device() {
        let rule = &A_DEVICE;
        keeps(rule, "mount target:b1/a rdev=7:2\npublish b1 a", &[]);
        passes_over(rule, "publish b1 a\nmount target:v1/a\npublish v1 a", &[]);
        breaks(rule, "a block target is not a device", "mount target:b1/a\npublish b1 a", &[]);
    }

    #[test]
    fn there_is_one_mount_at_the_target() {
        keeps(&MOUNTED, "mount target:v1/a\npublish v1 a\npublish b1 a\npublish v1 b Internal", &[]);
        breaks(&MOUNTED, NOT_MOUNTED, "publish v1 a", &[]);
        passes_over(&MOUNTED, "publish b1 a", &[]);

        let rule = &MOUNTED_ONCE;
        keeps(rule, "mount target:v1/a\npublish v1 a\npublish v1 a", &[]);
        let twice = "the volume is mounted twice at its target";
        breaks(rule, twice, "mount target:v1/a\nmount target:v1/a\npublish v1 a", &[]);
    }

    #[test]
    fn publish_needs_a_stage() {
        let rule = &ONLY_WHAT_IS_STAGED;
        let stages = "capabilities STAGE_UNSTAGE_VOLUME\n";
        passes_over(rule, &[stages, "stage v1\npublish v1 a"].concat(), &[]);
        passes_over(rule, "capabilities\npublish v1 a", &[]);
        keeps(rule, &[stages, "publish v1 a FailedPrecondition"].concat(), &[]);
        let not_staged = "a volume was published that is not staged";
        breaks(rule, not_staged, &[stages, "stage v1\nunstage v1\npublish v1 a"].concat(), &[]);
    }

    #[test]
    fn flags_for_publishing_are_in_force() {
        let rule = &FLAGS_IN_FORCE;
        let publish = |mounted: &str| {
            let asked = r#"{"volumeCapability":{"mount":{"mountFlags":["nosuid"]}}}"#;
            format!("mount target:v1/a {mounted}\npublish v1 a {asked}")
        };
        keeps(rule, &publish("rw nosuid"), &[]);
        breaks(rule, "a mount flag is not in force at the target", &publish("rw"), &[]);
    }

    #[test]
    fn a_single_writer_has_one_target() {
        let rule = &SINGLE_WRITER;
        let single = r#"{"volumeCapability":{"accessMode":{"mode":"SINGLE_NODE_SINGLE_WRITER"}}}"#;
        passes_over(rule, &format!("publish v1 a {single}\npublish v1 a {single}"), &[]);
        passes_over(rule, "publish v1 a\npublish v1 b", &[]);
        keeps(rule, &format!("publish v1 a {single}\npublish v1 b {single} FailedPrecondition"), &[]);
        let second = "a single writer got a second target";
        breaks(rule, second, &format!("publish v1 a {single}\npublish v1 b {single}"), &[]);
    }
}
