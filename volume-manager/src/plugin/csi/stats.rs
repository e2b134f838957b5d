//! Usage and condition of a published volume, from NodeGetVolumeStats.

use std::path::Path;

use api::VolumeMode;
use api::names::{DriverName, PodUid, VolumeHandle};
use async_trait::async_trait;
use csi_proto::v1::NodeGetVolumeStatsRequest;
use csi_proto::v1::volume_usage::Unit;
use plugin_api::error::Failure;
use plugin_api::{Meter, OperationContext, Spec, Usage, VolumeStats};

use super::client::{Capability, Session};
use super::error::CsiError;
use super::volume::CsiVolume;
use super::{CsiPlugin, has};

const NO_CLIENT: &str = "kubernetes.io/csi: metrics: failed to get CSI client";
const PROBE: &str = "kubernetes.io/csi: failed to check for GET_VOLUME_STATS capability";

#[async_trait]
impl Meter for CsiPlugin {
    async fn stats(&self, cx: &OperationContext, spec: &Spec, pod: &PodUid) -> Result<VolumeStats, Failure> {
        let volume = CsiVolume::of_uid(spec, pod)?;
        let path = match spec.mode() {
            VolumeMode::Filesystem => cx.paths.csi_target(pod, &volume.inner),
            VolumeMode::Block => cx.paths.csi_block_map(&volume.inner).join(pod.as_str()),
        };
        let session = self.session(cx, &volume.driver, NO_CLIENT)?;
        Ok(ask(&session, &volume.driver, &volume.handle, &path).await?)
    }
}

async fn ask(
    session: &Session,
    driver: &DriverName,
    handle: &VolumeHandle,
    path: &Path,
) -> Result<VolumeStats, CsiError> {
    if !has(session, Capability::GetVolumeStats, PROBE).await? {
        return Err(CsiError::StatsNotSupported(driver.clone()));
    }
    let knows_condition = has(session, Capability::VolumeCondition, PROBE).await?;
    let request = NodeGetVolumeStatsRequest {
        volume_id: handle.to_string(),
        volume_path: path.display().to_string(),
        staging_target_path: String::new(),
    };
    let answer = session.stats(request).await?;
    if answer.usage.is_empty() && !knows_condition {
        return Err(CsiError::NoUsage(driver.clone()));
    }
    let mut stats = VolumeStats::default();
    for usage in &answer.usage {
        let amounts = Usage { total: usage.total, available: usage.available, used: usage.used };
        match Unit::try_from(usage.unit) {
            _ if amounts.total.min(amounts.available).min(amounts.used) < 0 => {
                tracing::warn!(%driver, ?amounts, "the driver reports a negative usage; it is ignored");
            }
            Ok(Unit::Bytes) => stats.bytes = Some(amounts),
            Ok(Unit::Inodes) => stats.inodes = Some(amounts),
            _ => {
                tracing::warn!(%driver, unit = usage.unit, "the driver reports usage in an unknown unit; it is ignored")
            }
        }
    }
    let condition = answer.volume_condition.filter(|condition| knows_condition && condition.abnormal);
    stats.abnormal = condition.map(|condition| condition.message);
    Ok(stats)
}
