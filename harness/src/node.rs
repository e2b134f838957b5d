//! A node: the volume manager in a process of its own, and the handle on it.
//!
//! The process is this very binary, executed again with the hidden subcommand `__node`. It reads and writes
//! the cluster through one socket, takes orders through a second and announces its effects and notices through a
//! third, where it waits for the journal. Pods reach it as objects of the cluster, so that a node that is started
//! again finds what there is. This file starts and kills a process and serves two sockets.

mod announce;
mod child;
mod configure;
mod effects;
mod error;
mod line;
mod notice;
mod orphans;
mod pod;
mod protocol;
mod shutdown;
mod status;
mod sweep;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::{PersistentSource, Pod, Volume};
use contracts::event::{Lifecycle, PodPhase, Role};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use oci_spec::runtime::Spec;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use volume_manager::ClientStyle;
use volume_manager::Dump;
use volume_manager::MountedVolume;

use crate::Layout;
use crate::api_server::{ApiServer, NAMESPACE};
use crate::driver::Exit;
use crate::journal::Journal;
use crate::proxy;
use line::{Conversation, Lost};
use protocol::{Order, Said, Settings};

pub use child::main as child_main;
pub use configure::Wanted;
pub use error::NodeError;
pub use shutdown::{CRITICAL, GracePeriod, Group};

/// The parameters of a node's start.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// The paths of its root and of the harness's sockets.
    pub layout: Layout,
    pub name: String,
    /// The file for the node's log.
    pub log: PathBuf,
    /// Whether its CSI client connects and asks for capabilities as often as the kubelet.
    pub client_style: ClientStyle,
    /// The period of status updates; the kubelet's is ten seconds.
    pub status_period: Duration,
    /// The time limit of a CSI operation.
    pub call_deadline: Duration,
    /// Whether the node removes the directories of deleted pods.
    pub sweep: bool,
    /// Whether the node also updates its status as soon as its volumes in use change.
    pub prompt_status: bool,
    /// Whether pods that have their volumes are synced again every 60 to 90 seconds.
    pub resync: bool,
    /// Whether the volumes of pods are measured each minute.
    pub measure: bool,
    /// Whether tokens are kept for most of their life, and not asked for at each sync.
    pub keep_tokens: bool,
    /// Whether a failed wait for a pod's volumes emits an event about the pod, as the kubelet's pod workers do.
    pub pod_events: bool,
}

impl NodeOptions {
    /// The kubelet's settings, except that the status is written ten times a second.
    pub fn new(layout: Layout, name: &str, log: PathBuf) -> Self {
        Self {
            layout,
            name: name.to_owned(),
            log,
            client_style: ClientStyle::Kubelet,
            status_period: Duration::from_millis(100),
            call_deadline: Duration::from_secs(120),
            sweep: true,
            prompt_status: true,
            resync: true,
            measure: true,
            keep_tokens: true,
            pod_events: true,
        }
    }
}

/// A node. Dropping it kills its process.
#[derive(Debug)]
pub struct Node {
    options: NodeOptions,
    api: ApiServer,
    /// Pods whose containers are gone for good. A restarted node gets this list.
    gone: Arc<Mutex<BTreeSet<String>>>,
    doom: effects::Doom,
    /// Whether a shutdown was begun since the last start.
    is_shut_down: AtomicBool,
    /// Shared with who waits for an answer, so that a node can be killed meanwhile.
    running: Mutex<Option<Arc<Running>>>,
}

#[derive(Debug)]
struct Running {
    group: Pid,
    exit: watch::Receiver<Option<Exit>>,
    conversation: Conversation,
    effects: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.effects.abort();
        // Fails if no process of the group is left, and then there is nothing to kill.
        let _ = killpg(self.group, Signal::SIGKILL);
    }
}

/// The time limit for a killed process to end.
const DYING: Duration = Duration::from_secs(5);

/// Longer than any machine needs to start a process, and short enough to be waited for.
const READY: Duration = Duration::from_secs(20);

/// The extra time for a node's answer after the limit of an order.
const GRACE: Duration = Duration::from_secs(20);

