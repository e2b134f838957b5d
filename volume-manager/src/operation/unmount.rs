//! Unmounting a filesystem volume from a pod.
//!
//! Unmounts the volume's sub-paths; the plugin does the rest.

use plugin_api::error::Failure;
use plugin_api::registry::Registry;
use plugin_api::{OperationContext, TearDown};

use super::{Failed, UnmountVolume};
use crate::subpath;

/// Unmounts the volume from the pod. A failure emits no Kubernetes event: the pod may be deleted.
pub(crate) async fn run(
    unmount: &UnmountVolume,
    cx: &OperationContext,
    registry: &Registry,
) -> Result<(), Failed> {
    let quiet = |step| move |source: Failure| Failed::quiet(step, &unmount.volume, source);
    let plugin = registry.by_name(&unmount.plugin).map_err(Failure::from);
    let plugin = plugin.map_err(quiet("UnmountVolume.FindPluginByName failed"))?;

    // Sub-path binds go first: one that survived would keep the volume busy, or mounted after its tear-down.
    // Before the mark, because a failure here leaves the volume itself as it was.
    let cleaned = subpath::clean(&*cx.host, &cx.paths, &unmount.pod, &unmount.inner).await;
    cleaned.map_err(Failure::from).map_err(quiet("error cleaning subPath mounts"))?;

    cx.mark.pod_undoing(&unmount.pod).await;
    let request =
        TearDown { pod: unmount.pod.clone(), inner: unmount.inner.clone(), spec: unmount.spec.clone() };
    plugin.tear_down(cx, &request).await.map_err(quiet("UnmountVolume.TearDown failed"))?;
    cx.mark.pod_unmounted(&unmount.pod);
    Ok(())
}
