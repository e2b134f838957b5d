//! Runs each operation in a task and reports its outcome.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use api::Pod;
use futures::FutureExt;
use plugin_api::error::{Sign, Unfit};
use plugin_api::registry::Registry;
use plugin_api::{Mark, OperationContext, OperationId, Reason};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Failed, Operation, device, expand, map, mount, unmap, unmount, verify};
use crate::event::{Event, EventQueue, Outcome, Report};

/// Runs operations. Dropping it stops each at its current await.
#[derive(Debug)]
pub struct Executor {
    /// The context that each operation gets a copy of; its mark is replaced.
    template: OperationContext,
    registry: Arc<Registry>,
    sender: mpsc::UnboundedSender<Event>,
    tasks: JoinSet<()>,
}

impl Executor {
    /// An executor whose operations get copies of `template`.
    pub fn new(
        template: OperationContext,
        registry: Arc<Registry>,
        sender: mpsc::UnboundedSender<Event>,
    ) -> Self {
        Self { template, registry, sender, tasks: JoinSet::new() }
    }

    /// The context that each operation gets a copy of.
    pub fn context(&self) -> &OperationContext {
        &self.template
    }

    /// The queue that all events come through.
    pub fn sender(&self) -> &mpsc::UnboundedSender<Event> {
        &self.sender
    }

    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Starts an operation. Its last report is [`Report::Finished`], even if it panics.
    pub fn start(&mut self, id: OperationId, operation: Operation) {
        while self.tasks.try_join_next().is_some() {}
        let record = match &operation {
            Operation::Mount(mount) | Operation::Map(mount) => Some(mount.record()),
            _ => None,
        };
        let queue = Arc::new(EventQueue(self.sender.clone()));
        let mark = Mark::new(operation.volume().clone(), id, record, queue);
        let cx = OperationContext { mark, ..self.template.clone() };
        let registry = Arc::clone(&self.registry);
        let sender = self.sender.clone();
        self.tasks.spawn(async move {
            let done = AssertUnwindSafe(run_where_registered(&operation, &cx, &registry)).catch_unwind();
            let outcome = match done.await {
                Ok(Ok(())) => Outcome::Done,
                Ok(Err(failed)) => Outcome::Failed(failed),
                Err(panic) => Outcome::Panicked(panic_text(&*panic)),
            };
            if let (Outcome::Failed(failed), Some(pod)) = (&outcome, pod_of(&operation)) {
                tell(&cx, pod, failed);
            }
            // The send fails when the manager has ended.
            let _ = sender.send(Event::Operation(id, Report::Finished(outcome)));
        });
    }

    /// Runs a task without a result.
    pub fn background(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(work);
    }

    /// Runs a look-up whose result is an event.
    pub fn look_up(&mut self, answer: impl Future<Output = Event> + Send + 'static) {
        while self.tasks.try_join_next().is_some() {}
        let sender = self.sender.clone();
        self.tasks.spawn(async move {
            let event = answer.await;
            // The send fails when the manager has ended.
            let _ = sender.send(event);
        });
    }
}

/// Runs the operation on the host where its plugin's mount tools are registered.
async fn run_where_registered(
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
            return run(operation, cx, registry).await;
        }
    };
    match cx.for_plugin(plugin).await {
        Ok(cx) => run(operation, &cx, registry).await,
        Err(source) => Err(Failed { step, volume, reason, source }),
    }
}

async fn run(operation: &Operation, cx: &OperationContext, registry: &Registry) -> Result<(), Failed> {
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

/// The pod that gets events about the operation.
fn pod_of(operation: &Operation) -> Option<&Pod> {
    match operation {
        Operation::Mount(mount) | Operation::Map(mount) => Some(&mount.pod),
        Operation::Expand(expand) => Some(&expand.pod),
        _ => None,
    }
}

/// Emits an event about the pod if the failure has a reason. An operation that was withdrawn emits none.
fn tell(cx: &OperationContext, pod: &Pod, failed: &Failed) {
    if let Some(reason) = failed.reason.filter(|_| failed.source.sign() != Some(Sign::Withdrawn)) {
        cx.events.warn_pod(pod, reason, failed.told_as());
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic".to_owned())
}
