//! How a manager is started, and how it connects to drivers.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::names::NodeName;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tonic::transport::Channel;

/// How a manager is started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Config {
    pub node: NodeName,
    /// The root directory, in canonical form.
    pub root: PathBuf,
    /// How CSI drivers are spoken to.
    pub client_style: ClientStyle,
    /// How long a CSI operation may take, its questions for capabilities included.
    pub call_deadline: Duration,
    /// Whether pods may be mounted while they wait for CSIDriver objects; a cluster has them, and a node
    /// that did not ask yet must not conclude from their absence.
    pub watch_api: bool,
}

impl Config {
    /// The kubelet's ways, for a node and its root directory.
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

/// How CSI drivers are spoken to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientStyle {
    /// A connection and questions for capabilities with every call, as the kubelet does.
    #[default]
    Kubelet,
    /// One connection, and the questions once per driver instance.
    Lean,
}

/// Connects to a driver. The real one opens its socket; a simulation may stay in memory.
#[async_trait]
pub trait Dialer: fmt::Debug + Send + Sync + 'static {
    /// A new connection to the socket.
    async fn dial(&self, endpoint: &Path) -> Result<Channel, DialError>;
}

/// Why a socket could not be connected to.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to `{endpoint}`")]
pub struct DialError {
    /// The socket.
    pub endpoint: PathBuf,
    /// Why.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}
