//! Pod workers: the kubelet's work on a pod around its volumes.
//!
//! A pod is synced until its volumes are mounted, and again on request. When its containers are gone its
//! volumes are unmounted, then its object is deleted, and then its directory is removed.

mod stats;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::clock::Clock;
use api::follow::{Following, News};
use api::names::PodUid;
use api::{ApiError, Key, Kind, Notification, Object, Pod, Reference, Resource, Severity};
use tokio::sync::{Notify, watch};
use volume_manager::{PodState, WaitCause, WaitError};

use super::child::{LIMIT, RETRY, Surroundings};
use super::sweep;

/// The pause between two syncs of a pod: at least `RESYNC`, and up to `RESYNC_SPREAD` seconds more.
const RESYNC: Duration = Duration::from_secs(60);
const RESYNC_SPREAD: u64 = 30;

/// The time limit for a new pod object to reach this process. A guest on a busy machine takes seconds.
const COMING: Duration = Duration::from_secs(10);

/// The pods of a node. Clones are the same pods.
#[derive(Debug, Clone)]
pub(super) struct Pods {
    around: Surroundings,
    known: Arc<Mutex<BTreeMap<PodUid, Arc<Worker>>>>,
    gone: Arc<Mutex<BTreeSet<String>>>,
    /// Whether all orphans are removed.
    orphans_gone: watch::Sender<bool>,
}

#[derive(Debug)]
struct Worker {
    pod: watch::Sender<Arc<Pod>>,
    state: watch::Sender<PodState>,
    sync: Notify,
    progress: watch::Sender<Progress>,
    /// Whether the pod was added to the manager.
    introduced: AtomicBool,
    /// Whether the pod's object is deleted.
    deleted: watch::Sender<bool>,
}

/// The progress of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Progress {
    /// The pod waits for its volumes; with the last error.
    Mounting(String),
    Mounted,
    Unmounting(String),
    /// The pod has no volumes; its object and directory still exist.
    Unmounted,
    Gone,
}

impl Pods {
    /// Adds all pods of the node to the manager, declares that the list is complete, and follows changes for ever.
    pub(super) async fn follow(around: Surroundings, gone: BTreeSet<String>) -> Self {
        let mut changes = Following::new(Kind::Pod, Arc::clone(&around.api), Arc::new(around.clock.clone()));
        let gone = Arc::new(Mutex::new(gone));
        let pods = Self { around, known: Arc::default(), gone, orphans_gone: watch::Sender::new(false) };
        loop {
            let news = changes.next().await;
            let is_all = matches!(news, News::Only(_));
            pods.take(news).await;
            if is_all {
                break;
            }
        }
        pods.around.manager.sources_ready();
        tokio::spawn(pods.clone().follow_changes(changes));
        pods
    }

    async fn follow_changes(self, mut changes: Following) {
        loop {
            self.take(changes.next().await).await;
        }
    }

    async fn take(&self, news: News) {
        match news {
            News::Applied(object) => {
                let Some(pod) = Pod::from_object(object) else { return };
                // A known pod of the same name and another uid was deleted while the watch was down.
                self.mark_deleted(|known| known.key() == pod.key() && known.uid() != pod.uid());
                if pod.node == self.around.settings.name {
                    self.apply(pod).await;
                }
            }
            News::Deleted(object) => self.deleted(&PodUid::new(&object.meta().uid)),
            News::Only(there) => self.mark_deleted(|known| !there.contains(&known.key())),
        }
    }

    /// Marks pods as deleted whose deletion the watch did not report.
    fn mark_deleted(&self, is_deleted: impl Fn(&Pod) -> bool) {
        let known = lock(&self.known);
        let there = known.iter().filter(|(_, worker)| !worker.is_deleted());
        let deleted = there.filter(|(_, worker)| is_deleted(&worker.pod.borrow()));
        let deleted: Vec<_> = deleted.map(|(uid, _)| uid.clone()).collect();
        drop(known);
        deleted.iter().for_each(|uid| self.deleted(uid));
    }

