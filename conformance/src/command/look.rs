//! Before a run: checks the machine, starts the driver and asks the first questions.

use std::path::Path;
use std::sync::Arc;

use api::AccessMode;
use harness::driver::Preparation;
use harness::facts::{Fact, Facts};
use harness::manifest::{ExistingVolume, Manifest};
use harness::masks::Masks;
use harness::private;

use super::Exit;
use runner::dispatch::{Guests, Ledger, lane};
use runner::message::{Assignment, Said, Task};
use testbed::message::{Abilities, Orders, Refusal};
use testbed::need::{Ground, Need};

/// Refuses a machine on which no sandbox can be made.
pub(super) fn can_sandbox(facts: &Facts) -> Result<(), Exit> {
    if facts.has(Fact::Root) {
        return Ok(());
    }
    match facts.why_not(Fact::UserNamespaces) {
        None => Ok(()),
        Some(absence) => Err(Exit::environment("cannot make a sandbox for the driver: this is not root")
            .details([absence.reason.clone()])
            .hint(match absence.fix.as_str() {
                "" => "run it with sudo",
                fix => fix,
            })),
    }
}

/// Runs the manifest's `prepare` command. The janitor runs its undo at the end of the run, or when the run has died.
pub(super) async fn prepare_run(manifest: &Manifest, ledger: &Ledger, directory: &Path) -> Result<(), Exit> {
    let noted = harness::ledger::Ledger::open(&ledger.path()).map_err(anyhow::Error::from)?;
    let prepared = Preparation::of_run(manifest, directory, Some(Arc::new(noted))).await;
    prepared.map(drop).map_err(|error| refused(Refusal::of_preparation(&error)))
}

/// Starts the driver once, here or in a guest, and asks what it can do.
pub(super) async fn ask(
    manifest: &Manifest,
    rootless: bool,
    ledger: &Ledger,
    directory: &Path,
    guests: Option<&Guests>,
) -> Result<Abilities, Exit> {
    let directory = directory.join(if guests.is_some() { "asked-in-guest" } else { "asked" });
    private::directory(&directory).map_err(anyhow::Error::from)?;
    let timeout = manifest.start_timeout() + 6 * manifest.call_timeout();
    let orders =
        Orders { rootless, ..Orders::new(manifest.clone(), directory.clone(), ledger.path(), timeout) };
    let assignment = Assignment { task: Task::Ask, orders };
    let mut answer = None;
    let hear = |said| match said {
        Said::Abilities(abilities) => answer = Some(Ok(*abilities)),
        Said::Refused(refusal) => {
            let lacks_files = guests.is_some() && manifest.root.is_none();
            answer = Some(Err(if lacks_files { refused_in_guest(refusal) } else { refused(refusal) }));
        }
        _ => {}
    };
    let ended = match guests {
        Some(guests) => guests.run(&assignment, hear, std::future::pending::<()>()).await,
        None => lane::run(&assignment, hear, std::future::pending::<()>()).await,
    };
    runner::logs::moments::discard(&directory);
    // The driver may have logged its secrets. A log that cannot be read cannot be shown either.
    drop(runner::logs::hide_secrets(&directory, &Masks::of(manifest)));
    match (answer, ended) {
        (Some(answer), Ok(_)) => answer,
        (None, Ok(lane::Ended::Lost(why) | lane::Ended::Late(why))) => {
            Err(Exit::environment("cannot ask the driver in a guest").details([why]))
        }
        (_, Err(error)) => Err(Exit::environment("cannot start a worker").details([error.to_string()])),
        (None, Ok(ended)) => Err(Exit::environment("cannot ask the driver: the worker gave no answer")
            .details([format!("{ended:?}")])
            .details(runner::logs::last_words(&directory))),
    }
}

/// A refusal, with what a guest lacks if the driver could not run in one.
fn refused_in_guest(mut refusal: Refusal) -> Exit {
    if refusal.driver_has_ended {
        let hint = "a guest has the driver's program with its libraries, and nothing else of this machine: `files` \
                    below `[guest]` in the manifest puts other files and directories into it; it starts in `/`, so that a \
                    path in `command` has to be written in full, if `directory` names no other";
        refusal.hint = Some(hint.to_owned());
    }
    refused(refusal)
}

pub(super) fn refused(refusal: Refusal) -> Exit {
    let Refusal { chain, hint, log, driver_has_ended: _ } = refusal;
    let mut chain = chain.into_iter();
    let exit = Exit::environment(chain.next().unwrap_or_default()).details(chain).maybe_hint(hint);
    if log.is_empty() {
        exit
    } else {
        exit.details(["its last words:".to_owned()]).details(log.into_iter().map(|line| format!("  {line}")))
    }
}

