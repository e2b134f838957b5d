//! What a container gets of its pod's volumes, and what else its runtime must be told.
//!
//! [`configure`] makes one [`ContainerConfig`] out of a pod, one of its containers and the volumes the
//! manager has mounted. It touches the pod's directory: sub-paths are bound, the hosts file and the file for
//! the last words are written. The parts: [`mounts`] and [`devices`] are the volumes, [`hosts`] the hosts
//! file and the names, [`environment`] variables, [`services`] those of services, [`expand`] variables in words,
//! [`resources`] limits, [`security`] users, groups and what is masked, `capabilities` what root may do, `ports` its
//! network, `labels` what the runtime keeps for the node, [`termination`] the last words. [`oci`] writes it all down
//! as an OCI runtime reads it.

mod capabilities;
pub mod devices;
pub mod environment;
pub mod expand;
pub mod hosts;
mod labels;
pub mod mounts;
pub mod oci;
mod ports;
pub mod resources;
pub mod security;
pub mod services;
pub mod termination;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use api::names::OuterName;
use api::runtime::{Port, Program};
use api::{ApiError, ApiSource, Bytes, Container, Pod, Sensitive};
use host::{Host, HostError};
use plugin_api::paths::Paths;

use self::devices::Device;
use self::environment::{Environment, NoValue};
use self::mounts::Mount;
use self::resources::Resources;
use self::security::{Security, User};
use self::services::Services;
use crate::event::MountedVolume;

/// What a configuration is made of.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    pub pod: &'a Pod,
    /// Which of its containers.
    pub container: &'a Container,
    /// The pod's volumes, all of them mounted.
    pub volumes: &'a BTreeMap<OuterName, MountedVolume>,
    /// How often the container was started before.
    pub attempt: u32,
    /// The user that its image says it runs as.
    pub image_user: &'a User,
    pub node: &'a NodeFacts,
    /// Where the objects are that variables come from.
    pub api: &'a dyn ApiSource,
    /// The services that variables tell of.
    pub services: &'a Services,
}

/// What the configuration of a container must know of its node.
#[derive(Debug, Clone)]
pub struct NodeFacts {
    /// The domain of the cluster's services.
    pub cluster_domain: String,
    /// The node's memory, by which a container's right to it is judged.
    pub memory: Bytes,
    /// The hosts file pods in the node's network are given a copy of.
    pub hosts: PathBuf,
    /// Sizes of huge pages the node has, as Kubernetes writes them.
    pub huge_pages: Vec<String>,
    /// Whether the runtime can make mounts read-only with all below them.
    pub recursive_read_only: bool,
}

impl Default for NodeFacts {
    fn default() -> Self {
        Self {
            cluster_domain: "cluster.local".to_owned(),
            memory: Bytes(0),
            hosts: PathBuf::from("/etc/hosts"),
            huge_pages: Vec::new(),
            recursive_read_only: true,
        }
    }
}

/// What a runtime is told about a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerConfig {
    /// The container's name.
    pub name: String,
    /// How often it was started before.
    pub attempt: u32,
    /// What runs in it, with the environment's values in place of their names: some may be secret.
    pub program: Sensitive<Program>,
    /// What is mounted into it, in order.
    pub mounts: Vec<Mount>,
    /// The devices it may use.
    pub devices: Vec<Device>,
    pub environment: Environment,
    /// The pod's host name.
    pub hostname: String,
    /// Its log below the pod's log directory.
    pub log_path: PathBuf,
    /// Who it is.
    pub labels: BTreeMap<&'static str, String>,
    /// What its runtime keeps for the node.
    pub annotations: BTreeMap<&'static str, String>,
    /// The ports that are mapped.
    pub ports: Vec<Port>,
    /// What it may do, and as whom.
    pub security: Security,
    /// What it may use.
    pub resources: Resources,
}

