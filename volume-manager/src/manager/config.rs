//! The parts that a manager works with.

use std::sync::Arc;

use api::ApiSource;
use api::clock::Clock;
use host::Host;
use host::exec::Containers;
use plugin_api::Dialer;
use plugin_api::registry::Registry;

/// The parts that a manager works with.
#[derive(Debug, Clone)]
pub struct Parts {
    pub api: Arc<dyn ApiSource>,
    /// The node's kernel and file systems.
    pub host: Arc<dyn Host>,
    pub clock: Arc<dyn Clock>,
    /// Connects to CSI drivers.
    pub dialer: Arc<dyn Dialer>,
    pub registry: Registry,
    /// Runs a plugin's mount tools in a container, for plugins that have one registered. `None` if no
    /// registration is looked for.
    pub containers: Option<Arc<dyn Containers>>,
}
