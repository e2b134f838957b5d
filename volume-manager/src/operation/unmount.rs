//! Taking a file-system volume back from a pod.
//!
//! Touches the volume's sub-paths; the rest is the plugin's.

use plugin_api::error::Failure;
use plugin_api::registry::Registry;
use plugin_api::{OperationContext, TearDown};

use super::{Failed, UnmountVolume};
use crate::subpath;

/// Unmounts the volume from the pod. Nobody is told of a failure: there may be no pod any more.
pub(crate) async fn run(
    unmount: &UnmountVolume,
    cx: &OperationContext,
    registry: &Registry,
) -> Result<(), Failed> {
    let quiet = |step| move |source: Failure| Failed::quiet(step, &unmount.volume, source);
    let plugin = registry.by_name(&unmount.plugin).map_err(Failure::from);
    let plugin = plugin.map_err(quiet("UnmountVolume.FindPluginByName failed"))?;

    // What containers were shown goes first: a bind that survives would keep the volume's mount busy, or
    // alive beyond its tear-down. The volume itself is as it was if this fails.
    let cleaned = subpath::clean(&*cx.host, &cx.paths, &unmount.pod, &unmount.inner).await;
    cleaned.map_err(Failure::from).map_err(quiet("error cleaning subPath mounts"))?;

    cx.mark.pod_undoing(&unmount.pod).await;
    let request =
        TearDown { pod: unmount.pod.clone(), inner: unmount.inner.clone(), spec: unmount.spec.clone() };
    plugin.tear_down(cx, &request).await.map_err(quiet("UnmountVolume.TearDown failed"))?;
    cx.mark.pod_unmounted(&unmount.pod).await;
    Ok(())
}
