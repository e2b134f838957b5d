//! The whole stage on the real kernel: sandbox, fake-csi, proxy, cluster, node and journal, and what the
//! story says when things go well and when they do not.
//!
//! Each scene is a process of its own, because a sandbox is entered by a process with one thread.

#[path = "scenes/opinions.rs"]
mod opinions;
#[path = "scenes/run.rs"]
mod run;
#[path = "scenes/stage.rs"]
mod stage;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use expect_test::expect;
use harness::facts::{Fact, Facts};
use harness::journal::Edge;
use harness::ledger;
use harness::proxy::Rule;

use stage::{LIMIT, PodSketch, Stage};

type Scene = fn(&Path) -> Result<()>;

const SCENES: &[(&str, Scene)] = &[
    ("a_file_system_goes_in_and_out", |ledger| stage::play(ledger, a_file_system_goes_in_and_out)),
    ("a_block_volume_goes_in_and_out", |ledger| stage::play(ledger, a_block_volume_goes_in_and_out)),
    ("a_block_volume_goes_in_and_out_polled", |ledger| {
        stage::play_polled(ledger, a_block_volume_goes_in_and_out)
    }),
    ("a_killed_node_finds_what_it_left_polled", |ledger| {
        stage::play_polled(ledger, a_killed_node_finds_what_it_left)
    }),
    ("a_read_only_claim_is_read_only_polled", |ledger| {
        stage::play_polled(ledger, a_read_only_claim_is_read_only)
    }),
    ("two_pods_share_a_volume", |ledger| stage::play(ledger, two_pods_share_a_volume)),
    ("a_read_only_claim_is_read_only", |ledger| stage::play(ledger, a_read_only_claim_is_read_only)),
    ("a_failed_stage_is_tried_again_on_the_node_s_clock", |ledger| {
        stage::play(ledger, a_failed_stage_is_tried_again_on_the_node_s_clock)
    }),
    ("a_pod_that_goes_during_its_stage_is_not_published", |ledger| {
        stage::play(ledger, a_pod_that_goes_during_its_stage_is_not_published)
    }),
    ("a_killed_node_finds_what_it_left", |ledger| stage::play(ledger, a_killed_node_finds_what_it_left)),
    ("a_driver_that_dies_in_a_publish_is_asked_again", |ledger| {
        stage::play(ledger, a_driver_that_dies_in_a_publish_is_asked_again)
    }),
    ("runc_sees_what_our_own_container_sees", |ledger| {
        stage::play(ledger, runc_sees_what_our_own_container_sees)
    }),
    ("a_lost_answer_is_asked_for_again", |ledger| stage::play(ledger, a_lost_answer_is_asked_for_again)),
    ("an_attachment_lives_as_long_as_the_volume_is_in_use", |ledger| {
        stage::play(ledger, an_attachment_lives_as_long_as_the_volume_is_in_use)
    }),
];