/// The needs that machine and driver satisfy, and the reasons for those that they do not.
pub(super) fn ground(facts: &Facts, manifest: &Manifest, abilities: &Abilities) -> Ground {
    let mut ground = Ground::default();
    for need in Need::ALL {
        if let Some(absence) = need.fact().and_then(|fact| facts.why_not(fact)) {
            ground.lacks(*need, absence.reason.clone());
        }
    }
    let controller_can = |capability| abilities.says.controller_can(capability);
    let groups = abilities.says.group.contains("CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT");
    let reported = [
        (Need::StageUnstage, abilities.stages(), "STAGE_UNSTAGE_VOLUME"),
        (Need::Creates, abilities.creates(), "CREATE_DELETE_VOLUME"),
        (Need::Attaches, abilities.attaches(), "PUBLISH_UNPUBLISH_VOLUME"),
        (Need::AttachesReadOnly, controller_can("PUBLISH_READONLY"), "PUBLISH_READONLY"),
        (Need::Lists, abilities.lists(), "LIST_VOLUMES"),
        (Need::Stats, abilities.says.node_can("GET_VOLUME_STATS"), "GET_VOLUME_STATS"),
        (Need::ExpandsOnNode, abilities.says.node_can("EXPAND_VOLUME"), "EXPAND_VOLUME"),
        (Need::Expands, controller_can("EXPAND_VOLUME"), "EXPAND_VOLUME of the controller"),
        (Need::Snapshots, controller_can("CREATE_DELETE_SNAPSHOT"), "CREATE_DELETE_SNAPSHOT"),
        (Need::ListsSnapshots, controller_can("LIST_SNAPSHOTS"), "LIST_SNAPSHOTS"),
        (Need::GetsSnapshots, controller_can("GET_SNAPSHOT"), "GET_SNAPSHOT"),
        (Need::Clones, controller_can("CLONE_VOLUME"), "CLONE_VOLUME"),
        (Need::Modifies, controller_can("MODIFY_VOLUME"), "MODIFY_VOLUME"),
        (Need::TellsCapacity, controller_can("GET_CAPACITY"), "GET_CAPACITY"),
        (Need::GroupSnapshots, groups, "CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT"),
    ];
    for (need, _, capability) in reported.into_iter().filter(|(_, reported, _)| !reported) {
        ground.lacks(need, format!("does not report {capability}"));
    }
    let has_place = !abilities.says.topology.is_empty();
    if !(abilities.says.plugin.contains("VOLUME_ACCESSIBILITY_CONSTRAINTS") && has_place) {
        ground.lacks(Need::Topology, "does not report VOLUME_ACCESSIBILITY_CONSTRAINTS and a topology");
    }
    if abilities.says.max_volumes < 1 {
        ground.lacks(Need::AttachLimit, "NodeGetInfo answers no `max_volumes_per_node`");
    }
    match abilities.gives_groups() {
        true => ground.lacks(Need::LeavesGroups, "reports VOLUME_MOUNT_GROUP"),
        false => ground.lacks(Need::GivesGroups, "does not report VOLUME_MOUNT_GROUP"),
    }
    if manifest.volume.fs_types.is_empty() {
        ground.lacks(Need::FsTypes, "has no choice of file systems by its manifest (`fs_types`)");
    }
    if !manifest.volume.inline {
        ground.lacks(Need::Inline, "has no inline volumes by its manifest (`inline = true`)");
    }
    let refused = [
        (Need::Block, &abilities.no_block),
        (Need::Filesystem, &abilities.no_filesystem),
        (Need::Shared, &abilities.no_shared),
        (Need::SharedByNodes, &abilities.no_shared_by_nodes),
    ];
    for (need, reason) in refused {
        reason.iter().for_each(|reason| ground.lacks(need, reason.clone()));
    }
    ground_of_existing(&mut ground, manifest, abilities);
    if !manifest.volume.persistent {
        ground.lacks(Need::Persistent, "the manifest says that volumes keep nothing (`persistent = false`)");
    }
    if !manifest.has_other_node() {
        // A driver with one node is not asked for volumes of several.
        let reason = match manifest.has_nodes_apart() {
            true => "has a state for each node by its manifest (`state`)",
            false => "has a single node by its manifest (`nodes = 2`)",
        };
        for need in [Need::TwoNodes, Need::SharedByNodes] {
            ground.lacks(need, reason);
        }
    }
    if !manifest.has_nodes_apart() {
        let reason = "has no nodes with a state of their own by its manifest (`state = \"per_node\"`)";
        ground.lacks(Need::NodesApart, reason);
    } else if abilities.attaches() {
        let reason =
            "attaches volumes: one controller serves all nodes, and knows the volumes of one of them";
        ground.lacks(Need::NodesApart, reason);
    }
    if abilities.says.max_volumes == 1 {
        ground.lacks(Need::TwoVolumes, "NodeGetInfo answers `max_volumes_per_node` = 1");
    }
    if manifest.is_running_already() {
        ground.lacks(Need::OwnProcess, "was started before the run (`socket`)");
    }
    ground
}

