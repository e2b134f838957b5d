//! local: a directory or a block device of this node, made available by a PersistentVolume.
//!
//! Touches `plugins/kubernetes.io/local-volume/mounts/<volume>` for a device with a filesystem, and
//! `pods/<uid>/volumes/kubernetes.io~local-volume/<volume>`. The administrator's directory is bound, its files
//! may be given to a group, and it is never unmounted or removed.

mod reconstruct;

use std::path::{Component, Path, PathBuf};

use api::error::ErrorClass;
use api::names::{PluginName, PodUid, SpecName};
use api::{PersistentSource, VolumeMode};
use async_trait::async_trait;
use host::cleanup::{self, Check};
use host::format::{DiskContent, FormatAndMount, FormatError, Grow, format_and_mount};
use host::{FileKind, HostError, MountOptions};
use plugin_api::error::{Classified, Failure, Sign, Unfit};
use plugin_api::paths::Paths;
use plugin_api::{
    BlockMapper, DeviceMounter, Expand, Expander, Found, MapDevice, MountDevice, Mounted, OperationContext,
    Reason, Rebuilt, Scene, SetUp, Spec, Staged, TearDown, VolumePlugin,
};

use super::nfs::{mount_options, undo};
use crate::ownership::{self, Ownership};

pub const NAME: &str = "kubernetes.io/local-volume";

/// The plugin for local volumes.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalPlugin;

/// Why a local volume cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The path contains `..`.
    #[error("invalid path: `{0}` must not contain '..'")]
    Backwards(String),
    /// The path is neither a directory nor a block device.
    #[error("only directory and block device are supported, and `{0}` is neither")]
    WrongType(String),
    /// The path cannot be looked at.
    #[error("local: cannot look at `{path}`")]
    Unseen {
        /// The path in the PersistentVolume.
        path: String,
        source: HostError,
    },
    /// The device cannot be mounted.
    #[error("local: failed to mount the volume's device")]
    Mount { source: FormatError },
    /// The device holds something that cannot be expanded.
    #[error("cannot grow `{device}`: it holds {content}")]
    CannotGrow {
        device: String,
        /// The content of the device.
        content: String,
    },
    /// The volume is mounted, but its files could not be given to the pod's group.
    #[error("cannot give the volume to group {gid}")]
    Ownership { gid: u32, source: HostError },
}

impl Classified for LocalError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Ownership { .. } => ErrorClass::Uncertain,
            Self::Backwards(_)
            | Self::WrongType(_)
            | Self::Unseen { .. }
            | Self::Mount { .. }
            | Self::CannotGrow { .. } => ErrorClass::Final,
        }
    }

    fn sign(&self) -> Option<Sign> {
        match self {
            Self::Mount { source } if source.is_mismatch() => Some(Sign::FilesystemMismatch),
            _ => None,
        }
    }
}

/// The path, and the filesystem type that the volume names.
fn source(spec: &Spec) -> Result<(&str, &str), Failure> {
    match spec.persistent_source() {
        Some(PersistentSource::Local { path, fs_type }) => Ok((path, fs_type)),
        _ => Err(Unfit::WrongSource { plugin: NAME.to_owned(), volume: spec.name().to_string() }.into()),
    }
}

/// Whether the path is a block device and not a directory. Follows symlinks.
async fn is_device(cx: &OperationContext, path: &str) -> Result<bool, Failure> {
    let at = Path::new(path);
    if at.components().any(|part| part == Component::ParentDir) {
        return Err(LocalError::Backwards(path.to_owned()).into());
    }
    let unseen = |source| LocalError::Unseen { path: path.to_owned(), source };
    match cx.host.metadata(at).await.map_err(unseen)?.kind {
        FileKind::Directory => Ok(false),
        FileKind::BlockDevice => Ok(true),
        _ => Err(LocalError::WrongType(path.to_owned()).into()),
    }
}

#[async_trait]
impl VolumePlugin for LocalPlugin {
    fn name(&self) -> PluginName {
        PluginName::new(NAME)
    }

    fn supports(&self, spec: &Spec) -> bool {
        source(spec).is_ok()
    }

    fn volume_name(&self, spec: &Spec) -> Result<String, Failure> {
        Ok(spec.name().to_string())
    }

