//! Block volumes, as far as the driver is concerned: staged once per node and published once per pod, as a
//! device node. [`crate::block_map`] maps the published device into the pod.
//!
//! Touches `plugins/kubernetes.io/csi/volumeDevices`.

use std::path::{Path, PathBuf};

use api::names::{PodUid, SpecName};
use async_trait::async_trait;
use csi_proto::v1::{
    NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest,
};
use host::{HostError, Removal};
use plugin_api::error::Failure;
use plugin_api::paths::Paths;
use plugin_api::{BlockMapper, MapDevice, OperationContext, Spec, TearDown, Undo};

use super::client::{Capability, Session};
use super::error::CsiError;
use super::volume::CsiVolume;
use super::volume_data::{VolumeData, VolumeDataError};
use super::{
    CsiPlugin, SHARED_NAME, capability, driver_object, fetch_secret, has, make_dir, pod_info,
    publish_context, record,
};

const PREPARE: &str = "failed to create data dir";
const SAVE: &str = "failed to save volume info data";
const STAGE_CLIENT: &str = "kubernetes.io/csi: blockMapper.SetUpDevice failed to get CSI client";
const STAGE_PROBE: &str =
    "kubernetes.io/csi: blockMapper.stageVolumeForBlock failed to check STAGE_UNSTAGE_VOLUME capability";
const STAGE_DIR: &str = "blockMapper.stageVolumeForBlock failed to create dir";
const PUBLISH_CLIENT: &str = "kubernetes.io/csi: blockMapper.MapPodDevice failed to get CSI client";
const PUBLISH_DIR: &str = "blockMapper.publishVolumeForBlock failed to create dir";
const UNPUBLISH_CLIENT: &str = "kubernetes.io/csi: blockMapper.UnmapPodDevice failed to get CSI client";
const UNSTAGE_CLIENT: &str = "kubernetes.io/csi: blockMapper.TearDownDevice failed to get CSI client";
const UNSTAGE_PROBE: &str =
    "kubernetes.io/csi: blockMapper.unstageVolumeForBlock failed to check STAGE_UNSTAGE_VOLUME capability";
const UNSTAGE_DIR: &str = "blockMapper.unstageVolumeForBlock failed to clean staging path";

#[async_trait]
impl BlockMapper for CsiPlugin {
    fn global_map_path(&self, paths: &Paths, spec: &Spec) -> Result<PathBuf, Failure> {
        Ok(paths.csi_block_map(&CsiVolume::persistent(spec)?.inner))
    }

    fn pod_device(&self, paths: &Paths, pod: &PodUid, inner: &SpecName) -> PathBuf {
        paths.pod_device(pod, &SHARED_NAME, inner)
    }

    async fn prepare(&self, cx: &OperationContext, request: &MapDevice) -> Result<(), Failure> {
        let volume = CsiVolume::persistent(&request.spec)?;
        match write_record(cx, &volume).await {
            Ok(()) => Ok(()),
            Err(failure) => {
                Err(request.device_before.tidy(failure, clean_up_after_failure(cx, &volume.inner)).await)
            }
        }
    }

    async fn set_up_device(
        &self,
        cx: &OperationContext,
        request: &MapDevice,
    ) -> Result<Option<PathBuf>, Failure> {
        let volume = CsiVolume::persistent(&request.spec)?;
        match stage(self, cx, &volume).await {
            // Any failure leaves the record, which `prepare` has written.
            Err(failure) => {
                Err(request.device_before.tidy(failure, clean_up_after_failure(cx, &volume.inner)).await)
            }
            staged => staged,
        }
    }

