//! emptyDir: a directory that lives as long as its pod, on disk or in memory.
//!
//! Touches `pods/<uid>/volumes/kubernetes.io~empty-dir/<volume>` and the ready marker beside the volumes.
//! Volumes whose files are made from API objects use [`Dir`] as well.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::error::ErrorClass;
use api::names::{OuterName, PluginName, PodUid, SpecName};
use api::{Bytes, Container, ContainerKind, Pod, PodVolume, VolumeSource};
use async_trait::async_trait;
use host::{FsStats, Host, HostError, MountOptions, MountSpec, Removal};
use plugin_api::error::{Classified, Failure, Unfit};
use plugin_api::paths::Paths;
use plugin_api::{Found, Mounted, OperationContext, Rebuilt, Scene, SetUp, Spec, TearDown, VolumePlugin};

use crate::ownership::{self, Ownership};

pub const NAME: &str = "kubernetes.io/empty-dir";

/// The plugin for emptyDir volumes.
#[derive(Debug, Clone, Copy, Default)]
pub struct EmptyDirPlugin;

/// The storage of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Medium {
    /// The disk that the pod's directory is on.
    Disk,
    /// A tmpfs, with a size limit or without.
    Memory(Option<Bytes>),
    /// A hugetlbfs with this page size.
    HugePages(String),
}

/// The directory of a volume.
#[derive(Debug)]
pub(super) struct Dir {
    pub(super) path: PathBuf,
    /// The directory of the ready marker, a file that marks the volume as complete.
    pub(super) ready: PathBuf,
}

impl Dir {
    /// Creates the directory, unless it exists and is complete.
    pub(super) async fn set_up(
        &self,
        cx: &OperationContext,
        medium: &Medium,
        pod: &Pod,
        group: Option<u32>,
    ) -> Result<(), HostError> {
        let host = &*cx.host;
        let mounted = match host.is_likely_mount_point(&self.path).await {
            Err(error) if error.is_not_found() => None,
            mounted => Some(mounted?),
        };
        if self.is_ready(host).await? {
            match medium {
                Medium::Memory(_) if mounted == Some(true) => return Ok(()),
                Medium::Disk if mounted.is_some() => return Ok(()),
                Medium::Disk => {
                    tracing::warn!(path = %self.path.display(), "the directory of a complete volume is missing; creating it anew");
                    host.remove_tree(&self.ready, Removal::OneFilesystem).await?;
                }
                // After a reboot the marker exists and the memory is empty.
                Medium::Memory(_) | Medium::HugePages(_) => {}
            }
        }
        let made = self.make(host, medium).await;
        if let Some(gid) = group {
            // As in the kubelet, the volume is set up even if this fails.
            let ownership = Ownership { gid, read_only: false, on_root_mismatch: false };
            if let Err(error) = ownership::apply(cx, pod, &self.path, ownership).await {
                let error = api::error::chain(&error);
                tracing::warn!(path = %self.path.display(), error, "cannot give a volume's files to the pod's group; the volume is mounted without");
            }
        }
        made?;
        host.make_dir_all(&self.ready, 0o750).await?;
        match host.create_file(&self.ready.join("ready"), 0o666).await {
            Err(error) if !error.is_exists() => Err(error),
            _ => Ok(()),
        }
    }