fn main() -> ExitCode {
    if let Some(code) = harness::main() {
        return code;
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["__scene", name, ledger] => return one(name, Path::new(ledger)),
        ["__run", name, base] => return code(run::play(Path::new(base), name)),
        _ => {}
    }
    let names = || SCENES.iter().map(|(name, _)| *name).chain([KILLED]);
    if words.iter().any(|word| word == "--list") {
        names().for_each(|name| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    if !nix::unistd::geteuid().is_root() {
        println!("skipped {} scenes: loop devices need root", names().count());
        return ExitCode::SUCCESS;
    }
    let filters: Vec<&String> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let chosen =
        |name: &&str| filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()));
    let failed = names().filter(chosen).filter(|name| !succeeds(name)).count();
    println!("{failed} scenes failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn succeeds(name: &str) -> bool {
    let ended = match name {
        KILLED => killed().map(|()| true),
        _ => run::play(&ledger::base(), name),
    };
    let succeeds = code(ended) == ExitCode::SUCCESS;
    println!("scene {name} ... {}", if succeeds { "ok" } else { "FAILED" });
    succeeds
}

/// A run that is killed while a container of its own or of runc's is up.
const KILLED: &str = "a_killed_run_leaves_no_control_groups";

fn killed() -> Result<()> {
    let runc = Facts::get().why_not(Fact::Runc).is_none();
    run::killed_leaves_no_groups("runc_sees_what_our_own_container_sees", if runc { 2 } else { 0 })
}

fn one(name: &str, ledger: &Path) -> ExitCode {
    let Some((_, scene)) = SCENES.iter().find(|(known, _)| *known == name) else { return ExitCode::FAILURE };
    code(scene(ledger).map(|()| true))
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

async fn a_file_system_goes_in_and_out(stage: &mut Stage) -> Result<()> {
    stage.volume("data").await?;
    stage.start(&PodSketch::of("web").mount("data")).await?;
    stage
        .sees(expect![[r#"
        csi    Stage data
        csi    Publish data web
        mount  <publish:data/web>
    "#]])
        .await?;
    stage.stop("web").await?;
    stage
        .sees(expect![[r#"
        csi    Unpublish data web
        umount <publish:data/web>
        csi    Unstage data
    "#]])
        .await
}

/// The same configuration, carried out by us and by runc: the same mounts, devices, owners, user and groups.
async fn runc_sees_what_our_own_container_sees(stage: &mut Stage) -> Result<()> {
    if let Some(absence) = Facts::get().why_not(Fact::Runc) {
        println!("skipped: {absence}");
        return Ok(());
    }
    stage.volume("data").await?;
    stage.block_volume("disk").await?;
    let pod = PodSketch::of("web").mount("data").device("disk").read_only().memory("fast").group(2000);
    stage.start(&pod).await?;
    let spec = opinions::configuration(stage, "web").await?;
    let ours = opinions::ours(stage, &spec).await?;
    let theirs = opinions::of_runc(stage, &spec).await?;
    for seen in ["groups 2000", "/data/other: EROFS", "/dev/disk: EPERM", "/fast/new: done", "block  "] {
        anyhow::ensure!(ours.contains(seen), "{seen} is not among what was seen:\n{ours}");
    }
    anyhow::ensure!(ours == theirs, "ours:\n{ours}\nrunc:\n{theirs}");
    stage.stop("web").await?;
    stage.forget().await
}

async fn a_block_volume_goes_in_and_out(stage: &mut Stage) -> Result<()> {
    stage.block_volume("disk").await?;
    stage.start(&PodSketch::of("web").device("disk")).await?;
    stage
        .sees(expect![[r#"
        csi    Stage disk
        csi    Publish disk web
        bind   <publish:disk/web>  =  <device:disk>
        bind   <map:disk/web>      =  <device:disk>
        link   <web>/disk          ->  <publish:disk/web>
        lock   <map:disk/web>
    "#]])
        .await?;
    stage.stop("web").await?;
    stage
        .sees(expect![[r#"
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

async fn two_pods_share_a_volume(stage: &mut Stage) -> Result<()> {
    stage.shared_volume("data").await?;
    stage.start(&PodSketch::of("one").mount("data")).await?;
    stage.start(&PodSketch::of("two").mount("data")).await?;
    stage
        .sees(expect![[r#"
        csi    Stage data
        csi    Publish data one
        mount  <publish:data/one>
        csi    Publish data two
        mount  <publish:data/two>
    "#]])
        .await?;
    stage.stop("one").await?;
    stage.stop("two").await?;
    stage
        .sees(expect![[r#"
        csi    Unpublish data one
        umount <publish:data/one>
        csi    Unpublish data two
        umount <publish:data/two>
        csi    Unstage data
    "#]])
        .await
}

async fn a_read_only_claim_is_read_only(stage: &mut Stage) -> Result<()> {
    stage.volume("data").await?;
    stage.start(&PodSketch::of("web").mount("data").read_only()).await?;
    stage
        .sees(expect![[r#"
        csi    Stage data
        csi    Publish data web
        mount  <publish:data/web>  ro
    "#]])
        .await?;
    stage.stop("web").await
}

async fn a_failed_stage_is_tried_again_on_the_node_s_clock(stage: &mut Stage) -> Result<()> {
    stage.proxy.inject(Rule::of("NodeStageVolume").code("Internal").times(3));
    stage.volume("data").await?;
    stage.add(&PodSketch::of("web").mount("data"))?;
    for attempt in 1..=3 {
        anyhow::ensure!(stage.journal.wait_rpc("NodeStageVolume", Edge::End, attempt, LIMIT).await);
        // The failed operation ends a moment after its call; what it waits for is then known.
        stage.node.wait_idle(LIMIT).await?;
        stage.node.advance(Duration::from_secs(200)).await?;
    }
    stage.node.wait_mounted("web", LIMIT).await?;
    stage
        .sees(expect![[r#"
        csi    Stage data          INTERNAL "injected", 3 times
        csi    Stage data
        csi    Publish data web
        mount  <publish:data/web>
    "#]])
        .await?;
    stage.stop("web").await
}

async fn a_pod_that_goes_during_its_stage_is_not_published(stage: &mut Stage) -> Result<()> {
    let gate = stage.proxy.hold("NodeStageVolume");
    stage.volume("data").await?;
    stage.add(&PodSketch::of("web").mount("data"))?;
    gate.reached().await;
    stage.node.remove_pod("web", false).await?;
    gate.open();
    stage.node.wait_gone("web", LIMIT).await?;
    stage
        .sees(expect![[r#"
        csi    Stage data
        csi    Unstage data
    "#]])
        .await
}

async fn a_killed_node_finds_what_it_left(stage: &mut Stage) -> Result<()> {
    stage.volume("data").await?;
    stage.start(&PodSketch::of("web").mount("data")).await?;
    stage.forget().await?;
    stage.node.kill().await;
    stage.node.remove_pod("web", true).await?;
    stage.registrar.expect_again();
    stage.node.restart().await?;
    stage.registrar.registered().await.map_err(anyhow::Error::msg)?;
    stage
        .sees(expect![[r#"
        csi    Unpublish data web
        umount <publish:data/web>
        csi    Unstage data
    "#]])
        .await
}

async fn a_driver_that_dies_in_a_publish_is_asked_again(stage: &mut Stage) -> Result<()> {
    stage.proxy.inject(Rule { delay_ms: 300, ..Rule::of("NodePublishVolume").times(1) });
    stage.volume("data").await?;
    stage.add(&PodSketch::of("web").mount("data"))?;
    anyhow::ensure!(stage.journal.wait_rpc("NodePublishVolume", Edge::Start, 1, LIMIT).await);
    stage.driver.kill().await;
    anyhow::ensure!(stage.journal.wait_rpc("NodePublishVolume", Edge::End, 1, LIMIT).await);
    anyhow::ensure!(stage.order(&["NodePublishVolume"]).is_empty());
    stage.driver.restart().await?;
    stage.node.wait_idle(LIMIT).await?;
    stage.node.advance(Duration::from_secs(200)).await?;
    stage.node.wait_mounted("web", LIMIT).await?;
    anyhow::ensure!(stage.order(&["NodePublishVolume"]).len() == 1);
    stage.stop("web").await
}

async fn a_lost_answer_is_asked_for_again(stage: &mut Stage) -> Result<()> {
    stage.proxy.inject(Rule::of("NodePublishVolume").code("Unavailable").forward().times(1));
    stage.volume("data").await?;
    stage.start(&PodSketch::of("web").mount("data")).await?;
    stage
        .sees(expect![[r#"
        csi    Stage data
        csi    Publish data web    UNAVAILABLE "injected"
        mount  <publish:data/web>
        csi    Publish data web
    "#]])
        .await?;
    stage.stop("web").await
}

async fn an_attachment_lives_as_long_as_the_volume_is_in_use(stage: &mut Stage) -> Result<()> {
    stage.attach_required()?;
    stage.volume("data").await?;
    stage.start(&PodSketch::of("web").mount("data")).await?;
    anyhow::ensure!(stage.attachments() == ["attached"], "{:?}", stage.attachments());
    stage.stop("web").await?;
    anyhow::ensure!(stage.journal.wait_rpc("ControllerUnpublishVolume", Edge::End, 1, LIMIT).await);
    let order = stage.order(&[
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
