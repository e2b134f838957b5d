//! The plugin for volumes of all CSI drivers.
//!
//! - [`volume`] is a volume as the calls need it, [`capability`] builds its volume capability;
//! - [`client`] makes the calls, [`status`] classifies their failures, [`error`] all failures;
//! - [`stage`], [`publish`] and [`block`] stage, publish and map, [`expand`] and [`stats`] work on published
//!   volumes;
//! - [`attachment`], [`secret`] and [`pod_info`] fetch parameters of the calls;
//! - [`volume_data`] and [`record`] are the format and the file of a volume's record, [`leftover`] removes it;
//! - [`reconstruct`] reads records after a restart, [`lost`] finds stages without one;
//! - [`registration`] registers drivers, [`version`] checks their versions, [`socket`] connects to them.

pub mod attachment;
pub mod block;
pub mod capability;
pub mod client;
pub mod error;
pub mod expand;
pub mod leftover;
pub mod lost;
pub mod pod_info;
pub mod publish;
pub mod reconstruct;
pub mod record;
pub mod registration;
pub mod secret;
pub mod socket;
pub mod stage;
mod stats;
pub mod status;
#[cfg(test)]
mod tests;
pub mod version;
pub mod volume;
pub mod volume_data;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use api::names::{DriverName, Namespaced, PluginName, PodUid, SpecName};
use api::{CsiDriver, PersistentSource, VolumeSource, clock};
use async_trait::async_trait;
use plugin_api::error::Failure;
use plugin_api::paths::Paths;
use plugin_api::{
    Attacher, BlockMapper, DeviceMounter, Expander, Facts, Found, Meter, Mounted, OperationContext, Rebuilt,
    Scene, SetUp, Spec, SpecSource, Staged, TearDown, UnidentifiedStage, VolumePlugin,
};

use self::client::{Capability, Lines, Memories, Session};
use self::error::{CsiError, NotRegistered};
use self::volume::CsiVolume;

pub const NAME: &str = "kubernetes.io/csi";

/// One text for the records of all volumes.
static SHARED_NAME: LazyLock<PluginName> = LazyLock::new(|| PluginName::new(NAME));

/// The time limit of an operation's wait for the list of CSIDriver objects.
const DRIVERS_KNOWN: Duration = Duration::from_secs(10);

/// The plugin of all CSI drivers.
#[derive(Debug, Default)]
pub struct CsiPlugin {
    memories: Memories,
}

impl CsiPlugin {
    /// A plugin without memory of any driver.
    pub fn new() -> Self {
        Self::default()
    }

    /// A session with a driver for `step`, the kubelet's words for the error; empty where the kubelet uses
    /// none.
    fn session(
        &self,
        cx: &OperationContext,
        driver: &DriverName,
        step: &'static str,
    ) -> Result<Session, CsiError> {
        let facts = cx.facts();
        let Some(registered) = facts.registered.get(driver) else {
            let source = NotRegistered(driver.clone());
            return Err(match step {
                "" => CsiError::NoDriverAtAll(source),
                _ => CsiError::NoDriver { step, source },
            });
        };
        let lines = Lines {
            dialer: Arc::clone(&cx.dialer),
            clock: Arc::clone(&cx.clock),
            style: cx.config.client_style,
            deadline: cx.config.call_deadline,
        };
        Ok(Session::new(&registered.endpoint, self.memories.of(driver, registered), lines))
    }
}

/// Whether the driver has a capability. An error if it cannot be asked: no capability is assumed. `step` is the
/// kubelet's words for the error; empty where it uses none.
async fn has(session: &Session, capability: Capability, step: &'static str) -> Result<bool, CsiError> {
    session.has(capability).await.map_err(|source| match step {
        "" => CsiError::ProbeAlone(source),
        _ => CsiError::Probe { step, source },
    })
}

/// The CSIDriver object, once all of them have been listed; `None` if the driver has none.
async fn driver_object(
    cx: &OperationContext,
    driver: &DriverName,
) -> Result<Option<Arc<CsiDriver>>, CsiError> {
    let mut facts = cx.facts.clone();
    let known = clock::within(&*cx.clock, DRIVERS_KNOWN, facts.wait_for(|facts| facts.csi_drivers_known));
    match known.await {
        Some(Ok(facts)) => Ok(facts.csi_drivers.get(driver).cloned()),
        _ => Err(CsiError::DriversUnknown),
    }
}

/// The publish context from ControllerPublishVolume; empty if the driver does not attach.
async fn publish_context(
    cx: &OperationContext,
    volume: &CsiVolume,
    object: Option<&CsiDriver>,
) -> Result<BTreeMap<String, String>, CsiError> {
    if !object.is_none_or(|driver| driver.attach_required) {
        return Ok(BTreeMap::new());
    }
    let name = volume.attachment(&cx.config.node);
    Ok(attachment::publish_context(&*cx.api, &name, &volume.handle).await?)
}

