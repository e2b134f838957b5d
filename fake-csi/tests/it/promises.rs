//! The honest driver keeps a promise, and its sabotage breaks it.
//!
//! A probe checks a promise. It runs against an honest driver, which finds a probe that always fails, and against the
//! sabotaged driver, which finds a probe that never fails. That a case finds each sabotage as well is shown with the
//! registry of promises (`tests/registry.rs`).

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc;

use fake_csi::Sabotage;
use serial_test::file_serial;

use crate::world::{World, in_namespace};

mod answers;
mod behaviour;
mod copies;
mod data;
mod identity;
mod mounts;
mod names;
mod neighbours;
mod publish;
mod reboot;
mod repeat;
mod size;
mod snapshots;
mod stage;
mod unpublish;
mod volumes;

/// `true` if the promise is kept.
type Probe = fn(World) -> Pin<Box<dyn Future<Output = bool>>>;

/// Probes, each with the name of the sabotage that it must find.
type Chapter = &'static [(&'static str, Probe)];

/// Boxes the future of a probe.
macro_rules! probe {
    ($name:literal, $function:ident) => {
        ($name, |world| Box::pin($function(world)))
    };
}
use probe;

fn check(chapter: Chapter) {
    let mut wrong = Vec::new();
    for (name, probe) in chapter {
        let sabotage: Sabotage = name.parse().unwrap();
        if look(*probe, None) == Some(false) {
            wrong.push(format!("{name}: the honest driver breaks {}", sabotage.promise()));
        }
        if look(*probe, Some(sabotage)) == Some(true) {
            wrong.push(format!("{name}: the sabotaged driver keeps {}", sabotage.promise()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The result of a probe; `None` without root.
fn look(probe: Probe, sabotage: Option<Sabotage>) -> Option<bool> {
    let (sender, receiver) = mpsc::channel();
    in_namespace(async move |mut world| {
        world.sabotage = sabotage;
        sender.send(probe(world).await).unwrap();
    });
    receiver.recv().ok()
}

/// Sabotages without a probe here: cases find them.
const FOUND_BY_CASES: [&str; 206] = [
    "attach-again-needs-place",
    "attach-again-takes-place",
    "block-read-only-everywhere",
    "capability-after-create",
    "capacity-is-zero",
    "capacity-keeps-deleted",
    "capacity-keeps-devices",
    "capacity-keeps-growth",
    "capacity-keeps-refused",
    "capacity-maximum-too-small",
    "capacity-minimum-too-large",
    "capacity-of-any-place",
    "clone-cut-off-stays-empty",
    "clone-cuts-tail",
    "clone-empties-source",
    "clone-forgets-targets",
    "clone-of-deleted-is-empty",
    "clone-skips-hidden-files",
    "clone-splits-names",
    "condition-missing-of-second",
    "condition-without-words",
    "confirms-first-use",
    "confirms-no-capabilities",
    "copy-drops-pipes",
    "copy-fills-holes",
    "copy-names-another-source",
    "copy-skips-odd-names",
    "copy-splits-files",
    "create-again-answers-asked-size",
    "create-again-empties-copy",
    "create-again-empties-volume",
    "create-again-hides-source",
    "create-again-opens-root",
    "create-answers-limit",
    "create-answers-new-context",
    "create-answers-odd-size",
    "create-at-once-loses-one",
    "create-counts-in-32-bits",
    "create-cuts-longest-names",
    "create-drops-long-names",
    "create-fails-beside-another",
    "create-fills-copy-again",
    "create-finds-longer-names",
    "create-folds-signs",
    "create-ignores-place",
    "create-remembers-failed-copy",
    "create-remembers-too-large",
    "create-rounds-down",
    "create-runs-names",
    "delete-follows-links",
    "delete-leaves-mount",
    "delete-opens-links",
    "delete-remembers-names",
    "delete-snapshot-globs",
    "delete-takes-directory",
    "delete-takes-longer-names",
    "delete-takes-longer-snapshots",
    "delete-tires",
    "detach-forgets-targets",
    "detach-from-all-keeps-mode",
    "detach-from-all-keeps-place",
    "detach-needs-volume",
    "device-exceeds-limit",
    "device-finds-old-blocks",
    "errors-with-details",
    "expand-again-needs-no-node",
    "expand-answers-limit",
    "expand-empties-files",
    "expand-exceeds-limit",
    "expand-needs-target",
    "expand-opens-read-only",
    "failed-copy-holds-device",
    "failed-stage-drops-capability",
    "get-forgets-nodes",
    "get-snapshot-answers-first",
    "group-again-is-not-ready",
    "group-again-mixes-sources",
    "group-compares-order",
    "group-counts-members",
    "group-delete-keeps-orphans",
    "group-delete-leaves-images",
    "group-delete-takes-any-members",
    "group-empties-sources",
    "group-folds-case",
    "group-follows-links",
    "group-get-renames",
    "group-never-ready",
    "group-takes-any-members",
    "group-tells-another-time",
    "id-is-a-count",
    "inline-fails-for-ever",
    "inline-ignores-read-only",
    "inline-stats-end-driver",
    "inline-volumes-share",
    "killed-program-keeps-lock",
    "limit-is-what-is-left",
    "list-drops-orphans",
    "list-snapshots-needs-source",
    "list-tells-another-place",
    "list-tells-source-size",
    "list-without-condition",
    "member-forgets-group",
    "modify-finds-pieces",
    "modify-forgets-targets",
    "modify-takes-unknown-volume",
    "mount-flags-stay",
    "multi-writer-has-one-target",
    "names-taken-for-inline",
    "new-volume-is-abnormal",
    "node-growth-needs-range",
    "node-growth-shrinks-record",
    "nodes-share-an-id",
    "publish-adopts-mounts",
    "publish-drops-empty-directories",
    "publish-finds-longer-paths",
    "publish-finds-staging",
    "publish-follows-links-in-volume",
    "publish-ignores-dead-file-system",
    "publish-leaves-temporary-file",
    "publish-opens-parent",
    "publish-remembers-failure",
    "publish-trusts-target",
    "read-only-attachment-is-compared",
    "read-only-attachment-stays",
    "refused-copy-leaks-descriptor",
    "refused-growth-is-recorded",
    "refused-growth-keeps-claim",
    "refused-publish-leaves-target",
    "refused-restore-spoils-snapshot",
    "refused-snapshot-keeps-claim",
    "refused-stage-leaks-descriptor",
    "refused-unstage-forgets",
    "restart-closes-roots",
    "restart-drops-capability",
    "restart-forgets-attached",
    "restart-forgets-devices",
    "restart-forgets-groups",
    "restart-forgets-growth",
    "restart-forgets-inline",
    "restart-forgets-read-only",
    "restart-forgets-time",
    "restart-frees-members",
    "restart-keeps-one-target",
    "restart-renames-node",
    "restore-finds-longer-names",
    "restore-skips-hidden-files",
    "restore-uses-up-snapshot",
    "secrets-in-name-errors",
    "secrets-in-range-errors",
    "secrets-in-refusals",
    "single-writer-checked-late",
    "single-writer-published-once",
    "snapshot-claims-a-group",
    "snapshot-cut-off-counts",
    "snapshot-cuts-tail",
    "snapshot-folds-case",
    "snapshot-forgets-targets",
    "snapshot-id-is-a-count",
    "snapshot-is-taken-anew",
    "snapshot-leaves-temporary-file",
    "snapshot-of-nothing-is-kept",
    "snapshot-of-tomorrow",
    "snapshot-races-itself",
    "snapshot-remembers-names",
    "snapshot-shares-files",
    "snapshot-size-follows-volume",
    "snapshot-time-in-milliseconds",
    "snapshot-unready-again",
    "stage-error-keeps-claim",
    "stage-formats-after-read-error",
    "stage-holds-all-volumes",
    "stage-trusts-dead-daemon",
    "stage-trusts-failed-format",
    "stage-waits-for-every-daemon",
    "stats-aborted-when-busy",
    "stats-call-inodes-bytes",
    "stats-leak-descriptor",
    "stats-leave-file",
    "stats-of-first-target",
    "stats-remember",
    "stats-tell-bytes-twice",
    "stats-wait-for-daemon",
    "terminated-forgets-targets",
    "topology-follows-volumes",
    "topology-needs-preferred",
    "topology-refused-as-internal",
    "unpublish-empties-busy-target",
    "unpublish-forgets-longer-paths",
    "unpublish-forgets-neighbour",
    "unpublish-needs-daemon",
    "unpublish-reads-escapes",
    "unpublish-refuses-read-only",
    "unpublish-removes-parent",
    "unpublish-takes-longer-paths",
    "unpublish-waits-for-daemon",
    "unpublish-waits-for-sync",
    "unready-later",
    "unstage-counts-calls",
    "unstage-empties-busy-path",
    "unstage-leaves-daemon",
    "unstage-leaves-dead-mount",
    "unstage-takes-any-path",
    "unstaged-publish-keeps-claim",
    "validate-changes-use",
    "validate-confirms-others",
    "validate-forgets-use",
];

macro_rules! chapters {
    ($($chapter:ident)*) => {
        $(
            #[test]
            #[file_serial(root)]
            fn $chapter() {
                check($chapter::PROBES);
            }
        )*

        #[test]
        fn every_sabotage_is_probed() {
            let probed = [$($chapter::PROBES),*].concat().into_iter().map(|(name, _)| name);
            let probed: BTreeSet<_> = probed.chain(FOUND_BY_CASES).collect();
            let all: BTreeSet<_> = Sabotage::ALL.iter().map(|sabotage| sabotage.name()).collect();
            assert_eq!(probed, all);
        }
    };
}

chapters! { answers behaviour copies data identity mounts names neighbours publish reboot repeat size snapshots stage unpublish volumes }