impl Node {
    /// Starts a node. Its object must be in the cluster, and the cluster served at its socket.
    ///
    /// # Errors
    /// When its process does not start or does not become ready.
    pub async fn start(options: NodeOptions, api: ApiServer) -> Result<Self, NodeError> {
        let (gone, doom, running) = (Arc::default(), Arc::default(), Mutex::default());
        let node = Self { options, api, gone, doom, is_shut_down: AtomicBool::default(), running };
        node.run().await?;
        Ok(node)
    }

    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// Gives a pod to the node.
    ///
    /// # Errors
    /// When there is one of that name.
    pub fn add_pod(&self, pod: Pod) -> Result<Arc<Pod>, NodeError> {
        let mut pod = complete(pod);
        pod.node.clone_from(&self.options.name);
        self.begin(&pod);
        self.write_pod(pod)
    }

    /// Writes a pod that gets its node later, as one whose claims are not bound.
    ///
    /// # Errors
    /// When there is one of that name.
    pub fn write_pod(&self, pod: Pod) -> Result<Arc<Pod>, NodeError> {
        let pod = complete(pod);
        let failed = |source| NodeError::Api { pod: pod.meta.name.clone(), source };
        self.api.create(pod.clone()).map_err(failed)
    }

    /// Gives the node a pod that was written before.
    ///
    /// # Errors
    /// When there is no such pod.
    pub fn place_pod(&self, name: &str) -> Result<Arc<Pod>, NodeError> {
        let failed = |source| NodeError::Api { pod: name.to_owned(), source };
        let pod = self.api.get::<Pod>(NAMESPACE, name);
        pod.iter().for_each(|pod| self.begin(pod));
        self.api
            .change(NAMESPACE, name, |pod: &mut Pod| pod.node.clone_from(&self.options.name))
            .map_err(failed)
    }

    /// Notes that a pod is the node's from now on.
    fn begin(&self, pod: &Pod) {
        // A reused uid is a new pod.
        self.gone.lock().unwrap_or_else(PoisonError::into_inner).remove(&pod.meta.uid);
        self.journal().pod(&pod.meta.name, PodPhase::Added);
        self.journal().symbols().name_pod(&pod.meta.uid, &pod.meta.name);
    }

    /// Deletes a pod whose containers are still being stopped: it keeps its volumes.
    ///
    /// # Errors
    /// When there is no such pod.
    pub async fn terminate_pod(&self, name: &str) -> Result<(), NodeError> {
        self.journal().pod(name, PodPhase::Terminating);
        self.mark_deleting(name).map(drop)
    }

    /// Deletes a pod whose containers are gone. With `force` its object goes at once, else when its volumes
    /// have.
    ///
    /// # Errors
    /// When there is no such pod.
    pub async fn remove_pod(&self, name: &str, force: bool) -> Result<(), NodeError> {
        self.journal().pod(name, PodPhase::Removed);
        let pod = self.mark_deleting(name)?;
        let uid = pod.meta.uid.clone();
        self.note_gone(&uid);
        if force {
            let failed = |source| NodeError::Api { pod: name.to_owned(), source };
            self.api.delete::<Pod>(NAMESPACE, name).map_err(failed)?;
        }
        match self.running().is_some() {
            true => self.order(Order::RuntimeGone(uid)).await.map(drop),
            // A node that is down gets the list when it starts.
            false => Ok(()),
        }
    }

    /// Syncs a pod now, as the kubelet does once a minute.
    ///
    /// # Errors
    /// When the node is down, or knows no such pod.
    pub async fn sync_pod(&self, name: &str) -> Result<(), NodeError> {
        self.journal().step("sync_pod", name);
        self.order(Order::Sync(name.to_owned())).await.map(drop)
    }

    /// Waits until all volumes of a pod are mounted.
    ///
    /// # Errors
    /// When they are not mounted within `limit`: the last error.
    pub async fn wait_mounted(&self, pod: &str, limit: Duration) -> Result<(), NodeError> {
        self.order(Order::WaitMounted(pod.to_owned(), limit)).await.map(drop)
    }

    /// Waits until a pod has no volumes and no operation runs for it.
    ///
    /// # Errors
    /// When it has within `limit`.
    pub async fn wait_unmounted(&self, pod: &str, limit: Duration) -> Result<(), NodeError> {
        self.order(Order::WaitUnmounted(pod.to_owned(), limit)).await.map(drop)
    }