/// Why a container cannot be configured. The texts go to the pod's events and name no path of the host.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// A device is wanted at a path that is not absolute.
    #[error("error DevicePath `{0}` must be an absolute path")]
    RelativeDevice(String),
    /// A volume that is to be passed in as a device is not there.
    #[error("cannot find volume \"{volume}\" to pass into container \"{container}\"")]
    NoDevice { volume: String, container: String },
    /// A volume that is to be mounted is not there.
    #[error("cannot find volume \"{volume}\" to mount into container \"{container}\"")]
    NoVolume { volume: String, container: String },
    /// Nobody knows yet which services there are.
    #[error("services have not yet been read at least once, cannot construct envvars")]
    ServicesUnknown,
    /// An object that all of is to be in the environment could not be read.
    #[error("cannot read the environment: {0}")]
    Import(#[source] ApiError),
    /// A variable whose value cannot be told.
    #[error("no value for variable {name:?}: {why}")]
    Variable {
        /// The variable.
        name: String,
        #[source]
        why: NoValue,
    },
    /// A sub-path names variables the container does not have.
    #[error("missing value for {}", .0.join(", "))]
    MissingValue(Vec<String>),
    /// A sub-path that cannot be one.
    #[error(transparent)]
    SubPath(crate::subpath::SubPathError),
    /// The directory of a sub-path could not be made.
    #[error("failed to create subPath directory for volumeMount \"{volume}\" of container \"{container}\"")]
    CreateSubPath { volume: String, container: String },
    /// A sub-path could not be bound.
    #[error("failed to prepare subPath for volumeMount \"{volume}\" of container \"{container}\"")]
    PrepareSubPath { volume: String, container: String },
    /// A propagation nobody knows.
    #[error("invalid MountPropagation mode: \"{0}\"")]
    Propagation(String),
    /// A mount that is to be read-only with all below it, and cannot be.
    #[error("failed to resolve recursive read-only mode: {0}")]
    RecursiveReadOnly(&'static str),
    /// The pod asks to be called what the DNS knows no name for: the field, the name, what it should be.
    #[error("pod {0} {1:?} is not a valid DNS {2}")]
    Hostname(&'static str, String, &'static str),
    /// The hosts file could not be written.
    #[error("failed to write the hosts file of the pod")]
    Hosts(#[source] HostError),
    /// A capability nobody can have.
    #[error("the kernel knows no capability {0:?}")]
    Capability(String),
    /// The user is root, or may be, and must not be.
    #[error("container has runAsNonRoot and {0}")]
    Root(String),
}

/// Makes the configuration of one container.
///
/// The last words come last: a runtime that mounts in order must not have them covered by a volume.
pub async fn configure(
    host: &dyn Host,
    paths: &Paths,
    request: &Request<'_>,
) -> Result<ContainerConfig, ContainerError> {
    let Request { pod, container, attempt, node, .. } = *request;
    let security = Security::of(host, paths, request).await?;
    let names = hosts::Names::of(pod, &node.cluster_domain)?;
    let devices = devices::of(host, paths, request).await?;
    let told = request.services.variables(&pod.meta.namespace, pod.without_services);
    let told = told.ok_or(ContainerError::ServicesUnknown)?;
    let environment = environment::of(request.api, pod, container, told).await?;
    let mut mounts = mounts::of(host, paths, request, &environment).await?;
    mounts.extend(hosts::mount(host, paths, request, &names).await?);
    mounts.extend(termination::mount(host, paths, request).await);
    let expanded =
        |words: &[String]| words.iter().map(|word| expand::known(word, &environment)).collect::<Vec<_>>();
    let (command, args) = (expanded(&container.program.command), expanded(&container.program.args));
    Ok(ContainerConfig {
        name: container.name.clone(),
        attempt,
        program: Sensitive::new(Program { command, args, ..container.program.clone() }),
        mounts,
        devices,
        environment,
        hostname: names.host,
        log_path: Path::new(&container.name).join(format!("{attempt}.log")),
        labels: labels::labels(pod, container),
        annotations: labels::annotations(pod, container, attempt),
        ports: ports::of(&container.ports),
        security,
        resources: Resources::of(pod, container, node),
    })
}

/// The directory of a pod's logs, below the node's directory of all logs.
pub fn log_directory(pod: &Pod) -> String {
    format!("{}_{}_{}", pod.meta.namespace, pod.meta.name, pod.meta.uid)
}
