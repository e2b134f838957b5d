//! What binds the driver and shows in a trace: what its answers say, held against the mount table.
//!
//! The mounts of a call are recorded before its answer, so when an answer is judged the table is what the
//! driver left. A call whose answer somebody changed on the way is not held against the driver.

use crate::event::{Event, Mount, RpcEnd, TraceLine};
use crate::rule::books::{Call, text};
use crate::rule::{Books, Checked, Report, Rule, Witness};

/// Every rule that binds the driver and can be judged from a trace, by number.
pub const RULES: &[&Rule] =
    &[&READ_ONLY_IS_READ_ONLY, &ITS_OWN_VOLUME, &BLOCK_IS_A_DEVICE, &UNPUBLISHED_IS_GONE, &UNSTAGED_IS_GONE];

/// The call that has just been answered OK by the driver itself.
fn answered<'a>(books: &'a Books, line: &'a TraceLine, method: &str) -> Option<(&'a Call, &'a RpcEnd)> {
    let Event::RpcEnd(end) = &line.event else { return None };
    if end.method != method || end.code != "OK" || end.injected.is_some() {
        return None;
    }
    Some((books.calls.get(&end.id)?, end))
}

fn top<'a>(books: &'a Books, path: &str) -> Option<&'a Mount> {
    books.mounts.get(path).and_then(|stack| stack.last())
}

fn is_block(call: &Call) -> bool {
    call.request["volumeCapability"]["block"].is_object()
}

/// DRV-050.
static READ_ONLY_IS_READ_ONLY: Rule = Rule {
    id: "DRV-050",
    sentence: "what is published read-only cannot be written through its target",
    witnesses: &[Witness::Rpc, Witness::Kernel],
    check: Checked::Each(|books, line, report| {
        let Some((call, end)) = answered(books, line, "NodePublishVolume") else { return };
        if call.request["readonly"] != true || is_block(call) {
            return;
        }
        let writable = |mount: &&Mount| !has(&mount.opts, "ro") && !has(&mount.super_opts, "ro");
        if top(books, call.target()).filter(writable).is_some() {
            report.broken(&end.method, "a read-only publish is mounted for writing", call.target());
        }
    }),
};

/// Whether a comma-separated list of mount options has one.
fn has(options: &str, option: &str) -> bool {
    options.split(',').any(|one| one == option)
}

/// DRV-051.
static ITS_OWN_VOLUME: Rule = Rule {
    id: "DRV-051",
    sentence: "a target shows the volume that was asked for, and no other",
    witnesses: &[Witness::Rpc, Witness::Kernel],
    check: Checked::Each(its_own_volume),
};

fn its_own_volume(books: &Books, line: &TraceLine, report: &mut Report) {
    let Some((call, end)) = answered(books, line, "NodePublishVolume") else { return };
    let Some(shown) = top(books, call.target()).map(what_it_shows) else { return };
    let shows = |volume: &str| {
        let Some(known) = books.volume(volume) else { return false };
        let paths = known.staged.keys().chain(known.published.keys()).filter(|path| *path != call.target());
        paths.filter_map(|path| top(books, path)).any(|mount| what_it_shows(mount) == shown)
    };
    let of_another = books.volumes.keys().find(|other| *other != call.volume() && shows(other));
    if let Some(other) = of_another.filter(|_| !shows(call.volume())) {
        report.broken(
            &end.method,
            "the target shows another volume",
            format!("{} shows {other}", call.target()),
        );
    }
}

/// What tells volumes apart: a bound device node is the device, and anything else a part of a file system.
fn what_it_shows(mount: &Mount) -> (&str, &str) {
    match &mount.rdev {
        Some(device) => (device, ""),
        None => (&mount.dev, &mount.root),
    }
}

/// DRV-052.
static BLOCK_IS_A_DEVICE: Rule = Rule {
    id: "DRV-052",
    sentence: "what is published as a block volume is a block device",
    witnesses: &[Witness::Rpc, Witness::Kernel],
    check: Checked::Each(|books, line, report| {
        let Some((call, end)) = answered(books, line, "NodePublishVolume") else { return };
        // A driver may also make a node or a link at the target: then nothing is mounted there.
        if is_block(call) && top(books, call.target()).is_some_and(|mount| mount.rdev.is_none()) {
            report.broken(&end.method, "a block target is not a device", call.target());
        }
    }),
};

