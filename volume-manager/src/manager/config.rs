//! What a manager is given to work with.

use std::sync::Arc;

use api::ApiSource;
use api::clock::Clock;
use host::Host;
use host::exec::Containers;
use plugin_api::Dialer;
use plugin_api::registry::Registry;

/// What a manager is given to work with.
#[derive(Debug, Clone)]
pub struct Parts {
    pub api: Arc<dyn ApiSource>,
    /// The node.
    pub host: Arc<dyn Host>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Connections to drivers.
    pub dialer: Arc<dyn Dialer>,
    /// The kinds of volumes.
    pub registry: Registry,
    /// Who can run the mounts of a plugin in a container, where one is registered for it; nobody where no such
    /// file is to be looked for.
    pub containers: Option<Arc<dyn Containers>>,
}
