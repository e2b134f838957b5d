//! Volumes whose files are made from API objects: ConfigMaps, Secrets, fields of the pod, and projections of
//! these.
//!
//! The common part is here: a directory like an emptyDir's, mount points for other volumes below it, and the
//! files, replaced all at once. Each kind has a [`Source`] for its files.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Component, Path, PathBuf};

use api::error::ErrorClass;
use api::names::{OuterName, PluginName, PodUid, SpecName};
use api::pod::{Content, KeyFile};
use api::{ApiError, Pod, Sensitive, VolumeSource};
use async_trait::async_trait;
use host::{HostError, OwnershipChange};
use plugin_api::error::{Classified, Failure};
use plugin_api::paths::Paths;
use plugin_api::{
    Facts, Found, Mounted, OperationContext, Rebuilt, Scene, SetUp, Spec, TearDown, VolumePlugin,
};

use super::atomic_writer::{self, File, Payload, WriteError};
use super::empty_dir::{Medium, memory_limit, rebuilt, wrapped};

/// The source of the files of one kind of volume.
#[async_trait]
pub(super) trait Source: fmt::Debug + Send + Sync + 'static {
    const NAME: &'static str;
    /// Whether the files are in memory only.
    const IN_MEMORY: bool;

    /// Whether a volume is of this kind.
    fn takes(source: &VolumeSource) -> bool;

    /// The object that is part of the plugin's name of the volume.
    fn object(source: &VolumeSource) -> Option<&str>;

    /// The files as they should be now.
    async fn payload(
        cx: &OperationContext,
        source: &VolumeSource,
        request: &SetUp,
    ) -> Result<Payload, ContentError>;

    /// The source of a volume that was reconstructed from its directory.
    fn found(inner: &SpecName) -> VolumeSource;
}

/// The plugin for volumes of a [`Source`].
#[derive(Debug, Default)]
pub(super) struct ContentPlugin<S>(std::marker::PhantomData<S>);

impl<S> ContentPlugin<S> {
    pub(super) fn new() -> Self {
        Self(std::marker::PhantomData)
    }
}

/// Why a volume's files cannot be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum ContentError {
    /// An API object could not be read.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// An object lacks a key that the volume lists.
    // The kubelet names ConfigMaps in this text, but not Secrets.
    #[error("{}references non-existent {kind} key: {key}", if *kind == "config" { "configmap " } else { "" })]
    NoKey {
        /// `config` or `secret`.
        kind: &'static str,
        key: String,
    },
    /// The pod has no such field.
    #[error("unsupported fieldPath: {0}")]
    NoField(String),
    /// The amount of a resource is not known.
    #[error("the amount of resource {0} is not known")]
    NoResource(String),
    /// This kind of projection is not supported here.
    #[error("no volume projection of kind {0}")]
    Unsupported(String),
    #[error("[{}]", .0.join(", "))]
    Several(Vec<String>),
    /// A container's mount point is outside of its root.
    #[error("invalid container mount point {0}")]
    BadMountPoint(String),
    /// The volume is of another kind.
    #[error("volume `{0}` is of another kind")]
    WrongSource(SpecName),
    /// The directory could not be created.
    #[error("cannot make the directory of the volume")]
    Host(#[from] HostError),
    #[error(transparent)]
    Write(WriteError),
}

impl Classified for ContentError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Api(_)
            | Self::NoKey { .. }
            | Self::NoField(_)
            | Self::NoResource(_)
            | Self::Unsupported(_)
            | Self::Several(_)
            | Self::BadMountPoint(_)
            | Self::WrongSource(_) => ErrorClass::Transient,
            // Some of the files may be written.
            Self::Host(_) | Self::Write(_) => ErrorClass::Uncertain,
        }
    }
}

