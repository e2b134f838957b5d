//! The registration of the driver: its entry in the node's CSINode object.

use api::{CsiNode, CsiNodeDriver, Resource};

use super::{Bed, Result, StepError};

impl Bed {
    /// Removes the registration socket, and waits until the node has removed the driver's entry.
    pub(crate) async fn unregister_driver(&self) -> Result {
        self.withdraw();
        self.entry("The node still lists the driver.", |entry| entry.is_none().then_some(())).await
    }

    /// Waits until the driver's entry has a limit of volumes.
    pub(crate) async fn volume_limit(&self) -> Result<i32> {
        self.entry("The node's object has no limit of the driver's volumes.", |entry| entry?.allocatable)
            .await
    }

    /// Removes the limit from the driver's entry.
    pub(crate) fn remove_volume_limit(&self) -> Result {
        let name = self.driver_name().to_owned();
        let changed = self.api_server.change("", self.node.name(), |node: &mut CsiNode| {
            node.drivers
                .iter_mut()
                .filter(|entry| entry.name == name)
                .for_each(|entry| entry.allocatable = None);
        });
        changed.map(drop).map_err(|error| StepError::ours(&error))
    }

    /// Waits until something can be said of the driver's entry.
    async fn entry<T>(
        &self,
        otherwise: &str,
        said: impl Fn(Option<&CsiNodeDriver>) -> Option<T>,
    ) -> Result<T> {
        let waiting = self.api_server.wait_for(&[CsiNode::KIND], || {
            let node = self.api_server.get::<CsiNode>("", self.node.name());
            let mut drivers = node.iter().flat_map(|node| &node.drivers);
            said(drivers.find(|entry| entry.name == self.driver_name()))
        });
        let late = |_| StepError::Broken(vec![otherwise.to_owned()]);
        tokio::time::timeout(self.limit, waiting).await.map_err(late)
    }
}