/// The needs of a case that volumes satisfy, whether they are created or exist.
const OF_VOLUMES: [Need; 6] =
    [Need::Filesystem, Need::Block, Need::Shared, Need::SharedByNodes, Need::TwoVolumes, Need::FsTypes];

/// The needs that the manifest's existing volumes satisfy, for a driver without CreateVolume.
fn ground_of_existing(ground: &mut Ground, manifest: &Manifest, abilities: &Abilities) {
    if abilities.creates() {
        return;
    }
    let volume = &manifest.volume;
    let none = "the driver has no CreateVolume, and the manifest names no `existing` volumes";
    let unsaid = "the driver has no CreateVolume, and the manifest does not say what `existing` volumes are";
    match volume.existing.len() {
        0 => {
            OF_VOLUMES.into_iter().for_each(|need| ground.lacks(need, none));
        }
        count => {
            if count == 1 {
                let one = "the driver has no CreateVolume, and the manifest names one `existing` volume";
                ground.lacks(Need::TwoVolumes, one);
            }
            if volume.file_system == Some(false) {
                ground
                    .lacks(Need::Filesystem, "the manifest says that there are none (`file_system = false`)");
            }
            if volume.block != Some(true) {
                ground.lacks(Need::Block, format!("{unsaid} (`block = true`)"));
            }
            let shared = |volume: &ExistingVolume| volume.access_modes.contains(&AccessMode::ReadWriteMany);
            if !abilities.shares_on_a_node() && !volume.existing.iter().any(shared) {
                ground.lacks(Need::Shared, "does not report SINGLE_NODE_MULTI_WRITER");
            }
            if !volume.existing.iter().any(|volume| volume.offers(&[AccessMode::ReadWriteMany])) {
                let none = "the driver has no CreateVolume, and no `existing` volume has `ReadWriteMany`";
                ground.lacks(Need::SharedByNodes, none);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_of_one_node_has_no_volumes_shared_by_nodes() {
        let ground = ground(Facts::get(), &Manifest::default(), &Abilities::default());
        assert!(!ground.has(Need::TwoNodes));
        assert!(!ground.has(Need::SharedByNodes));
    }

    /// The needs of volumes that are lacking for a driver without CreateVolume whose manifest has these lines.
    fn lacking_of_existing(lines: &str) -> Vec<Need> {
        let text = format!("command = [\"driver\", \"{{socket}}\"]\n[volume]\n{lines}");
        let manifest = Manifest::parse(&text, Path::new("driver.toml")).unwrap();
        let mut ground = Ground::default();
        ground_of_existing(&mut ground, &manifest, &Abilities::default());
        OF_VOLUMES.into_iter().filter(|need| !ground.has(*need)).collect()
    }

    #[test]
    fn driver_without_create_volume_has_the_existing_volumes_of_its_manifest() {
        use Need::{Block, Filesystem, FsTypes, Shared, SharedByNodes, TwoVolumes};
        let shared = "existing = [{ handle = \"a\", access_modes = [\"ReadWriteMany\"] }]";
        let once = "existing = [{ handle = \"a\", access_modes = [\"ReadWriteOnce\"] }]";
        for (lines, lacking) in [
            ("", vec![Filesystem, Block, Shared, SharedByNodes, TwoVolumes, FsTypes]),
            ("existing = [\"a\"]", vec![Block, Shared, TwoVolumes]),
            ("existing = [\"a\", \"b\"]", vec![Block, Shared]),
            ("existing = [\"a\", \"b\"]\nblock = true\nfile_system = false", vec![Filesystem, Shared]),
            (once, vec![Block, Shared, SharedByNodes, TwoVolumes]),
            (shared, vec![Block, TwoVolumes]),
        ] {
            assert_eq!(lacking_of_existing(lines), lacking, "{lines}");
        }
    }

    #[test]
    fn driver_with_create_volume_needs_no_existing_volumes() {
        let mut abilities = Abilities::default();
        abilities.says.controller.insert("CREATE_DELETE_VOLUME".to_owned());
        let mut ground = Ground::default();
        ground_of_existing(&mut ground, &Manifest::default(), &abilities);
        assert!(ground.has(Need::Filesystem) && ground.has(Need::Block) && ground.has(Need::TwoVolumes));
    }
}
