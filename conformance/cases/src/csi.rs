//! Volumes of a CSI driver.

mod block;
mod calls;
mod capacity;
mod claims;
mod copies;
mod crashes;
mod data;
mod device;
mod fields;
mod flags;
mod group;
mod groups;
mod growth;
mod identity;
mod inline;
mod kinds;
mod lifecycle;
mod limits;
mod lists;
mod load;
mod modify;
mod mounts;
mod names;
mod nodes;
mod order;
mod paths;
mod process;
mod publish;
mod races;
mod reboot;
mod recovery;
mod secrets;
mod sharing;
mod siblings;
mod snapshots;
mod staging;
mod stats;
mod topology;

use crate::prelude::*;

/// Writes a pattern to a volume as a pod would, and unpublishes, unstages and detaches the volume again.
async fn used_and_detached(cx: &Cx, volume: &Volume, pattern: &str) -> Result<NodeCalls> {
    let node = cx.node_calls(volume).await?;
    node.set_up("web").await?;
    node.writes(&node.target("web"), pattern).await?;
    node.tear_down("web").await?;
    node.detach().await?;
    Ok(node)
}
