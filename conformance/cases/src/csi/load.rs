//! Many volumes come and go together, many times, and no resource of driver or node grows with them.

use crate::prelude::*;

/// The number of volumes at once.
const VOLUMES: usize = 10;

/// That of a thorough run.
const MANY_VOLUMES: usize = 50;

/// The number of volumes that suffices where there is no room for more.
const ENOUGH: usize = 2;

/// Rounds before the first count: in these a driver makes the resources that it keeps for all volumes.
const WARM_UP: usize = 4;

/// Rounds between the two counts.
const CYCLES: usize = 20;

/// Those of a thorough run.
const MANY_CYCLES: usize = 200;

/// The times that a call is made which others at the same time may disturb: "target is busy".
const TRIES: usize = 3;

/// The bytes by which the memory of a driver may grow: the runtime of its language may keep some.
const MEMORY: u64 = 32 << 20;

/// Ten volumes, or as many as the node may have and the driver has room for, are set up and torn down together twenty
/// times, and leave nothing: no descriptor, thread, process, memory, mount, loop device or file. With `--thorough` there
/// are fifty volumes and two hundred rounds.
///
/// Kubernetes: a node plugin runs as long as the node, and serves all pods that come.
#[case(needs = [Filesystem, Creates, Root, OwnProcess, TwoVolumes], judges = ["DRV-093"])]
async fn volumes_that_come_and_go_leave_nothing(cx: &mut Cx) -> Result {
    let mut volumes = Vec::new();
    let (wanted, cycles) = match cx.is_thorough() {
        true => (MANY_VOLUMES, MANY_CYCLES),
        false => (VOLUMES, CYCLES),
    };
    let count = match cx.most_volumes() {
        0 => wanted,
        most => most.min(wanted),
    };
    for number in 0..count {
        let made = cx.volume(&format!("data-{number}")).create_if_supported().await?;
        match made {
            Ok(volume) => volumes.push(cx.node_calls(&volume).await?),
            Err(code) => {
                // CSI has no code of its own for a place that is full.
                let is_full = matches!(code.as_str(), "ResourceExhausted" | "OutOfRange");
                let is_full = is_full && volumes.len() >= ENOUGH;
                cx.finds(is_full, &format!("CreateVolume of volume {number} answers {code}."))?;
                break;
            }
        }
    }
    let count = volumes.len();
    type MakeCall = fn(&NodeCalls) -> Call;
    let calls: [MakeCall; 4] = [
        |node| Box::pin(node.stage()),
        |node| Box::pin(node.publish("web")),
        |node| Box::pin(node.unpublish("web")),
        |node| Box::pin(node.unstage()),
    ];
    let mut before = cx.driver_load()?;
    for cycle in 0..WARM_UP + cycles {
        if cycle == WARM_UP {
            before = cx.driver_load()?;
        }
        for call in calls {
            let answers = cx.at_once(volumes.iter().map(call).collect()).await?;
            for (volume, mut answer) in volumes.iter().zip(answers) {
                for _ in 1..TRIES {
                    if answer.is_ok() {
                        break;
                    }
                    answer = call(volume).await?;
                }
                answer.succeeds()?;
            }
        }
    }
    let after = cx.driver_load()?;
    for (resource, before, after, allowed) in after.beside(&before, cycles as u64, MEMORY) {
        let cause = format!(
            "{resource}: {before} before and {after} after {cycles} rounds of setup and teardown of {count} volumes."
        );
        cx.keeps("DRV-132", "NodePublishVolume", after < before + allowed, &cause)?;
    }
    Ok(())
}

/// The number of pods that come and go.
const PODS: usize = 50;

/// That of a thorough run.
const MANY_PODS: usize = 500;

/// The number of volumes that pods hand on to each other.
const HANDED_ON: usize = 5;

/// Pods come and go, five at once, and each finds in its volume what the pod before it has written.
///
/// Kubernetes: a pod that is deleted lets its volumes go to the next one.
#[case(needs = [Filesystem, Creates, Root, Persistent, TwoVolumes], judges = ["DRV-160"])]
async fn pods_that_come_and_go_hand_on_their_volumes(cx: &mut Cx) -> Result {
    let count = if cx.is_thorough() { MANY_PODS } else { PODS };
    let volumes = some_volumes(cx, HANDED_ON).await?;
    for round in 0..count / HANDED_ON {
        let pods = pods_on(&volumes, round, |name| cx.pod(name)).await?;
        each_finds_the_last_words(cx, &pods, round).await?;
        for pod in &pods {
            pod.remove().await?;
        }
    }
    cx.forget().await
}

/// The number of times that all volumes move to the other node.
const MOVES: usize = 4;

/// That of a thorough run.
const MANY_MOVES: usize = 40;

/// Volumes move between two nodes, all at once and again and again: a pod is deleted on one node and made on the other
/// at the same time, waits until its volume is attached there, and finds what was written before.
///
/// Kubernetes: pods of a node that is drained are made anew on others before their volumes are detached.
#[case(needs = [Filesystem, Creates, Root, Persistent, TwoVolumes, TwoNodes], judges = ["DRV-160"])]
async fn volumes_move_between_nodes_at_once(cx: &mut Cx) -> Result {
    let other = cx.other_node().await?;
    let moves = if cx.is_thorough() { MANY_MOVES } else { MOVES };
    let volumes = some_volumes(cx, HANDED_ON).await?;
    let mut before: Vec<Pod> = Vec::new();
    for round in 0..=moves {
        for pod in &before {
            pod.remove().await?;
        }
        let on_the_other = !round.is_multiple_of(2);
        let pods = pods_on(&volumes, round, |name| if on_the_other { other.pod(name) } else { cx.pod(name) });
        before = pods.await?;
        each_finds_the_last_words(cx, &before, round).await?;
    }
    for pod in &before {
        pod.stop().await?;
    }
    cx.forget().await
}

/// Volumes for pods, as many as the node may have.
async fn some_volumes(cx: &Cx, most: usize) -> Result<Vec<Volume>> {
    let count = match cx.most_volumes() {
        0 => most,
        limit => limit.min(most),
    };
    let mut volumes = Vec::new();
    for number in 0..count {
        volumes.push(cx.volume(&format!("data-{number}")).create().await?);
    }
    Ok(volumes)
}

/// A pod for each volume, all of them at once.
async fn pods_on(volumes: &[Volume], round: usize, pod: impl Fn(&str) -> PodBuilder) -> Result<Vec<Pod>> {
    let mut pods = Vec::new();
    for (number, volume) in volumes.iter().enumerate() {
        pods.push(pod(&format!("web-{number}-{round}")).volume(volume, "/data").add().await?);
    }
    Ok(pods)
}

/// Each pod finds what the one of the round before has written, and writes something of its own.
async fn each_finds_the_last_words(cx: &Cx, pods: &[Pod], round: usize) -> Result {
    for (number, pod) in pods.iter().enumerate() {
        pod.runs().await?;
        if let Some(last) = round.checked_sub(1) {
            let is_kept = pod.holds("/data/words", &format!("{number} of {last}")).await?;
            let cause = "What a pod has written is not there for the next pod with its volume.";
            cx.keeps("DRV-160", "NodeUnstageVolume", is_kept, cause)?;
        }
        pod.writes("/data/words", &format!("{number} of {round}")).await?;
    }
    Ok(())
}
