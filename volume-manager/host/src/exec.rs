//! Mounts that run inside a container: the second kind of host (07 §14).
//!
//! A file `plugin-containers/<plugin>.json` below the node's root names the container that has the tools for
//! one plugin. [`host_for`] is asked at each use, since the file may come and go: without it the answer is
//! the node's own host. What is wrong with the file, or with the container it names, is an error, and the
//! operation fails; falling back would mount in the wrong place without a word.
//!
//! Mounts, unmounts and the tools for disks run in the container; everything that only looks, and everything
//! about files, is the node's. So the container has to see the node's root at the same path, with mounts
//! travelling both ways, and after each mount the node looks whether it has arrived.

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

/// Who knows the pods of this node, and can run a command in a container of theirs.
#[async_trait]
pub trait Containers: Debug + Send + Sync + 'static {
    /// The pod's identity and its regular containers. `None`: there is no such pod.
    async fn pod(&self, namespace: &str, name: &str) -> Option<PodContainers>;

    /// Runs a program in a container to its end. An error: it could not be run, as when the container has
    /// died.
    async fn run(&self, container: &ContainerRef, program: &str, arguments: &[String]) -> io::Result<Output>;
}

/// What is known of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodContainers {
    /// Its UID.
    pub uid: String,
    /// The names of its containers; neither init nor ephemeral ones.
    pub containers: Vec<String>,
}

/// A container of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerRef {
    /// The pod's name.
    pub pod_name: String,
    /// The pod's namespace.
    pub pod_namespace: String,
    /// The pod's UID: another pod of the same name will not do.
    #[serde(rename = "podUID")]
    pub pod_uid: String,
    /// The container's name.
    pub container_name: String,
}

impl Default for ContainerRef {
    fn default() -> Self {
        let empty = String::new;
        Self { pod_name: empty(), pod_namespace: empty(), pod_uid: empty(), container_name: empty() }
    }
}

/// How a command in a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// What it wrote, both streams in one.
    pub text: String,
}

/// Why a registration cannot be used, or what was done through it did not arrive.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// The file is there and cannot be read.
    #[error("cannot read {}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: HostError,
    },
    /// The file is no JSON, or JSON of another shape.
    #[error("unable to parse {}", file.display())]
    Parse {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A field is missing or empty.
    #[error("unable to parse {}: \"{field}\" is not set", file.display())]
    NotSet {
        /// The file.
        file: PathBuf,
        /// The field.
        field: &'static str,
    },
    /// There is no such pod.
    #[error("unable to process {}: pod {pod} not found", file.display())]
    NoPod {
        /// The file.
        file: PathBuf,
        /// `namespace/name`.
        pod: String,
    },
    /// There is a pod of that name, and it is another one.
    #[error("unable to process {}: pod {pod} has unexpected UID", file.display())]
    OtherPod {
        /// The file.
        file: PathBuf,
        /// `namespace/name`.
        pod: String,
    },
    /// The pod has no such container.
    #[error("unable to process {}: pod {pod} has no container named \"{container}\"", file.display())]
    NoContainer {
        /// The file.
        file: PathBuf,
        /// `namespace/name`.
        pod: String,
        /// The container.
        container: String,
    },
    /// The command could not be run in the container.
    #[error("cannot run `{program} {arguments}` in container {container}")]
    Run {
        /// The program.
        program: String,
        /// Its arguments, secrets masked.
        arguments: String,
        /// `namespace/name/container`.
        container: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The command succeeded, and the node does not see what it did: mounts do not travel out of the
    /// container.
    #[error("container {container} {done} `{}`, and the node does not see it", target.display())]
    NotVisible {
        /// `namespace/name/container`.
        container: String,
        /// `mounted` or `unmounted`.
        done: &'static str,
        /// Where.
        target: PathBuf,
    },
}

impl From<ContainerError> for HostError {
    fn from(error: ContainerError) -> Self {
        Self::Container(Box::new(error))
    }
}

/// The host for the mounts of a plugin (its qualified name, such as `kubernetes.io/nfs`): one that runs them
/// in the registered container, or `host` itself if none is registered. To be asked at each use.
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
