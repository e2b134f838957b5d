//! Runs an operation of any kind.

use plugin_api::error::Unfit;
use plugin_api::registry::Registry;
use plugin_api::{OperationContext, Reason};

use super::{Failed, Operation, device, expand, map, mount, unmap, unmount, verify};

/// Runs the operation on the host where its plugin's mount tools are registered.
pub(crate) async fn run(
    operation: &Operation,
    cx: &OperationContext,
    registry: &Registry,
) -> Result<(), Failed> {
    let (plugin, step, reason, volume) = match operation {
        Operation::Mount(mount) | Operation::Map(mount) => {
            let step = "MountVolume.NewMounter initialization failed";
            (&mount.plugin, step, Some(Reason::FailedMount), mount.spec.name().to_string())
        }
        Operation::Unmount(unmount) | Operation::Unmap(unmount) => {
            (&unmount.plugin, "UnmountVolume.NewUnmounter failed", None, unmount.volume.to_string())
        }
        Operation::UnmountDevice(device) | Operation::UnmapDevice(device) => {
            (&device.plugin, "UnmountDevice.NewDeviceUnmounter failed", None, device.volume.to_string())
        }
        Operation::Expand(expand) => {
            (&expand.plugin, "NodeExpandVolume.NewMounter failed", None, expand.volume.to_string())
        }
        // These operations mount nothing.
        Operation::Verify(_) | Operation::Attach(_) | Operation::Detach(_) => {
            return run_on(operation, cx, registry).await;
        }
    };
    match cx.for_plugin(plugin).await {
        Ok(cx) => run_on(operation, &cx, registry).await,
        Err(source) => Err(Failed { step, volume, reason, source }),
    }
}

async fn run_on(operation: &Operation, cx: &OperationContext, registry: &Registry) -> Result<(), Failed> {
    match operation {
        Operation::Verify(verify) => verify::run(verify, cx).await,
        Operation::Mount(mount) => mount::run(mount, cx, registry).await,
        Operation::Map(mount) => map::run(mount, cx, registry).await,
        Operation::Unmount(unmount) => unmount::run(unmount, cx, registry).await,
        Operation::Unmap(unmount) => unmap::run(unmount, cx, registry).await,
        Operation::UnmountDevice(request) => device::unmount(request, cx, registry).await,
        Operation::UnmapDevice(request) => device::unmap(request, cx, registry).await,
        Operation::Expand(expand) => expand::run(expand, cx, registry).await,
        // Only the attach/detach controller runs these.
        Operation::Attach(attach) => Err(Failed::quiet(
            "AttachVolume.Attach failed",
            attach.spec.name(),
            Unfit::NoAbility { plugin: attach.plugin.to_string(), ability: "attach from the node" },
        )),
        Operation::Detach(detach) => Err(Failed::quiet(
            "DetachVolume.Detach failed",
            &detach.volume,
            Unfit::NoAbility { plugin: detach.volume.to_string(), ability: "detach from the node" },
        )),
    }
}
