//! Block volumes in a container. Looks at the pod's links; touches nothing.

use std::path::{Path, PathBuf};

use api::names::OuterName;
use host::{FileKind, Host};
use plugin_api::paths::Paths;

use super::{ContainerError, Request};

/// A device of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The link to it on the node.
    pub host_path: PathBuf,
    pub container_path: PathBuf,
    /// The permissions in its control group: `r`, or `mrw`.
    pub permissions: &'static str,
}

/// The devices of a container, in order.
///
/// A missing link is an error here; the kubelet would start the container without the device.
pub(super) async fn of(
    host: &dyn Host,
    paths: &Paths,
    request: &Request<'_>,
) -> Result<Vec<Device>, ContainerError> {
    let mut devices = Vec::new();
    for wanted in &request.container.devices {
        if !Path::new(&wanted.path).is_absolute() {
            return Err(ContainerError::RelativeDevice(wanted.path.clone()));
        }
        let missing = || ContainerError::NoDevice {
            volume: wanted.volume.clone(),
            container: request.container.name.clone(),
        };
        let volume = request.volumes.get(&OuterName::new(&wanted.volume)).ok_or_else(missing)?;
        let link = paths.pod_device(&request.pod.uid(), &volume.plugin, &volume.inner);
        match host.symlink_metadata(&link).await {
            Ok(there) if there.kind == FileKind::Symlink => {}
            _ => return Err(missing()),
        }
        devices.push(Device {
            host_path: link,
            container_path: PathBuf::from(&wanted.path),
            permissions: if volume.read_only { "r" } else { "mrw" },
        });
    }
    Ok(devices)
}
