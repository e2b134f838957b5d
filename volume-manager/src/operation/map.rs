//! Mapping a block volume for a pod: wait for the attachment, stage, publish, build the map, in this order.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::error::ErrorClass;
use plugin_api::error::{Failure, Unfit};
use plugin_api::registry::Registry;
use plugin_api::{Before, BlockMapper, MapDevice, Mounted, OperationContext, Reason, Undo, VolumePlugin};

use super::mount::{check_affinity, check_single_pod, grow, wait_for_attach};
use super::{Failed, MountVolume};
use crate::block_map::BlockMap;

/// Maps the volume for the pod.
pub(crate) async fn run(map: &MountVolume, cx: &OperationContext, registry: &Registry) -> Result<(), Failed> {
    let failed = |step| {
        move |source: Failure| Failed::with_event(step, Reason::FailedMapVolume, map.spec.name(), source)
    };
    let plugin = registry.by_name(&map.plugin).map_err(Failure::from);
    let plugin = plugin.map_err(failed("MapVolume.FindMapperPluginBySpec failed"))?;
    let mapper = plugin.block_mapper().ok_or_else(|| no_ability(map));
    let mapper = mapper.map_err(failed("MapVolume.FindMapperPluginBySpec failed"))?;
    let unreachable = |source| {
        let step = "MapVolume.NodeAffinity check failed";
        Failed::with_event(step, Reason::FailedMount, map.spec.name(), source)
    };
    check_affinity(cx, map).await.map_err(unreachable)?;
    let mut request = MapDevice {
        spec: Arc::clone(&map.spec),
        pod: Arc::clone(&map.pod),
        device_path: map.device_path.clone(),
        device_before: map.device,
        before: map.before,
    };
    check_single_pod(map).map_err(failed("MapVolume.SetUpDevice failed"))?;
    let global = mapper.global_map_path(&cx.paths, &map.spec);
    let global = global.map_err(failed("MapVolume.GetGlobalMapPath failed"))?;
    let attached = wait_for_attach(cx, &*plugin, map).await;
    request.device_path = attached.map_err(failed("MapVolume.WaitForAttach failed"))?;

    stage(cx, mapper, &request, &global).await.map_err(|(step, failure)| failed(step)(failure))?;
    let bridges =
        BlockMap { global, links: links_of(mapper, cx, map), inner: map.spec.name(), pod: map.uid.clone() };
    let mapped = publish(cx, mapper, &bridges, &mut request).await;
    mapped.map_err(failed("MapVolume.MapPodDevice failed"))?;
    let built = bridge(cx, &bridges, &request).await;
    let device = match built {
        Ok(device) => device,
        Err((step, failure)) => {
            // The driver has published the volume, even if building the map failed.
            cx.mark.pod_failed(ErrorClass::Uncertain).await;
            return Err(failed(step)(failure));
        }
    };
    finish(cx, registry, &*plugin, map, &bridges, &device).await
}

fn no_ability(map: &MountVolume) -> Failure {
    Unfit::NoAbility { plugin: map.plugin.to_string(), ability: "map devices" }.into()
}

fn links_of(mapper: &dyn BlockMapper, cx: &OperationContext, map: &MountVolume) -> PathBuf {
    let link = mapper.pod_device(&cx.paths, &map.uid, &map.spec.name());
    link.parent().expect("a pod's link to a device is in a directory").to_owned()
}

/// Stages the volume unless it is staged. `prepare` runs for each pod all the same, as in the kubelet: it
/// writes the record again if that was lost.
async fn stage(
    cx: &OperationContext,
    mapper: &dyn BlockMapper,
    request: &MapDevice,
    global: &Path,
) -> Result<(), (&'static str, Failure)> {
    let prepared = mapper.prepare(cx, request).await;
    let prepared =
        prepared.map_err(|failure| ("MapVolume.NewBlockVolumeMapper initialization failed", failure));
    if request.device_before == Before::Mounted {
        return prepared;
    }
    let staged = match prepared {
        Ok(()) => mapper.set_up_device(cx, request).await.map_err(|e| ("MapVolume.SetUpDevice failed", e)),
        Err(failed) => Err(failed),
    };
    match staged {
        Ok(_) => {
            cx.mark.device_mounted(global, &request.device_path, "").await;
            Ok(())
        }
        Err((step, failure)) => {
            cx.mark.device_failed(global, failure.class(), "").await;
            Err((step, failure))
        }
    }
}

/// Publishes the volume and puts the published device's path into the request.
async fn publish(
    cx: &OperationContext,
    mapper: &dyn BlockMapper,
    bridges: &BlockMap,
    request: &mut MapDevice,
) -> Result<(), Failure> {
    let published = match bridges.announce(&*cx.host).await {
        Ok(()) => mapper.map_pod_device(cx, request).await,
        Err(error) => Err(error.into()),
    };
    match published {
        Ok(path) => {
            request.device_path = path.display().to_string();
            Ok(())
        }
        Err(failure) => {
            let take_back = async { bridges.take_back(&*cx.host).await.map(|()| Undo::Complete) };
            let failure = request.before.tidy(failure, take_back).await;
            cx.mark.pod_failed(failure.class()).await;
            Err(failure)
        }
    }
}

/// Maps the published device into the pod. Returns the device's path with links resolved.
async fn bridge(
    cx: &OperationContext,
    bridges: &BlockMap,
    request: &MapDevice,
) -> Result<PathBuf, (&'static str, Failure)> {
    let failed = |step| move |error: host::HostError| (step, Failure::from(error));
    let device = cx.host.canonicalize(Path::new(&request.device_path)).await;
    let device = device.map_err(failed("MapVolume.EvalHostSymlinks failed"))?;
    cx.mark.device_mounted(&bridges.global, device.display().to_string(), "").await;
    bridges.build(&*cx.host, &device).await.map_err(failed("MapVolume.MapBlockVolume failed"))?;
    Ok(device)
}

async fn finish(
    cx: &OperationContext,
    registry: &Registry,
    plugin: &dyn VolumePlugin,
    map: &MountVolume,
    bridges: &BlockMap,
    device: &Path,
) -> Result<(), Failed> {
    for (what, path) in [("globalMapPath", &bridges.global), ("volumeMapPath", &bridges.links)] {
        let message = format!(
            "MapVolume.MapPodDevice succeeded for volume \"{}\" {what} \"{}\"",
            map.spec.name(),
            path.display()
        );
        cx.events.tell_pod(&map.pod, Reason::SuccessfulMountVolume, message);
    }
    let mounted = Mounted {
        path: bridges.link(),
        read_only: map.spec.read_only,
        managed: false,
        selinux_relabel: false,
    };
    let grown = grow(cx, registry, map, &mounted, &device.display().to_string()).await;
    grown.map_err(|source| {
        let step = "MapVolume.MarkVolumeAsMounted failed while expanding volume";
        Failed::with_event(step, Reason::FailedMapVolume, map.spec.name(), source)
    })?;
    tracing::debug!(plugin = %plugin.name(), volume = %map.spec.name(), "volume mapped");
    cx.mark.pod_mounted(mounted);
    Ok(())
}
