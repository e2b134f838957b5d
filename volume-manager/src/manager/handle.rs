//! The handle through which the owner of a node drives its volume manager.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::Pod;
use api::names::{DriverName, OuterName, PodUid, VolumeName};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::dump::Dump;
use crate::event::{Command, Event, Measured, MountedVolume, Notice, Registration};
use crate::populator::PodState;
use crate::waits::WaitError;

/// The kubelet's time limit for the volumes of a pod to be mounted, and to be unmounted.
pub const WAIT_LIMIT: Duration = Duration::from_secs(123);

/// A running volume manager. Clones refer to the same manager; it runs until [`shutdown`](Self::shutdown) or
/// [`abort`](Self::abort), even if all handles are dropped.
///
/// Methods that do not wait take effect in the order of the calls. None of them fails after the manager has
/// ended: they do nothing, and waiting methods return [`WaitError::Gone`], `None` or nothing.
#[derive(Debug, Clone)]
pub struct VolumeManager {
    sender: mpsc::UnboundedSender<Event>,
    task: AbortHandle,
}

impl VolumeManager {
    /// A handle whose events go to a loop that runs in this task.
    pub(super) fn new(sender: mpsc::UnboundedSender<Event>, task: AbortHandle) -> Self {
        Self { sender, task }
    }

    /// A handle whose events go to this channel and not to a manager.
    #[cfg(test)]
    pub(crate) fn sending_to(sender: mpsc::UnboundedSender<Event>) -> Self {
        Self::new(sender, tokio::spawn(async {}).abort_handle())
    }

    /// Adds a pod that is bound to this node.
    pub fn add_pod(&self, pod: Arc<Pod>) {
        self.command(Command::SetPod(pod));
    }

    /// Replaces the object of a pod.
    pub fn update_pod(&self, pod: Arc<Pod>) {
        self.command(Command::SetPod(pod));
    }

    /// Removes a pod whose object is deleted. Its volumes stay mounted as long as its containers may run: call
    /// [`set_pod_state`](Self::set_pod_state) with [`PodState::RuntimeGone`] before or after.
    pub fn remove_pod(&self, pod: &PodUid) {
        self.command(Command::RemovePod(pod.clone()));
    }

    /// Sets the state of a pod's containers. An added pod is [`PodState::Running`] until this is called; a pod
    /// that was never added is [`PodState::RuntimeGone`] once all sources are ready.
    pub fn set_pod_state(&self, pod: &PodUid, state: PodState) {
        self.command(Command::SetPodState(pod.clone(), state));
    }

    /// Declares that all pods bound to this node have been added. Until then no volume is unmounted.
    pub fn sources_ready(&self) {
        self.command(Command::SourcesReady);
    }

    /// Waits until every volume that a container of the pod uses is mounted. Like a sync of the pod in the
    /// kubelet, this resolves its claims again and republishes volumes that want it. An error of the pod ends
    /// the wait, and so does the end of the pod. The command is sent by the call, not by the first poll of the
    /// future: it takes effect before later calls.
    pub fn wait_mounted(
        &self,
        pod: &PodUid,
        limit: Duration,
    ) -> impl Future<Output = Result<(), WaitError>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        self.command(Command::WaitMounted(pod.clone(), limit, answer));
        async move { answered.await.unwrap_or(Err(WaitError::Gone)) }
    }

    /// Waits until the pod has no volume, recovery can find none of it, and no operation runs for it.
    pub async fn wait_unmounted(&self, pod: &PodUid, limit: Duration) -> Result<(), WaitError> {
        self.ask(|answer| Command::WaitUnmounted(pod.clone(), limit, answer))
            .await
            .unwrap_or(Err(WaitError::Gone))
    }

    /// Waits until each of these pods is [unmounted](Self::wait_unmounted), all at the same time, as a node
    /// does that shuts down. Returns the error of each pod that is not.
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

    /// Waits until no operation runs, no pod is being resolved and nothing is due. Operations in back-off, and
    /// volumes that wait for a driver or for the API, do not count.
    pub async fn wait_idle(&self, limit: Duration) -> Result<(), WaitError> {
        self.ask(|answer| Command::WaitIdle(limit, answer)).await.unwrap_or(Err(WaitError::Gone))
    }

    /// The mounted volumes of the pod, by their names in the pod.
    pub async fn mounted_volumes(&self, pod: &PodUid) -> BTreeMap<OuterName, MountedVolume> {
        self.ask(|answer| Command::MountedVolumes(pod.clone(), answer)).await.unwrap_or_default()
    }

    /// The usage and the condition of the pod's mounted volumes, as far as their plugins can measure them.
    pub async fn stats(&self, pod: &PodUid) -> BTreeMap<OuterName, Measured> {
        self.ask(|answer| Command::Measure(pod.clone(), answer)).await.unwrap_or_default()
    }

    /// The volumes for the node's `volumesInUse`, sorted. `None` until the reconstructed volumes have been
    /// compared with the node's object: keep the object's old value until then.
    pub async fn volumes_in_use(&self) -> Option<Vec<VolumeName>> {
        self.ask(Command::VolumesInUse).await.flatten()
    }

    /// Reports the `volumesInUse` of the node's object. To be called after each write of the node's status, and
    /// after each read that made a write unnecessary.
    pub fn mark_reported_in_use(&self, volumes: Vec<VolumeName>) {
        self.command(Command::MarkReportedInUse(volumes));
    }

    /// Adds or removes a driver.
    pub fn registration(&self, registration: Registration) {
        // The send fails when the manager has ended; the call does nothing then.
        let _ = self.sender.send(Event::Driver(registration));
    }

    /// Adds a driver that listens on a socket, or a new socket of a known one.
    pub fn driver_registered(&self, driver: DriverName, endpoint: impl Into<std::path::PathBuf>) {
        self.registration(Registration::Added { driver, endpoint: endpoint.into() });
    }

    /// Notices of everything the manager does from now on, in order.
    pub fn subscribe(&self) -> mpsc::UnboundedReceiver<Notice> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.command(Command::Subscribe(sender));
        receiver
    }

    /// A snapshot of the manager's state; `None` if it has ended.
    pub async fn dump(&self) -> Option<Dump> {
        self.ask(Command::Dump).await
    }

    /// Ends the manager and returns when it has ended. Operations under way are dropped; nothing is unmounted.
    pub async fn shutdown(&self) {
        self.ask(Command::Shutdown).await;
    }

    /// Ends the manager as a crash would: each task stops at its current await.
    pub fn abort(&self) {
        self.task.abort();
    }

    fn command(&self, command: Command) {
        // The send fails when the manager has ended; the call does nothing then.
        let _ = self.sender.send(Event::Command(command));
    }

    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.command(question(answer));
        answered.await.ok()
    }
}