    /// A pod whose object is deleted may still have containers; their end is reported separately.
    fn deleted(&self, uid: &PodUid) {
        self.around.manager.remove_pod(uid);
        if let Some(worker) = lock(&self.known).get(uid) {
            worker.deleted.send_replace(true);
        }
    }

    async fn apply(&self, pod: Arc<Pod>) {
        let uid = pod.uid();
        self.forget_ended(&uid, &pod);
        let is_gone = pod.is_over() || lock(&self.gone).contains(uid.as_str());
        let state = match (pod.meta.is_deleting(), is_gone) {
            (_, true) => PodState::RuntimeGone,
            (true, false) => PodState::Terminating,
            (false, false) => PodState::Running,
        };
        let known = lock(&self.known).get(&uid).cloned();
        match known {
            Some(worker) => {
                worker.pod.send_replace(Arc::clone(&pod));
                self.around.manager.update_pod(pod);
                self.become_at_least(&uid, &worker, state);
            }
            None => {
                let worker = Arc::new(Worker {
                    pod: watch::Sender::new(Arc::clone(&pod)),
                    state: watch::Sender::new(state),
                    sync: Notify::new(),
                    progress: watch::Sender::new(Progress::Mounting(String::new())),
                    introduced: AtomicBool::new(false),
                    deleted: watch::Sender::new(false),
                });
                lock(&self.known).insert(uid.clone(), Arc::clone(&worker));
                if state != PodState::RuntimeGone {
                    // Before the manager learns of the pod: its operations must not create these directories first.
                    self.make_directories(&uid).await;
                }
                self.around.manager.add_pod(pod);
                // The pod may have ended while its directories were made.
                self.around.manager.set_pod_state(&uid, *worker.state.borrow());
                worker.introduced.store(true, Ordering::Relaxed);
                if self.around.settings.measure {
                    tokio::spawn(self.clone().keep_measured(uid.clone(), Arc::clone(&worker)));
                }
                tokio::spawn(self.clone().work(uid, worker));
            }
        }
    }

    /// Forgets a pod that has ended if another one has its uid now.
    fn forget_ended(&self, uid: &PodUid, pod: &Pod) {
        let mut known = lock(&self.known);
        let ended = known.get(uid).is_some_and(|worker| worker.is_deleted());
        if ended && !pod.meta.is_deleting() {
            known.remove(uid);
            lock(&self.gone).remove(uid.as_str());
        }
    }

    fn become_at_least(&self, uid: &PodUid, worker: &Worker, state: PodState) {
        let mut was = state;
        let further = worker.state.send_if_modified(|known| {
            was = *known;
            *known = state.max(was);
            state > was
        });
        if further {
            let failed = matches!(&*worker.progress.borrow(), Progress::Mounting(why) if !why.is_empty());
            if failed && was == PodState::Running {
                // The sync that was to be repeated starts once more; the end of the pod cancels its wait.
                tokio::spawn(self.around.manager.wait_mounted(uid, LIMIT));
            }
            self.around.manager.set_pod_state(uid, state);
        }
    }

    pub(super) fn runtime_gone(&self, uid: &str) {
        lock(&self.gone).insert(uid.to_owned());
        let uid = PodUid::new(uid);
        let known = lock(&self.known).get(&uid).cloned();
        if let Some(worker) = known {
            self.become_at_least(&uid, &worker, PodState::RuntimeGone);
        }
    }

    pub(super) fn sync(&self, pod: &str) -> Result<(), String> {
        self.worker(pod)?.1.sync.notify_one();
        Ok(())
    }

    pub(super) fn uid(&self, pod: &str) -> Result<PodUid, String> {
        self.worker(pod).map(|(uid, _)| uid)
    }

