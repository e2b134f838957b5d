//! hostPath: a path of the node, as it is. Creates a missing directory or file if the volume's type asks for
//! it, and never removes anything.

use std::path::{Component, Path, PathBuf};

use api::error::ErrorClass;
use api::names::{PluginName, PodUid, SpecName};
use api::{PersistentSource, VolumeSource};
use async_trait::async_trait;
use host::{FileKind, Host, HostError};
use plugin_api::error::{Classified, Failure, Unfit};
use plugin_api::paths::Paths;
use plugin_api::{Found, Mounted, OperationContext, Rebuilt, Scene, SetUp, Spec, TearDown, VolumePlugin};

pub const NAME: &str = "kubernetes.io/host-path";

/// The plugin for hostPath volumes.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostPathPlugin;

/// The path and the required type.
fn source(spec: &Spec) -> Option<(&str, &str)> {
    if let Some(PersistentSource::HostPath { path, kind }) = spec.persistent_source() {
        return Some((path, kind));
    }
    match &spec.pod_volume()?.source {
        VolumeSource::HostPath { path, kind } => Some((path, kind)),
        _ => None,
    }
}

/// Why a path cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HostPathError {
    /// The path contains `..`.
    #[error("invalid HostPath `{0}`: must not contain '..'")]
    Backwards(String),
    /// The path is missing or of another type.
    #[error("hostPath type check failed: {path} is not {wanted}")]
    WrongType { path: String, wanted: &'static str },
    /// The type is unknown.
    #[error("{0} is an invalid volume type")]
    UnknownType(String),
    /// A file operation failed.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl Classified for HostPathError {
    fn class(&self) -> ErrorClass {
        ErrorClass::Final
    }
}

/// Checks that `path` is of type `kind`, or creates it if `kind` is one of the `OrCreate` kinds. Follows symlinks.
async fn check(host: &dyn Host, path: &str, kind: &str) -> Result<(), HostPathError> {
    let at = Path::new(path);
    if at.components().any(|part| part == Component::ParentDir) {
        return Err(HostPathError::Backwards(path.to_owned()));
    }
    let (wanted, words) = match kind {
        "" => return Ok(()),
        "DirectoryOrCreate" | "Directory" => (FileKind::Directory, "a directory"),
        "FileOrCreate" | "File" => (FileKind::File, "a file"),
        "Socket" => (FileKind::Socket, "a socket file"),
        "CharDevice" => (FileKind::CharDevice, "a character device"),
        "BlockDevice" => (FileKind::BlockDevice, "a block device"),
        _ => return Err(HostPathError::UnknownType(kind.to_owned())),
    };
    let found = match host.metadata(at).await {
        Ok(there) => there.kind,
        Err(error) if error.is_not_found() => match kind {
            "DirectoryOrCreate" => return Ok(host.make_dir_all(at, 0o755).await?),
            // Its parent directory is not created.
            "FileOrCreate" => return Ok(host.create_file(at, 0o644).await?),
            _ => FileKind::Unknown,
        },
        Err(error) => return Err(error.into()),
    };
    match found == wanted {
        true => Ok(()),
        false => Err(HostPathError::WrongType { path: path.to_owned(), wanted: words }),
    }
}

#[async_trait]
impl VolumePlugin for HostPathPlugin {
    fn name(&self) -> PluginName {
        PluginName::new(NAME)
    }

    fn supports(&self, spec: &Spec) -> bool {
        source(spec).is_some()
    }

    fn volume_name(&self, spec: &Spec) -> Result<String, Failure> {
        Ok(source(spec).map(|(path, _)| path.to_owned()).unwrap_or_default())
    }

    /// Nothing is mounted below the pod's directory; this path only identifies the volume.
    fn target(&self, paths: &Paths, pod: &PodUid, inner: &SpecName) -> PathBuf {
        paths.pod_volume(pod, &self.name(), inner)
    }

    async fn set_up(&self, cx: &OperationContext, request: &SetUp) -> Result<Mounted, Failure> {
        let Some((path, kind)) = source(&request.spec) else {
            let (plugin, volume) = (NAME.to_owned(), request.spec.name().to_string());
            return Err(Unfit::WrongSource { plugin, volume }.into());
        };
        check(&*cx.host, path, kind).await?;
        Ok(Mounted {
            path: PathBuf::from(path),
            read_only: request.spec.read_only && request.spec.volume().is_some(),
            managed: false,
            selinux_relabel: false,
        })
    }

    async fn tear_down(&self, _cx: &OperationContext, _request: &TearDown) -> Result<(), Failure> {
        Ok(())
    }

    async fn reconstruct(&self, _scene: &Scene<'_>, found: &Found) -> Result<Rebuilt, Failure> {
        let (path, kind) = (found.inner.to_string(), String::new());
        Ok(super::empty_dir::rebuilt(found, VolumeSource::HostPath { path, kind }))
    }
}
