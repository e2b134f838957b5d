//! hostPath: a path of the node, as it is. Makes a missing directory or file where that was asked for, and
//! never takes anything away.

use std::path::{Component, Path, PathBuf};

use api::error::ErrorClass;
use api::names::{PluginName, PodUid, SpecName};
use api::{PersistentSource, VolumeSource};
use async_trait::async_trait;
use host::{FileKind, Host, HostError};
use plugin_api::error::{Classified, Failure, Unfit};
use plugin_api::paths::Paths;
use plugin_api::{Found, Mounted, OperationContext, Rebuilt, Scene, SetUp, Spec, TearDown, VolumePlugin};

/// The plugin's name.
pub const NAME: &str = "kubernetes.io/host-path";

/// The plugin of the node's own paths.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostPathPlugin;

/// The path and what must be there.
fn source(spec: &Spec) -> Option<(&str, &str)> {
    if let Some(PersistentSource::HostPath { path, kind }) = spec.persistent_source() {
        return Some((path, kind));
    }
    match &spec.pod_volume()?.source {
        VolumeSource::HostPath { path, kind } => Some((path, kind)),
        _ => None,
    }
}

/// Why a path cannot be given to a pod.
#[derive(Debug, thiserror::Error)]
pub enum HostPathError {
    /// It contains `..`.
    #[error("invalid HostPath `{0}`: must not contain '..'")]
    Backwards(String),
    /// Something else is there, or nothing.
    #[error("hostPath type check failed: {path} is not {wanted}")]
    WrongType {
        path: String,
        /// What it was to be.
        wanted: &'static str,
    },
    /// Nobody knows this type.
    #[error("{0} is an invalid volume type")]
    UnknownType(String),
    /// The kernel said no.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl Classified for HostPathError {
    fn class(&self) -> ErrorClass {
        ErrorClass::Final
    }
}

/// Makes sure that at `path` there is what `kind` says. Links are followed.
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
            // Its directory is not ours to make.
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

    /// Nothing of it is below the pod's directory; this is where it would be.
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
