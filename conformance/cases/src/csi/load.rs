//! Many volumes come and go together, many times, and no resource of driver or node grows with them.

use super::STAGE_TO_UNSTAGE;
use crate::prelude::*;

/// The number of volumes that are set up at once.
const VOLUMES: usize = 10;

/// The number of volumes that a thorough run sets up at once.
const MANY_VOLUMES: usize = 50;

/// The number of volumes that suffices where there is no room for more.
const ENOUGH: usize = 2;

/// Rounds before the first count: in these a driver makes the resources that it keeps for all volumes.
const WARM_UP: usize = 4;

/// Rounds between the two counts.
const ROUNDS: usize = 20;

/// Rounds of a thorough run between the two counts.
const MANY_ROUNDS: usize = 200;

/// The bytes by which the memory of a driver may grow: the runtime of its language may keep some.
const MEMORY: u64 = 32 << 20;

/// Ten volumes, or as many as the node may have and the driver has room for, are set up and torn down together twenty
/// times, and leave nothing: no descriptor, thread, process, memory, mount, loop device or file. With `--thorough` there
/// are fifty volumes and two hundred rounds.
///
/// Kubernetes: a node plugin runs as long as the node, and serves all pods that come.
#[case(needs = [Filesystem, Creates, Root, OwnProcess, TwoVolumes], judges = ["DRV-093"])]
async fn volumes_that_come_and_go_leave_nothing(cx: &mut Cx) -> Result {
    let (most, rounds) = match cx.is_thorough() {
        true => (MANY_VOLUMES, MANY_ROUNDS),
        false => (VOLUMES, ROUNDS),
    };
    let mut volumes = Vec::new();
    for volume in volumes_with_room(cx, most).await? {
        volumes.push(cx.node_calls(&volume).await?);
    }
    for _ in 0..WARM_UP {
        set_up_and_tear_down(cx, &volumes).await?;
    }
    let load_before = cx.driver_load()?;
    for _ in 0..rounds {
        set_up_and_tear_down(cx, &volumes).await?;
    }
    let (load_after, count) = (cx.driver_load()?, volumes.len());
    for (resource, before, after, allowed) in load_after.beside(&load_before, rounds as u64, MEMORY) {
        let cause = format!(
            "{resource}: {before} before and {after} after {rounds} rounds of setup and teardown of {count} volumes."
        );
        cx.keeps("DRV-132", "NodePublishVolume", after < before + allowed, &cause)?;
    }
    Ok(())
}

/// Stages, publishes, unpublishes and unstages all volumes, each step for all at once. A call that the others disturb is
/// made again.
async fn set_up_and_tear_down(cx: &Cx, volumes: &[NodeCalls]) -> Result {
    for call in STAGE_TO_UNSTAGE {
        let answers = cx.at_once(volumes.iter().map(call).collect()).await?;
        for (volume, answer) in volumes.iter().zip(answers) {
            match answer.is_ok() {
                true => {}
                false => cx.until_ok(|| call(volume)).await?.succeeds()?,
            }
        }
    }
    Ok(())
}

/// The number of pods that come and go.
const PODS: usize = 50;

/// The number of pods that come and go in a thorough run.
const MANY_PODS: usize = 500;

/// The number of volumes that one pod after the other uses.
const SHARED_VOLUMES: usize = 5;

/// Pods come and go, five at once, and each finds in its volume what the pod before it has written.
///
/// Kubernetes: a pod that is deleted leaves its volumes to the next one.
#[case(needs = [Filesystem, Creates, Root, Persistent, TwoVolumes], judges = ["DRV-160"])]
async fn pods_that_come_and_go_find_previous_writes(cx: &mut Cx) -> Result {
    let count = if cx.is_thorough() { MANY_PODS } else { PODS };
    let volumes = volumes_with_room(cx, SHARED_VOLUMES).await?;
    for round in 0..count / SHARED_VOLUMES {
        let pods = add_pods(&volumes, round, |name| cx.pod(name)).await?;
        pods_find_previous_writes(cx, &pods, round).await?;
        for pod in &pods {
            pod.remove().await?;
        }
    }
    cx.forget().await
}

/// The number of times that all volumes move to the other node.
const MOVES: usize = 4;

/// The number of moves in a thorough run.
const MANY_MOVES: usize = 40;

/// Volumes move between two nodes, all at once and again and again: a pod is deleted on one node and made on the other
/// at the same time, waits until its volume is attached there, and finds what was written before.
///
/// Kubernetes: pods of a node that is drained are made anew on others before their volumes are detached.
#[case(needs = [Filesystem, Creates, Root, Persistent, TwoVolumes, TwoNodes, Attaches], judges = ["DRV-160"])]
async fn volumes_move_between_nodes_at_once(cx: &mut Cx) -> Result {
    let other = cx.other_node().await?;
    let moves = if cx.is_thorough() { MANY_MOVES } else { MOVES };
    let volumes = volumes_with_room(cx, SHARED_VOLUMES).await?;
    let mut pods: Vec<Pod> = Vec::new();
    for round in 0..=moves {
        for pod in &pods {
            pod.remove().await?;
        }
        let on_the_other = !round.is_multiple_of(2);
        let added =
            add_pods(&volumes, round, |name| if on_the_other { other.pod(name) } else { cx.pod(name) });
        pods = added.await?;
        pods_find_previous_writes(cx, &pods, round).await?;
    }
    for pod in &pods {
        pod.stop().await?;
    }
    cx.forget().await
}

/// Makes the wanted number of volumes, or as many as the node may have and the driver has room for.
async fn volumes_with_room(cx: &Cx, wanted: usize) -> Result<Vec<Volume>> {
    let count = match cx.most_volumes() {
        // The node reports no limit.
        0 => wanted,
        limit => limit.min(wanted),
    };
    let mut volumes = Vec::new();
    for number in 0..count {
        match cx.volume(&format!("data-{number}")).create_if_supported().await? {
            Ok(volume) => volumes.push(volume),
            Err(code) => {
                // CSI has no code of its own for storage that is full.
                let is_full = matches!(code.as_str(), "ResourceExhausted" | "OutOfRange");
                let suffices = is_full && volumes.len() >= ENOUGH;
                cx.finds(suffices, &format!("CreateVolume of volume {number} answers {code}."))?;
                break;
            }
        }
    }
    Ok(volumes)
}

/// Adds a pod for each volume, and waits for none of them.
async fn add_pods(volumes: &[Volume], round: usize, pod: impl Fn(&str) -> PodBuilder) -> Result<Vec<Pod>> {
    let mut pods = Vec::new();
    for (number, volume) in volumes.iter().enumerate() {
        pods.push(pod(&format!("web-{number}-{round}")).volume(volume, "/data").add().await?);
    }
    Ok(pods)
}

/// Each pod finds what the pod of the round before has written to its volume, and writes something of its own.
async fn pods_find_previous_writes(cx: &Cx, pods: &[Pod], round: usize) -> Result {
    for (number, pod) in pods.iter().enumerate() {
        pod.runs().await?;
        if let Some(last) = round.checked_sub(1) {
            let is_kept = pod.holds("/data/round", &format!("{number} in round {last}")).await?;
            let cause = "A pod does not find what the pod before it has written to their volume.";
            cx.keeps("DRV-160", "NodeUnstageVolume", is_kept, cause)?;
        }
        pod.writes("/data/round", &format!("{number} in round {round}")).await?;
    }
    Ok(())
}
