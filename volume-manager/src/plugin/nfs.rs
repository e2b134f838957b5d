//! NFS: an export that is mounted once for each pod.
//!
//! Touches `pods/<uid>/volumes/kubernetes.io~nfs/<volume>`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use api::error::ErrorClass;
use api::names::{PluginName, PodUid, SpecName};
use api::{PersistentSource, VolumeSource};
use async_trait::async_trait;
use host::cleanup::{self, Check};
use host::{MountOptions, MountSpec};
use plugin_api::error::{Failure, Unfit};
use plugin_api::paths::Paths;
use plugin_api::{Found, Mounted, OperationContext, Rebuilt, Scene, SetUp, Spec, TearDown, VolumePlugin};

pub const NAME: &str = "kubernetes.io/nfs";

/// The time after which an unmount is forced.
const PATIENCE: Duration = Duration::from_secs(60);

/// The plugin for NFS volumes.
#[derive(Debug, Clone, Copy, Default)]
pub struct NfsPlugin;

struct Export<'a> {
    server: &'a str,
    path: &'a str,
    read_only: bool,
}

fn export(spec: &Spec) -> Option<Export<'_>> {
    if let Some(PersistentSource::Nfs { server, path, .. }) = spec.persistent_source() {
        return Some(Export { server, path, read_only: spec.read_only });
    }
    match &spec.pod_volume()?.source {
        VolumeSource::Nfs { server, path, read_only } => Some(Export { server, path, read_only: *read_only }),
        _ => None,
    }
}

impl Export<'_> {
    /// The source for mount(8); an IPv6 address needs brackets because of its colons.
    fn source(&self) -> String {
        let bare = self.server.contains(':') && !self.server.starts_with('[');
        if bare {
            format!("[{}]:{}", self.server, self.path)
        } else {
            format!("{}:{}", self.server, self.path)
        }
    }
}

/// The mount options of a volume: those of the annotation or else of the field, sorted and without repetitions.
pub(super) fn mount_options(spec: &Spec, read_only: bool) -> MountOptions {
    const ANNOTATION: &str = "volume.beta.kubernetes.io/mount-options";
    let mut options = BTreeSet::new();
    if let Some(volume) = spec.volume() {
        match volume.meta.annotations.get(ANNOTATION) {
            Some(list) => options.extend(list.split(',').map(str::to_owned)),
            None => options.extend(volume.mount_options.iter().cloned()),
        }
    }
    if read_only {
        options.insert("ro".to_owned());
    }
    MountOptions::new(options)
}

#[async_trait]
impl VolumePlugin for NfsPlugin {
    fn name(&self) -> PluginName {
        PluginName::new(NAME)
    }

    fn supports(&self, spec: &Spec) -> bool {
        export(spec).is_some()
    }

    fn volume_name(&self, spec: &Spec) -> Result<String, Failure> {
        let export = export(spec).ok_or_else(|| foreign(spec))?;
        Ok(format!("{}/{}", export.server, export.path))
    }

    fn takes_mount_options(&self) -> bool {
        true
    }

    fn target(&self, paths: &Paths, pod: &PodUid, inner: &SpecName) -> PathBuf {
        paths.pod_volume(pod, &self.name(), inner)
    }

    async fn set_up(&self, cx: &OperationContext, request: &SetUp) -> Result<Mounted, Failure> {
        let export = export(&request.spec).ok_or_else(|| foreign(&request.spec))?;
        let dir = self.target(&cx.paths, &request.pod.uid(), &request.spec.name());
        let mounted = Mounted {
            path: dir.clone(),
            read_only: export.read_only,
            managed: false,
            selinux_relabel: false,
        };
        match cx.host.is_mount_point(&dir).await {
            Ok(true) => return Ok(mounted),
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
        cx.host.make_dir_all(&dir, 0o750).await?;
        let options = mount_options(&request.spec, export.read_only);
        let spec = MountSpec::new(export.source(), &dir, "nfs").with_options(options);
        cx.mark.pod_uncertain().await?;
        if let Err(error) = cx.host.mount(&spec).await {
            return Err(undo(cx, &dir, error.into()).await);
        }
        Ok(mounted)
    }

    async fn tear_down(&self, cx: &OperationContext, request: &TearDown) -> Result<(), Failure> {
        let dir = self.target(&cx.paths, &request.pod, &request.inner);
        let patience = cx.clock.sleep(PATIENCE);
        Ok(cleanup::mount_point_with_force(&*cx.host, &dir, Check::Extensive, patience).await?)
    }

    async fn reconstruct(&self, _scene: &Scene<'_>, found: &Found) -> Result<Rebuilt, Failure> {
        let (server, path) = (String::new(), found.inner.to_string());
        Ok(super::empty_dir::rebuilt(found, VolumeSource::Nfs { server, path, read_only: false }))
    }
}

/// Removes the leftovers of a failed mount. If that fails, the failure becomes uncertain; the mount's error is returned in
/// both cases.
pub(super) async fn undo(cx: &OperationContext, dir: &std::path::Path, failure: Failure) -> Failure {
    match cleanup::mount_point(&*cx.host, dir, Check::Extensive).await {
        Ok(()) => failure.with_class(ErrorClass::Final),
        Err(_) => failure.with_class(ErrorClass::Uncertain),
    }
}

fn foreign(spec: &Spec) -> Failure {
    Unfit::WrongSource { plugin: NAME.to_owned(), volume: spec.name().to_string() }.into()
}
