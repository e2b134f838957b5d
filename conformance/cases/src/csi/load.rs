//! Many volumes come and go together, many times, and no resource of driver or node grows with them.

use crate::prelude::*;

/// The number of volumes at once.
const VOLUMES: usize = 10;

/// The number of volumes that suffices where there is no room for more.
const ENOUGH: usize = 2;

/// Rounds before the first count: in these a driver makes the resources that it keeps for all volumes.
const WARM_UP: usize = 4;

/// Rounds between the two counts.
const CYCLES: usize = 20;

/// The bytes by which the memory of a driver may grow: the runtime of its language may keep some.
const MEMORY: u64 = 32 << 20;

/// Ten volumes, or as many as the node may have and the driver has room for, are set up and torn down together twenty
/// times, and leave nothing: no descriptor, thread, process, memory, mount, loop device or file.
///
/// Kubernetes: a node plugin runs as long as the node, and serves all pods that come.
#[case(needs = [Filesystem, Creates, Root, OwnProcess, TwoVolumes], judges = ["DRV-093"])]
async fn volumes_that_come_and_go_leave_nothing(cx: &mut Cx) -> Result {
    let mut volumes = Vec::new();
    let count = match cx.most_volumes() {
        0 => VOLUMES,
        most => most.min(VOLUMES),
    };
    for number in 0..count {
        let made = cx.volume(&format!("data-{number}")).create_if_supported().await?;
        match made {
            Ok(volume) => volumes.push(cx.node_calls(&volume).await?),
            Err(code) => {
                let is_full = code == "ResourceExhausted" && volumes.len() >= ENOUGH;
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
    for cycle in 0..WARM_UP + CYCLES {
        if cycle == WARM_UP {
            before = cx.driver_load()?;
        }
        for call in calls {
            for answer in cx.at_once(volumes.iter().map(call).collect()).await? {
                answer.succeeds()?;
            }
        }
    }
    let after = cx.driver_load()?;
    for (resource, before, after, allowed) in after.beside(&before, CYCLES as u64, MEMORY) {
        let cause = format!(
            "{resource}: {before} before and {after} after {CYCLES} rounds of setup and teardown of {count} volumes."
        );
        cx.keeps("DRV-132", "NodePublishVolume", after < before + allowed, &cause)?;
    }
    Ok(())
}
