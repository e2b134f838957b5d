//! Raw block volumes: mapped by a bind, a link and a lock that holds the device open, and unmapped in reverse order.

use crate::event::{Actor, EffectKind, Event, TraceLine, World};
use crate::rule::books::Entry;
use crate::rule::place::{Of, Place, map_directory};
use crate::rule::{Books, Checked, Report, Rule, Witness};

use super::staging::pod_and_handle;

pub(super) static MAPPED_IS_COMPLETE: Rule = Rule {
    id: "INV-059",
    sentence: "a mapped block volume is bound below its global map path, linked into the pod and held open",
    witnesses: &[Witness::Rpc, Witness::Kernel, Witness::File, Witness::Manager],
    check: Checked::Each(mapped_is_complete),
};

fn mapped_is_complete(books: &Books, line: &TraceLine, report: &mut Report) {
    let Event::State(change) = &line.event else { return };
    if change.world != World::Actual || !change.to.starts_with("VolumeMounted") {
        return;
    }
    let Some((pod, volume)) = pod_and_handle(&change.key) else { return };
    let Some((target, of)) = block_target(books, volume, pod) else { return };
    report.tried();
    let map_path = of.map_entry();
    let top = |path: &str| books.mounts.get(path).and_then(|stack| stack.last());
    // The driver may have published no device: that is the driver's fault, which DRV rules judge.
    let published = top(target).and_then(|mount| mount.rdev.as_ref());
    match (published, top(&map_path)) {
        (_, None) => report.broken("", "mapped without a bind below the global map path", map_path.as_str()),
        (Some(device), Some(bind)) if bind.rdev.as_ref() != Some(device) => {
            report.broken(
                "",
                "the bind below the global map path is not the volume's device",
                map_path.as_str(),
            );
        }
        _ => {}
    }
    if books.entries.get(&of.link()) != Some(&Entry::Link) {
        report.broken("", "mapped without a link in the pod's directory", of.link());
    }
    if !books.locks.contains_key(&map_path) {
        report.broken("", "mapped without holding the device open", map_path.as_str());
    }
}

fn block_target<'a>(books: &'a Books, volume: &str, pod: &str) -> Option<(&'a str, Of<'a>)> {
    let mut targets = books.volume(volume)?.published.keys();
    targets.find_map(|target| match Place::of(target) {
        Some(Place::BlockTarget(of)) if of.pod == pod => Some((target.as_str(), of)),
        _ => None,
    })
}

pub(super) static UNMAPPED_FROM_OUTSIDE: Rule = Rule {
    id: "INV-060",
    sentence: "a block volume's lock, link and bind are gone, in this order, before it is unpublished",
    witnesses: &[Witness::Rpc, Witness::Kernel, Witness::File],
    check: Checked::Each(unmapped_from_outside),
};

fn unmapped_from_outside(books: &Books, line: &TraceLine, report: &mut Report) {
    match &line.event {
        Event::RpcStart(start) if start.method == "NodeUnpublishVolume" => {
            let Some(Place::BlockTarget(of)) = Place::of(start.request().target_path()) else { return };
            report.tried();
            let map_path = of.map_entry();
            if books.locks.contains_key(&map_path) {
                report.broken(&start.method, "unpublished while the device was held open", map_path.as_str());
            }
            if books.entries.contains_key(&of.link()) {
                report.broken(&start.method, "unpublished while the pod's link was there", of.link());
            }
            if books.mounts.contains_key(&map_path) {
                report.broken(&start.method, "unpublished while the device was bound", map_path.as_str());
            }
        }
        Event::Effect(effect) if effect.effect == EffectKind::Unlink => {
            let linked = every_block_target(books).find(|of| of.link() == effect.path);
            if linked.is_some_and(|of| books.locks.contains_key(&of.map_entry())) {
                report.broken("", "the link was removed before the lock was released", effect.path.as_str());
            }
        }
        // A reboot removes all mounts at once, so it has no order.
        Event::MountDel(gone) if gone.by != Actor::Harness => {
            let bound = every_block_target(books).find(|of| of.map_entry() == gone.target);
            if bound.is_some_and(|of| books.entries.contains_key(&of.link())) {
                report.broken("", "the bind was taken away before the link", gone.target.as_str());
            }
        }
        _ => {}
    }
}

fn every_block_target(books: &Books) -> impl Iterator<Item = Of<'_>> {
    books.volumes.values().flat_map(|known| known.published.keys()).filter_map(|target| {
        match Place::of(target) {
            Some(Place::BlockTarget(of)) => Some(of),
            _ => None,
        }
    })
}

