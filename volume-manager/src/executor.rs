//! Runs each operation in a task and reports its outcome.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use api::Pod;
use futures::FutureExt;
use plugin_api::error::Sign;
use plugin_api::registry::Registry;
use plugin_api::{Mark, OperationContext, OperationId};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::event::{Event, EventQueue, Outcome, Report};
use crate::operation::{self, Failed, Operation};

/// Runs operations. Dropping it stops each at its current await.
#[derive(Debug)]
pub(crate) struct Executor {
    /// The context that each operation gets a copy of, with a mark of its own.
    template: OperationContext,
    registry: Arc<Registry>,
    sender: mpsc::UnboundedSender<Event>,
    tasks: JoinSet<()>,
}

impl Executor {
    /// An executor whose operations get copies of `template`.
    pub(crate) fn new(
        template: OperationContext,
        registry: Arc<Registry>,
        sender: mpsc::UnboundedSender<Event>,
    ) -> Self {
        Self { template, registry, sender, tasks: JoinSet::new() }
    }

    /// The context that each operation gets a copy of.
    pub(crate) fn context(&self) -> &OperationContext {
        &self.template
    }

    /// The queue that all events come through.
    pub(crate) fn sender(&self) -> &mpsc::UnboundedSender<Event> {
        &self.sender
    }

    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Starts an operation. Its last report is [`Report::Finished`], even if it panics.
    pub(crate) fn start(&mut self, id: OperationId, operation: Operation) {
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
            let done = AssertUnwindSafe(operation::run(&operation, &cx, &registry)).catch_unwind();
            let outcome = match done.await {
                Ok(Ok(())) => Outcome::Done,
                Ok(Err(failed)) => Outcome::Failed(failed),
                Err(panic) => Outcome::Panicked(panic_text(&*panic)),
            };
            if let (Outcome::Failed(failed), Some(pod)) = (&outcome, pod_of(&operation)) {
                emit_event(&cx, pod, failed);
            }
            // The send fails when the manager has ended.
            let _ = sender.send(Event::Operation(id, Report::Finished(outcome)));
        });
    }

    /// Runs a task without a result.
    pub(crate) fn background(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(work);
    }

    /// Runs a look-up whose result is an event.
    pub(crate) fn look_up(&mut self, answer: impl Future<Output = Event> + Send + 'static) {
        while self.tasks.try_join_next().is_some() {}
        let sender = self.sender.clone();
        self.tasks.spawn(async move {
            let event = answer.await;
            // The send fails when the manager has ended.
            let _ = sender.send(event);
        });
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
fn emit_event(cx: &OperationContext, pod: &Pod, failed: &Failed) {
    if let Some(reason) = failed.reason.filter(|_| failed.source.sign() != Some(Sign::Withdrawn)) {
        cx.events.warn_pod(pod, reason, failed.event_message());
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic".to_owned())
}
