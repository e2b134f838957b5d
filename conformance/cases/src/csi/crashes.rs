//! Crash points: each edge of the life of a pod's volume, at which the driver, the node, both or the machine dies.

use crate::prelude::*;

/// The number of changes to files between two crashes.
const STEPS: usize = 20;

/// The driver, the node, both or the machine dies at an edge of a volume's life: the pod gets its volume with all its
/// files, or the volume is torn down, and nothing is left in the end. A run tries every n-th edge, and `--thorough` tries all.
///
/// CSI, 'Timeouts': the CO may repeat a call of which it does not know how it ended.
#[case(
    needs = [Filesystem, Root, OwnProcess, Persistent],
    each = [Driver, Node, Both, Machine],
    judges = ["DRV-070", "DRV-160"],
)]
async fn volume_lives_through_a_death_at_any_edge(cx: &mut Cx, victim: Victim) -> Result {
    let data = cx.volume("data").create().await?;
    let files = cx.files("data");
    let beginning = cx.beginning();
    let healthy = cx.pod("healthy").volume(&data, "/data").start().await?;
    let set_up = cx.edges_since(beginning);
    files.change(&healthy.path("/data")?, STEPS).await?;
    let torn_down = cx.beginning();
    healthy.stop().await?;
    cx.forget().await?;
    let edges = set_up + cx.edges_since(torn_down);

    let points = cx.crash_points(victim, edges);
    for point in points.iter().copied() {
        let pod = cx.pod(&format!("web-{point}")).volume(&data, "/data");
        let happened = format!("a death at edge {point} of {edges}");
        let beginning = cx.beginning();
        if point < set_up {
            let web = pod.add().await?;
            cx.dies_at(victim, beginning, point).await?;
            web.runs().await?;
            files.are_kept(&web.path("/data")?, "NodePublishVolume", &happened).await?;
            files.change(&web.path("/data")?, STEPS).await?;
            web.stop().await?;
        } else {
            let web = pod.start().await?;
            files.change(&web.path("/data")?, STEPS).await?;
            let beginning = cx.beginning();
            web.remove().await?;
            cx.dies_at(victim, beginning, point - set_up).await?;
        }
        cx.forget().await?;
    }
    cx.tries("crash points", points.len(), edges);
    let last = cx.pod("last").volume(&data, "/data").start().await?;
    files.are_kept(&last.path("/data")?, "NodeUnstageVolume", "all these deaths").await?;
    last.stop().await
}
