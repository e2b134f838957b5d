//! The newest facts about API objects and drivers for the operations, and the claims whose volumes the node has to
//! expand.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use api::names::{DriverName, Namespaced};
use api::{Bytes, Claim, Key, Kind, Resource};
use plugin_api::{Facts, RegisteredDriver};
use tokio::sync::watch as latest;

use crate::operation::NODE_RESIZE_PENDING;

#[derive(Debug)]
pub(super) struct Known {
    facts: latest::Sender<Arc<Facts>>,
    /// Claims in `NodeResizePending`, with the size allocated to them.
    resize_pending: BTreeMap<Namespaced, Option<Bytes>>,
    registrations: u64,
}

impl Known {
    pub(super) fn new(facts: Facts) -> Self {
        let facts = latest::Sender::new(Arc::new(facts));
        Self { facts, resize_pending: BTreeMap::new(), registrations: 0 }
    }

    pub(super) fn facts(&self) -> Arc<Facts> {
        Arc::clone(&self.facts.borrow())
    }

    /// A receiver of the facts and of each change.
    pub(super) fn subscribe(&self) -> latest::Receiver<Arc<Facts>> {
        self.facts.subscribe()
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Facts) -> T) -> T {
        let mut result = None;
        self.facts.send_modify(|facts| result = Some(change(Arc::make_mut(facts))));
        result.expect("it was set a line above")
    }

    /// Records a driver that has registered. One that is known already counts as a new instance.
    pub(super) fn register(&mut self, driver: DriverName, endpoint: PathBuf) {
        self.registrations += 1;
        let instance = self.registrations;
        self.change(|facts| facts.registered.insert(driver, RegisteredDriver { endpoint, instance }));
    }

    /// Records a claim's resize status. Returns whether it has newly become `NodeResizePending`, or for another size. A
    /// repeated status is not new, and the statuses that the node writes while it expands are others: a failed
    /// expansion must not end its own back-off.
    pub(super) fn becomes_resize_pending(&mut self, claim: &Claim) -> bool {
        let name = claim.key().namespaced_name();
        if claim.status.resize != NODE_RESIZE_PENDING {
            self.resize_pending.remove(&name);
            return false;
        }
        let size = claim.status.allocated;
        self.resize_pending.insert(name, size) != Some(size)
    }

    pub(super) fn claim_deleted(&mut self, claim: &Namespaced) {
        self.resize_pending.remove(claim);
    }

    /// Forgets the claims that are not in a complete list.
    pub(super) fn claims_listed(&mut self, listed: &BTreeSet<Key>) {
        self.resize_pending
            .retain(|claim, _| listed.contains(&Key::namespaced(Kind::Claim, &claim.namespace, &claim.name)));
    }
}