/// DRV-060.
static UNPUBLISHED_IS_GONE: Rule = Rule {
    id: "DRV-060",
    sentence: "a target that was unpublished is not mounted any more",
    witnesses: &[Witness::Rpc, Witness::Kernel],
    check: Checked::Each(|books, line, report| {
        let Some((call, end)) = answered(books, line, "NodeUnpublishVolume") else { return };
        if top(books, call.target()).is_some() {
            report.broken(&end.method, "the target is still mounted", text(&call.request, "targetPath"));
        }
    }),
};

/// DRV-070.
static UNSTAGED_IS_GONE: Rule = Rule {
    id: "DRV-070",
    sentence: "a staging path that was unstaged is not mounted any more",
    witnesses: &[Witness::Rpc, Witness::Kernel],
    check: Checked::Each(|books, line, report| {
        let Some((call, end)) = answered(books, line, "NodeUnstageVolume") else { return };
        if top(books, call.staging()).is_some() {
            report.broken(&end.method, "the staging path is still mounted", call.staging());
        }
    }),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps};

    #[test]
    fn read_only_is_judged_by_the_mount() {
        let rule = &READ_ONLY_IS_READ_ONLY;
        let publish = |options: &str, readonly: bool| {
            format!(
                "publish v1 a begins {{\"readonly\":{readonly}}}\nmount target:v1/a {options}\npublish v1 a ends"
            )
        };
        keeps(rule, &publish("ro relatime", true), &[]);
        keeps(rule, &publish("rw relatime", false), &[]);
        breaks(rule, "a read-only publish is mounted for writing", &publish("rw relatime", true), &[]);
    }

    #[test]
    fn a_target_shows_its_own_volume() {
        let rule = &ITS_OWN_VOLUME;
        let staged = "mount staging:v1 dev=7:1\nstage v1\nmount staging:v2 dev=7:2\nstage v2\n";
        let publish = |dev: &str| format!("{staged}mount target:v1/a dev={dev}\npublish v1 a");
        keeps(rule, &publish("7:1"), &[]);
        // How a driver gets from what it staged to what it publishes is its own affair.
        keeps(rule, &publish("0:42"), &[]);
        breaks(rule, "the target shows another volume", &publish("7:2"), &[]);
        breaks(
            rule,
            "the target shows another volume",
            "mount target:b2/a rdev=7:2\npublish b2 a\nmount target:b1/a rdev=7:2\npublish b1 a",
            &[],
        );
    }

    #[test]
    fn a_block_target_is_a_device() {
        let rule = &BLOCK_IS_A_DEVICE;
        keeps(rule, "mount target:b1/a rdev=7:2\npublish b1 a", &[]);
        keeps(rule, "publish b1 a\nmount target:v1/a\npublish v1 a", &[]);
        breaks(rule, "a block target is not a device", "mount target:b1/a\npublish b1 a", &[]);
    }

    #[test]
    fn what_is_undone_is_gone() {
        let staged = "mount staging:v1\nstage v1\nmount target:v1/a\npublish v1 a\n";
        keeps(
            &UNPUBLISHED_IS_GONE,
            &format!("{staged}unpublish v1 a begins\numount target:v1/a\nunpublish v1 a ends"),
            &[],
        );
        keeps(&UNPUBLISHED_IS_GONE, &format!("{staged}unpublish v1 a Internal"), &[]);
        breaks(&UNPUBLISHED_IS_GONE, "the target is still mounted", &format!("{staged}unpublish v1 a"), &[]);

        keeps(&UNSTAGED_IS_GONE, &format!("{staged}umount staging:v1\nunstage v1"), &[]);
        breaks(&UNSTAGED_IS_GONE, "the staging path is still mounted", &format!("{staged}unstage v1"), &[]);
    }

    #[test]
    fn each_rule_has_its_own_number_and_they_are_in_order() {
        let ids: Vec<&str> = RULES.iter().map(|rule| rule.id).collect();
        assert!(ids.is_sorted() && ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
    }
}