    async fn map_pod_device(&self, cx: &OperationContext, request: &MapDevice) -> Result<PathBuf, Failure> {
        let volume = CsiVolume::persistent(&request.spec)?;
        let session = self.session(cx, &volume.driver, PUBLISH_CLIENT)?;
        let object = driver_object(cx, &volume.driver).await?;
        let publish_context = publish_context(cx, &volume, object.as_deref()).await?;
        let mut volume_context = volume.attributes.clone();
        if object.is_some_and(|driver| driver.pod_info) {
            volume_context.extend(pod_info::about(&request.pod, volume.lifecycle));
        }
        let target = cx.paths.csi_block_target(&volume.inner, &request.pod.uid());
        let call = NodePublishVolumeRequest {
            volume_id: volume.handle.to_string(),
            publish_context,
            // Also sent to a driver that does not stage, as the kubelet does; such a driver ignores it.
            staging_target_path: cx.paths.csi_block_staging(&volume.inner).display().to_string(),
            target_path: target.display().to_string(),
            volume_capability: Some(block_capability(&session, &volume).await?),
            readonly: volume.read_only,
            secrets: fetch_secret(cx, "NodePublishSecretRef", volume.publish_secret.as_ref()).await?,
            volume_context,
        };
        make_dir(cx, &cx.paths.csi_block_publish_dir(&volume.inner), PUBLISH_DIR).await?;
        cx.mark.pod_uncertain().await?;
        match session.publish(call).await.map_err(CsiError::from) {
            Ok(()) => Ok(target),
            Err(error) => Err(request.before.tidy(error.into(), effect_at(cx, &target)).await),
        }
    }

    async fn unmap_pod_device(&self, cx: &OperationContext, request: &TearDown) -> Result<(), Failure> {
        let data = mapped_volume(cx, &request.inner, request.spec.as_deref()).await?;
        let session = self.session(cx, &data.driver, UNPUBLISH_CLIENT)?;
        let call = NodeUnpublishVolumeRequest {
            volume_id: data.handle.to_string(),
            target_path: cx.paths.csi_block_target(&request.inner, &request.pod).display().to_string(),
        };
        Ok(session.unpublish(call).await.map_err(CsiError::from)?)
    }

    async fn tear_down_device(&self, cx: &OperationContext, spec: &Spec) -> Result<(), Failure> {
        let inner = spec.name();
        let staging = cx.paths.csi_block_staging(&inner);
        if exists(cx, &staging).await? {
            unstage(self, cx, &inner, spec, &staging).await?;
        }
        match clean_up(cx, &inner).await {
            // A driver left files behind. They do no harm, and the next use of the volume reuses the
            // directories.
            Err(error) if error.is_not_empty() => {
                tracing::warn!(volume = %inner, error = api::error::chain(&error), "cannot remove the volume's directory: the driver left files in it; they stay");
                Ok(())
            }
            cleaned => Ok(cleaned.map_err(|source| CsiError::Directory { step: UNSTAGE_DIR, source })?),
        }
    }
}

async fn block_capability(
    session: &Session,
    volume: &CsiVolume,
) -> Result<csi_proto::v1::VolumeCapability, CsiError> {
    let multi_writer = has(session, Capability::SingleNodeMultiWriter, "").await?;
    Ok(capability::block(capability::access_mode(&volume.access_modes, multi_writer)))
}

/// Writes `vol_data.json` of a block volume.
async fn write_record(cx: &OperationContext, volume: &CsiVolume) -> Result<(), Failure> {
    let dir = cx.paths.csi_block_data(&volume.inner);
    make_dir(cx, &dir, PREPARE).await?;
    let data = VolumeData { lifecycle: None, ..volume.data(&cx.config.node, "") };
    let written = record::write(&*cx.host, &dir, &data).await;
    Ok(written.map_err(|source| CsiError::Directory { step: SAVE, source })?)
}

