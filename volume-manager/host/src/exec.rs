//! A host whose mounts run inside a container (07 §14).
//!
//! A file `plugin-containers/<plugin>.json` below the node's root registers the container that has the tools
//! for a plugin. The file may come and go, so [`host_for`] is called at each use; without a file it returns the
//! node's own host. If the file or its container cannot be used, the operation fails: falling back would mount
//! in the wrong place without a word.
//!
//! Mounts, unmounts and disk tools run in the container; look-ups and everything about files run on the node.
//! So the container must see the node's root at the same path, with mount propagation both ways, and after each
//! mount the node checks that it has arrived.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;

use crate::door::Host;
use crate::error::{HostError, Result};

mod host;

pub use host::ExecHost;

/// The directory of registrations below the node's root.
pub const REGISTRATIONS: &str = "plugin-containers";

/// The containers of this node's pods.
#[async_trait]
pub trait Containers: Debug + Send + Sync + 'static {
    /// `None`: there is no such pod.
    async fn pod(&self, namespace: &str, name: &str) -> Option<PodContainers>;

    /// Runs a program in a container to its end. An error means that it did not start, as in a dead container.
    async fn run(&self, container: &ContainerRef, program: &str, arguments: &[String]) -> io::Result<Output>;
}

/// A pod's identity and its regular containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodContainers {
    pub uid: String,
    /// Names, without those of init and ephemeral containers.
    pub containers: Vec<String>,
}

/// A container of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerRef {
    pub pod_name: String,
    pub pod_namespace: String,
    /// Tells the pod from a later one of the same name.
    #[serde(rename = "podUID")]
    pub pod_uid: String,
    pub container_name: String,
}

impl Default for ContainerRef {
    fn default() -> Self {
        let empty = String::new;
        Self { pod_name: empty(), pod_namespace: empty(), pod_uid: empty(), container_name: empty() }
    }
}

/// Exit and output of a command in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// `None` if a signal ended it.
    pub code: Option<i32>,
    /// Both streams, in the order they were written.
    pub text: String,
}

/// A registration that cannot be used, or a command in its container that failed.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// The file exists and cannot be read.
    #[error("cannot read {}", file.display())]
    Read {
        file: PathBuf,
        #[source]
        source: HostError,
    },
    /// The file is no JSON, or JSON of another shape.
    #[error("unable to parse {}", file.display())]
    Parse {
        file: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    /// A field is missing or empty.
    #[error("unable to parse {}: \"{field}\" is not set", file.display())]
    NotSet { file: PathBuf, field: &'static str },
    #[error("unable to process {}: pod {pod} not found", file.display())]
    NoPod {
        file: PathBuf,
        /// `namespace/name`.
        pod: String,
    },
    /// The pod of that name has another UID.
    #[error("unable to process {}: pod {pod} has unexpected UID", file.display())]
    OtherPod {
        file: PathBuf,
        /// `namespace/name`.
        pod: String,
    },
    /// The pod has no such container.
    #[error("unable to process {}: pod {pod} has no container named \"{container}\"", file.display())]
    NoContainer {
        file: PathBuf,
        /// `namespace/name`.
        pod: String,
        container: String,
    },
    /// The command did not start.
    #[error("cannot run `{program} {arguments}` in container {container}")]
    Run {
        program: String,
        /// Secrets masked.
        arguments: String,
        /// `namespace/name/container`.
        container: String,
        #[source]
        source: io::Error,
    },
    /// The command succeeded, and the node does not see the mount or unmount: mounts do not propagate out of
    /// the container.
    #[error("container {container} {done} `{}`, and the node does not see it", target.display())]
    NotVisible {
        /// `namespace/name/container`.
        container: String,
        /// `mounted` or `unmounted`.
        done: &'static str,
        target: PathBuf,
    },
}

impl From<ContainerError> for HostError {
    fn from(error: ContainerError) -> Self {
        Self::Container(Box::new(error))
    }
}

/// The host for the mounts of a plugin (qualified name, such as `kubernetes.io/nfs`): an [`ExecHost`] for the
/// registered container, or `host` itself if none is registered. Call it at each use.
pub async fn host_for(
    host: &Arc<dyn Host>,
    containers: &Arc<dyn Containers>,
    root: &Path,
    plugin: &str,
) -> Result<Arc<dyn Host>> {
    let file = root.join(REGISTRATIONS).join(format!("{}.json", plugin.replace('/', "~")));
    let text = match host.read_file(&file).await {
        Ok(text) => text,
        Err(error) if error.is_not_found() => return Ok(host.clone()),
        Err(source) => return Err(ContainerError::Read { file, source }.into()),
    };
    let container = parse(&file, &text)?;
    check(&file, &container, &**containers).await?;
    Ok(Arc::new(ExecHost::new(host.clone(), containers.clone(), container)))
}

fn parse(file: &Path, text: &[u8]) -> Result<ContainerRef, ContainerError> {
    let file = file.to_owned();
    let container: ContainerRef = match serde_json::from_slice(text) {
        Ok(container) => container,
        Err(source) => return Err(ContainerError::Parse { file, source }),
    };
    let fields = [
        ("containerName", &container.container_name),
        ("podUID", &container.pod_uid),
        ("podNamespace", &container.pod_namespace),
        ("podName", &container.pod_name),
    ];
    if let Some((field, _)) = fields.into_iter().find(|(_, value)| value.is_empty()) {
        return Err(ContainerError::NotSet { file, field });
    }
    Ok(container)
}

async fn check(
    file: &Path,
    container: &ContainerRef,
    containers: &dyn Containers,
) -> Result<(), ContainerError> {
    let (file, pod) = (file.to_owned(), format!("{}/{}", container.pod_namespace, container.pod_name));
    let Some(there) = containers.pod(&container.pod_namespace, &container.pod_name).await else {
        return Err(ContainerError::NoPod { file, pod });
    };
    if there.uid != container.pod_uid {
        return Err(ContainerError::OtherPod { file, pod });
    }
    if !there.containers.contains(&container.container_name) {
        return Err(ContainerError::NoContainer { file, pod, container: container.container_name.clone() });
    }
    Ok(())
}
