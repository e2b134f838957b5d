//! The controllers around a node, for one driver: they write objects of the API, and call the driver through the
//! proxy, so that their calls are in the trace.

mod attaching;
mod growth;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use api::ApiSource;
use api::clock::Clock;
use cluster::{Protection, Resizer, ResizerConfig};
use contracts::event::Client;
use tonic::transport::Channel;

use crate::api_server::ApiServer;
use crate::driver::Capabilities;

pub use attaching::Attaching;
pub use growth::GrowError;
pub use volumes::Volumes;

/// The pause after a first failure. A cluster's controllers begin with a second, which helps no one here.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The controllers that every testbed has. Dropping them ends them.
#[derive(Debug)]
pub struct Controllers {
    _protection: Protection,
    _resizer: Resizer,
}

impl Controllers {
    /// Starts the controllers of a driver, whose calls go through `channel`.
    pub fn start(
        api: &ApiServer,
        clock: Arc<dyn Clock>,
        channel: Channel,
        capabilities: &Capabilities,
    ) -> Self {
        let source: Arc<dyn ApiSource> = api.seen_by(Client::Controller);
        let config = ResizerConfig {
            expands: capabilities.controller_can("EXPAND_VOLUME"),
            fine_modes: capabilities.controller_can("SINGLE_NODE_MULTI_WRITER"),
            first_pause: FIRST_PAUSE,
            ..ResizerConfig::new(capabilities.name.clone())
        };
        Self {
            _protection: Protection::start(Arc::clone(&source), Arc::clone(&clock)),
            _resizer: Resizer::start(config, source, clock, Arc::new(channel)),
        }
    }
}

#[cfg(test)]
mod tests;