impl ContentError {
    /// All errors as one; `None` for an empty list.
    pub(super) fn all(errors: Vec<Self>) -> Option<Self> {
        let texts = |errors: &[Self]| errors.iter().map(|error| api::error::chain(error)).collect();
        match errors.len() {
            0 | 1 => errors.into_iter().next(),
            _ => Some(Self::Several(texts(&errors))),
        }
    }
}

/// The files of an object: of all its keys, or of the listed keys under the listed paths.
pub(super) fn files_of<'a>(
    kind: &'static str,
    content: &Content,
    find: impl Fn(&str) -> Option<Vec<u8>>,
    keys: impl Iterator<Item = &'a String>,
    default_mode: u32,
) -> Result<Payload, ContentError> {
    let file = |bytes: Vec<u8>, mode| File { content: Sensitive::new(bytes), mode, owner: None };
    if content.items.is_empty() {
        let all = keys.filter_map(|key| Some((key.clone(), file(find(key)?, default_mode))));
        return Ok(all.collect());
    }
    let mut payload = Payload::new();
    for KeyFile { key, path, mode } in &content.items {
        match find(key) {
            Some(bytes) => {
                payload.insert(path.clone(), file(bytes, mode.unwrap_or(default_mode)));
            }
            None if content.optional => {}
            None => return Err(ContentError::NoKey { kind, key: key.clone() }),
        }
    }
    Ok(payload)
}

/// The object; `None` if it is missing and optional.
pub(super) fn unless_missing<T>(
    answer: Result<T, ApiError>,
    optional: bool,
) -> Result<Option<T>, ContentError> {
    match answer {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() && optional => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The directories that the volume needs as mount points for the containers' other volumes: only the outermost,
/// since deeper ones are inside those other volumes.
fn nested_mount_points(pod: &Pod, volume: &OuterName) -> Result<BTreeSet<PathBuf>, ContentError> {
    let mut nested = BTreeSet::new();
    for container in &pod.containers {
        let mut points: Vec<PathBuf> = container.mounts.iter().map(|mount| clean(&mount.path)).collect();
        points.sort();
        for own in container.mounts.iter().filter(|mount| mount.volume == volume.as_str()) {
            let own = clean(&own.path);
            if own.starts_with("..") {
                return Err(ContentError::BadMountPoint(own.display().to_string()));
            }
            let mut previous: Option<&Path> = None;
            for point in &points {
                let Ok(below) = point.strip_prefix(&own) else { continue };
                if below.as_os_str().is_empty() || previous.is_some_and(|outer| point.starts_with(outer)) {
                    continue;
                }
                previous = Some(point);
                nested.insert(below.to_owned());
            }
        }
    }
    Ok(nested)
}

/// The path without `.` and, where possible, without `..`.
fn clean(path: &str) -> PathBuf {
    let mut cleaned = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => match cleaned.components().next_back() {
                Some(Component::Normal(_)) => {
                    cleaned.pop();
                }
                Some(Component::RootDir) => {}
                _ => cleaned.push(".."),
            },
            part => cleaned.push(part),
        }
    }
    cleaned
}

async fn write<S: Source>(
    cx: &OperationContext,
    request: &SetUp,
    dir: &Path,
    payload: &Payload,
) -> Result<(), ContentError> {
    let own = wrapped(&cx.paths, &request.pod.uid(), &request.spec.name(), dir);
    let medium = match S::IN_MEMORY {
        true => Medium::Memory(memory_limit(cx, &request.pod, None)),
        false => Medium::Disk,
    };
    own.set_up(cx, &medium, &request.pod, request.group).await?;
    for point in nested_mount_points(&request.pod, &request.outer)? {
        cx.host.make_dir_all(&dir.join(point), 0o755).await?;
    }
    // Containers can only read these files, even if their mounts are writable.
    let ownership = request.group.map(|gid| OwnershipChange { gid, read_only: true });
    let written = atomic_writer::write(&*cx.host, dir, payload, ownership).await;
    if written.is_err() && request.before == plugin_api::Before::Absent {
        // A new volume is removed again; a volume that is in use keeps its old files. The first error is
        // returned.
        let _ = own.tear_down(&*cx.host).await;
    }
    written.map_err(ContentError::Write)
}

