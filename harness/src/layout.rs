//! Where things lie inside a sandbox. Names only: nothing here touches a disk.

use std::path::{Path, PathBuf};

/// The two directories everything of a node lies below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
    state: PathBuf,
    driver_state: PathBuf,
    /// The roots of other nodes on the same kernel.
    others: Vec<PathBuf>,
}

impl Layout {
    /// The layout inside a sandbox. The node's root is the one kubelets use, because drivers hard-code it,
    /// and because a socket path has 108 bytes.
    pub fn standard() -> Self {
        Self::new("/var/lib/kubelet", "/var/lib/volproof")
    }

    /// A layout below two directories of the caller's.
    pub fn new(root: impl Into<PathBuf>, state: impl Into<PathBuf>) -> Self {
        let state = state.into();
        Self { root: root.into(), driver_state: state.join("drv"), state, others: Vec::new() }
    }

    /// The layout of another node beside this one, in a directory of its own. Its driver has the same state, or one of
    /// its own.
    #[must_use]
    pub fn beside(&self, node: &str, shares_state: bool) -> Self {
        let mut layout = Self::new(self.root_beside(node), self.state.join(node));
        layout.others.push(self.root.clone());
        if shares_state {
            layout.driver_state.clone_from(&self.driver_state);
        }
        layout
    }

    /// This layout on a kernel that it shares with a node of this name.
    #[must_use]
    pub fn with_other(mut self, node: &str) -> Self {
        self.others.push(self.root_beside(node));
        self
    }

    fn root_beside(&self, node: &str) -> PathBuf {
        self.state.join(node).join("kubelet")
    }

    /// The node's root directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The roots of other nodes on the same kernel. A node of a cluster does not see the mounts below them.
    pub fn other_roots(&self) -> &[PathBuf] {
        &self.others
    }

    /// The harness's own directory beside the root.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The socket the node reaches a driver at. The proxy serves it.
    pub fn csi_socket(&self, driver: &str) -> PathBuf {
        self.root.join("plugins").join(driver).join("csi.sock")
    }

    /// The socket a driver is registered through.
    pub fn registration_socket(&self, driver: &str) -> PathBuf {
        self.root.join("plugins_registry").join(format!("{driver}-reg.sock"))
    }

    /// A part of the machine that is neither the node's nor a driver's, for pods that ask for paths of it.
    pub fn machine(&self) -> PathBuf {
        self.state.join("machine")
    }

    /// The driver's own directory, `{state}` in a manifest.
    pub fn driver_state(&self) -> PathBuf {
        self.driver_state.clone()
    }

    /// The socket the driver itself serves, `{socket}` in a manifest: each node's driver has one of its own.
    pub fn driver_socket(&self) -> PathBuf {
        self.state.join("drv").join("csi.sock")
    }

    /// The socket of its controller service, where that is a process of its own.
    pub fn controller_socket(&self) -> PathBuf {
        self.state.join("drv").join("controller.sock")
    }

    /// The kubeconfig of the driver's API, `{kubeconfig}` in a manifest.
    pub fn kubeconfig(&self) -> PathBuf {
        self.driver_state.join("kubeconfig")
    }

    /// The directory in which clients of Kubernetes look for their token in a pod.
    pub const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

    /// The socket that serves API objects to the node.
    pub fn api_socket(&self) -> PathBuf {
        self.sockets().join("api.sock")
    }

    /// The socket of orders to the node.
    pub fn node_socket(&self) -> PathBuf {
        self.sockets().join("node.sock")
    }

    /// The socket on which the node announces its effects and notices.
    pub fn effects_socket(&self) -> PathBuf {
        self.sockets().join("effects.sock")
    }

    /// The directory of the harness's sockets.
    pub fn sockets(&self) -> PathBuf {
        self.state.join("sock")
    }
}
