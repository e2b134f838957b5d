//! The objects of a cluster about a node and a driver, before there are pods.

use api::storage::LifecycleMode;
use api::{ApiError, CsiDriver, CsiNode, Meta, Node};

use super::ApiServer;
use crate::driver::Capabilities;

impl ApiServer {
    /// Makes the objects of a node that is well, and of the drivers it has: none yet.
    ///
    /// # Errors
    /// When there is one of that name.
    pub fn add_node(&self, name: &str) -> Result<(), ApiError> {
        let mut meta = Meta::named("", name);
        meta.labels.insert("kubernetes.io/hostname".to_owned(), name.to_owned());
        let managed = "volumes.kubernetes.io/controller-managed-attach-detach";
        meta.annotations.insert(managed.to_owned(), "true".to_owned());
        self.create(Node { meta, ready: true, ..Node::default() })?;
        self.create(CsiNode { meta: Meta::named("", name), ..CsiNode::default() })?;
        Ok(())
    }

    /// Makes the object of a driver, which the caller may have changed.
    ///
    /// # Errors
    /// When there is one of that name.
    pub fn add_driver(&self, driver: CsiDriver) -> Result<(), ApiError> {
        self.create(driver).map(drop)
    }
}

/// The object a driver's author would install: it attaches if its controller publishes.
pub fn driver_object(capabilities: &Capabilities) -> CsiDriver {
    CsiDriver {
        meta: Meta::named("", &capabilities.name),
        attach_required: capabilities.controller_can("PUBLISH_UNPUBLISH_VOLUME"),
        lifecycle_modes: vec![LifecycleMode::Persistent, LifecycleMode::Ephemeral],
        ..CsiDriver::default()
    }
}
