//! Publishing filesystem volumes, once per pod.
//!
//! Touches `pods/<uid>/volumes/kubernetes.io~csi/<volume>`, but never the target in it, which belongs to the
//! driver. Calls NodePublishVolume and NodeUnpublishVolume.

use std::path::Path;

use api::storage::{FsGroupPolicy, LifecycleMode};
use api::{AccessMode, CsiDriver};
use csi_proto::v1::volume_capability::MountVolume;
use csi_proto::v1::{NodePublishVolumeRequest, NodeUnpublishVolumeRequest};
use plugin_api::error::Failure;
use plugin_api::{Mounted, OperationContext, SetUp, TearDown};

use super::client::{Capability, Session};
use super::error::CsiError;
use super::leftover::{remove_after_failure, remove_mount_dir};
use super::stage::{delegated_group, mount_flags};
use super::volume::CsiVolume;
use super::volume_data::{Lifecycle, VolumeData, VolumeDataError};
use super::{
    CsiPlugin, capability, driver_object, fetch_secret, has, make_dir, pod_info, publish_context, record,
};
use crate::ownership::{self, Ownership};

const NO_CLIENT: &str = "kubernetes.io/csi: mounter.SetUpAt failed to get CSI client";
const NO_CLIENT_DOWN: &str = "kubernetes.io/csi: Unmounter.TearDownAt failed to get CSI client";
const PROBE: &str = "kubernetes.io/csi: mounter.SetUpAt failed to check for STAGE_UNSTAGE_VOLUME capability";
const GROUP_PROBE: &str = "kubernetes.io/csi: mounter.SetUpAt failed to determine if the node service has VOLUME_MOUNT_GROUP capability";
const MKDIR: &str = "mounter.SetUpAt failed to create dir";
const SAVE: &str = "failed to save volume info data";
const CLEAN: &str = "Unmounter.TearDownAt failed to clean mount dir";

/// Publishes the volume for a pod, and gives its files to the pod's group unless the driver does that.
pub(super) async fn set_up(
    plugin: &CsiPlugin,
    cx: &OperationContext,
    request: &SetUp,
) -> Result<Mounted, Failure> {
    let volume = CsiVolume::of(&request.spec, &request.pod)?;
    let session = plugin.session(cx, &volume.driver, NO_CLIENT)?;
    let object = driver_object(cx, &volume.driver).await?;
    check_lifecycle(&volume, object.as_deref())?;
    let policy = group_policy(&volume, object.as_deref())?;
    let call = publish_request(cx, &session, &volume, request, object.as_deref()).await?;
    // An empty group in the request means that the driver is not asked to set it.
    let delegated = group_of(&call).is_some_and(|group| !group.is_empty());

    let published = publish(cx, &session, &volume, request, call).await;
    let target = cx.paths.csi_target(&request.pod.uid(), &volume.inner);
    if let Err(failure) = published {
        return Err(request.before.tidy(failure, remove_after_failure(&*cx.host, &target)).await);
    }
    let selinux_relabel = needs_labels(cx, request, &target).await?;
    if !delegated && let Some(gid) = request.group.filter(|_| node_sets_group(&volume, policy)) {
        let ownership =
            Ownership { gid, read_only: volume.read_only, on_root_mismatch: request.group_on_root_mismatch };
        let walked = ownership::apply(cx, &request.pod, &target, ownership).await;
        walked.map_err(|source| CsiError::Ownership { handle: volume.handle.clone(), source })?;
    }
    Ok(Mounted { path: target, read_only: volume.read_only, managed: !volume.read_only, selinux_relabel })
}

/// Unpublishes the volume from a pod.
pub(super) async fn tear_down(
    plugin: &CsiPlugin,
    cx: &OperationContext,
    request: &TearDown,
) -> Result<(), Failure> {
    let data = published_as(cx, request).await?;
    let session = plugin.session(cx, &data.driver, NO_CLIENT_DOWN)?;
    let target = cx.paths.csi_target(&request.pod, &request.inner);
    let call = NodeUnpublishVolumeRequest {
        volume_id: data.handle.to_string(),
        target_path: target.display().to_string(),
    };
    session.unpublish(call).await.map_err(CsiError::from)?;
    // If this fails, the unpublish is repeated: the volume counts as published as long as its record exists. If
    // the driver answered OK and left its mount, the directory stays and shows up as an orphan.
    remove_mount_dir(&*cx.host, &target)
        .await
        .map_err(|source| CsiError::Directory { step: CLEAN, source })?;
    Ok(())
}

