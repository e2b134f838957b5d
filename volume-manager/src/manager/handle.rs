//! The façade: what the owner of a node's volumes says to the manager, and is told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::Pod;
use api::names::{DriverName, OuterName, PodUid, VolumeName};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::dump::Dump;
use super::waits::WaitError;
use crate::event::{Command, Event, MountedVolume, Notice, PodState, Registration};

/// How long the kubelet waits for the volumes of a pod, in either direction.
pub const WAIT_LIMIT: Duration = Duration::from_secs(123);

/// A running volume manager. Clones are the same manager; it runs until [`shutdown`](Self::shutdown) or
/// [`abort`](Self::abort), whoever still holds a handle.
///
/// Methods that do not wait take effect in the order they are called. None of them fails when the manager
/// has ended: they do nothing then, and those that wait return [`WaitError::Gone`] or nothing.
#[derive(Debug, Clone)]
pub struct VolumeManager {
    pub(super) sender: mpsc::UnboundedSender<Event>,
    pub(super) task: AbortHandle,
}

impl VolumeManager {
    /// A handle that somebody else listens to.
    #[cfg(test)]
    pub(crate) fn heard_by(sender: mpsc::UnboundedSender<Event>) -> Self {
        Self { sender, task: tokio::spawn(async {}).abort_handle() }
    }

    /// A pod is bound to this node.
    pub fn add_pod(&self, pod: Arc<Pod>) {
        self.command(Command::SetPod(pod));
    }

    /// The object of a pod has changed.
    pub fn update_pod(&self, pod: Arc<Pod>) {
        self.command(Command::SetPod(pod));
    }

    /// The object of a pod is gone. Its volumes stay as long as its containers may run: say
    /// [`PodState::RuntimeGone`] first, or afterwards.
    pub fn remove_pod(&self, pod: &PodUid) {
        self.command(Command::RemovePod(pod.clone()));
    }

    /// What the runtime does with a pod. A pod that was added is [`PodState::Running`] until somebody says
    /// otherwise; one that was never added is [`PodState::RuntimeGone`] once all sources are ready.
    pub fn set_pod_state(&self, pod: &PodUid, state: PodState) {
        self.command(Command::SetPodState(pod.clone(), state));
    }

    /// All pods that are to be known at the start have been added. Nothing is unmounted before.
    pub fn sources_ready(&self) {
        self.command(Command::SourcesReady);
    }

    /// Waits until every volume some container of the pod uses is there. This is a sync of the pod: its
    /// claims are looked up again, and what is republished from time to time is. Errors of the pod return at
    /// once, and so does a wait that is under way when the pod is to end. It begins with the call: whatever the
    /// manager is told afterwards it hears of later.
    pub fn wait_mounted(
        &self,
        pod: &PodUid,
        limit: Duration,
    ) -> impl Future<Output = Result<(), WaitError>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        self.command(Command::WaitMounted(pod.clone(), limit, answer));
        async move { answered.await.unwrap_or(Err(WaitError::Gone)) }
    }

    /// Waits until the pod has no volume, may have none and nothing is under way for it.
    pub async fn wait_unmounted(&self, pod: &PodUid, limit: Duration) -> Result<(), WaitError> {
        self.ask(|answer| Command::WaitUnmounted(pod.clone(), limit, answer))
            .await
            .unwrap_or(Err(WaitError::Gone))
    }

    /// Waits until all these pods are [unmounted](Self::wait_unmounted), as long for each as for all: what a node
    /// does that shuts down. Tells of every pod that is not.
    pub async fn wait_all_unmounted(
        &self,
        pods: &[PodUid],
        limit: Duration,
    ) -> Result<(), BTreeMap<PodUid, WaitError>> {
        let waits = pods.iter().map(async |pod| (pod.clone(), self.wait_unmounted(pod, limit).await));
        let ended = futures::future::join_all(waits).await;
        let left: BTreeMap<_, _> =
            ended.into_iter().filter_map(|(pod, ended)| Some((pod, ended.err()?))).collect();
        if left.is_empty() { Ok(()) } else { Err(left) }
    }

    /// Waits until no operation runs, nothing is being looked up and nothing is due. What waits for its next
    /// attempt, for the driver or for the API does not count as under way.
    pub async fn wait_idle(&self, limit: Duration) -> Result<(), WaitError> {
        self.ask(|answer| Command::WaitIdle(limit, answer)).await.unwrap_or(Err(WaitError::Gone))
    }

    /// The volumes the pod has, by their names in the pod.
    pub async fn mounted_volumes(&self, pod: &PodUid) -> BTreeMap<OuterName, MountedVolume> {
        self.ask(|answer| Command::MountedVolumes(pod.clone(), answer)).await.unwrap_or_default()
    }

    /// The volumes the node must say it uses, in order; `None` as long as what was reconstructed has not
    /// been compared with the node's object, whose old value is then to be kept.
    pub async fn volumes_in_use(&self) -> Option<Vec<VolumeName>> {
        self.ask(Command::VolumesInUse).await.flatten()
    }

    /// What the node's object says it uses. To be said after each write of the node's status, and after each
    /// read that made a write unnecessary.
    pub fn mark_reported_in_use(&self, volumes: Vec<VolumeName>) {
        self.command(Command::MarkReportedInUse(volumes));
    }

    /// A driver came or went.
    pub fn registration(&self, registration: Registration) {
        // As with every command, a manager that has ended hears nothing.
        let _ = self.sender.send(Event::Driver(registration));
    }

    /// A driver can be reached at a socket, perhaps again.
    pub fn driver_registered(&self, driver: DriverName, endpoint: impl Into<std::path::PathBuf>) {
        self.registration(Registration::Added { driver, endpoint: endpoint.into() });
    }

    /// Everything the manager does from now on, in order.
    pub fn subscribe(&self) -> mpsc::UnboundedReceiver<Notice> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.command(Command::Subscribe(sender));
        receiver
    }

    /// Everything the manager believes; `None` if it has ended.
    pub async fn dump(&self) -> Option<Dump> {
        self.ask(Command::Dump).await
    }

    /// Ends the manager, dropping what is under way, and returns when it has ended. Nothing is unmounted.
    pub async fn shutdown(&self) {
        self.ask(Command::Shutdown).await;
    }

    /// Ends the manager where it stands, as a crash would: everything under way is dropped at its await.
    pub fn abort(&self) {
        self.task.abort();
    }

    fn command(&self, command: Command) {
        // A manager that has ended hears nothing.
        let _ = self.sender.send(Event::Command(command));
    }

    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.command(question(answer));
        answered.await.ok()
    }
}
