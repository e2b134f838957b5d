//! Crash points: the driver, the node, both or the machine is killed at an edge of a volume's life: the start or the end
//! of a call, a mount, or an effect of the node.

use crate::prelude::*;

/// The number of changes to files between two crashes.
const CHANGES: usize = 20;

/// After the driver, the node, both or the machine was killed at an edge of a volume's life, the pod gets its volume with
/// all its files, or the volume is torn down, and nothing is left in the end. A run tries every n-th edge, `--thorough` all.
///
/// CSI, 'Timeouts': the CO may repeat a call whose result it does not know.
#[case(
    needs = [Filesystem, Root, OwnProcess, Persistent],
    each = [Driver, Node, Both, Machine],
    judges = ["DRV-070", "DRV-160"],
)]
async fn volume_lives_through_a_death_at_any_edge(cx: &mut Cx, victim: Victim) -> Result {
    let data = cx.volume("data").create().await?;
    let files = cx.files("data");
    let setup_begins = cx.beginning();
    let healthy = cx.pod("healthy").volume(&data, "/data").start().await?;
    let setup_edges = cx.edges_since(setup_begins);
    files.change(&healthy.path("/data")?, CHANGES).await?;
    let teardown_begins = cx.beginning();
    healthy.stop().await?;
    cx.forget().await?;
    let edges = setup_edges + cx.edges_since(teardown_begins);

    let points = cx.crash_points(victim, edges);
    for point in points.iter().copied() {
        let pod = cx.pod(&format!("web-{point}")).volume(&data, "/data");
        let kill = format!("a kill at edge {point} of {edges}");
        let beginning = cx.beginning();
        if point < setup_edges {
            let web = pod.add().await?;
            cx.kills_at_edge(victim, beginning, point).await?;
            web.runs().await?;
            files.are_kept(&web.path("/data")?, "NodePublishVolume", &kill).await?;
            files.change(&web.path("/data")?, CHANGES).await?;
            web.stop().await?;
        } else {
            let web = pod.start().await?;
            files.change(&web.path("/data")?, CHANGES).await?;
            let beginning = cx.beginning();
            web.remove().await?;
            cx.kills_at_edge(victim, beginning, point - setup_edges).await?;
        }
        cx.forget().await?;
    }
    cx.tries("crash points", points.len(), edges);
    let last = cx.pod("last").volume(&data, "/data").start().await?;
    files.are_kept(&last.path("/data")?, "NodeUnstageVolume", "all these kills").await?;
    last.stop().await
}
