//! Configuration of a manager, and connections to drivers.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::names::NodeName;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::connection::Connection;

/// Configuration of a manager.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Config {
    pub node: NodeName,
    /// The kubelet's root directory, in canonical form.
    pub root: PathBuf,
    pub client_style: ClientStyle,
    /// The time limit of a CSI operation, including its capability probe.
    pub call_deadline: Duration,
    /// Whether the manager follows API objects. If so, nothing depends on a missing CSIDriver object before all
    /// of them have been listed; if not, there are none.
    pub watch_api: bool,
}

impl Config {
    /// The kubelet's defaults for a node and its root directory.
    pub fn new(node: impl Into<NodeName>, root: impl Into<PathBuf>) -> Self {
        Self {
            node: node.into(),
            root: root.into(),
            client_style: ClientStyle::Kubelet,
            call_deadline: Duration::from_secs(120),
            watch_api: true,
        }
    }
}

/// Whether the CSI client connects and asks for capabilities as often as the kubelet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientStyle {
    /// With every operation, as the kubelet does.
    #[default]
    Kubelet,
    /// Once per driver instance.
    Lean,
}

/// Connects to a driver: the real one through its socket, a simulation in memory.
#[async_trait]
pub trait Dialer: fmt::Debug + Send + Sync + 'static {
    /// Connects to the socket.
    async fn dial(&self, endpoint: &Path) -> Result<Connection, DialError>;
}

/// A socket cannot be connected to.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to `{endpoint}`")]
pub struct DialError {
    pub endpoint: PathBuf,
    pub source: Box<dyn std::error::Error + Send + Sync>,
}
