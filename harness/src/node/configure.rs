//! The configuration of a container, at the point where the kubelet calls its runtime.

use std::path::PathBuf;

use api::names::ContainerName;
use api::{Bytes, Pod};
use oci_spec::runtime::Spec;
use serde::{Deserialize, Serialize};
use volume_manager::Paths;
use volume_manager::container::oci::{self, Bundle};
use volume_manager::container::security::User;
use volume_manager::container::{self, NodeFacts, Request};

use super::child::Surroundings;

/// The container, and the data of its runtime.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Wanted {
    pub pod: String,
    pub container: String,
    /// The number of earlier starts.
    pub attempt: u32,
    /// An empty directory to become its root.
    pub rootfs: PathBuf,
}

/// The node's memory: fixed, so that no result depends on the machine's.
const MEMORY: Bytes = Bytes(16 << 30);

/// The user of an image that names none.
const IMAGE_USER: User = User::Number(0);

/// The text of an error is the message for the user, without paths of the node.
pub(super) async fn configure(around: &Surroundings, pod: &Pod, wanted: Wanted) -> Result<Spec, String> {
    let name = ContainerName::new(&wanted.container);
    let container = pod.container(&name).ok_or_else(|| format!("the pod has no container `{name}`"))?;
    let volumes = around.manager.mounted_volumes(&pod.uid()).await;
    let node = NodeFacts { memory: MEMORY, ..NodeFacts::default() };
    let request = Request {
        pod,
        container,
        volumes: &volumes,
        attempt: wanted.attempt,
        image_user: &IMAGE_USER,
        node: &node,
        api: around.api.as_ref(),
        services: &around.services,
    };
    let host = around.host.as_ref();
    let paths = Paths::new(around.layout.root());
    let config = container::configure(host, &paths, &request).await.map_err(|error| error.to_string())?;
    let command = vec!["/bin/true".to_owned()];
    let bundle = Bundle { rootfs: wanted.rootfs, command, args: Vec::new(), group: 0 };
    oci::spec(host, &config, &bundle).await.map_err(|error| error.to_string())
}
