//! FlexVolume: a volume that a program of the administrator mounts and unmounts.
//!
//! Runs the program of the driver that a volume names; touches `pods/<uid>/volumes/<vendor~driver>/<volume>`.

mod answer;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use api::error::ErrorClass;
use api::names::{PluginName, PodUid, SpecName};
use api::storage::FlexVolume;
use api::{ApiError, PersistentSource, Pod, Secret, VolumeSource};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use host::HostError;
use host::cleanup::{self, Check};
use plugin_api::error::{Classified, Failure, Unfit};
use plugin_api::paths::Paths;
use plugin_api::registry::PluginFamily;
use plugin_api::{Found, Mounted, OperationContext, Rebuilt, Scene, SetUp, Spec, TearDown, VolumePlugin};
use tokio::sync::OnceCell;

use self::answer::{Answer, Capabilities};
use crate::ownership::{self, Ownership};

/// The plugins of all FlexVolume drivers, each made when a volume or a directory first names its driver.
#[derive(Debug, Default)]
pub struct FlexVolumes(Mutex<BTreeMap<String, Arc<FlexVolumePlugin>>>);

/// The plugin of one FlexVolume driver.
#[derive(Debug)]
pub struct FlexVolumePlugin {
    /// The driver, as `vendor/name`.
    driver: String,
    /// What the driver has answered to `init`.
    capabilities: OnceCell<Capabilities>,
}

/// Why a FlexVolume cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FlexVolumeError {
    /// The driver's program cannot be run.
    #[error("cannot call FlexVolume driver {driver}")]
    Program { driver: String, source: HostError },
    /// The driver has refused a command, or does not know it.
    #[error("{command} command failed, status: {status}, reason: {reason}")]
    Refused { command: &'static str, status: String, reason: String },
    /// The driver has not answered in JSON.
    #[error("failed to unmarshal output for command: {command}, output: {output:?}")]
    Unreadable { command: &'static str, output: String },
    #[error(
        "FlexVolume driver {0} attaches volumes, which is not done here; it has to answer `init` with the capability `\"attach\": false`"
    )]
    Attaches(String),
    #[error("cannot read the secret of FlexVolume {volume}")]
    Secret { volume: String, source: ApiError },
    /// The volume is mounted, but its files could not be given to the pod's group.
    #[error("cannot give the volume to group {gid}")]
    Ownership { gid: u32, source: HostError },
}

impl Classified for FlexVolumeError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Secret { .. } => ErrorClass::Transient,
            Self::Ownership { .. } => ErrorClass::Uncertain,
            Self::Program { .. } | Self::Refused { .. } | Self::Unreadable { .. } | Self::Attaches(_) => {
                ErrorClass::Final
            }
        }
    }
}

impl PluginFamily for FlexVolumes {
    fn of_volume(&self, spec: &Spec) -> Option<Arc<dyn VolumePlugin>> {
        Some(self.of_driver(&source(spec)?.driver))
    }

    fn named(&self, name: &PluginName) -> Option<Arc<dyn VolumePlugin>> {
        let (vendor, driver) = name.as_str().split_once('/')?;
        let is_driver = vendor != "kubernetes.io" && !driver.is_empty();
        is_driver.then(|| self.of_driver(name.as_str()))
    }
}

impl FlexVolumes {
    fn of_driver(&self, driver: &str) -> Arc<dyn VolumePlugin> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let driver = driver.to_owned();
            Arc::new(FlexVolumePlugin { driver, capabilities: OnceCell::new() })
        };
        Arc::clone(known.entry(driver.to_owned()).or_insert_with(make)) as _
    }
}

fn source(spec: &Spec) -> Option<&FlexVolume> {
    if let Some(PersistentSource::FlexVolume(flex)) = spec.persistent_source() {
        return Some(flex);
    }
    match &spec.pod_volume()?.source {
        VolumeSource::FlexVolume(flex) => Some(flex),
        _ => None,
    }
}

