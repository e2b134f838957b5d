//! The world a scenario is played in: driver, proxy, cluster and node, as the recordings had them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use harness::Layout;
use harness::api::Node as NodeObject;
use harness::api::{Attachment, Bytes, Volume};
use harness::cluster::{AttachDetach, Cluster, Provisioner, Resizer, Served};
use harness::driver::{Capabilities, Driver, DriverOptions, Registrar};
use harness::journal::{Journal, Witness};
use harness::manifest::ExistingVolume;
use harness::node::{Node, NodeOptions};
use harness::observe::MountWatch;
use harness::proxy::{self, Proxy, ProxyOptions};
use harness::sandbox::Sandbox;
use harness::symbols::Symbols;
use serde_json::{Value, json};

use super::files::{self, Files};
use super::objects::{create_bound, create_objects, driver_as_written, driver_object, request};
use super::scenario::Scenario;
use super::time::Time;
use super::trace::Log;
use testbed::message::Orders;

/// The node of every recording.
pub(super) const NODE: &str = "node-1";

/// The namespace of everything that says nothing else.
pub(super) const NAMESPACE: &str = "default";

/// The driver of every recording.
const DRIVER: &str = "hostpath.csi.k8s.io";

/// What pods may use of the recorded node's memory.
const MEMORY: Bytes = Bytes(1 << 30);

/// How long a node may take to hear of a pod.
const MOMENT: Duration = Duration::from_millis(200);

/// A node that has said nothing for so long has nothing to say.
const REST: Duration = Duration::from_millis(20);

/// How long a driver may take to be registered, and a node to say something.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Everything that is played on. Fields go in this order: first who asks, then who answers.
#[derive(Debug)]
pub(crate) struct World {
    pub(super) scenario: Scenario,
    pub(super) node: Node,
    pub(super) registrar: Option<Registrar>,
    _attacher: AttachDetach,
    pub(super) provisioner: Provisioner,
    pub(super) resizer: Resizer,
    pub(super) proxy: Option<Proxy>,
    _served: Served,
    pub(super) driver: Option<Driver>,
    pub(super) driver_is_dead: bool,
    pub(super) cluster: Cluster,
    pub(super) journal: Journal,
    pub(super) layout: Layout,
    pub(super) devices: Vec<u64>,
    pub(super) name: String,
    pub(super) log: Log,
    pub(super) time: Time,
    /// When the driver is to be announced, if it is not yet.
    pub(super) announce_at: Option<Duration>,
    /// Pods that were removed and still have volumes, and since when.
    pub(super) leaving: Vec<(String, Duration)>,
    pub(super) pods: BTreeSet<String>,
    /// How many lines of the journal were told live.
    pub(super) told: usize,
    /// Pods that were added at this moment, by uid.
    pub(super) appeared: Vec<String>,
    pub(super) volumes: BTreeSet<String>,
}