/// Fails if the driver's object does not allow the volume's lifecycle. Without an object only persistent
/// volumes are allowed.
fn check_lifecycle(volume: &CsiVolume, object: Option<&CsiDriver>) -> Result<(), CsiError> {
    let mode = match volume.lifecycle {
        Lifecycle::Persistent => LifecycleMode::Persistent,
        Lifecycle::Ephemeral => LifecycleMode::Ephemeral,
    };
    let reason = match object {
        None if mode == LifecycleMode::Persistent => return Ok(()),
        None => "no CSIDriver object".to_owned(),
        Some(driver) if driver.lifecycle_modes.contains(&mode) => return Ok(()),
        Some(driver) => format!("only supports {:?}", driver.lifecycle_modes),
    };
    Err(CsiError::Lifecycle { mode, driver: volume.driver.clone(), reason })
}

fn group_policy(volume: &CsiVolume, object: Option<&CsiDriver>) -> Result<FsGroupPolicy, CsiError> {
    match object {
        None => Ok(FsGroupPolicy::ReadWriteOnceWithFsType),
        Some(driver) => {
            driver.fs_group_policy.ok_or_else(|| CsiError::NoFsGroupPolicy(volume.driver.clone()))
        }
    }
}

/// Whether the node gives the volume's files to the pod's group.
fn node_sets_group(volume: &CsiVolume, policy: FsGroupPolicy) -> bool {
    let one_writer =
        |mode: &AccessMode| matches!(mode, AccessMode::ReadWriteOnce | AccessMode::ReadWriteOncePod);
    let by_policy = match policy {
        FsGroupPolicy::None => false,
        FsGroupPolicy::File => true,
        FsGroupPolicy::ReadWriteOnceWithFsType => {
            let inline = volume.lifecycle == Lifecycle::Ephemeral;
            !volume.fs_type.is_empty() && (inline || volume.access_modes.iter().any(one_writer))
        }
    };
    by_policy && !volume.read_only
}

/// Does everything that can fail without an effect, and builds the request.
async fn publish_request(
    cx: &OperationContext,
    session: &Session,
    volume: &CsiVolume,
    request: &SetUp,
    object: Option<&CsiDriver>,
) -> Result<NodePublishVolumeRequest, CsiError> {
    let persistent = volume.lifecycle == Lifecycle::Persistent;
    let stages = persistent && has(session, Capability::StageUnstageVolume, PROBE).await?;
    let staging = stages.then(|| cx.paths.csi_global_mount(&volume.driver, &volume.handle));
    let publish_context = match persistent {
        true => publish_context(cx, volume, object).await?,
        false => Default::default(),
    };
    let mut secrets = fetch_secret(cx, "NodePublishSecretRef", volume.publish_secret.as_ref()).await?;
    let mut volume_context = volume.attributes.clone();
    if let Some(driver) = object {
        if driver.pod_info {
            volume_context.extend(pod_info::about(&request.pod, volume.lifecycle));
        }
        let tokens = pod_info::tokens(&*cx.api, driver, &request.pod).await;
        let tokens = tokens.map_err(|error| CsiError::Token(Box::new(error)))?;
        let place = if driver.token_in_secrets { &mut secrets } else { &mut volume_context };
        place.extend(tokens.map(|tokens| (pod_info::TOKENS_KEY.to_owned(), tokens)));
    }
    let mount = MountVolume {
        fs_type: volume.fs_type.clone(),
        mount_flags: mount_flags(volume, &request.selinux_label),
        volume_mount_group: delegated_group(session, request.group, GROUP_PROBE).await?,
    };
    let multi_writer = has(session, Capability::SingleNodeMultiWriter, "").await?;
    let mode = capability::access_mode(&volume.access_modes, multi_writer);
    Ok(NodePublishVolumeRequest {
        volume_id: volume.handle.to_string(),
        publish_context,
        staging_target_path: staging.map(|path| path.display().to_string()).unwrap_or_default(),
        target_path: cx.paths.csi_target(&request.pod.uid(), &volume.inner).display().to_string(),
        volume_capability: Some(capability::mounted(mode, mount)),
        readonly: volume.read_only,
        secrets,
        volume_context,
    })
}

fn group_of(call: &NodePublishVolumeRequest) -> Option<&str> {
    use csi_proto::v1::volume_capability::AccessType;
    match call.volume_capability.as_ref()?.access_type.as_ref()? {
        AccessType::Mount(mount) => Some(&mount.volume_mount_group),
        AccessType::Block(_) => None,
    }
}

async fn publish(
    cx: &OperationContext,
    session: &Session,
    volume: &CsiVolume,
    request: &SetUp,
    call: NodePublishVolumeRequest,
) -> Result<(), Failure> {
    let dir = cx.paths.csi_pod_volume(&request.pod.uid(), &volume.inner);
    make_dir(cx, &dir, MKDIR).await?;
    // The record is written before the call: after a restart in between, recovery finds it and undoes the call.
    let data = volume.data(&cx.config.node, &request.selinux_label);
    let written = record::write(&*cx.host, &dir, &data).await;
    written.map_err(|source| CsiError::Directory { step: SAVE, source })?;
    cx.mark.pod_uncertain().await?;
    Ok(session.publish(call).await.map_err(CsiError::from)?)
}