impl FlexVolumePlugin {
    /// Runs a command of the driver. `Ok(None)`: the driver does not support it.
    async fn call(
        &self,
        cx: &OperationContext,
        command: &'static str,
        target: &Path,
        arguments: &[String],
    ) -> Result<Option<Answer>, FlexVolumeError> {
        let failed = |source| FlexVolumeError::Program { driver: self.driver.clone(), source };
        let program = cx.paths.flex_volume_driver(&self.name());
        let mut all = vec![command.to_owned()];
        all.extend_from_slice(arguments);
        let output = cx.host.run_at(&program, &all, target).await.map_err(failed)?;
        let Some(answer) = Answer::of(&output) else {
            return Err(FlexVolumeError::Unreadable { command, output });
        };
        match answer.status.as_str() {
            "Success" => Ok(Some(answer)),
            "Not supported" => Ok(None),
            _ => {
                let (status, reason) = (answer.status, answer.message);
                Err(FlexVolumeError::Refused { command, status, reason })
            }
        }
    }

    /// Fails with the driver's status for a command that it has to support.
    async fn must(
        &self,
        cx: &OperationContext,
        command: &'static str,
        target: &Path,
        arguments: &[String],
    ) -> Result<Answer, FlexVolumeError> {
        let answer = self.call(cx, command, target, arguments).await?;
        answer.ok_or_else(|| FlexVolumeError::Refused {
            command,
            status: "Not supported".to_owned(),
            reason: String::new(),
        })
    }

    /// What the driver can do. It is asked once.
    async fn capabilities(&self, cx: &OperationContext) -> Result<Capabilities, FlexVolumeError> {
        let program = cx.paths.flex_volume_driver(&self.name());
        let ask = || async { Ok(self.must(cx, "init", &program, &[]).await?.capabilities) };
        self.capabilities.get_or_try_init(ask).await.copied()
    }

    /// The options of a mount as JSON: facts about the volume and its pod, the secret, and the volume's own options.
    async fn options(
        &self,
        cx: &OperationContext,
        request: &SetUp,
        flex: &FlexVolume,
    ) -> Result<String, FlexVolumeError> {
        let secret = secret(cx, &request.pod, &request.spec, flex).await?;
        let read_only = flex.read_only || request.spec.read_only;
        let mut options = BTreeMap::from([
            ("kubernetes.io/fsType".to_owned(), flex.fs_type.clone()),
            ("kubernetes.io/readwrite".to_owned(), if read_only { "ro" } else { "rw" }.to_owned()),
            ("kubernetes.io/pvOrVolumeName".to_owned(), request.spec.name().to_string()),
            ("kubernetes.io/pod.name".to_owned(), request.pod.meta.name.clone()),
            ("kubernetes.io/pod.namespace".to_owned(), request.pod.meta.namespace.clone()),
            ("kubernetes.io/pod.uid".to_owned(), request.pod.meta.uid.clone()),
            ("kubernetes.io/serviceAccount.name".to_owned(), request.pod.service_account.clone()),
        ]);
        if let Some(gid) = request.group {
            options.insert("kubernetes.io/mounterArgs.FsGroup".to_owned(), gid.to_string());
        }
        options.extend(secret);
        options.extend(flex.options.clone());
        Ok(serde_json::to_string(&options).expect("a map of strings is always valid JSON"))
    }
}

/// The entries of the volume's secret, as they are given to a driver.
async fn secret(
    cx: &OperationContext,
    pod: &Pod,
    spec: &Spec,
    flex: &FlexVolume,
) -> Result<BTreeMap<String, String>, FlexVolumeError> {
    let Some(name) = &flex.secret else { return Ok(BTreeMap::new()) };
    let namespace =
        if flex.secret_namespace.is_empty() { &pod.meta.namespace } else { &flex.secret_namespace };
    let secret: Arc<Secret> = api::get(&*cx.api, namespace, name)
        .await
        .map_err(|source| FlexVolumeError::Secret { volume: spec.name().to_string(), source })?;
    let entry = |(key, value): (&String, &api::Sensitive<Vec<u8>>)| {
        (format!("kubernetes.io/secret/{key}"), STANDARD.encode(value.reveal()))
    };
    Ok(secret.data.iter().map(entry).collect())
}