impl World {
    /// Puts everything together. The witness comes first, so that nothing happens unseen.
    pub(super) async fn set(
        orders: &Orders,
        sandbox: &Sandbox,
        scenario: &Scenario,
        files: Option<&Files>,
    ) -> Result<Self> {
        let layout = sandbox.layout();
        furnish(&layout)?;
        let witness = MountWatch::start().context("cannot watch mounts")?;
        let witness: Box<dyn Witness> = Box::new(witness);
        let journal = Journal::new(Symbols::new(layout.clone()), Some(witness));
        let mut log = Log::new(journal.clone(), &layout);
        log.scenario(scenario);
        let cluster = Cluster::new(journal.clone());
        let served = cluster.serve(&layout.cluster_socket())?;
        cluster.add_node(NODE)?;
        cluster.change::<NodeObject>("", NODE, |node| node.allocatable.memory = MEMORY)?;

        let driver = match scenario.driver.disable {
            true => None,
            false => {
                let (manifest, node) = (orders.manifest.clone(), NODE.to_owned());
                let log = orders.directory.join("driver.log");
                let options = DriverOptions { manifest, layout: layout.clone(), node, log, cgroup: None };
                Some(Driver::start(options, journal.clone()).await?)
            }
        };
        let capabilities = match &driver {
            Some(driver) => driver.capabilities().clone(),
            None => {
                Capabilities { name: DRIVER.to_owned(), node_id: NODE.to_owned(), ..Capabilities::default() }
            }
        };
        let name = capabilities.name.clone();
        if let Some(files) = files {
            files.refuse(&name).map_err(|bad| anyhow::anyhow!(bad.what))?;
        }
        cluster.add_driver(match files {
            Some(files) => driver_as_written(&capabilities, files)?,
            None => driver_object(&name, scenario),
        })?;
        let proxy = driver.as_ref().map(|driver| stand_between(driver, &layout, &journal)).transpose()?;
        if let Some(proxy) = &proxy {
            proxy.hide_node_capabilities(scenario.driver.strip_node_caps.clone());
        }
        // What a controller says to the driver is in no recording: it has a way of its own.
        let socket =
            driver.as_ref().map_or_else(|| layout.driver_socket(), |driver| driver.socket().to_owned());
        let socket = orders.manifest.controller_socket.clone().unwrap_or(socket);
        let channel = proxy::connect(&socket)?;
        let delay = Duration::from_millis(scenario.attach_delay_ms);
        let attacher =
            AttachDetach::start(cluster.clone(), channel.clone(), capabilities.clone(), NODE, delay);
        let mut manifest = orders.manifest.clone();
        if driver.is_none() {
            // Volumes of a driver that never ran are objects and nothing else.
            manifest.volume.existing = scenario
                .volumes
                .iter()
                .map(|volume| ExistingVolume::new(format!("no-volume-{}", volume.name)))
                .collect();
        }
        let provisioner = Provisioner::new(cluster.clone(), channel.clone(), manifest, capabilities.clone());
        let resizer = Resizer::new(cluster.clone(), channel, capabilities);
        log.line("driver_started", json!({ "args": null }));
        let mut volumes = BTreeSet::new();
        for volume in &scenario.volumes {
            let made = provisioner.provision(&request(volume)).await?;
            if files.is_none() {
                // Volumes of the recordings were there for any node, also for one that no driver has labelled yet.
                cluster.change::<Volume>("", &made.volume, |volume| volume.affinity = None)?;
            }
            journal.symbols().expect_attachment(&volume.name, &name, NODE);
            log.line("volume_created", json!({ "conf": volume, "name": volume.name }));
            volumes.insert(volume.name.clone());
        }
        create_objects(&cluster, scenario, &layout)?;
        for (volume, claim) in files.iter().flat_map(|files| &files.bound) {
            create_bound(&cluster, files::bound(volume, claim))?;
        }

        let options = match files {
            // As a kubelet is.
            Some(_) => NodeOptions::new(layout.clone(), NODE, orders.directory.join("manager.log")),
            None => node_options(orders, scenario, &layout),
        };
        let node = Node::start(options, cluster.clone()).await?;
        log.line("volume_manager_start", json!({ "resumed": false }));
        let mut world = Self {
            scenario: scenario.clone(),
            node,
            registrar: None,
            _attacher: attacher,
            provisioner,
            resizer,
            proxy,
            _served: served,
            driver,
            driver_is_dead: false,
            cluster,
            journal,
            layout,
            devices: sandbox.devices().to_vec(),
            name,
            log,
            time: Time::new(files.is_none()),
            announce_at: None,
            leaving: Vec::new(),
            pods: BTreeSet::new(),
            told: 0,
            appeared: Vec::new(),
            volumes,
        };
        world.announce_after(scenario.driver.register_after_ms).await?;
        Ok(world)
    }

    /// Tells the node of the driver: now, and waits until the node has heard, or later.
    pub(super) async fn announce_after(&mut self, millis: u64) -> Result<()> {
        if self.driver.is_none() {
            return Ok(());
        }
        if millis > 0 {
            self.announce_at = Some(self.time.now() + Duration::from_millis(millis));
            return Ok(());
        }
        self.announce().await
    }

    async fn announce(&mut self) -> Result<()> {
        let Some(proxy) = &self.proxy else { return Ok(()) };
        self.registrar.take();
        let socket = self.layout.registration_socket(&self.name);
        let registrar = Registrar::serve(&socket, &self.name, proxy.socket(), self.journal.clone())?;
        let registered = tokio::time::timeout(PATIENCE, registrar.registered()).await;
        let error = match registered {
            Ok(Ok(())) => String::new(),
            Ok(Err(why)) => why,
            Err(_) => format!("the node did not look at the driver within {} s", PATIENCE.as_secs()),
        };
        self.log.line("driver_registered", json!({ "err": error }));
        self.registrar = Some(registrar);
        Ok(())
    }

    /// Begins a moment: no call gets to the driver before it is over.
    pub(super) fn stand_still(&mut self) {
        if let Some(proxy) = &self.proxy {
            proxy.shut();
        }
    }

