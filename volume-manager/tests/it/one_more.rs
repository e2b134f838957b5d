//! The cost of another pod does not depend on the number of the node's volumes. The cost is counted, since no test may
//! measure time.

#[path = "../../benches/manager/driver.rs"]
mod driver;
#[expect(dead_code, reason = "only the number of allocations is compared here, not their size")]
#[path = "../../benches/manager/memory.rs"]
pub(crate) mod memory;
#[expect(dead_code, reason = "nothing is restarted here")]
#[path = "../../benches/manager/node.rs"]
mod node;

use node::Node;

/// The cost of a pod that comes and goes.
#[derive(Debug)]
struct Cost {
    /// The number of volumes that were planned.
    planned: u64,
    /// The number of allocations. Code that copies, sorts or reads all volumes allocates often.
    allocations: u64,
}

async fn planned(node: &Node) -> u64 {
    node.manager.dump().await.expect("it runs").counters["volumes_planned"]
}

/// The cost of another pod on a node with a number of volumes. The cheapest of several counts, because collections
/// grow now and then.
async fn cost_of_another_pod(volumes: usize) -> Cost {
    let node = Node::start().await;
    node.provide(0..volumes);
    node.come(0..volumes).await;
    let mut cost = Cost { planned: u64::MAX, allocations: u64::MAX };
    for round in 0..5 {
        let planned_before = planned(&node).await;
        let before = memory::asked();
        node.pod_life(volumes + round).await;
        cost.allocations = cost.allocations.min(memory::asked() - before);
        cost.planned = cost.planned.min(planned(&node).await - planned_before);
    }
    cost
}

#[tokio::test(start_paused = true)]
async fn cost_of_a_pod_does_not_grow_with_the_number_of_volumes() {
    let (few, many) = (cost_of_another_pod(100).await, cost_of_another_pod(2_000).await);
    assert_eq!(few.planned, many.planned, "volumes that nothing has happened to are looked at");
    assert!(many.allocations <= few.allocations + few.allocations / 10, "{few:?}, {many:?}");
}