#[async_trait]
impl<S: Source> VolumePlugin for ContentPlugin<S> {
    fn name(&self) -> PluginName {
        PluginName::new(S::NAME)
    }

    fn supports(&self, spec: &Spec) -> bool {
        spec.pod_volume().is_some_and(|volume| S::takes(&volume.source))
    }

    fn volume_name(&self, spec: &Spec) -> Result<String, Failure> {
        let object = spec.pod_volume().and_then(|volume| S::object(&volume.source));
        Ok(match object {
            Some(object) => format!("{}/{object}", spec.name()),
            None => spec.name().to_string(),
        })
    }

    /// The files are updated by setting the volume up again.
    fn requires_remount(&self, _spec: &Spec, _facts: &Facts) -> bool {
        true
    }

    fn target(&self, paths: &Paths, pod: &PodUid, inner: &SpecName) -> PathBuf {
        paths.pod_volume(pod, &self.name(), inner)
    }

    async fn set_up(&self, cx: &OperationContext, request: &SetUp) -> Result<Mounted, Failure> {
        let source = request.spec.pod_volume().map(|volume| &volume.source).filter(|source| S::takes(source));
        let source = source.ok_or_else(|| ContentError::WrongSource(request.spec.name()))?;
        // Everything is read before anything is touched.
        let payload = S::payload(cx, source, request).await?;
        let dir = self.target(&cx.paths, &request.pod.uid(), &request.spec.name());
        cx.mark.pod_uncertain().await?;
        write::<S>(cx, request, &dir, &payload).await.map_err(|error| {
            // The directory may exist after any failure.
            Failure::from(error).with_class(ErrorClass::Uncertain)
        })?;
        Ok(Mounted { path: dir, read_only: true, managed: true, selinux_relabel: true })
    }

    async fn tear_down(&self, cx: &OperationContext, request: &TearDown) -> Result<(), Failure> {
        let dir = self.target(&cx.paths, &request.pod, &request.inner);
        Ok(wrapped(&cx.paths, &request.pod, &request.inner, &dir).tear_down(&*cx.host).await?)
    }

    async fn reconstruct(&self, _scene: &Scene<'_>, found: &Found) -> Result<Rebuilt, Failure> {
        Ok(rebuilt(found, S::found(&found.inner)))
    }
}

#[cfg(test)]
mod tests {
    use api::Container;
    use api::pod::VolumeMount;

    use super::*;

    fn pod(mounts: &[(&str, &str)]) -> Pod {
        let mount = |(volume, path): &(&str, &str)| VolumeMount {
            volume: (*volume).into(),
            path: (*path).into(),
            ..VolumeMount::default()
        };
        let mounts = mounts.iter().map(mount).collect();
        Pod { containers: vec![Container { mounts, ..Container::default() }], ..Pod::default() }
    }

    #[test]
    fn the_first_level_of_mounts_below_a_volume_is_made_in_it() {
        let pod = pod(&[
            ("cm", "/etc/app"),
            ("a", "/etc/app/a"),
            ("b", "/etc/app/a/b"),
            ("c", "/etc/app/c/deep"),
            ("other", "/etc/apparmor"),
            ("dots", "/etc/app/../app/x/."),
        ]);
        let nested = nested_mount_points(&pod, &"cm".into()).unwrap();
        let nested: Vec<_> = nested.iter().map(|path| path.display().to_string()).collect();
        assert_eq!(nested, ["a", "c/deep", "x"]);
    }

    #[test]
    fn nothing_is_made_outside_of_the_volume() {
        let error = nested_mount_points(&pod(&[("cm", "../x"), ("a", "../x/y")]), &"cm".into());
        assert_eq!(error.unwrap_err().to_string(), "invalid container mount point ../x");
    }
}