/// Stages the volume if the driver stages; returns the staging path.
async fn stage(
    plugin: &CsiPlugin,
    cx: &OperationContext,
    volume: &CsiVolume,
) -> Result<Option<PathBuf>, Failure> {
    let session = plugin.session(cx, &volume.driver, STAGE_CLIENT)?;
    let object = driver_object(cx, &volume.driver).await?;
    let publish_context = publish_context(cx, volume, object.as_deref()).await?;
    if !has(&session, Capability::StageUnstageVolume, STAGE_PROBE).await? {
        return Ok(None);
    }
    let secrets = fetch_secret(cx, "NodeStageSecretRef", volume.stage_secret.as_ref()).await?;
    let staging = cx.paths.csi_block_staging(&volume.inner);
    let call = NodeStageVolumeRequest {
        volume_id: volume.handle.to_string(),
        publish_context,
        staging_target_path: staging.display().to_string(),
        volume_capability: Some(block_capability(&session, volume).await?),
        secrets,
        volume_context: volume.attributes.clone(),
    };
    make_dir(cx, &staging, STAGE_DIR).await?;
    cx.mark.device_uncertain(cx.paths.csi_block_map(&volume.inner)).await?;
    session.stage(call).await.map_err(CsiError::from)?;
    Ok(Some(staging))
}

async fn unstage(
    plugin: &CsiPlugin,
    cx: &OperationContext,
    inner: &SpecName,
    spec: &Spec,
    staging: &Path,
) -> Result<(), Failure> {
    let data = mapped_volume(cx, inner, Some(spec)).await?;
    let session = plugin.session(cx, &data.driver, UNSTAGE_CLIENT)?;
    if has(&session, Capability::StageUnstageVolume, UNSTAGE_PROBE).await? {
        let call = NodeUnstageVolumeRequest {
            volume_id: data.handle.to_string(),
            staging_target_path: staging.display().to_string(),
        };
        session.unstage(call).await.map_err(CsiError::from)?;
    }
    // Removes what the driver left, but nothing that is mounted below.
    let removed = cx.host.remove_tree(staging, Removal::OneFilesystem).await;
    Ok(removed.map_err(|source| CsiError::Directory { step: UNSTAGE_DIR, source })?)
}

/// The driver and handle of the volume, from its record or else from its PersistentVolume.
async fn mapped_volume(
    cx: &OperationContext,
    inner: &SpecName,
    spec: Option<&Spec>,
) -> Result<VolumeData, Failure> {
    let error = match record::read_of(&*cx.host, &cx.paths.csi_block_data(inner), inner).await {
        Ok(data) => return Ok(data),
        Err(error @ VolumeDataError::Unreadable { .. }) => return Err(CsiError::from(error).into()),
        Err(error) => error,
    };
    match spec.and_then(|spec| CsiVolume::persistent(spec).ok()) {
        Some(volume) => Ok(volume.data(&cx.config.node, "")),
        None => Err(CsiError::from(error).into()),
    }
}

/// Removes the directories of a block volume that no pod uses: publish and staging directories if they are
/// empty, and the volume's own directory as far as it is on the same filesystem.
async fn clean_up(cx: &OperationContext, inner: &SpecName) -> Result<(), HostError> {
    for dir in [cx.paths.csi_block_publish_dir(inner), cx.paths.csi_block_staging(inner)] {
        match cx.host.remove_dir(&dir).await {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
    }
    cx.host.remove_tree(&cx.paths.csi_block_volume(inner), Removal::OneFilesystem).await
}

/// [`clean_up`] after a failed call. Fails if the driver left files in the volume's directory.
async fn clean_up_after_failure(cx: &OperationContext, inner: &SpecName) -> Result<Undo, HostError> {
    clean_up(cx, inner).await.map(|()| Undo::Complete)
}

/// Whether a failed publish must be undone: only the driver creates the target, so a target is an effect of the call.
async fn effect_at(cx: &OperationContext, target: &Path) -> Result<Undo, HostError> {
    match cx.host.symlink_metadata(target).await {
        Ok(_) => Ok(Undo::Needed),
        Err(error) if error.is_not_found() => Ok(Undo::Complete),
        Err(error) => Err(error),
    }
}

async fn exists(cx: &OperationContext, path: &Path) -> Result<bool, Failure> {
    match cx.host.symlink_metadata(path).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        // The path exists, but the mount there is dead.
        Err(error) if error.is_corrupted_mount() => Ok(true),
        Err(error) => Err(error.into()),
    }
}