/// Whether the container runtime has to label the files: the mount supports labels and was mounted without one.
async fn needs_labels(cx: &OperationContext, request: &SetUp, target: &Path) -> Result<bool, CsiError> {
    if !request.selinux_label.is_empty() || !cx.facts().selinux {
        return Ok(false);
    }
    let mount = cx.host.mount_of(target).await.map_err(CsiError::SelinuxUnknown)?;
    Ok(mount.has_option("seclabel"))
}

/// The driver and handle of the published volume, from its record or else from its PersistentVolume.
async fn published_as(cx: &OperationContext, request: &TearDown) -> Result<VolumeData, Failure> {
    let dir = cx.paths.csi_pod_volume(&request.pod, &request.inner);
    let error = match record::read_of_pod(&*cx.host, &dir, &request.pod, &request.inner).await {
        Ok(data) => return Ok(data),
        Err(error @ VolumeDataError::Unreadable { .. }) => return Err(CsiError::from(error).into()),
        Err(error) => error,
    };
    // Without a usable record, the spec names the same driver and handle, if it is still known.
    let known = request.spec.as_deref().and_then(|spec| CsiVolume::of_uid(spec, &request.pod).ok());
    match known {
        Some(volume) => Ok(volume.data(&cx.config.node, "")),
        None => Err(CsiError::from(error).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::testing::persistent_spec;

    #[test]
    fn node_sets_the_group_by_policy_fs_type_and_access_modes() {
        use AccessMode::{ReadOnlyMany, ReadWriteMany, ReadWriteOnce, ReadWriteOncePod};
        use FsGroupPolicy::{File, None, ReadWriteOnceWithFsType as Default};
        let persistent = CsiVolume::persistent(&persistent_spec("pv", "d", "h")).unwrap();
        for (policy, fs_type, modes, read_only, ours) in [
            (None, "ext4", &[ReadWriteOnce][..], false, false),
            (File, "", &[ReadWriteMany], false, true),
            (File, "", &[ReadWriteMany], true, false),
            (Default, "ext4", &[ReadWriteOnce], false, true),
            (Default, "ext4", &[ReadWriteOncePod], false, true),
            (Default, "ext4", &[ReadOnlyMany, ReadWriteOnce], false, true),
            (Default, "ext4", &[ReadWriteOnce], true, false),
            (Default, "", &[ReadWriteOnce], false, false),
            (Default, "ext4", &[ReadWriteMany], false, false),
            (Default, "ext4", &[], false, false),
        ] {
            let volume = CsiVolume {
                fs_type: fs_type.into(),
                access_modes: modes.to_vec(),
                read_only,
                ..persistent.clone()
            };
            assert_eq!(
                node_sets_group(&volume, policy),
                ours,
                "{policy:?} {fs_type:?} {modes:?} {read_only}"
            );
        }
        // An inline volume has one writer, and no modes to say so.
        let inline = CsiVolume { lifecycle: Lifecycle::Ephemeral, ..persistent };
        for (policy, fs_type, ours) in
            [(Default, "ext4", true), (Default, "", false), (File, "", true), (None, "ext4", false)]
        {
            let volume = CsiVolume { fs_type: fs_type.into(), access_modes: Vec::new(), ..inline.clone() };
            assert_eq!(node_sets_group(&volume, policy), ours, "inline, {policy:?} {fs_type:?}");
        }
    }

    #[test]
    fn inline_volume_needs_a_driver_object_that_allows_it() {
        let persistent = CsiVolume::persistent(&persistent_spec("pv", "d", "h")).unwrap();
        let inline = CsiVolume { lifecycle: Lifecycle::Ephemeral, ..persistent.clone() };
        let only = |mode| CsiDriver { lifecycle_modes: vec![mode], ..CsiDriver::default() };
        assert!(check_lifecycle(&persistent, Option::None).is_ok());
        assert!(check_lifecycle(&persistent, Some(&only(LifecycleMode::Persistent))).is_ok());
        assert!(check_lifecycle(&persistent, Some(&only(LifecycleMode::Ephemeral))).is_err());
        assert!(check_lifecycle(&inline, Some(&only(LifecycleMode::Ephemeral))).is_ok());
        assert_eq!(
            check_lifecycle(&inline, Option::None).unwrap_err().to_string(),
            r#"volume mode "Ephemeral" not supported by driver d (no CSIDriver object)"#
        );
    }
}
