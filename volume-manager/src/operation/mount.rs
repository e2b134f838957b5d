//! Mounting a filesystem volume for a pod: wait for the attachment, stage, publish, expand, in this order.
//!
//! The plugin does the work on the host; each result is in the actual state before the next step begins.

use std::sync::Arc;

use api::error::ErrorClass;
use api::{Kind, Node, Reference, Severity};
use plugin_api::error::{Failure, Sign, Unfit};
use plugin_api::registry::Registry;
use plugin_api::{Before, MountDevice, Mounted, OperationContext, Reason, SetUp, VolumePlugin};

use super::{Failed, MountVolume, expand};

/// The annotation with the mount options of older volumes.
const OPTIONS_ANNOTATION: &str = "volume.beta.kubernetes.io/mount-options";

/// Mounts the volume for the pod; stages it first unless it is staged.
pub(crate) async fn run(
    mount: &MountVolume,
    cx: &OperationContext,
    registry: &Registry,
) -> Result<(), Failed> {
    let failed = |step| {
        move |source: Failure| Failed::with_event(step, Reason::FailedMount, mount.spec.name(), source)
    };
    let plugin = registry.by_name(&mount.plugin).map_err(Failure::from);
    let plugin = plugin.map_err(failed("MountVolume.FindPluginBySpec failed"))?;
    check_affinity(cx, mount).await.map_err(failed("MountVolume.NodeAffinity check failed"))?;
    check_options(&*plugin, mount).map_err(failed("MountVolume.MountOptionSupport check failed"))?;
    check_single_pod(mount).map_err(failed("MountVolume.SetUp failed"))?;

    let attached = wait_for_attach(cx, &*plugin, mount).await;
    let device_path = attached.map_err(failed("MountVolume.WaitForAttach failed"))?;
    mount_device(cx, &*plugin, mount, &device_path).await?;

    let mounted = set_up(cx, &*plugin, mount, &device_path).await;
    let mounted = mounted.map_err(failed("MountVolume.SetUp failed"))?;
    grow(cx, registry, mount, &mounted, &device_path)
        .await
        .map_err(failed("MountVolume.Setup failed while expanding volume"))?;
    cx.mark.pod_mounted(mounted);
    Ok(())
}

/// Fails if the volume's node affinity does not match this node.
pub(super) async fn check_affinity(cx: &OperationContext, mount: &MountVolume) -> Result<(), Failure> {
    let Some(affinity) = mount.spec.volume().and_then(|volume| volume.affinity.as_ref()) else {
        return Ok(());
    };
    let node = match &cx.facts().node {
        Some(node) => Arc::clone(node),
        None => api::get::<Node>(&*cx.api, "", cx.config.node.as_str()).await?,
    };
    if affinity.matches(&node.meta.labels) { Ok(()) } else { Err(Unfit::Affinity.into()) }
}

fn check_options(plugin: &dyn VolumePlugin, mount: &MountVolume) -> Result<(), Failure> {
    let Some(volume) = mount.spec.volume() else { return Ok(()) };
    let annotated = volume.meta.annotations.get(OPTIONS_ANNOTATION).is_some_and(|list| !list.is_empty());
    if (annotated || !volume.mount_options.is_empty()) && !plugin.takes_mount_options() {
        return Err(Unfit::MountOptions.into());
    }
    Ok(())
}

/// Fails for a single-pod volume while another pod has or may have it.
pub(super) fn check_single_pod(mount: &MountVolume) -> Result<(), Failure> {
    match mount.used_elsewhere && mount.spec.is_single_pod() {
        true => Err(Unfit::UsedByAnotherPod.into()),
        false => Ok(()),
    }
}

/// Waits until the volume is attached and returns the device's path; returns the recorded path if the volume
/// needs no attachment.
pub(super) async fn wait_for_attach(
    cx: &OperationContext,
    plugin: &dyn VolumePlugin,
    mount: &MountVolume,
) -> Result<String, Failure> {
    match plugin.attacher() {
        Some(attacher) if mount.attachable => {
            attacher.wait_for_attach(cx, &mount.spec, &mount.device_path).await
        }
        _ => Ok(mount.device_path.clone()),
    }
}

async fn mount_device(
    cx: &OperationContext,
    plugin: &dyn VolumePlugin,
    mount: &MountVolume,
    device_path: &str,
) -> Result<(), Failed> {
    let failed = |step| {
        move |source: Failure| Failed::with_event(step, Reason::FailedMount, mount.spec.name(), source)
    };
    let Some(mounter) = plugin.device_mounter().filter(|_| plugin.can_device_mount(&mount.spec)) else {
        return Ok(());
    };
    if mount.device == Before::Mounted {
        return Ok(());
    }
    let path = mounter.device_mount_path(&cx.paths, &mount.spec);
    let path = path.map_err(failed("MountVolume.GetDeviceMountPath failed"))?;
    let request = MountDevice {
        spec: Arc::clone(&mount.spec),
        device_path: device_path.to_owned(),
        path: path.clone(),
        group: mount.pod.security.fs_group,
        selinux_label: mount.selinux_label.clone(),
        before: mount.device,
    };
    if let Err(failure) = mounter.mount_device(cx, &request).await {
        tell_mismatch(cx, mount, &failure);
        cx.mark.device_failed(path, failure.class(), &mount.selinux_label).await;
        return Err(failed("MountVolume.MountDevice failed")(failure));
    }
    cx.mark.device_mounted(path, device_path, &mount.selinux_label).await;
    Ok(())
}

/// Emits an event about the PersistentVolume if the disk has another filesystem than the volume names: the
/// administrator has to act.
fn tell_mismatch(cx: &OperationContext, mount: &MountVolume, failure: &Failure) {
    if failure.sign() != Some(Sign::FilesystemMismatch) {
        return;
    }
    if let Some(volume) = mount.spec.volume() {
        let about = Reference::to(Kind::Volume, &volume.meta);
        cx.events.emit(
            about,
            Severity::Warning,
            Reason::FailedMountOnFilesystemMismatch,
            failure.user_message(),
        );
    }
}

async fn set_up(
    cx: &OperationContext,
    plugin: &dyn VolumePlugin,
    mount: &MountVolume,
    device_path: &str,
) -> Result<Mounted, Failure> {
    let request = SetUp {
        spec: Arc::clone(&mount.spec),
        pod: Arc::clone(&mount.pod),
        outer: mount.outer[0].clone(),
        device_path: device_path.to_owned(),
        user: mount.pod.common_user(),
        group: mount.pod.security.fs_group,
        group_on_root_mismatch: mount.pod.security.fs_group_on_root_mismatch,
        size_limit: mount.size_limit,
        selinux_label: mount.selinux_label.clone(),
        before: mount.before,
    };
    let outcome = plugin.set_up(cx, &request).await;
    if let Err(failure) = &outcome {
        cx.mark.pod_failed(failure.class()).await;
    }
    outcome
}

/// Expands a volume whose size grew while it was not in use. If that fails, the pod waits and the volume stays
/// published, so it is recorded as uncertain and unmounted later.
pub(super) async fn grow(
    cx: &OperationContext,
    registry: &Registry,
    mount: &MountVolume,
    mounted: &Mounted,
    device_path: &str,
) -> Result<(), Failure> {
    let grown = expand::during_mount(cx, registry, mount, mounted, device_path).await;
    if grown.is_err() {
        cx.mark.pod_failed(ErrorClass::Uncertain).await;
    }
    grown
}
