//! The configuration of a container: its pod's volumes, and everything else that its runtime needs.
//!
//! [`configure`] makes one [`ContainerConfig`] out of a pod, one of its containers and the volumes the
//! manager has mounted. It touches the pod's directory: it binds sub-paths, and writes the hosts file and the
//! termination message file. The parts: [`mounts`] and [`devices`] are the volumes, [`hosts`] the hosts file and the
//! host name, [`environment`] the variables, [`services`] those of services, [`expand`] variables in arguments and
//! sub-paths, [`resources`] limits, [`security`] users, groups and masked paths, `capabilities` the capabilities,
//! `ports` mapped ports, `labels` labels and annotations, [`termination`] the termination message. [`oci`] writes the
//! configuration as an OCI runtime reads it.

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

/// The input of a configuration.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    pub pod: &'a Pod,
    pub container: &'a Container,
    /// The pod's volumes, all of them mounted.
    pub volumes: &'a BTreeMap<OuterName, MountedVolume>,
    /// The number of earlier starts of the container.
    pub attempt: u32,
    pub image_user: &'a User,
    pub node: &'a NodeFacts,
    /// For the objects that variables take their values from.
    pub api: &'a dyn ApiSource,
    /// For the variables of services.
    pub services: &'a Services,
}

/// The properties of a node that configurations of containers depend on.
#[derive(Debug, Clone)]
pub struct NodeFacts {
    /// The domain of the cluster's services.
    pub cluster_domain: String,
    /// The node's memory: a container's OOM score depends on its share.
    pub memory: Bytes,
    /// The hosts file that pods in the node's network get a copy of.
    pub hosts: PathBuf,
    /// The node's sizes of huge pages, as Kubernetes writes them.
    pub huge_pages: Vec<String>,
    /// Whether the runtime supports recursive read-only mounts.
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

/// The configuration of a container, for its runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerConfig {
    pub name: String,
    /// The number of earlier starts.
    pub attempt: u32,
    /// The command and its arguments, with variables expanded: values may be secret.
    pub program: Sensitive<Program>,
    /// The mounts, in order.
    pub mounts: Vec<Mount>,
    pub devices: Vec<Device>,
    pub environment: Environment,
    pub hostname: String,
    /// The container's log below the pod's log directory.
    pub log_path: PathBuf,
    /// Labels, by which the node finds the container again.
    pub labels: BTreeMap<&'static str, String>,
    /// Annotations that the runtime keeps for the node.
    pub annotations: BTreeMap<&'static str, String>,
    pub ports: Vec<Port>,
    /// User, groups, capabilities and confinement.
    pub security: Security,
    pub resources: Resources,
}

/// Why a container cannot be configured. The texts go to the pod's events and name no path of the host.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    #[error("error DevicePath `{0}` must be an absolute path")]
    RelativeDevice(String),
    #[error("cannot find volume \"{volume}\" to pass into container \"{container}\"")]
    NoDevice { volume: String, container: String },
    #[error("cannot find volume \"{volume}\" to mount into container \"{container}\"")]
    NoVolume { volume: String, container: String },
    /// The services were never listed.
    #[error("services have not yet been read at least once, cannot construct envvars")]
    ServicesUnknown,
    /// An object of `envFrom` could not be read.
    #[error("cannot read the environment: {0}")]
    Import(#[source] ApiError),
    #[error("no value for variable {name:?}: {why}")]
    Variable {
        name: String,
        #[source]
        why: NoValue,
    },
    /// A sub-path contains variables that the container lacks.
    #[error("missing value for {}", .0.join(", "))]
    MissingValue(Vec<String>),
    /// A sub-path is absolute or leaves the volume.
    #[error(transparent)]
    SubPath(crate::subpath::SubPathError),
    /// The directory of a sub-path could not be made.
    #[error("failed to create subPath directory for volumeMount \"{volume}\" of container \"{container}\"")]
    CreateSubPath { volume: String, container: String },
    /// A sub-path could not be bound.
    #[error("failed to prepare subPath for volumeMount \"{volume}\" of container \"{container}\"")]
    PrepareSubPath { volume: String, container: String },
    #[error("invalid MountPropagation mode: \"{0}\"")]
    Propagation(String),
    /// A recursive read-only mount is required and impossible.
    #[error("failed to resolve recursive read-only mode: {0}")]
    RecursiveReadOnly(&'static str),
    /// A host name or domain is no valid DNS name: the field, the name, and the kind of name that it has to be.
    #[error("pod {0} {1:?} is not a valid DNS {2}")]
    Hostname(&'static str, String, &'static str),
    /// The hosts file could not be written.
    #[error("failed to write the hosts file of the pod")]
    Hosts(#[source] HostError),
    #[error("the kernel knows no capability {0:?}")]
    Capability(String),
    /// The user is root, or may be, and `runAsNonRoot` is set.
    #[error("container has runAsNonRoot and {0}")]
    Root(String),
}

/// Makes the configuration of one container.
pub async fn configure(
    host: &dyn Host,
    paths: &Paths,
    request: &Request<'_>,
) -> Result<ContainerConfig, ContainerError> {
    let Request { pod, container, attempt, node, .. } = *request;
    let security = Security::of(host, paths, request).await?;
    let names = hosts::Names::of(pod, &node.cluster_domain)?;
    let devices = devices::of(host, paths, request).await?;
    let services = request.services.variables(&pod.meta.namespace, pod.without_services);
    let services = services.ok_or(ContainerError::ServicesUnknown)?;
    let environment = environment::of(request.api, pod, container, services).await?;
    let mut mounts = mounts::of(host, paths, request, &environment).await?;
    mounts.extend(hosts::mount(host, paths, request, &names).await?);
    // Last: a runtime that mounts in order must not cover the termination message file with a volume.
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
