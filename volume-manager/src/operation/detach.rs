//! Detaching a volume from a node, for the attach/detach controller. A failure emits no Kubernetes event: no
//! pod waits.

use api::error::ErrorClass;
use api::names::{PluginName, VolumeName};
use api::{ApiSource, Node};
use plugin_api::Remote;
use plugin_api::error::{Classified, Failure, Unfit};
use plugin_api::registry::Registry;

use super::{DetachVolume, Failed};

/// Detaches the volume. The plugin is called even if it no longer attaches such volumes.
pub(crate) async fn run(
    request: &DetachVolume,
    remote: &Remote<'_>,
    registry: &Registry,
) -> Result<(), Failed> {
    let quiet = |step| move |source: Failure| Failed::quiet(step, &request.volume, source);
    let (name, volume) = split(&request.volume).map_err(quiet("DetachVolume.SplitUniqueName failed"))?;
    let plugin = registry.by_name(&name).map_err(Failure::from);
    let plugin = plugin.map_err(quiet("DetachVolume.FindAttachablePluginByName failed"))?;
    let unable = || Unfit::NoAbility { plugin: name.to_string(), ability: "detach" };
    let attacher = plugin.attacher().ok_or_else(|| Failure::from(unable()));
    let attacher = attacher.map_err(quiet("DetachVolume.FindAttachablePluginByName failed"))?;
    if request.verify_safe {
        check_unused(remote.api, request).await.map_err(quiet("DetachVolume.Detach failed"))?;
    }
    let detached = attacher.detach(remote, volume, &request.node).await;
    detached.map_err(quiet("DetachVolume.Detach failed"))
}

/// The plugin and the plugin's name of the volume, from the unique name: nothing else is known after a restart
/// of the controller if no pod names the volume.
fn split(volume: &VolumeName) -> Result<(PluginName, &str), Failure> {
    volume.split().ok_or_else(|| BadName(volume.clone()).into())
}

/// Reads the node's object and fails if it lists the volume as in use.
async fn check_unused(api: &dyn ApiSource, request: &DetachVolume) -> Result<(), Failure> {
    match api::get::<Node>(api, "", request.node.as_str()).await {
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error.into()),
        Ok(node) if node.volumes_in_use.contains(&request.volume) => Err(InUse.into()),
        Ok(_) => Ok(()),
    }
}

/// The node's object lists the volume as in use.
#[derive(Debug, thiserror::Error)]
#[error("volume is still in use by node, according to Node status")]
struct InUse;

impl Classified for InUse {
    fn class(&self) -> ErrorClass {
        ErrorClass::Transient
    }
}

/// The unique name has no plugin part, so it was not made by a volume manager.
#[derive(Debug, thiserror::Error)]
#[error("cannot split volume unique name {0} to plugin/volume components")]
struct BadName(VolumeName);

impl Classified for BadName {
    fn class(&self) -> ErrorClass {
        ErrorClass::Final
    }
}