    pub(super) fn pod(&self, pod: &str) -> Result<Arc<Pod>, String> {
        self.worker(pod).map(|(_, worker)| worker.pod.borrow().clone())
    }

    pub(super) async fn wait_mounted(&self, pod: &str, limit: Duration) -> Result<(), String> {
        // A deleted pod gets no volumes: the caller waits for a new pod of the same name.
        let is_present = |worker: &Worker| !worker.is_deleted();
        self.wait(pod, limit, is_present, |progress| *progress == Progress::Mounted).await
    }

    pub(super) async fn wait_unmounted(&self, pod: &str, limit: Duration) -> Result<(), String> {
        let done = |progress: &Progress| matches!(progress, Progress::Unmounted | Progress::Gone);
        self.wait(pod, limit, |_| true, done).await
    }

    pub(super) async fn wait_gone(&self, pod: &str, limit: Duration) -> Result<(), String> {
        if self.worker(pod).is_err() && self.has_no_object(pod).await {
            return self.wait_orphans_gone(limit).await;
        }
        self.wait(pod, limit, |_| true, |progress| *progress == Progress::Gone).await
    }

    /// Waits until no orphan has a directory.
    async fn wait_orphans_gone(&self, limit: Duration) -> Result<(), String> {
        let mut gone = self.orphans_gone.subscribe();
        let waited = tokio::time::timeout(limit, gone.wait_for(|gone| *gone)).await;
        waited.map(drop).map_err(|_| "directories of pods that are gone are still there".to_owned())
    }

    async fn has_no_object(&self, pod: &str) -> bool {
        let key = Key::namespaced(Kind::Pod, crate::api_server::NAMESPACE, pod);
        self.around.api.get(&key).await.is_err_and(|error| error.is_not_found())
    }

    pub(super) fn knows_uid(&self, uid: &PodUid) -> bool {
        lock(&self.known).contains_key(uid)
    }

    pub(super) fn orphans_are_gone(&self) {
        self.orphans_gone.send_replace(true);
    }

    async fn wait(
        &self,
        pod: &str,
        limit: Duration,
        counts: impl Fn(&Worker) -> bool,
        done: impl FnMut(&Progress) -> bool,
    ) -> Result<(), String> {
        let worker = self.pod_that_comes(pod, limit, counts).await?;
        let mut progress = worker.progress.subscribe();
        let waiting = progress.wait_for(done);
        // Real time: this wait must not end when a case advances the node's clock.
        match tokio::time::timeout(limit, waiting).await {
            Ok(_) => Ok(()),
            Err(_) => Err(worker.progress.borrow().describe(pod)),
        }
    }

