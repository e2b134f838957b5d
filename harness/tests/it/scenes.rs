//! A testbed on the real kernel: sandbox, fake-csi, proxy, API server, node and journal, and the stories
//! of volumes when calls succeed and when they fail.
//!
//! Each scene is a process of its own, because a sandbox is entered by a process with one thread.

mod bed;
mod opinions;
mod run;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use expect_test::expect;
use harness::facts::{Fact, Facts};
use harness::journal::Edge;
use harness::ledger;
use harness::node::NodeError;
use harness::proxy::Rule;
use libtest_mimic::Trial;

use crate::{printed, rooted};

use bed::{Bed, LIMIT, PodSketch};

type Scene = fn(&Path) -> Result<()>;

const SCENES: &[(&str, Scene)] = &[
    ("a_file_system_goes_in_and_out", |ledger| bed::play(ledger, a_file_system_goes_in_and_out)),
    ("a_block_volume_goes_in_and_out", |ledger| bed::play(ledger, a_block_volume_goes_in_and_out)),
    ("a_block_volume_goes_in_and_out_polled", |ledger| {
        bed::play_polled(ledger, a_block_volume_goes_in_and_out)
    }),
    ("a_killed_node_finds_what_it_left_polled", |ledger| {
        bed::play_polled(ledger, a_killed_node_finds_what_it_left)
    }),
    ("a_read_only_claim_is_read_only_polled", |ledger| {
        bed::play_polled(ledger, a_read_only_claim_is_read_only)
    }),
    ("two_pods_share_a_volume", |ledger| bed::play(ledger, two_pods_share_a_volume)),
    ("a_read_only_claim_is_read_only", |ledger| bed::play(ledger, a_read_only_claim_is_read_only)),
    ("a_failed_stage_is_tried_again_on_the_node_s_clock", |ledger| {
        bed::play(ledger, a_failed_stage_is_tried_again_on_the_node_s_clock)
    }),
    ("a_pod_that_goes_during_its_stage_is_not_published", |ledger| {
        bed::play(ledger, a_pod_that_goes_during_its_stage_is_not_published)
    }),
    ("a_killed_node_finds_what_it_left", |ledger| bed::play(ledger, a_killed_node_finds_what_it_left)),
    ("a_driver_that_dies_in_a_publish_is_asked_again", |ledger| {
        bed::play(ledger, a_driver_that_dies_in_a_publish_is_asked_again)
    }),
    ("runc_sees_what_our_own_container_sees", |ledger| {
        bed::play(ledger, runc_sees_what_our_own_container_sees)
    }),
    ("wait_for_a_mount_ends_with_a_killed_node", |ledger| {
        bed::play(ledger, wait_for_a_mount_ends_with_a_killed_node)
    }),
    ("a_node_waits_until_its_volume_is_unstaged", |ledger| {
        bed::play(ledger, a_node_waits_until_its_volume_is_unstaged)
    }),
    ("a_lost_answer_is_asked_for_again", |ledger| bed::play(ledger, a_lost_answer_is_asked_for_again)),
    ("an_attachment_lives_as_long_as_the_volume_is_in_use", |ledger| {
        bed::play(ledger, an_attachment_lives_as_long_as_the_volume_is_in_use)
    }),
];

/// A run that is killed while a container of its own or of runc's is up.
const KILLED: &str = "a_killed_run_leaves_no_control_groups";

pub(crate) fn trials() -> Vec<Trial> {
    let played = SCENES.iter().map(|(name, _)| {
        rooted(&format!("scenes::{name}"), move || {
            let base = ledger::base();
            // Told also where all went well: a scene may have been skipped.
            eprint!("{}", printed(name, run::process(&base, name))?);
            Ok(())
        })
    });
    let killed =
        rooted(&format!("scenes::{KILLED}"), || killed().map_err(|error| format!("{error:?}").into()));
    played.chain([killed]).collect()
}

fn killed() -> Result<()> {
    let runc = Facts::get().why_not(Fact::Runc).is_none();
    run::killed_leaves_no_groups("runc_sees_what_our_own_container_sees", if runc { 2 } else { 0 })
}

/// Plays a scene in this process, in a sandbox of the run with that ledger.
pub(crate) fn play(name: &str, ledger: &Path) -> ExitCode {
    let Some((_, scene)) = SCENES.iter().find(|(known, _)| *known == name) else { return ExitCode::FAILURE };
    code(scene(ledger).map(|()| true))
}

/// Plays a scene as a run of its own, with its ledger below `base`.
pub(crate) fn run(name: &str, base: &Path) -> ExitCode {
    code(run::play(base, name))
}

fn code(ended: Result<bool>) -> ExitCode {
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:?}");
            ExitCode::FAILURE
        }
    }
}

