//! The cost of another attachment does not depend on how many there are. The cost is counted, since no test may measure
//! time.

use super::*;
use crate::one_more::memory::asked;

/// How many volumes a node has.
const ON_A_NODE: usize = 10;

/// The number of allocations for a volume that is attached to a node and detached again, among others. Code that copies,
/// sorts or reads all attachments allocates often. The cheapest of several counts, because collections grow now and then.
async fn cost_of_another_attachment(others: usize) -> u64 {
    let control = Control::new().await;
    for number in 0..others {
        let on = format!("node-{}", number / ON_A_NODE);
        if number.is_multiple_of(ON_A_NODE) {
            control.api.put(Object::Node(Arc::new(node(&on))));
        }
        control.volume(&format!("v{number}"), AccessMode::ReadWriteOnce);
        let mut pod = pod(&format!("p{number}"), &[&format!("v{number}")]);
        pod.node = on;
        control.api.put(Object::Pod(Arc::new(pod)));
    }
    control.pass(1_000).await;
    assert_eq!(control.toy.story().lines().count(), others, "each is attached");
    let mut cost = u64::MAX;
    for round in 0..5 {
        let name = format!("another-{round}");
        let before = asked();
        control.volume(&name, AccessMode::ReadWriteOnce);
        control.run(&name, "one", &[&name]).await;
        control.end(&name).await;
        cost = cost.min(asked() - before);
        let seen = format!("attach {name} to one\ndetach {name} from one\n");
        assert_eq!(control.toy.story(), seen);
    }
    cost
}

#[tokio::test(start_paused = true)]
async fn cost_of_an_attachment_does_not_grow_with_their_number() {
    let (few, many) = (cost_of_another_attachment(100).await, cost_of_another_attachment(10_000).await);
    assert!(2 * many <= 3 * few, "{few} allocations among 100 attachments, and {many} among 10,000");
}
