//! Unmapping a block volume from a pod: the map first, then the published device.

use plugin_api::error::{Failure, Unfit};
use plugin_api::registry::Registry;
use plugin_api::{OperationContext, TearDown};

use super::{Failed, UnmountVolume};
use crate::block_map::BlockMap;

/// Unmaps the volume from the pod. A failure emits no Kubernetes event: the pod may be deleted.
pub(crate) async fn run(
    unmap: &UnmountVolume,
    cx: &OperationContext,
    registry: &Registry,
) -> Result<(), Failed> {
    let quiet = |step| move |source: Failure| Failed::quiet(step, &unmap.volume, source);
    let plugin = registry.by_name(&unmap.plugin).map_err(Failure::from);
    let plugin = plugin.map_err(quiet("UnmapVolume.FindMapperPluginByName failed"))?;
    let unable = |ability| Failure::from(Unfit::NoAbility { plugin: unmap.plugin.to_string(), ability });
    let mapper = plugin.block_mapper().ok_or_else(|| unable("map devices"));
    let mapper = mapper.map_err(quiet("UnmapVolume.NewUnmapper failed"))?;
    let spec = unmap.spec.as_ref().ok_or_else(|| unable("unmap a volume it knows nothing of"));
    let spec = spec.map_err(quiet("UnmapVolume.NewUnmapper failed"))?;

    let global = mapper.global_map_path(&cx.paths, spec);
    let global = global.map_err(quiet("UnmapVolume.GetGlobalMapPath failed"))?;
    let link = mapper.pod_device(&cx.paths, &unmap.pod, &unmap.inner);
    let bridges = BlockMap {
        global,
        links: link.parent().expect("a pod's link to a device is in a directory").to_owned(),
        inner: unmap.inner.clone(),
        pod: unmap.pod.clone(),
    };

    // Marked as uncertain before the first piece is removed: a failure from here on leaves the map half
    // removed.
    cx.mark.pod_undoing(&unmap.pod).await;
    let demolished = bridges.demolish(&*cx.host).await.map_err(Failure::from);
    demolished.map_err(quiet("UnmapVolume.UnmapBlockVolume failed"))?;
    let request = TearDown { pod: unmap.pod.clone(), inner: unmap.inner.clone(), spec: Some(spec.clone()) };
    let unmapped = mapper.unmap_pod_device(cx, &request).await;
    unmapped.map_err(quiet("UnmapVolume.UnmapPodDevice failed"))?;
    let forgotten = bridges.forget(&*cx.host).await.map_err(Failure::from);
    forgotten.map_err(quiet("UnmapVolume.UnmapBlockVolume failed"))?;
    cx.mark.pod_unmounted(&unmap.pod);
    Ok(())
}