    fn takes_mount_options(&self) -> bool {
        true
    }

    fn can_device_mount(&self, _spec: &Spec) -> bool {
        true
    }

    fn target(&self, paths: &Paths, pod: &PodUid, inner: &SpecName) -> PathBuf {
        paths.pod_volume(pod, &self.name(), inner)
    }

    async fn set_up(&self, cx: &OperationContext, request: &SetUp) -> Result<Mounted, Failure> {
        let (path, _) = source(&request.spec)?;
        let read_only = request.spec.read_only;
        let global = match is_device(cx, path).await? {
            true => cx.paths.local_mount(&request.spec.name()),
            false => PathBuf::from(path),
        };
        let dir = self.target(&cx.paths, &request.pod.uid(), &request.spec.name());
        // Only with a group: it reads every mount of the node.
        let mut shared = false;
        if let Some(gid) = request.group {
            let others = others(cx, &global, &dir).await?;
            warn_of_another_group(cx, request, &global, gid, &others).await?;
            shared = !others.is_empty();
        }
        let there = match cx.host.is_mount_point(&dir).await {
            Err(error) if error.is_not_found() => false,
            there => there?,
        };
        if !there {
            cx.host.make_dir_all(&dir, 0o750).await?;
            cx.mark.pod_uncertain().await?;
            let options = mount_options(&request.spec, read_only);
            if let Err(error) = host::bind::mount(&*cx.host, &global, &dir, &options).await {
                return Err(undo(cx, &dir, error.into()).await);
            }
        }
        // The group is not changed while other pods use the volume. A mount from an earlier attempt may have
        // been changed in part, so it is changed again.
        if let Some(gid) = request.group.filter(|_| !read_only && !shared) {
            let ownership = Ownership { gid, read_only, on_root_mismatch: request.group_on_root_mismatch };
            let walked = ownership::apply(cx, &request.pod, &dir, ownership).await;
            walked.map_err(|source| LocalError::Ownership { gid, source })?;
        }
        Ok(Mounted { path: dir, read_only, managed: !read_only, selinux_relabel: true })
    }

    async fn tear_down(&self, cx: &OperationContext, request: &TearDown) -> Result<(), Failure> {
        let dir = self.target(&cx.paths, &request.pod, &request.inner);
        Ok(cleanup::mount_point(&*cx.host, &dir, Check::Extensive).await?)
    }

    async fn reconstruct(&self, scene: &Scene<'_>, found: &Found) -> Result<Rebuilt, Failure> {
        reconstruct::volume(scene, found).await
    }

    async fn find_staged(&self, scene: &Scene<'_>) -> Vec<Staged> {
        reconstruct::staged(scene).await
    }

    fn device_mounter(&self) -> Option<&dyn DeviceMounter> {
        Some(self)
    }

    fn block_mapper(&self) -> Option<&dyn BlockMapper> {
        Some(self)
    }

    fn expander(&self) -> Option<&dyn Expander> {
        Some(self)
    }
}

/// The mounts of the same source for other pods.
async fn others(cx: &OperationContext, global: &Path, own: &Path) -> Result<Vec<PathBuf>, HostError> {
    let mut refs = host::lookup::mount_refs(&*cx.host, global).await?;
    refs.retain(|path| path.starts_with(cx.paths.pods()) && path != own);
    Ok(refs)
}

async fn warn_of_another_group(
    cx: &OperationContext,
    request: &SetUp,
    global: &Path,
    gid: u32,
    others: &[PathBuf],
) -> Result<(), HostError> {
    if others.is_empty() {
        return Ok(());
    }
    let present = cx.host.metadata(global).await?.gid;
    if present != gid {
        let message = format!(
            "The requested fsGroup is {gid}, but the volume {} has GID {present}. The volume may not be \
             shareable.",
            request.spec.name()
        );
        cx.events.warn_pod(&request.pod, Reason::AlreadyMountedVolume, message);
    }
    Ok(())
}

#[async_trait]
impl DeviceMounter for LocalPlugin {
    /// The mount of a device's filesystem. A directory is not staged, and nothing is done at this path.
    fn device_mount_path(&self, paths: &Paths, spec: &Spec) -> Result<PathBuf, Failure> {
        Ok(paths.local_mount(&spec.name()))
    }