pub(super) static UNSTAGED_WHEN_UNMAPPED: Rule = Rule {
    id: "INV-061",
    sentence: "a block volume is unstaged only when no device is left below its global map path",
    witnesses: &[Witness::Rpc, Witness::Kernel],
    check: Checked::Each(unstaged_when_unmapped),
};

fn unstaged_when_unmapped(books: &Books, line: &TraceLine, report: &mut Report) {
    let Event::RpcStart(start) = &line.event else { return };
    if start.method != "NodeUnstageVolume" {
        return;
    }
    let Some(Place::BlockStaging { root, inner }) = Place::of(start.request().staging_path()) else {
        return;
    };
    report.tried();
    let below = map_directory(root, inner);
    if let Some(map_path) =
        books.mounts.range(below.clone()..).map(|(at, _)| at).find(|at| at.starts_with(&below))
    {
        report.broken(
            &start.method,
            "unstaged while a device was bound below the global map path",
            map_path.as_str(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::script::{breaks, keeps, passes_over};

    const IN: &str = "stage b1\nmount target:b1/a rdev=7:3\npublish b1 a\n";
    const BOUND: &str = "mount map:b1/a rdev=7:3\n";
    const LINKED: &str = "link link:b1/a\n";
    const LOCKED: &str = "lock map:b1/a /dev/loop9\n";
    const MAPPED: &str = "state b1/a VolumeMounted\n";

    #[test]
    fn mapped_means_bound_linked_and_locked() {
        let rule = &MAPPED_IS_COMPLETE;
        keeps(rule, &[IN, BOUND, LINKED, LOCKED, MAPPED].concat(), &[]);
        passes_over(rule, "publish v1 a\nstate v1/a VolumeMounted", &[]);
        breaks(
            rule,
            "mapped without a bind below the global map path",
            &[IN, LINKED, LOCKED, MAPPED].concat(),
            &[],
        );
        breaks(
            rule,
            "mapped without a link in the pod's directory",
            &[IN, BOUND, LOCKED, MAPPED].concat(),
            &[],
        );
        breaks(rule, "mapped without holding the device open", &[IN, BOUND, LINKED, MAPPED].concat(), &[]);
        breaks(
            rule,
            "the bind below the global map path is not the volume's device",
            &[IN, "mount map:b1/a rdev=7:4\n", LINKED, LOCKED, MAPPED].concat(),
            &[],
        );
        let no_device = "stage b1\nmount target:b1/a\npublish b1 a\nmount map:b1/a\n";
        keeps(rule, &[no_device, LINKED, LOCKED, MAPPED].concat(), &[]);
    }

    #[test]
    fn lock_link_and_bind_go_before_unpublish() {
        let rule = &UNMAPPED_FROM_OUTSIDE;
        let all = [IN, BOUND, LINKED, LOCKED].concat();
        keeps(
            rule,
            &(all.clone() + "unlock /dev/loop9\nunlink link:b1/a\numount map:b1/a\nunpublish b1 a"),
            &[],
        );
        breaks(
            rule,
            "unpublished while the device was bound",
            &(all.clone() + "unlock /dev/loop9\nunlink link:b1/a\nunpublish b1 a"),
            &[],
        );
        breaks(
            rule,
            "unpublished while the pod's link was there",
            &[IN, LINKED, "unpublish b1 a"].concat(),
            &[],
        );
        breaks(
            rule,
            "unpublished while the device was held open",
            &[IN, LOCKED, "unpublish b1 a"].concat(),
            &[],
        );
        breaks(
            rule,
            "the link was removed before the lock was released",
            &(all.clone() + "unlink link:b1/a\nunlock /dev/loop9"),
            &[],
        );
        keeps(
            rule,
            &(all.clone() + "loses map:b1/a\nunlock /dev/loop9\nunlink link:b1/a\nunpublish b1 a"),
            &[],
        );
        // After a reboot the device is not held open: if the driver refuses it then, there is no unlock.
        keeps(rule, &(all.clone() + "loses map:b1/a\nunlink link:b1/a\nunpublish b1 a"), &[]);
        breaks(
            rule,
            "the bind was taken away before the link",
            &(all + "unlock /dev/loop9\numount map:b1/a\nunlink link:b1/a"),
            &[],
        );
    }

    #[test]
    fn no_device_is_left_when_unstaging() {
        let rule = &UNSTAGED_WHEN_UNMAPPED;
        keeps(rule, &[IN, BOUND, "umount map:b1/a\nunpublish b1 a\nunstage b1"].concat(), &[]);
        breaks(
            rule,
            "unstaged while a device was bound below the global map path",
            &[IN, BOUND, "unpublish b1 a\nunstage b1"].concat(),
            &[],
        );
    }
}