async fn a_file_system_goes_in_and_out(bed: &Bed) -> Result<()> {
    bed.volume("data").await?;
    bed.start(&PodSketch::of("web").mount("data")).await?;
    bed.sees(expect![[r#"
        csi    Stage data
        csi    Publish data web
        mount  <publish:data/web>
    "#]])
        .await?;
    bed.stop("web").await?;
    bed.sees(expect![[r#"
        csi    Unpublish data web
        umount <publish:data/web>
        csi    Unstage data
    "#]])
        .await
}

/// The same configuration, carried out by us and by runc: the same mounts, devices, owners, user and groups.
async fn runc_sees_what_our_own_container_sees(bed: &Bed) -> Result<()> {
    if let Some(absence) = Facts::get().why_not(Fact::Runc) {
        println!("skipped: {absence}");
        return Ok(());
    }
    bed.volume("data").await?;
    bed.block_volume("disk").await?;
    let pod = PodSketch::of("web").mount("data").device("disk").read_only().memory("fast").group(2000);
    bed.start(&pod).await?;
    let spec = opinions::configuration(bed, "web").await?;
    let ours = opinions::ours(bed, &spec).await?;
    let theirs = opinions::of_runc(bed, &spec).await?;
    for seen in ["groups 2000", "/data/other: EROFS", "/dev/disk: EPERM", "/fast/new: done", "block  "] {
        anyhow::ensure!(ours.contains(seen), "{seen} is not among what was seen:\n{ours}");
    }
    anyhow::ensure!(ours == theirs, "ours:\n{ours}\nrunc:\n{theirs}");
    bed.stop("web").await?;
    bed.forget().await
}

async fn a_block_volume_goes_in_and_out(bed: &Bed) -> Result<()> {
    bed.block_volume("disk").await?;
    bed.start(&PodSketch::of("web").device("disk")).await?;
    bed.sees(expect![[r#"
        csi    Stage disk
        csi    Publish disk web
        bind   <publish:disk/web>  =  <device:disk>
        bind   <map:disk/web>      =  <device:disk>
        link   <web>/disk          ->  <publish:disk/web>
        lock   <map:disk/web>
    "#]])
        .await?;
    bed.stop("web").await?;
    bed.sees(expect![[r#"
        unlock <map:disk/web>
        unlink <web>/disk
        umount <map:disk/web>
        csi    Unpublish disk web
        umount <publish:disk/web>
        csi    Unstage disk
        rmdir  <map:disk>
    "#]])
        .await
}

async fn two_pods_share_a_volume(bed: &Bed) -> Result<()> {
    bed.shared_volume("data").await?;
    bed.start(&PodSketch::of("one").mount("data")).await?;
    bed.start(&PodSketch::of("two").mount("data")).await?;
    bed.sees(expect![[r#"
        csi    Stage data
        csi    Publish data one
        mount  <publish:data/one>
        csi    Publish data two
        mount  <publish:data/two>
    "#]])
        .await?;
    bed.stop("one").await?;
    bed.stop("two").await?;
    bed.sees(expect![[r#"
        csi    Unpublish data one
        umount <publish:data/one>
        csi    Unpublish data two
        umount <publish:data/two>
        csi    Unstage data
    "#]])
        .await
}

async fn a_read_only_claim_is_read_only(bed: &Bed) -> Result<()> {
    bed.volume("data").await?;
    bed.start(&PodSketch::of("web").mount("data").read_only()).await?;
    bed.sees(expect![[r#"
        csi    Stage data
        csi    Publish data web
        mount  <publish:data/web>  ro
    "#]])
        .await?;
    bed.stop("web").await
}

async fn a_failed_stage_is_tried_again_on_the_node_s_clock(bed: &Bed) -> Result<()> {
    bed.proxy().inject(Rule::of("NodeStageVolume").code("Internal").times(3));
    bed.volume("data").await?;
    bed.add(&PodSketch::of("web").mount("data"))?;
    for attempt in 1..=3 {
        anyhow::ensure!(bed.journal.wait_rpc("NodeStageVolume", Edge::End, attempt, LIMIT).await);
        // The failed operation ends a moment after its call; what it waits for is then known.
        bed.node.wait_idle(LIMIT).await?;
        bed.node.advance(Duration::from_secs(200)).await?;
    }
    bed.node.wait_mounted("web", LIMIT).await?;
    bed.sees(expect![[r#"
        csi    Stage data          INTERNAL "injected", 3 times
        csi    Stage data
        csi    Publish data web
        mount  <publish:data/web>
    "#]])
        .await?;
    bed.stop("web").await
}

async fn a_pod_that_goes_during_its_stage_is_not_published(bed: &Bed) -> Result<()> {
    let gate = bed.proxy().hold("NodeStageVolume");
    bed.volume("data").await?;
    bed.add(&PodSketch::of("web").mount("data"))?;
    gate.reached().await;
    bed.node.remove_pod("web", false).await?;
    gate.open();
    bed.node.wait_gone("web", LIMIT).await?;
    bed.sees(expect![[r#"
        csi    Stage data
        csi    Unstage data
    "#]])
        .await
}

async fn a_killed_node_finds_what_it_left(bed: &Bed) -> Result<()> {
    bed.volume("data").await?;
    bed.start(&PodSketch::of("web").mount("data")).await?;
    bed.forget().await?;
    bed.node.kill().await;
    bed.node.remove_pod("web", true).await?;
    bed.expect_registration();
    bed.node.restart().await?;
    bed.registered().await?;
    bed.sees(expect![[r#"
        csi    Unpublish data web
        umount <publish:data/web>
        csi    Unstage data
    "#]])
        .await
}

/// A node can be killed while a caller waits for a pod of it; the caller then gets an error.
async fn wait_for_a_mount_ends_with_a_killed_node(bed: &Bed) -> Result<()> {
    let gate = bed.proxy().hold("NodeStageVolume");
    bed.volume("data").await?;
    bed.add(&PodSketch::of("web").mount("data"))?;
    gate.reached().await;
    let (waited, ()) = tokio::join!(bed.node.wait_mounted("web", LIMIT), bed.node.kill());
    anyhow::ensure!(matches!(waited, Err(NodeError::Exited { .. })), "{waited:?}");
    gate.open();
    bed.node.restart().await?;
    bed.stop("web").await
}

async fn a_driver_that_dies_in_a_publish_is_asked_again(bed: &Bed) -> Result<()> {
    bed.proxy().inject(Rule { delay_ms: 300, ..Rule::of("NodePublishVolume").times(1) });
    bed.volume("data").await?;
    bed.add(&PodSketch::of("web").mount("data"))?;
    anyhow::ensure!(bed.journal.wait_rpc("NodePublishVolume", Edge::Start, 1, LIMIT).await);
    bed.kill_driver().await;
    anyhow::ensure!(bed.journal.wait_rpc("NodePublishVolume", Edge::End, 1, LIMIT).await);
    anyhow::ensure!(bed.order(&["NodePublishVolume"]).is_empty());
    bed.start_driver_unannounced().await?;
    bed.node.wait_idle(LIMIT).await?;
    bed.node.advance(Duration::from_secs(200)).await?;
    bed.node.wait_mounted("web", LIMIT).await?;
    anyhow::ensure!(bed.order(&["NodePublishVolume"]).len() == 1);
    bed.stop("web").await
}

async fn a_lost_answer_is_asked_for_again(bed: &Bed) -> Result<()> {
    bed.proxy().inject(Rule::of("NodePublishVolume").code("Unavailable").forward().times(1));
    bed.volume("data").await?;
    bed.start(&PodSketch::of("web").mount("data")).await?;
    bed.sees(expect![[r#"
        csi    Stage data
        csi    Publish data web    UNAVAILABLE "injected"
        mount  <publish:data/web>
        csi    Publish data web
    "#]])
        .await?;
    bed.stop("web").await
}

async fn a_node_waits_until_its_volume_is_unstaged(bed: &Bed) -> Result<()> {
    bed.volume("data").await?;
    bed.start(&PodSketch::of("web").mount("data")).await?;
    bed.proxy().inject(Rule::of("NodeUnstageVolume").code("Unavailable").times(1));
    bed.stop("web").await?;
    let failed = bed.journal.wait_rpc("NodeUnstageVolume", Edge::End, 1, LIMIT).await;
    anyhow::ensure!(failed, "the volume is not unstaged");
    bed.node.wait_idle(LIMIT).await?;
    let early = bed.node.wait_unstaged(Duration::ZERO).await.map_err(|error| error.to_string());
    anyhow::ensure!(early.as_ref().is_err_and(|early| early.contains("still staged: `")), "{early:?}");
    bed.node.wait_unstaged(LIMIT).await?;
    let again = bed.journal.wait_rpc("NodeUnstageVolume", Edge::End, 2, Duration::ZERO).await;
    anyhow::ensure!(again, "the volume is still staged");
    Ok(())
}

async fn an_attachment_lives_as_long_as_the_volume_is_in_use(bed: &Bed) -> Result<()> {
    bed.attach_required()?;
    bed.volume("data").await?;
    bed.start(&PodSketch::of("web").mount("data")).await?;
    anyhow::ensure!(bed.attachments() == ["attached"], "{:?}", bed.attachments());
    bed.stop("web").await?;
    anyhow::ensure!(bed.journal.wait_rpc("ControllerUnpublishVolume", Edge::End, 1, LIMIT).await);
    let order = bed.order(&[
        "ControllerPublishVolume",
        "NodeStageVolume",
        "NodeUnstageVolume",
        "ControllerUnpublishVolume",
    ]);
    anyhow::ensure!(
        order
            == [
                "ControllerPublishVolume",
                "NodeStageVolume",
                "NodeUnstageVolume",
                "ControllerUnpublishVolume"
            ],
        "{order:?}"
    );
    Ok(())
}
