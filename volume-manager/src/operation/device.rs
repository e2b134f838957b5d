//! Unstaging a volume that no pod has any more, and removing the global map of a block volume.

use std::path::{Path, PathBuf};

use api::error::ErrorClass;
use plugin_api::error::{Classified, Failure, Unfit};
use plugin_api::registry::Registry;
use plugin_api::{DeviceMounter, OperationContext};

use super::{Failed, UnmountDevice};
use crate::block_map;

/// Unstages a filesystem volume.
pub(crate) async fn unmount(
    device: &UnmountDevice,
    cx: &OperationContext,
    registry: &Registry,
) -> Result<(), Failed> {
    let quiet = |step| move |source: Failure| Failed::quiet(step, &device.volume, source);
    let plugin = registry.by_name(&device.plugin).map_err(Failure::from);
    let plugin = plugin.map_err(quiet("UnmountDevice.FindPluginByName failed"))?;
    let mounter = plugin.device_mounter().ok_or_else(|| no_ability(device, "mount devices"));
    let mounter = mounter.map_err(quiet("UnmountDevice.FindDeviceMountablePluginByName failed"))?;

    let path = path_of(cx, mounter, device).map_err(quiet("GetDeviceMountPath failed"))?;
    let unshared = check_mount_refs(cx, mounter, &path).await;
    unshared.map_err(quiet("GetDeviceMountRefs check failed"))?;

    cx.mark.device_unstaging().await;
    let undone = mounter.unmount_device(cx, &path, &device.spec).await;
    undone.map_err(quiet("UnmountDevice failed"))?;
    check_closed(cx, device).await.map_err(quiet("UnmountDevice failed"))?;
    cx.mark.device_unmounted();
    Ok(())
}

/// Unstages a block volume and removes its global map.
pub(crate) async fn unmap(
    device: &UnmountDevice,
    cx: &OperationContext,
    registry: &Registry,
) -> Result<(), Failed> {
    let quiet = |step| move |source: Failure| Failed::quiet(step, &device.volume, source);
    let plugin = registry.by_name(&device.plugin).map_err(Failure::from);
    let plugin = plugin.map_err(quiet("UnmapDevice.FindMapperPluginByName failed"))?;
    let mapper = plugin.block_mapper().ok_or_else(|| no_ability(device, "map devices"));
    let mapper = mapper.map_err(quiet("UnmapDevice.NewUnmapper failed"))?;

    // A pod's bind mount or loop device shows that the device is in use, even if the actual state has no pod.
    let global = &device.device_mount_path;
    check_map_refs(cx, global).await.map_err(quiet("GetDeviceBindMountRefs check failed"))?;

    cx.mark.device_unstaging().await;
    let undone = mapper.tear_down_device(cx, &device.spec).await;
    undone.map_err(quiet("UnmapDevice.TearDownDevice failed"))?;
    let removed = block_map::remove_global(&*cx.host, global).await.map_err(Failure::from);
    removed.map_err(quiet("UnmapDevice.RemoveMapPath failed"))?;
    check_closed(cx, device).await.map_err(quiet("UnmapDevice failed"))?;
    cx.mark.device_unmounted();
    Ok(())
}

fn no_ability(device: &UnmountDevice, ability: &'static str) -> Failure {
    Unfit::NoAbility { plugin: device.plugin.to_string(), ability }.into()
}

/// The staging path that the plugin computes, or, if it no longer can, the one in the actual state.
fn path_of(
    cx: &OperationContext,
    mounter: &dyn DeviceMounter,
    device: &UnmountDevice,
) -> Result<PathBuf, Failure> {
    match mounter.device_mount_path(&cx.paths, &device.spec) {
        Ok(path) => Ok(path),
        Err(_) if !device.device_mount_path.as_os_str().is_empty() => Ok(device.device_mount_path.clone()),
        Err(failure) => Err(failure),
    }
}

/// Fails while the staged file system is also mounted at a path that is not its staging path. The staging path below
/// another root is no other path: the kubelet's root directory may itself be mounted several times.
async fn check_mount_refs(
    cx: &OperationContext,
    mounter: &dyn DeviceMounter,
    path: &Path,
) -> Result<(), Failure> {
    let text = path.to_string_lossy();
    let staging = text.find("/plugins/kubernetes.io/").map_or(&*text, |at| &text[at..]);
    let mut refs = mounter.device_mount_refs(cx, path).await?;
    refs.retain(|other| !other.to_string_lossy().contains(staging));
    if refs.is_empty() { Ok(()) } else { Err(InUse::MountedElsewhere { path: path.to_owned(), refs }.into()) }
}

/// Fails while a bind mount or a loop device of a pod refers to the global map.
async fn check_map_refs(cx: &OperationContext, global: &Path) -> Result<(), Failure> {
    let refs = block_map::references(&*cx.host, global).await?;
    if refs.is_empty() { Ok(()) } else { Err(InUse::Mapped { path: global.to_owned(), refs }.into()) }
}

/// Fails while the device is open. Of a CSI volume nothing is checked: its `device_path` is the name of an attachment.
async fn check_closed(cx: &OperationContext, device: &UnmountDevice) -> Result<(), Failure> {
    let path = Path::new(&device.device_path);
    if path.is_absolute() && cx.host.device_opened(path).await? {
        return Err(InUse::Open { device: path.to_owned() }.into());
    }
    Ok(())
}

/// Why a volume cannot be removed from the node yet.
#[derive(Debug, thiserror::Error)]
enum InUse {
    #[error("the device mount path `{}` is still mounted by other references {refs:?}", path.display())]
    MountedElsewhere { path: PathBuf, refs: Vec<PathBuf> },
    #[error("the device `{}` is still referenced from other Pods {refs:?}", path.display())]
    Mapped { path: PathBuf, refs: Vec<PathBuf> },
    #[error("the device `{}` is in use when it was no longer expected to be in use", device.display())]
    Open { device: PathBuf },
}

impl Classified for InUse {
    fn class(&self) -> ErrorClass {
        match self {
            Self::MountedElsewhere { .. } | Self::Mapped { .. } => ErrorClass::Transient,
            Self::Open { .. } => ErrorClass::Uncertain,
        }
    }
}
