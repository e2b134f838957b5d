//! Attaching a volume to a node, for the attach/detach controller.

use plugin_api::error::{Failure, Unfit};
use plugin_api::registry::Registry;
use plugin_api::{Reason, Remote};

use super::{AttachVolume, Failed};

/// Attaches the volume. Returns the device's path if it is known. The caller emits the failure as an event
/// about each waiting pod.
pub(crate) async fn run(
    request: &AttachVolume,
    remote: &Remote<'_>,
    registry: &Registry,
) -> Result<String, Failed> {
    let failed = |step| {
        move |source: Failure| {
            Failed::with_event(step, Reason::FailedAttachVolume, request.spec.name(), source)
        }
    };
    let plugin = registry.by_name(&request.plugin).map_err(Failure::from);
    let plugin = plugin.map_err(failed("AttachVolume.FindAttachablePluginBySpec failed"))?;
    let unable = || Unfit::NoAbility { plugin: request.plugin.to_string(), ability: "attach" };
    let attacher = plugin.attacher().ok_or_else(|| Failure::from(unable()));
    let attacher = attacher.map_err(failed("AttachVolume.FindAttachablePluginBySpec failed"))?;
    let attached = attacher.attach(remote, &request.spec, &request.node).await;
    attached.map_err(failed("AttachVolume.Attach failed"))
}