    async fn mount_device(&self, cx: &OperationContext, request: &MountDevice) -> Result<(), Failure> {
        let (path, fs_type) = source(&request.spec)?;
        if !is_device(cx, path).await? {
            return Ok(());
        }
        match cx.host.is_mount_point(&request.path).await {
            Ok(true) => return Ok(()),
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
        let read_only = if request.spec.read_only { &["ro"][..] } else { &[] };
        let order = FormatAndMount {
            device: PathBuf::from(path),
            target: request.path.clone(),
            fs_type: fs_type.to_owned(),
            options: MountOptions::new(read_only),
            format_options: Vec::new(),
        };
        // Before the directory is created: if the mark is refused, no later step would remove it.
        cx.mark.device_uncertain(&request.path).await?;
        cx.host.make_dir_all(&request.path, 0o750).await?;
        if let Err(source) = format_and_mount(&*cx.host, &order).await {
            let failure = LocalError::Mount { source }.into();
            return Err(undo(cx, &request.path, failure).await);
        }
        Ok(())
    }

    async fn unmount_device(&self, cx: &OperationContext, path: &Path, spec: &Spec) -> Result<(), Failure> {
        // Only the plugin's own mount: the volume's path belongs to the administrator.
        if path != cx.paths.local_mount(&spec.name()) {
            return Ok(());
        }
        Ok(cleanup::mount_point(&*cx.host, path, Check::Extensive).await?)
    }

    async fn device_mount_refs(&self, cx: &OperationContext, path: &Path) -> Result<Vec<PathBuf>, Failure> {
        Ok(host::lookup::mount_refs(&*cx.host, path).await?)
    }
}

#[async_trait]
impl BlockMapper for LocalPlugin {
    fn global_map_path(&self, paths: &Paths, spec: &Spec) -> Result<PathBuf, Failure> {
        Ok(paths.local_block_map(&spec.name()))
    }

    fn pod_device(&self, paths: &Paths, pod: &PodUid, inner: &SpecName) -> PathBuf {
        paths.pod_device(pod, &self.name(), inner)
    }

    async fn prepare(&self, _cx: &OperationContext, _request: &MapDevice) -> Result<(), Failure> {
        Ok(())
    }

    async fn set_up_device(
        &self,
        _cx: &OperationContext,
        _request: &MapDevice,
    ) -> Result<Option<PathBuf>, Failure> {
        Ok(None)
    }

    /// The device exists; the risk is in the map that is built next.
    async fn map_pod_device(&self, cx: &OperationContext, request: &MapDevice) -> Result<PathBuf, Failure> {
        let (path, _) = source(&request.spec)?;
        cx.mark.pod_uncertain().await?;
        Ok(PathBuf::from(path))
    }

    async fn unmap_pod_device(&self, _cx: &OperationContext, _request: &TearDown) -> Result<(), Failure> {
        Ok(())
    }

    async fn tear_down_device(&self, _cx: &OperationContext, _spec: &Spec) -> Result<(), Failure> {
        Ok(())
    }
}

#[async_trait]
impl Expander for LocalPlugin {
    fn requires_resize(&self) -> bool {
        true
    }

    /// Expands the filesystem to the size of its device, which the administrator has enlarged.
    async fn expand(&self, cx: &OperationContext, request: &Expand) -> Result<(), Failure> {
        let (path, _) = source(&request.spec)?;
        if request.spec.mode() == VolumeMode::Block || !is_device(cx, path).await? {
            return Ok(());
        }
        let device = PathBuf::from(path);
        match cx.host.probe_device(&device).await? {
            DiskContent::Nothing => Ok(()),
            DiskContent::FileSystem(fs_type) => {
                let mounted_at = cx.paths.local_mount(&request.spec.name());
                Ok(cx.host.grow_filesystem(&Grow { device, fs_type, mounted_at }).await?)
            }
            content @ DiskContent::Partitions => {
                let (device, content) = (path.to_owned(), content.format_name().to_owned());
                Err(LocalError::CannotGrow { device, content }.into())
            }
        }
    }
}
