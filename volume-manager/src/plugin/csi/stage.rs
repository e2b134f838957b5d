//! Staging filesystem volumes, once per node.
//!
//! Touches `plugins/kubernetes.io/csi/<driver>/<hash>`; calls NodeStageVolume and NodeUnstageVolume.

use std::path::{Path, PathBuf};

use api::names::{DriverName, VolumeHandle};
use async_trait::async_trait;
use csi_proto::v1::volume_capability::MountVolume;
use csi_proto::v1::{NodeStageVolumeRequest, NodeUnstageVolumeRequest};
use plugin_api::error::Failure;
use plugin_api::paths::Paths;
use plugin_api::{DeviceMounter, MountDevice, OperationContext, Spec};

use super::client::{Capability, Session};
use super::error::CsiError;
use super::leftover::{remove_after_failure, remove_mount_dir};
use super::volume::CsiVolume;
use super::volume_data::{VolumeData, VolumeDataError};
use super::{CsiPlugin, capability, driver_object, fetch_secret, has, make_dir, publish_context, record};

const NO_CLIENT: &str = "kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient";
const NO_CLIENT_UNSTAGE: &str =
    "kubernetes.io/csi: attacher.UnmountDevice failed to create newCsiDriverClient";
const GROUP_PROBE: &str = "kubernetes.io/csi: attacher.MountDevice failed to determine if the node service has \
    VOLUME_MOUNT_GROUP capability";
const UNSTAGE_PROBE: &str =
    "kubernetes.io/csi: attacher.UnmountDevice failed to check whether STAGE_UNSTAGE_VOLUME set";
const MKDIR: &str = "attacher.MountDevice failed to create dir";
const SAVE: &str = "failed to save volume info data";
const CLEAN: &str = "attacher.UnmountDevice failed to remove mount dir";

#[async_trait]
impl DeviceMounter for CsiPlugin {
    fn device_mount_path(&self, paths: &Paths, spec: &Spec) -> Result<PathBuf, Failure> {
        let volume = CsiVolume::persistent(spec)?;
        Ok(paths.csi_global_mount(&volume.driver, &volume.handle))
    }

    async fn mount_device(&self, cx: &OperationContext, request: &MountDevice) -> Result<(), Failure> {
        let volume = CsiVolume::persistent(&request.spec)?;
        let session = self.session(cx, &volume.driver, NO_CLIENT)?;
        let stages = has(&session, Capability::StageUnstageVolume, "").await?;
        if !stages {
            // The driver does not stage. No record is written, so that nothing is unstaged later either.
            make_dir(cx, &request.path, MKDIR).await?;
            return Ok(());
        }
        let call = stage_request(cx, &session, &volume, request).await?;
        match stage(cx, &session, &volume, request, call).await {
            Ok(()) => Ok(()),
            Err(failure) => {
                Err(request.before.tidy(failure, remove_after_failure(&*cx.host, &request.path)).await)
            }
        }
    }

    async fn unmount_device(&self, cx: &OperationContext, path: &Path, spec: &Spec) -> Result<(), Failure> {
        if let Some(data) = staged_as(cx, path, spec).await? {
            let session = self.session(cx, &data.driver, NO_CLIENT_UNSTAGE)?;
            if has(&session, Capability::StageUnstageVolume, UNSTAGE_PROBE).await? {
                let request = NodeUnstageVolumeRequest {
                    volume_id: data.handle.to_string(),
                    staging_target_path: path.display().to_string(),
                };
                session.unstage(request).await.map_err(CsiError::from)?;
            }
        }
        // Also without a record: an earlier attempt may have stopped after removing it.
        remove_mount_dir(&*cx.host, path)
            .await
            .map_err(|source| CsiError::Directory { step: CLEAN, source })?;
        Ok(())
    }

    async fn device_mount_refs(&self, cx: &OperationContext, path: &Path) -> Result<Vec<PathBuf>, Failure> {
        Ok(host::lookup::mount_refs(&*cx.host, path).await?)
    }
}

