//! Expanding a published volume on the node, with NodeExpandVolume.

use api::VolumeMode;
use async_trait::async_trait;
use csi_proto::v1::volume_capability::MountVolume;
use csi_proto::v1::{CapacityRange, NodeExpandVolumeRequest};
use plugin_api::error::Failure;
use plugin_api::{Expand, Expander, OperationContext};

use super::client::Capability;
use super::error::CsiError;
use super::volume::CsiVolume;
use super::{CsiPlugin, capability, fetch_secret, has};

// The kubelet's words, with a blank before the colon that follows.
const PROBE: &str = "Expander.NodeExpand failed to check if node supports expansion ";
const EXPAND: &str = "Expander.NodeExpand failed to expand the volume ";

#[async_trait]
impl Expander for CsiPlugin {
    fn requires_resize(&self) -> bool {
        true
    }

    async fn expand(&self, cx: &OperationContext, request: &Expand) -> Result<(), Failure> {
        let volume = CsiVolume::persistent(&request.spec)?;
        let bad = |reason| CsiError::BadExpand { volume: volume.inner.clone(), reason };
        let size = i64::try_from(request.new_size.0).map_err(|_| bad("the size does not fit"))?;
        if request.volume_path.as_os_str().is_empty() {
            return Err(bad("it has no path").into());
        }
        let session = self.session(cx, &volume.driver, "")?;
        if !has(&session, Capability::ExpandVolume, PROBE).await? {
            return Err(CsiError::ExpandNotSupported(volume.driver).into());
        }
        let secrets = fetch_secret(cx, "NodeExpandSecretRef", volume.expand_secret.as_ref()).await?;
        let multi_writer = has(&session, Capability::SingleNodeMultiWriter, EXPAND).await?;
        let mode = capability::access_mode(&volume.access_modes, multi_writer);
        let capability = match request.spec.mode() {
            VolumeMode::Block => capability::block(mode),
            VolumeMode::Filesystem => {
                let (fs_type, mount_flags) = (volume.fs_type, volume.mount_options);
                capability::mounted(mode, MountVolume { fs_type, mount_flags, ..MountVolume::default() })
            }
        };
        let call = NodeExpandVolumeRequest {
            volume_id: volume.handle.to_string(),
            volume_path: request.volume_path.display().to_string(),
            capacity_range: Some(CapacityRange { required_bytes: size, limit_bytes: 0 }),
            staging_target_path: request.staging_path.display().to_string(),
            volume_capability: Some(capability),
            secrets,
        };
        // The capacity in the answer is ignored, as in the kubelet.
        Ok(session.expand(call).await.map_err(CsiError::Expand)?)
    }
}