    /// Waits until a removed pod is gone: its object is deleted, and its directory too, if that is swept.
    ///
    /// # Errors
    /// When it is not within `limit`.
    pub async fn wait_gone(&self, pod: &str, limit: Duration) -> Result<(), NodeError> {
        self.order(Order::WaitGone(pod.to_owned(), limit)).await.map(drop)
    }

    /// Waits until nothing is under way and nothing is due.
    ///
    /// # Errors
    /// When something still is after `limit`: what.
    pub async fn wait_idle(&self, limit: Duration) -> Result<(), NodeError> {
        // Changes of pods reach the node through a watch; the wait includes that.
        let pods = self.pods().map(|pod| (pod.meta.uid.clone(), pod.meta.resource_version.clone())).collect();
        self.order(Order::WaitIdle(pods, limit)).await.map(drop)
    }

    /// Waits until no volume that is to be unstaged waits for its next attempt.
    ///
    /// # Errors
    /// When one still does after `limit`: which.
    pub async fn wait_unstaged(&self, limit: Duration) -> Result<(), NodeError> {
        self.wait_for_none(limit, "still staged:", staged).await
    }

    /// Whether a volume that exists in the API waits for its next attempt to be unstaged.
    ///
    /// # Errors
    /// When the node is down.
    pub async fn has_staged(&self) -> Result<bool, NodeError> {
        let volumes = self.api.list::<Volume>();
        let handles = volumes.iter().filter_map(|volume| match &volume.source {
            PersistentSource::Csi(csi) => Some(csi.handle.as_str()),
            _ => None,
        });
        let existing: BTreeSet<&str> = handles.collect();
        let exists =
            |volume: &String| volume.split_once('^').is_none_or(|(_, handle)| existing.contains(handle));
        Ok(staged(&self.dump().await?).iter().any(exists))
    }

    /// Waits until the manager knows the pods that were added and those that were removed. Their operations may
    /// still wait for something else.
    ///
    /// # Errors
    /// When it has not after `limit`: of whom.
    pub async fn wait_noticed(&self, limit: Duration) -> Result<(), NodeError> {
        self.wait_for_none(limit, "the node has not taken note of the pods", |dump| self.unnoticed(dump))
            .await
    }

