//! Volumes in a container as directories and files. Binds sub-paths.

use std::path::{Path, PathBuf};

use api::VolumeSource;
use api::names::{ContainerName, OuterName};
use api::pod::VolumeMount;
use host::Host;
use plugin_api::paths::Paths;

use super::environment::Environment;
use super::expand::expand;
use super::{ContainerError, Request};
use crate::event::MountedVolume;
use crate::subpath::{self, SubPath, SubPathError};

/// One mount of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The name of the volume, or of the pod's file that it shows.
    pub name: String,
    pub source: Source,
    /// The mount point in the container.
    pub container_path: PathBuf,
    pub read_only: bool,
    /// Whether mounts below it are read-only, too.
    pub recursive_read_only: bool,
    /// Propagation between the node and the container.
    pub propagation: Propagation,
    /// Whether the runtime has to label its files for SELinux.
    pub selinux_relabel: bool,
}

/// The source of a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A path of the node.
    Path(PathBuf),
    /// The content of an image, which the runtime mounts.
    Image {
        reference: String,
        /// A path in the image; empty for the whole image.
        sub_path: String,
    },
}

/// Propagation of mounts between the node and a container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Propagation {
    #[default]
    Private,
    /// From the node to the container.
    HostToContainer,
    Bidirectional,
}

impl Propagation {
    fn parse(word: &str) -> Result<Self, ContainerError> {
        match word {
            "" | "None" => Ok(Self::Private),
            "HostToContainer" => Ok(Self::HostToContainer),
            "Bidirectional" => Ok(Self::Bidirectional),
            other => Err(ContainerError::Propagation(other.to_owned())),
        }
    }
}

/// The mounts of a container's volumes, in order.
pub(super) async fn of(
    host: &dyn Host,
    paths: &Paths,
    request: &Request<'_>,
    environment: &Environment,
) -> Result<Vec<Mount>, ContainerError> {
    let mut mounts = Vec::new();
    for (index, wanted) in request.container.mounts.iter().enumerate() {
        let volume = request.volumes.get(&OuterName::new(&wanted.volume));
        let volume = volume.ok_or_else(|| ContainerError::NoVolume {
            volume: wanted.volume.clone(),
            container: request.container.name.clone(),
        })?;
        let propagation = Propagation::parse(&wanted.propagation)?;
        let sub_path = match wanted.sub_path_expr.as_str() {
            "" => wanted.sub_path.clone(),
            expression => expand(expression, environment)?,
        };
        let sub_path = subpath::check(&sub_path).map_err(|error| as_written(error, wanted))?;
        let read_only = wanted.read_only || volume.mounted.read_only;
        mounts.push(Mount {
            name: wanted.volume.clone(),
            source: source(host, paths, request, index, volume, sub_path).await?,
            container_path: absolute(&wanted.path),
            read_only,
            recursive_read_only: recursive(wanted, propagation, request.node.recursive_read_only)?,
            propagation,
            selinux_relabel: volume.mounted.managed && volume.mounted.selinux_relabel,
        });
    }
    Ok(mounts)
}

/// A sub-path that cannot be one, as its user wrote it: what takes the place of a variable may be secret, and the
/// text goes to the pod's events.
fn as_written(error: SubPathError, wanted: &VolumeMount) -> ContainerError {
    let written = &wanted.sub_path_expr;
    ContainerError::SubPath(match error {
        SubPathError::Absolute(_) if !written.is_empty() => SubPathError::Absolute(written.clone()),
        SubPathError::Backwards(_) if !written.is_empty() => SubPathError::Backwards(written.clone()),
        other => other,
    })
}

/// A path in the container, made absolute.
pub(super) fn absolute(path: &str) -> PathBuf {
    Path::new("/").join(path)
}

async fn source(
    host: &dyn Host,
    paths: &Paths,
    request: &Request<'_>,
    index: usize,
    volume: &MountedVolume,
    sub_path: &Path,
) -> Result<Source, ContainerError> {
    let wanted = &request.container.mounts[index];
    if let Some(reference) = image(request, wanted) {
        let sub_path = sub_path.display().to_string();
        return Ok(Source::Image { reference: reference.to_owned(), sub_path });
    }
    if volume.mounted.path.as_os_str().is_empty() {
        return Err(ContainerError::NoVolume {
            volume: wanted.volume.clone(),
            container: request.container.name.clone(),
        });
    }
    if sub_path.as_os_str().is_empty() {
        return Ok(Source::Path(volume.mounted.path.clone()));
    }
    let sub = SubPath {
        pod: &request.pod.uid(),
        inner: &volume.inner,
        volume_path: &volume.mounted.path,
        container: &ContainerName::new(&request.container.name),
        index,
        sub_path,
    };
    let prepared = subpath::prepare(host, paths, &sub).await;
    Ok(Source::Path(prepared.map_err(|error| generic(error, request, wanted))?))
}

fn image<'a>(request: &Request<'a>, wanted: &VolumeMount) -> Option<&'a str> {
    let volume = request.pod.volumes.iter().find(|volume| volume.name.as_str() == wanted.volume)?;
    match &volume.source {
        VolumeSource::Image { reference, .. } => Some(reference),
        _ => None,
    }
}

/// The error for the user, who learns the mount and no path of the host. The cause goes to the log.
fn generic(error: SubPathError, request: &Request<'_>, wanted: &VolumeMount) -> ContainerError {
    tracing::warn!(error = api::error::chain(&error), volume = wanted.volume, "no sub-path");
    let (volume, container) = (wanted.volume.clone(), request.container.name.clone());
    match error {
        SubPathError::Absolute(_) | SubPathError::Backwards(_) => ContainerError::SubPath(error),
        SubPathError::Create(_) => ContainerError::CreateSubPath { volume, container },
        SubPathError::Prepare(_) => ContainerError::PrepareSubPath { volume, container },
    }
}

/// Whether mounts below the mount are read-only, too.
fn recursive(
    wanted: &VolumeMount,
    propagation: Propagation,
    runtime_can: bool,
) -> Result<bool, ContainerError> {
    let needed = match wanted.recursive_read_only.as_str() {
        "" | "Disabled" => return Ok(false),
        "IfPossible" => false,
        "Enabled" => true,
        _ => return Err(ContainerError::RecursiveReadOnly("unknown recursive read-only mode")),
    };
    if !wanted.read_only {
        return Err(ContainerError::RecursiveReadOnly("volume is not mounted as read-only"));
    }
    if propagation != Propagation::Private {
        return Err(ContainerError::RecursiveReadOnly("volume is mounted with propagation"));
    }
    if needed && !runtime_can {
        return Err(ContainerError::RecursiveReadOnly("it is not supported by the runtime"));
    }
    Ok(runtime_can)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_only_below_needs_read_only_and_privacy() {
        use Propagation::{HostToContainer, Private};
        for (mode, read_only, propagation, can, outcome) in [
            ("", false, Private, true, Some(false)),
            ("Disabled", true, Private, true, Some(false)),
            ("IfPossible", true, Private, true, Some(true)),
            ("IfPossible", true, Private, false, Some(false)),
            ("Enabled", true, Private, true, Some(true)),
            ("Enabled", true, Private, false, None),
            ("Enabled", false, Private, true, None),
            ("Enabled", true, HostToContainer, true, None),
            ("Sometimes", true, Private, true, None),
        ] {
            let wanted =
                VolumeMount { read_only, recursive_read_only: mode.into(), ..VolumeMount::default() };
            assert_eq!(recursive(&wanted, propagation, can).ok(), outcome, "{mode} {read_only} {can}");
        }
    }
}