#[async_trait]
impl VolumePlugin for FlexVolumePlugin {
    fn name(&self) -> PluginName {
        PluginName::new(self.driver.as_str())
    }

    fn supports(&self, spec: &Spec) -> bool {
        source(spec).is_some_and(|flex| flex.driver == self.driver)
    }

    fn volume_name(&self, spec: &Spec) -> Result<String, Failure> {
        Ok(spec.name().to_string())
    }

    fn target(&self, paths: &Paths, pod: &PodUid, inner: &SpecName) -> PathBuf {
        paths.pod_volume(pod, &self.name(), inner)
    }

    async fn set_up(&self, cx: &OperationContext, request: &SetUp) -> Result<Mounted, Failure> {
        let flex = source(&request.spec).filter(|flex| flex.driver == self.driver).ok_or_else(|| {
            Unfit::WrongSource { plugin: self.driver.clone(), volume: request.spec.name().to_string() }
        })?;
        let dir = self.target(&cx.paths, &request.pod.uid(), &request.spec.name());
        let read_only = flex.read_only || request.spec.read_only;
        let capabilities = self.capabilities(cx).await?;
        if capabilities.attach {
            return Err(FlexVolumeError::Attaches(self.driver.clone()).into());
        }
        let mounted = Mounted {
            path: dir.clone(),
            read_only,
            managed: !read_only,
            selinux_relabel: capabilities.selinux_relabel,
        };
        match cx.host.is_mount_point(&dir).await {
            Ok(true) => return Ok(mounted),
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
        let options = self.options(cx, request, flex).await?;
        cx.host.make_dir_all(&dir, 0o750).await?;
        cx.mark.pod_uncertain().await?;
        let arguments = [dir.display().to_string(), options];
        if let Err(error) = self.must(cx, "mount", &dir, &arguments).await {
            return Err(after_failed_mount(cx, &dir, error.into()).await);
        }
        if let Some(gid) = request.group.filter(|_| !read_only && capabilities.fs_group) {
            let ownership = Ownership { gid, read_only, on_root_mismatch: request.group_on_root_mismatch };
            let walked = ownership::apply(cx, &request.pod, &dir, ownership).await;
            walked.map_err(|source| FlexVolumeError::Ownership { gid, source })?;
        }
        Ok(mounted)
    }

    async fn tear_down(&self, cx: &OperationContext, request: &TearDown) -> Result<(), Failure> {
        let dir = self.target(&cx.paths, &request.pod, &request.inner);
        match cx.host.symlink_metadata(&dir).await {
            Err(error) if error.is_not_found() => return Ok(()),
            // The driver has to deal with a mount that is broken.
            _ => {}
        }
        if self.call(cx, "unmount", &dir, &[dir.display().to_string()]).await?.is_none() {
            return Ok(cleanup::mount_point(&*cx.host, &dir, Check::Extensive).await?);
        }
        // The driver may have removed the directory.
        match cx.host.remove_dir(&dir).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn reconstruct(&self, _scene: &Scene<'_>, found: &Found) -> Result<Rebuilt, Failure> {
        let flex = FlexVolume { driver: self.driver.clone(), ..FlexVolume::default() };
        Ok(super::empty_dir::rebuilt(found, VolumeSource::FlexVolume(Box::new(flex))))
    }
}

/// Removes the directory after a failed mount. A mount that is there all the same shows that the command had its effect, so
/// that `unmount` has to be called.
async fn after_failed_mount(cx: &OperationContext, dir: &Path, failure: Failure) -> Failure {
    let is_mounted = cx.host.is_mount_point(dir).await;
    match is_mounted {
        Ok(false) if cx.host.remove_dir(dir).await.is_ok() => failure.with_class(ErrorClass::Final),
        _ => failure.with_class(ErrorClass::Uncertain),
    }
}