    /// Waits until this process knows exactly these pods, in these versions.
    pub(super) async fn wait_known(
        &self,
        pods: &BTreeMap<String, String>,
        limit: Duration,
    ) -> Result<(), String> {
        let coming = async {
            while !self.knows(pods) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let late = |_| "the node has not heard of all changes of pods".to_owned();
        tokio::time::timeout(limit, coming).await.map_err(late)
    }

    /// Whether each pod is known in this version or a later one, and all other pods are known to be deleted.
    fn knows(&self, pods: &BTreeMap<String, String>) -> bool {
        let number = |version: &str| version.parse::<u64>().unwrap_or_default();
        let known = lock(&self.known);
        let all_known = pods.iter().all(|(uid, version)| {
            let worker = known.get(&PodUid::new(uid));
            worker.is_some_and(|worker| {
                let is_current = number(&worker.pod.borrow().meta.resource_version) >= number(version);
                is_current && worker.introduced.load(Ordering::Relaxed)
            })
        });
        let listed_or_deleted =
            |(uid, worker): (&PodUid, &Arc<Worker>)| pods.contains_key(uid.as_str()) || worker.is_deleted();
        all_known && known.iter().all(listed_or_deleted)
    }

    /// The worker of a pod; waits for a new pod's object, which arrives through a watch shortly after its
    /// order.
    async fn pod_that_comes(
        &self,
        pod: &str,
        limit: Duration,
        counts: impl Fn(&Worker) -> bool,
    ) -> Result<Arc<Worker>, String> {
        let moment = limit.min(COMING);
        let coming = async {
            loop {
                match self.worker(pod) {
                    Ok((_, worker)) if counts(&worker) => return worker,
                    _ => {}
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(moment, coming).await.map_err(|_| format!("the node knows no pod `{pod}`"))
    }

    /// The youngest pod of a name: the others are being deleted.
    fn worker(&self, pod: &str) -> Result<(PodUid, Arc<Worker>), String> {
        let known = lock(&self.known);
        let named = known.iter().filter(|(_, worker)| worker.pod.borrow().meta.name == pod);
        let youngest = named.min_by_key(|(_, worker)| *worker.state.borrow());
        let found = youngest.map(|(uid, worker)| (uid.clone(), Arc::clone(worker)));
        found.ok_or_else(|| format!("the node knows no pod `{pod}`"))
    }

    /// The life of one pod.
    async fn work(self, uid: PodUid, worker: Arc<Worker>) {
        let mut state = worker.state.subscribe();
        self.keep_mounted(&uid, &worker, &mut state).await;
        self.take_down(&uid, &worker).await;
    }

    /// Keeps the pod's volumes mounted until its containers are gone for good. A wait under way at that moment is not
    /// dropped: the manager ends it with `Canceled`.
    async fn keep_mounted(&self, uid: &PodUid, worker: &Worker, state: &mut watch::Receiver<PodState>) {
        if *state.borrow() == PodState::RuntimeGone {
            return;
        }
        loop {
            let pause = match self.around.manager.wait_mounted(uid, LIMIT).await {
                Ok(()) => {
                    worker.progress.send_replace(Progress::Mounted);
                    self.around.settings.resync.then(|| resync_pause(uid))
                }
                Err(WaitError::Gone) => return,
                Err(WaitError::NotMounted { cause: WaitCause::Canceled, .. }) => return gone(state).await,
                Err(error) => {
                    self.emit_failure(&worker.pod.borrow().clone(), &error);
                    worker.progress.send_replace(Progress::Mounting(error.to_string()));
                    Some(RETRY)
                }
            };
            let due = async {
                match pause {
                    Some(pause) => self.around.clock.sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = gone(state) => return,
                () = worker.sync.notified() => {}
                () = due => if *state.borrow() != PodState::Running { return gone(state).await },
            }
        }
    }

    /// The pod's directories, as the kubelet makes them before it waits for volumes.
    async fn make_directories(&self, uid: &PodUid) {
        let pod = self.around.layout.root().join("pods").join(uid.as_str());
        for directory in ["volumes", "plugins"] {
            let made = self.around.host.make_dir_all(&pod.join(directory), 0o750).await;
            if let Err(error) = made {
                tracing::error!(%error, pod = %uid, "cannot make the pod's directory");
            }
        }
    }

    async fn take_down(&self, uid: &PodUid, worker: &Worker) {
        worker.progress.send_replace(Progress::Unmounting(String::new()));
        while let Err(error) = self.around.manager.wait_unmounted(uid, LIMIT).await {
            if error == WaitError::Gone {
                return;
            }
            worker.progress.send_replace(Progress::Unmounting(error.to_string()));
            self.around.clock.sleep(RETRY).await;
        }
        while let Some(left) =
            sweep::volume_left(self.around.host.as_ref(), self.around.layout.root(), uid).await
        {
            worker.progress.send_replace(Progress::Unmounting(left));
            self.around.clock.sleep(Duration::from_millis(100)).await;
        }
        worker.progress.send_replace(Progress::Unmounted);
        self.finish(uid, worker).await;
        worker.progress.send_replace(Progress::Gone);
    }

    /// Deletes the pod's object, after which its volumes count as free, and then its directory. A pod that has ended and was
    /// not deleted keeps both until it is.
    async fn finish(&self, uid: &PodUid, worker: &Worker) {
        worker.is_to_be_deleted().await;
        let pod = worker.pod.borrow().clone();
        let key = Key::namespaced(Kind::Pod, &pod.meta.namespace, &pod.meta.name);
        while let Err(error) = self.delete(&key, uid).await {
            tracing::warn!(%error, pod = %uid, "cannot delete the pod's object; retrying after a pause");
            self.around.clock.sleep(RETRY).await;
        }
        self.around.manager.remove_pod(uid);
        self.around.tokens.forget(uid.as_str());
        if self.around.settings.sweep {
            sweep::pod(self.around.host.as_ref(), self.around.layout.root(), uid).await;
        }
    }

    /// Deletes the pod's object unless the name belongs to another pod now, as after a forced removal.
    async fn delete(&self, key: &Key, uid: &PodUid) -> Result<(), ApiError> {
        match self.around.api.get(key).await {
            Ok(object) if object.meta().uid == uid.as_str() => self.around.api.delete(key).await,
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Emits an event about a failed wait.
    fn emit_failure(&self, pod: &Arc<Pod>, error: &WaitError) {
        if !has_event(error) || !self.around.settings.pod_events {
            return;
        }
        let about = Reference::to(Kind::Pod, &pod.meta);
        let message = format!("Unable to attach or mount volumes: {error}");
        let notification = Notification::about(about, Severity::Warning, "FailedMount", message);
        let api = Arc::clone(&self.around.api);
        tokio::spawn(async move {
            if let Err(error) = api.create(Object::Notification(Arc::new(notification))).await {
                tracing::warn!(%error, "cannot write an event");
            }
        });
    }
}

impl Worker {
    fn is_deleted(&self) -> bool {
        *self.deleted.borrow()
    }

    /// Returns when the pod's object is deleted, or is to be.
    async fn is_to_be_deleted(&self) {
        let (mut pod, mut deleted) = (self.pod.subscribe(), self.deleted.subscribe());
        tokio::select! {
            biased;
            _ = pod.wait_for(|pod| pod.meta.is_deleting()) => {}
            _ = deleted.wait_for(|deleted| *deleted) => {}
        }
    }
}

impl Progress {
    fn describe(&self, pod: &str) -> String {
        match self {
            Self::Mounting(why) => with_cause(&format!("the volumes of `{pod}` are not mounted"), why),
            Self::Mounted => format!("the volumes of `{pod}` are mounted"),
            Self::Unmounting(why) => with_cause(&format!("the volumes of `{pod}` are not unmounted"), why),
            Self::Unmounted => format!("the pod `{pod}` is not gone"),
            Self::Gone => format!("the pod `{pod}` is gone"),
        }
    }
}

/// The pause from one sync of a pod to the next. It differs between pods, so that pods added together are not synced
/// together for ever, and follows from the uid, so that a run can be repeated.
fn resync_pause(uid: &PodUid) -> Duration {
    let spread = uid.as_str().bytes().fold(0_u64, |sum, byte| (sum * 31 + u64::from(byte)) % RESYNC_SPREAD);
    RESYNC + Duration::from_secs(spread)
}

/// Whether the kubelet emits an event for a failed wait: not for a deadline, nor for a deleted pod.
fn has_event(error: &WaitError) -> bool {
    match error {
        WaitError::NotMounted { cause, .. } => matches!(cause, WaitCause::Errors(_)),
        _ => true,
    }
}

/// Returns when the containers of a pod are gone for good, or the sender of its state is dropped.
async fn gone(state: &mut watch::Receiver<PodState>) {
    drop(state.wait_for(|state| *state == PodState::RuntimeGone).await);
}

fn with_cause(state: &str, cause: &str) -> String {
    if cause.is_empty() { state.to_owned() } else { format!("{state}: {cause}") }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