/// The content of a secret for a call; empty without a reference.
async fn fetch_secret(
    cx: &OperationContext,
    purpose: &'static str,
    reference: Option<&Namespaced>,
) -> Result<BTreeMap<String, String>, CsiError> {
    Ok(secret::fetch(&*cx.api, purpose, reference).await?)
}

/// The CSI driver of a spec; `None` for a volume of another plugin.
fn driver_of(spec: &Spec) -> Option<&DriverName> {
    match &spec.source {
        SpecSource::Persistent(volume) => match &volume.source {
            PersistentSource::Csi(csi) => Some(&csi.driver),
            _ => None,
        },
        SpecSource::Inline(volume) => match &volume.source {
            VolumeSource::Csi(csi) => Some(&csi.driver),
            _ => None,
        },
    }
}

#[async_trait]
impl VolumePlugin for CsiPlugin {
    fn name(&self) -> PluginName {
        SHARED_NAME.clone()
    }

    fn supports(&self, spec: &Spec) -> bool {
        driver_of(spec).is_some()
    }

    fn volume_name(&self, spec: &Spec) -> Result<String, Failure> {
        // The empty UID is harmless: the unique name of an inline volume is made of the pod's UID and not of
        // this.
        let volume = CsiVolume::of_uid(spec, &PodUid::new(""))?;
        Ok(format!("{}^{}", volume.driver, volume.handle))
    }

    fn requires_remount(&self, spec: &Spec, facts: &Facts) -> bool {
        let object = driver_of(spec).and_then(|driver| facts.csi_drivers.get(driver));
        object.is_some_and(|driver| driver.requires_republish)
    }

    fn takes_mount_options(&self) -> bool {
        true
    }

    fn takes_selinux_mount(&self, spec: &Spec, facts: &Facts) -> bool {
        let object = driver_of(spec).and_then(|driver| facts.csi_drivers.get(driver));
        object.is_some_and(|driver| driver.selinux_mount)
    }

    fn can_attach(&self, spec: &Spec, facts: &Facts) -> bool {
        let Some(driver) = driver_of(spec) else { return false };
        let object = facts.csi_drivers.get(driver);
        spec.volume().is_some() && object.is_none_or(|driver| driver.attach_required)
    }

    fn can_device_mount(&self, spec: &Spec) -> bool {
        spec.volume().is_some() && driver_of(spec).is_some()
    }

    fn target(&self, paths: &Paths, pod: &PodUid, inner: &SpecName) -> PathBuf {
        paths.csi_target(pod, inner)
    }

    async fn set_up(&self, cx: &OperationContext, request: &SetUp) -> Result<Mounted, Failure> {
        publish::set_up(self, cx, request).await
    }

    async fn tear_down(&self, cx: &OperationContext, request: &TearDown) -> Result<(), Failure> {
        publish::tear_down(self, cx, request).await
    }

    async fn reconstruct(&self, scene: &Scene<'_>, found: &Found) -> Result<Rebuilt, Failure> {
        reconstruct::volume(scene, found).await
    }

    async fn find_staged(&self, scene: &Scene<'_>) -> Vec<Staged> {
        reconstruct::staged(scene).await
    }

    async fn find_unidentified_stages(&self, scene: &Scene<'_>) -> Vec<UnidentifiedStage> {
        lost::find(scene).await
    }

    async fn identify_orphan(&self, scene: &Scene<'_>, found: &Found) -> Result<Option<Rebuilt>, Failure> {
        reconstruct::orphan(scene, found).await
    }

    fn attacher(&self) -> Option<&dyn Attacher> {
        Some(self)
    }

    fn device_mounter(&self) -> Option<&dyn DeviceMounter> {
        Some(self)
    }

    fn block_mapper(&self) -> Option<&dyn BlockMapper> {
        Some(self)
    }

    fn meter(&self) -> Option<&dyn Meter> {
        Some(self)
    }

    fn expander(&self) -> Option<&dyn Expander> {
        Some(self)
    }
}

/// Creates a directory if it is missing, and fails if another file has its name.
async fn make_dir(cx: &OperationContext, path: &Path, step: &'static str) -> Result<(), CsiError> {
    match cx.host.make_dir_all(path, 0o750).await {
        Ok(()) => {}
        Err(error) if error.is_not_a_directory() || error.is_exists() => {
            return Err(CsiError::NotADirectory(path.to_owned()));
        }
        // Perhaps a dead mount below; `symlink_metadata` fails in the same way then, and on a failed disk as
        // well.
        Err(error) if error.is_corrupted_mount() => {}
        Err(source) => return Err(CsiError::Directory { step, source }),
    }
    // A symlink would let the driver work outside of the kubelet's directories.
    match cx.host.symlink_metadata(path).await {
        Ok(there) if there.is_dir() => Ok(()),
        Ok(_) => Err(CsiError::NotADirectory(path.to_owned())),
        // A dead mount: the driver gets the call and repairs it.
        Err(error) if error.is_corrupted_mount() => Ok(()),
        Err(source) => Err(CsiError::Directory { step, source }),
    }
}