/// Does everything that can fail without an effect, and builds the request.
async fn stage_request(
    cx: &OperationContext,
    session: &Session,
    volume: &CsiVolume,
    request: &MountDevice,
) -> Result<NodeStageVolumeRequest, CsiError> {
    let object = driver_object(cx, &volume.driver).await?;
    let publish_context = publish_context(cx, volume, object.as_deref()).await?;
    let secrets = fetch_secret(cx, "NodeStageSecretRef", volume.stage_secret.as_ref()).await?;
    let mount = MountVolume {
        fs_type: volume.fs_type.clone(),
        mount_flags: mount_flags(volume, &request.selinux_label),
        volume_mount_group: delegated_group(session, request.group, GROUP_PROBE).await?,
    };
    let multi_writer = has(session, Capability::SingleNodeMultiWriter, "").await?;
    let mode = capability::access_mode(&volume.access_modes, multi_writer);
    Ok(NodeStageVolumeRequest {
        volume_id: volume.handle.to_string(),
        publish_context,
        staging_target_path: request.path.display().to_string(),
        volume_capability: Some(capability::mounted(mode, mount)),
        secrets,
        volume_context: volume.attributes.clone(),
    })
}

async fn stage(
    cx: &OperationContext,
    session: &Session,
    volume: &CsiVolume,
    request: &MountDevice,
    call: NodeStageVolumeRequest,
) -> Result<(), Failure> {
    make_dir(cx, &request.path, MKDIR).await?;
    // The record is written before the call: after a restart in between, recovery knows which volume this
    // directory may hold.
    let data = VolumeData {
        selinux_context: Some(request.selinux_label.clone()).filter(|label| !label.is_empty()),
        ..VolumeData::of_stage(volume.driver.clone(), volume.handle.clone())
    };
    let parent = request.path.parent().expect("a global mount is a directory in a directory");
    let written = record::write(&*cx.host, parent, &data).await;
    written.map_err(|source| CsiError::Directory { step: SAVE, source })?;
    cx.mark.device_uncertain(&request.path).await?;
    Ok(session.stage(call).await.map_err(CsiError::from)?)
}

/// The mount flags of stage and publish: the volume's mount options, and the label as a `context` option.
pub(super) fn mount_flags(volume: &CsiVolume, selinux_label: &str) -> Vec<String> {
    let mut flags = volume.mount_options.clone();
    if !selinux_label.is_empty() {
        flags.push(format!("context=\"{selinux_label}\""));
    }
    flags
}

/// The pod's group for the request; empty if the pod has none or the driver does not set groups.
pub(super) async fn delegated_group(
    session: &Session,
    group: Option<u32>,
    step: &'static str,
) -> Result<String, CsiError> {
    let takes_it = has(session, Capability::VolumeMountGroup, step).await?;
    Ok(group.filter(|_| takes_it).map(|group| group.to_string()).unwrap_or_default())
}

/// The driver and handle of the volume staged at `path`, from its record or else from its PersistentVolume.
/// `None` if nothing was ever staged there.
///
/// A staged volume whose record is lost can be unstaged by its PersistentVolume: that names driver and handle,
/// and the path is made of nothing else.
async fn staged_as(cx: &OperationContext, path: &Path, spec: &Spec) -> Result<Option<VolumeData>, Failure> {
    let parent = path.parent().unwrap_or(path);
    let is_of =
        |driver: &DriverName, handle: &VolumeHandle| cx.paths.csi_global_mount(driver, handle) == path;
    let error = match record::read(&*cx.host, parent).await {
        Ok(data) if is_of(&data.driver, &data.handle) => return Ok(Some(data)),
        Ok(_) => VolumeDataError::AnothersVolume { path: record::path(parent) },
        Err(error @ VolumeDataError::Unreadable { .. }) => return Err(CsiError::from(error).into()),
        Err(error) => error,
    };
    let nothing_there = match cx.host.symlink_metadata(path).await {
        Ok(_) => false,
        Err(gone) if gone.is_not_found() => true,
        Err(gone) if gone.is_corrupted_mount() => false,
        Err(unknown) => return Err(unknown.into()),
    };
    if nothing_there && matches!(error, VolumeDataError::Missing { .. }) {
        return Ok(None);
    }
    match CsiVolume::persistent(spec) {
        Ok(volume) if is_of(&volume.driver, &volume.handle) => {
            Ok(Some(VolumeData::of_stage(volume.driver, volume.handle)))
        }
        _ => Err(CsiError::from(error).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::testing::persistent_spec;

    #[test]
    fn a_label_is_one_quoted_option_at_the_end() {
        let volume = CsiVolume::persistent(&persistent_spec("pv", "d", "h")).unwrap();
        let volume = CsiVolume { mount_options: vec!["noatime".into()], ..volume };
        assert_eq!(mount_flags(&volume, ""), ["noatime"]);
        assert_eq!(mount_flags(&volume, "u:r:t:s0:c1,c2"), ["noatime", "context=\"u:r:t:s0:c1,c2\""]);
    }
}