    async fn is_ready(&self, host: &dyn Host) -> Result<bool, HostError> {
        match host.symlink_metadata(&self.ready.join("ready")).await {
            Ok(there) => Ok(there.kind == host::FileKind::File),
            Err(error) if error.is_not_found() || error.is_not_a_directory() => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn make(&self, host: &dyn Host, medium: &Medium) -> Result<(), HostError> {
        self.make_dir(host).await?;
        let (magic, spec) = match medium {
            Medium::Disk => return Ok(()),
            Medium::Memory(limit) => {
                let mut options = MountOptions::default();
                if let Some(limit) = limit.filter(|limit| !limit.is_zero()) {
                    options.push(format!("size={}", limit.0));
                }
                if host.tmpfs_takes_noswap().await {
                    options.push("noswap");
                }
                (FsStats::TMPFS, MountSpec::new("tmpfs", &self.path, "tmpfs").with_options(options))
            }
            Medium::HugePages(size) => {
                let options = MountOptions::new([format!("pagesize={size}")]);
                let spec = MountSpec::new("nodev", &self.path, "hugetlbfs").with_options(options);
                (FsStats::HUGETLBFS, spec)
            }
        };
        let there = host.statfs(&self.path).await?.magic == magic;
        if there && host.is_likely_mount_point(&self.path).await? {
            return Ok(());
        }
        host.mount(&spec).await
    }

    /// Every user may write, with any umask.
    async fn make_dir(&self, host: &dyn Host) -> Result<(), HostError> {
        host.make_dir_all(&self.path, 0o777).await?;
        let there = host.symlink_metadata(&self.path).await?;
        // The root of a mount has a mode of its own.
        if there.mode & 0o777 != 0o777 {
            host.chmod(&self.path, 0o777).await?;
        }
        Ok(())
    }

    /// Removes the directory and everything in it. Another mount below it is not touched and makes this fail.
    pub(super) async fn tear_down(&self, host: &dyn Host) -> Result<(), HostError> {
        // First, so that a half removed directory does not look complete.
        host.remove_tree(&self.ready, Removal::OneFilesystem).await?;
        let stats = match host.statfs(&self.path).await {
            Err(error) if error.is_not_found() => return Ok(()),
            stats => stats?,
        };
        let in_memory = matches!(stats.magic, FsStats::TMPFS | FsStats::HUGETLBFS);
        if in_memory && host.is_likely_mount_point(&self.path).await? {
            host.unmount(&self.path).await?;
        }
        host.remove_tree(&self.path, Removal::OneFilesystem).await
    }
}

/// The size limit of a volume in memory: the least of the node's allocatable memory, the pod's memory limit and
/// the volume's own limit.
pub(super) fn memory_limit(cx: &OperationContext, pod: &Pod, own: Option<Bytes>) -> Option<Bytes> {
    let node = cx.facts().node.as_ref().map(|node| node.allocatable.memory);
    let limits = [node, pod_memory_limit(pod), own];
    limits.into_iter().flatten().filter(|limit| !limit.is_zero()).min()
}

/// The memory limit of the pod's cgroup: the pod's own, or that of its containers. `None` unless all of them have one.
fn pod_memory_limit(pod: &Pod) -> Option<Bytes> {
    let written =
        |resources: &BTreeMap<String, String>| Bytes::from_quantity(resources.get("limits.memory")?);
    if let Some(own) = written(&pod.resources) {
        return Some(own);
    }
    let counted = |container: &&Container| container.kind != ContainerKind::Ephemeral;
    let all_limited =
        pod.containers.iter().filter(counted).all(|container| written(&container.resources).is_some());
    let used = |container: &Container| written(&container.resources).unwrap_or_default().0;
    all_limited.then(|| Bytes(pod.most_used(used)))
}

/// The page size of a medium, from the containers' requests for huge pages.
fn page_size(medium: &str, pod: &Pod) -> Result<String, MediumError> {
    let of_containers = pod.containers.iter().flat_map(|container| container.resources.keys());
    let requests = pod.resources.keys().chain(of_containers);
    let sizes: BTreeSet<&str> =
        requests.filter_map(|name| name.strip_prefix("requests.hugepages-")).collect();
    let missing = || MediumError::NoRequest(medium.to_owned());
    match medium.strip_prefix("HugePages-") {
        Some(size) if sizes.contains(size) => Ok(size.to_owned()),
        Some(_) => Err(missing()),
        None => match sizes.len() {
            0 => Err(missing()),
            1 => Ok(sizes.into_iter().next().unwrap_or_default().to_owned()),
            _ => Err(MediumError::SeveralSizes(medium.to_owned())),
        },
    }
}

/// Fails if the directory is mounted with another page size than its medium names. The kernel writes `2M` for
/// Kubernetes' `2Mi`.
async fn check_page_size(host: &dyn Host, path: &Path, medium: &str, size: &str) -> Result<(), Failure> {
    match host.is_likely_mount_point(path).await {
        Ok(true) => {}
        Ok(false) => return Ok(()),
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    let mount = host.mount_of(path).await?;
    let there = mount.super_options.iter().find_map(|option| option.strip_prefix("pagesize="));
    match there.map(|there| format!("{}i", there.trim_end_matches('i'))) {
        Some(there) if Bytes::from_quantity(&there) != Bytes::from_quantity(size) => {
            Err(MediumError::OtherSize { medium: medium.to_owned(), there }.into())
        }
        _ => Ok(()),
    }
}

/// Why a volume cannot have its medium.
#[derive(Debug, thiserror::Error)]
pub enum MediumError {
    /// The medium is unknown.
    #[error("unknown storage medium \"{0}\"")]
    Unknown(String),
    /// The pod requests no huge pages.
    #[error("medium {0}: hugePages storage requested, but there is no resource request for huge pages")]
    NoRequest(String),
    /// The pod requests huge pages of several sizes, and the volume does not name one.
    #[error("medium {0}: more than one page size requested for huge pages in a pod")]
    SeveralSizes(String),
    /// The volume is mounted already, with another page size.
    #[error("medium {medium}: the page size and that of the mount, {there}, differ")]
    OtherSize {
        medium: String,
        /// The page size of the mount.
        there: String,
    },
}

impl Classified for MediumError {
    fn class(&self) -> ErrorClass {
        ErrorClass::Final
    }
}

fn dir_of(paths: &Paths, pod: &PodUid, inner: &SpecName) -> Dir {
    let plugin = PluginName::new(NAME);
    Dir { path: paths.pod_volume(pod, &plugin, inner), ready: paths.pod_plugin(pod, &plugin, inner.as_str()) }
}

#[async_trait]
impl VolumePlugin for EmptyDirPlugin {
    fn name(&self) -> PluginName {
        PluginName::new(NAME)
    }

    fn supports(&self, spec: &Spec) -> bool {
        matches!(spec.pod_volume().map(|volume| &volume.source), Some(VolumeSource::EmptyDir { .. }))
    }

    fn volume_name(&self, spec: &Spec) -> Result<String, Failure> {
        Ok(spec.name().to_string())
    }

    fn target(&self, paths: &Paths, pod: &PodUid, inner: &SpecName) -> PathBuf {
        dir_of(paths, pod, inner).path
    }

    async fn set_up(&self, cx: &OperationContext, request: &SetUp) -> Result<Mounted, Failure> {
        let source = request.spec.pod_volume().map(|volume| &volume.source);
        let Some(VolumeSource::EmptyDir { medium, size_limit }) = source else {
            let (plugin, volume) = (NAME.to_owned(), request.spec.name().to_string());
            return Err(Unfit::WrongSource { plugin, volume }.into());
        };
        let dir = dir_of(&cx.paths, &request.pod.uid(), &request.spec.name());
        let medium = match medium.as_str() {
            "" => Medium::Disk,
            "Memory" => Medium::Memory(memory_limit(cx, &request.pod, *size_limit)),
            "HugePages" => Medium::HugePages(page_size(medium, &request.pod)?),
            sized if sized.starts_with("HugePages-") => {
                let size = page_size(sized, &request.pod)?;
                check_page_size(&*cx.host, &dir.path, sized, &size).await?;
                Medium::HugePages(size)
            }
            _ => return Err(MediumError::Unknown(medium.clone()).into()),
        };
        cx.mark.pod_uncertain().await?;
        let made = dir.set_up(cx, &medium, &request.pod, request.group).await;
        // A part of the volume may exist after any failure.
        made.map_err(|error| Failure::from(error).with_class(ErrorClass::Uncertain))?;
        Ok(Mounted { path: dir.path, read_only: false, managed: true, selinux_relabel: true })
    }

    async fn tear_down(&self, cx: &OperationContext, request: &TearDown) -> Result<(), Failure> {
        Ok(dir_of(&cx.paths, &request.pod, &request.inner).tear_down(&*cx.host).await?)
    }

    /// The medium does not matter: tear-down looks at the mount.
    async fn reconstruct(&self, _scene: &Scene<'_>, found: &Found) -> Result<Rebuilt, Failure> {
        Ok(rebuilt(found, VolumeSource::EmptyDir { medium: String::new(), size_limit: None }))
    }
}

/// The reconstructed inline volume of a directory.
pub(super) fn rebuilt(found: &Found, source: VolumeSource) -> Rebuilt {
    let volume = PodVolume { name: OuterName::new(found.inner.as_str()), source };
    Rebuilt { spec: Spec::inline(Arc::new(volume)), device_mount_path: None, selinux_label: None }
}

/// The directory of a volume of another kind that is like an emptyDir.
pub(super) fn wrapped(paths: &Paths, pod: &PodUid, inner: &SpecName, path: &Path) -> Dir {
    let volume = format!("wrapped_{inner}");
    Dir { path: path.to_owned(), ready: paths.pod_plugin(pod, &PluginName::new(NAME), &volume) }
}