    /// Waits until the manager's state holds nothing of a kind. After `limit`, `complaint` and its names are the error.
    async fn wait_for_none(
        &self,
        limit: Duration,
        complaint: &str,
        named: impl Fn(&Dump) -> Vec<String>,
    ) -> Result<(), NodeError> {
        let end = Instant::now() + limit;
        loop {
            let names = named(&self.dump().await?);
            if names.is_empty() {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(NodeError::Refused(format!("{complaint} `{}`", names.join("`, `"))));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// The pods that want volumes and are not in the desired state, and removed ones that still are.
    fn unnoticed(&self, dump: &Dump) -> Vec<String> {
        let gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        let desired = |uid: &str| dump.desired.keys().any(|key| key.split(' ').nth(1) == Some(uid));
        let wanting = self.pods().filter(|pod| !pod.volumes.is_empty());
        let other = wanting.filter(|pod| desired(&pod.meta.uid) == gone.contains(&pod.meta.uid));
        other.map(|pod| pod.meta.name.clone()).collect()
    }

    /// The pods of this node, from the API server.
    fn pods(&self) -> impl Iterator<Item = Arc<Pod>> + use<'_> {
        let mine = |pod: &Arc<Pod>| pod.node == self.options.name;
        self.api.list::<Pod>().into_iter().filter(mine)
    }

    /// A snapshot of the manager's state.
    ///
    /// # Errors
    /// When the node is down.
    pub async fn dump(&self) -> Result<Dump, NodeError> {
        match self.order(Order::Dump).await? {
            Said::Dump(dump) => Ok(*dump),
            _ => Ok(Dump::default()),
        }
    }

    /// The mounted volumes of a pod, by their names in it.
    ///
    /// # Errors
    /// When the node is down.
    pub async fn mounted_volumes(&self, pod: &str) -> Result<Vec<(String, MountedVolume)>, NodeError> {
        match self.order(Order::Mounted(pod.to_owned())).await? {
            Said::Mounted(volumes) => Ok(volumes),
            _ => Ok(Vec::new()),
        }
    }

    /// The configuration of a container of a pod that has all its volumes, as an OCI runtime takes it. Sub-paths
    /// are bound and files of the pod written for it.
    ///
    /// # Errors
    /// When the container cannot be started: the message for its user.
    pub async fn configure(&self, wanted: Wanted) -> Result<Spec, NodeError> {
        self.journal().step("configure", &format!("{}/{}", wanted.pod, wanted.container));
        match self.order(Order::Configure(wanted)).await? {
            Said::Configured(spec) => Ok(spec.reveal().as_ref().clone()),
            _ => Err(NodeError::Refused("the node has written no configuration".to_owned())),
        }
    }

    /// Advances the node's clock: waits up to that time end at once.
    ///
    /// # Errors
    /// When the node is down.
    pub async fn advance(&self, by: Duration) -> Result<(), NodeError> {
        self.journal().step("advance", &format!("{} ms", by.as_millis()));
        self.order(Order::Advance(by)).await.map(drop)
    }

    /// Kills it at once (SIGKILL), and returns when it is gone.
    pub async fn kill(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(running) = running else { return };
        self.journal().process(Role::Node, Lifecycle::Kill, None);
        // Fails if no process of the group is left, and then there is nothing to kill.
        let _ = killpg(running.group, Signal::SIGKILL);
        // A process that sleeps where no signal reaches it is left to the census.
        let _ = tokio::time::timeout(DYING, exited(running.exit.clone())).await;
    }

    /// Kills the node (SIGKILL) directly after that many further effects, before it can continue. Zero cancels
    /// that.
    pub fn dies_after(&self, effects: u64) {
        self.doom.store(effects, Ordering::Relaxed);
    }

    /// Starts the node again with only the files on disk and the objects of the API.
    ///
    /// # Errors
    /// When its process does not start or does not become ready.
    pub async fn restart(&self) -> Result<(), NodeError> {
        self.kill().await;
        self.run().await
    }

    /// Whether the node runs.
    pub fn is_running(&self) -> bool {
        self.exit().is_none() && self.running().is_some()
    }

    /// Its exit, if it ended by itself.
    pub fn exit(&self) -> Option<Exit> {
        self.running().and_then(|running| *running.exit.borrow())
    }

    /// Returns when its process has ended. Never returns for a node that is down.
    pub fn exited(&self) -> impl Future<Output = Exit> + use<> {
        let exit = self.running().map(|running| running.exit.clone());
        async move {
            match exit {
                Some(exit) => exited(exit).await,
                None => std::future::pending().await,
            }
        }
    }

    fn journal(&self) -> &Journal {
        self.api.journal()
    }

    fn running(&self) -> Option<Arc<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes that the containers of a pod are gone.
    fn note_gone(&self, uid: &str) {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner).insert(uid.to_owned());
    }

    fn mark_deleting(&self, name: &str) -> Result<Arc<Pod>, NodeError> {
        let failed = |source| NodeError::Api { pod: name.to_owned(), source };
        let mark = |pod: &mut Pod| {
            pod.meta.deleted.get_or_insert_with(crate::api_server::now);
        };
        self.api.change(NAMESPACE, name, mark).map_err(failed)
    }

    async fn order(&self, order: Order) -> Result<Said, NodeError> {
        let running = self.running().ok_or(NodeError::Down)?;
        let (what, limit) = (order.to_string(), order.limit() + GRACE);
        match tokio::time::timeout(limit, running.conversation.ask(order)).await {
            Ok(Ok(Said::Refused(why))) => Err(NodeError::Refused(why)),
            Ok(Ok(said)) => Ok(said),
            Ok(Err(Lost)) => Err(NodeError::Exited { exit: exited(running.exit.clone()).await }),
            Err(_) => Err(NodeError::Silent { what }),
        }
    }

    async fn run(&self) -> Result<(), NodeError> {
        let layout = &self.options.layout;
        let prepared = |path: &PathBuf| {
            let path = path.clone();
            move |source| NodeError::Prepare { path, source }
        };
        let (control, effects) = (layout.node_socket(), layout.effects_socket());
        let listener = proxy::listen(&control).map_err(prepared(&control))?;
        let announcements = proxy::listen(&effects).map_err(prepared(&effects))?;
        let effects =
            tokio::spawn(effects::serve(announcements, self.journal().clone(), Arc::clone(&self.doom)))
                .abort_handle();
        let (group, exit) = self.launch()?;

        let accepting = async {
            tokio::select! {
                biased;
                accepted = listener.accept() => accepted.map_err(NodeError::Start),
                exit = exited(exit.clone()) => Err(NodeError::Exited { exit }),
            }
        };
        let not_ready = |_| NodeError::NotReady { within: READY };
        let (stream, _) = tokio::time::timeout(READY, accepting).await.map_err(not_ready)??;
        let conversation = Conversation::begin(stream);
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // A later pod with the uid of a deleted one has containers.
        let there: BTreeSet<_> = self.pods().map(|pod| pod.meta.uid.clone()).collect();
        gone.retain(|uid| there.contains(uid));
        let running = Arc::new(Running { group, exit, conversation, effects });
        let ready = running.conversation.ask(Order::Start { gone });
        let answered = tokio::time::timeout(READY, ready).await.map_err(not_ready)?;
        let exit = running.exit.clone();
        self.running.lock().unwrap_or_else(PoisonError::into_inner).replace(Arc::clone(&running));
        match answered {
            Ok(Said::Refused(why)) => Err(NodeError::Refused(why)),
            Ok(_) => self.end_shutdown(),
            Err(Lost) => Err(NodeError::Exited { exit: exited(exit).await }),
        }
    }

    fn launch(&self) -> Result<(Pid, watch::Receiver<Option<Exit>>), NodeError> {
        let log = crate::private::append(&self.options.log);
        let log = log.map_err(|source| NodeError::Prepare { path: self.options.log.clone(), source })?;
        let errors = log.try_clone().map_err(NodeError::Start)?;
        let settings = Settings::of(&self.options);
        let settings = serde_json::to_string(&settings).expect("settings are a map with text keys");
        let mut child = tokio::process::Command::new("/proc/self/exe")
            .arg("__node")
            .arg(settings)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(NodeError::Start)?;
        let group = Pid::from_raw(child.id().expect("it has not been waited for yet").cast_signed());
        let journal = self.journal().clone();
        journal.with_actors(|actors| actors.node = Some(group.as_raw()));
        journal.process(Role::Node, Lifecycle::Start, None);
        let (sender, exit) = watch::channel(None);
        tokio::spawn(async move {
            // A child that cannot be waited for was reaped elsewhere; its exit status is lost.
            let ended = child.wait().await.map_or(Exit::Status(-1), Exit::from);
            journal.process(Role::Node, Lifecycle::Exit, Some(ended.to_string()));
            sender.send_replace(Some(ended));
        });
        Ok((group, exit))
    }
}

/// A pod with the namespace and the uid that it has if nothing else is said.
fn complete(mut pod: Pod) -> Pod {
    if pod.meta.namespace.is_empty() {
        pod.meta.namespace = NAMESPACE.to_owned();
    }
    if pod.meta.uid.is_empty() {
        pod.meta.uid = format!("uid-{}", pod.meta.name);
    }
    pod
}

/// The volumes whose last attempt to be unstaged has failed.
fn staged(dump: &Dump) -> Vec<String> {
    let waiting = dump.waiting.iter().filter_map(|waiting| {
        let (operation, volume) = waiting.operation.split_once(' ')?;
        matches!(operation, "unmount_device" | "unmap_device").then_some(volume)
    });
    // A failure is remembered longer than the volume.
    let staged = waiting.filter(|volume| dump.actual.contains_key(&format!("volume {volume}")));
    staged.map(str::to_owned).collect()
}

async fn exited(mut exit: watch::Receiver<Option<Exit>>) -> Exit {
    match exit.wait_for(Option::is_some).await.map(|exit| *exit) {
        Ok(Some(exit)) => exit,
        // The task that waits has ended with the runtime, so the exit status is lost.
        _ => std::future::pending().await,
    }
}