    /// Ends a moment, once the node has heard of everything in it.
    pub(super) async fn go_on(&mut self) {
        let appeared = std::mem::take(&mut self.appeared);
        let heard = async {
            while !self.has_heard_of(&appeared).await {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        // A pod that is removed in the moment it appears in is not heard of.
        drop(tokio::time::timeout(MOMENT, heard).await);
        if let Some(proxy) = &self.proxy {
            proxy.open();
        }
    }

    async fn has_heard_of(&self, pods: &[String]) -> bool {
        if pods.is_empty() {
            return true;
        }
        let Ok(dump) = self.node.dump().await else { return true };
        let is_wanted = |uid: &String| {
            let key = format!("pod {uid} ");
            dump.desired.keys().any(|known| known.starts_with(&key)) || dump.errors.contains_key(uid)
        };
        pods.iter().all(is_wanted)
    }

    /// What happens by itself: a driver that is announced late, pods that lose their last volume.
    pub(super) async fn tick(&mut self) {
        if self.announce_at.is_some_and(|at| at <= self.time.now()) {
            self.announce_at = None;
            if let Err(error) = self.announce().await {
                self.log.line("driver_registered", json!({ "err": format!("{error:#}") }));
            }
        }
        let mut leaving = std::mem::take(&mut self.leaving);
        let mut still = Vec::new();
        for (pod, since) in leaving.drain(..) {
            match self.node.wait_unmounted(&pod, Duration::ZERO).await {
                Ok(()) => {
                    let since = (self.time.now() - since).as_millis();
                    let gone =
                        json!({ "pod": pod, "since_removed_ms": u64::try_from(since).unwrap_or(u64::MAX) });
                    self.log.line("pod_volumes_gone", gone);
                }
                Err(_) => still.push((pod, since)),
            }
        }
        self.leaving = still;
    }

    /// Whether nothing is being done: what is under way is held by a rule, and nothing is about to begin.
    pub(super) async fn is_quiet(&self) -> bool {
        let held = self.proxy.as_ref().map_or(0, Proxy::held);
        if self.journal.in_flight().len() > held {
            return false;
        }
        let attaching = |attachment: &std::sync::Arc<Attachment>| !attachment.attached;
        if self.cluster.list::<Attachment>().iter().any(attaching) {
            return false;
        }
        match held {
            0 => self.node.wait_idle(Duration::from_millis(1)).await.is_ok(),
            _ => self.node.dump().await.is_ok_and(|dump| dump.running.len() <= held),
        }
    }

    /// Lets the node go as far as it gets while its calls are held back, so that a look finds it there each time.
    pub(super) async fn come_to_rest(&self) {
        let rest = async {
            let mut seen = self.journal.position().0;
            loop {
                tokio::time::sleep(REST).await;
                match self.journal.position().0 {
                    now if now == seen => break,
                    now => seen = now,
                }
            }
        };
        drop(tokio::time::timeout(MOMENT, rest).await);
    }

    /// Lets what was just begun come to its end, if it does so at once: so a story stands at the same step each time.
    pub(crate) async fn settle(&self) {
        let quiet = async {
            while !self.is_quiet().await {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        drop(tokio::time::timeout(MOMENT, quiet).await);
    }

    /// The story since the last look, if nothing is under way; else a later look has it.
    pub(crate) async fn story(&mut self) -> String {
        match self.journal.in_flight().is_empty() && self.is_quiet().await {
            true => self.last_story(),
            false => String::new(),
        }
    }

    /// The story since the last look, whatever is under way.
    pub(crate) fn last_story(&self) -> String {
        self.journal.look().to_string()
    }

    /// A directory of the run for host paths, `ROOTPATH` in a scenario.
    pub(super) fn root_path(layout: &Layout) -> PathBuf {
        layout.state().join("tmp")
    }
}

/// The run's root, as a recording had it: the node's directory and the driver's, side by side.
fn furnish(layout: &Layout) -> Result<()> {
    let made = |path: PathBuf| -> Result<()> {
        std::fs::create_dir_all(&path).with_context(|| format!("cannot make `{}`", path.display()))
    };
    made(World::root_path(layout))?;
    let link = layout.state().join("kl");
    std::os::unix::fs::symlink(layout.root(), &link)
        .with_context(|| format!("cannot make `{}`", link.display()))
}

fn stand_between(driver: &Driver, layout: &Layout, journal: &Journal) -> Result<Proxy> {
    use std::os::unix::fs::DirBuilderExt;
    let listen = layout.csi_socket(&driver.capabilities().name);
    if let Some(directory) = listen.parent() {
        // A node's own mode; the proxy would make it as everybody does.
        std::fs::DirBuilder::new().recursive(true).mode(0o750).create(directory)?;
    }
    let controller = driver.manifest().controller_socket.clone();
    let sockets = ProxyOptions { listen, driver: driver.socket().to_owned(), controller, ledger: None };
    Ok(Proxy::serve(sockets, journal.clone())?)
}

fn node_options(orders: &Orders, scenario: &Scenario, layout: &Layout) -> NodeOptions {
    let log = orders.directory.join("manager.log");
    let period = match scenario.node_status_ms {
        0 => Duration::from_millis(100),
        given => Duration::from_millis(given),
    };
    // As in the recordings: pods were synced and nothing else, and the status came with its period only.
    let mut options = NodeOptions::new(layout.clone(), NODE, log);
    (options.status_period, options.prompt_status) = (period, false);
    (options.sweep, options.pod_events) = (false, false);
    options
}

/// A value for a list that recordings leave out when it is empty.
pub(super) fn or_null<T: Into<Value>>(items: Vec<T>) -> Value {
    if items.is_empty() { Value::Null } else { Value::Array(items.into_iter().map(Into::into).collect()) }
}
