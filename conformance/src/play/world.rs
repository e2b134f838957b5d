//! The world a scenario is played in: a testbed as the recordings had it.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use api::Node as NodeObject;
use api::{Attachment, Bytes, Volume};
use harness::Layout;
use harness::driver::Capabilities;
use harness::journal::{Claiming, Journal};
use harness::manifest::ExistingVolume;
use harness::node::NodeOptions;
use harness::observe::MountWatch;
use harness::proxy::Proxy;
use harness::sandbox::Sandbox;
use harness::symbols::Symbols;
use harness::testbed::{Builder, Surroundings, Testbed, TestbedError};
use serde_json::{Value, json};
use testbed::message::Orders;

use super::claims;
use super::files::Files;
use super::objects::{create_objects, driver_as_written, driver_object, request};
use super::other_node::Other;
use super::scenario::{Bad, Scenario, VolumeConf};
use super::time::Time;
use super::trace::Log;

/// The node of every recording.
pub(super) const NODE: &str = "node-1";

pub(super) const NAMESPACE: &str = "default";

/// The driver of every recording.
const DRIVER: &str = "hostpath.csi.k8s.io";

/// The allocatable memory of the recorded node.
const MEMORY: Bytes = Bytes(1 << 30);

/// The time for a node to learn of a pod.
const MOMENT: Duration = Duration::from_millis(200);

/// The time without notices after which a node is idle.
const REST: Duration = Duration::from_millis(20);

/// The time for a driver to be registered, and for a node to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// A testbed with the objects of a scenario.
#[derive(Debug)]
pub(crate) struct World {
    pub(super) other: Other,
    pub(super) bed: Testbed,
    pub(super) scenario: Scenario,
    pub(super) devices: Vec<u64>,
    pub(super) log: Log,
    pub(super) time: Time,
    /// When the driver is to be announced, if it is not yet.
    pub(super) announce_at: Option<Duration>,
    /// Pods that were removed and still have volumes, and since when.
    pub(super) leaving: Vec<(String, Duration)>,
    pub(super) pods: BTreeSet<String>,
    /// The number of lines of the journal that were printed live.
    pub(super) printed: usize,
    /// Pods that were added at this moment, by uid.
    pub(super) appeared: Vec<String>,
    pub(super) volumes: BTreeSet<String>,
}

impl Deref for World {
    type Target = Testbed;

    fn deref(&self) -> &Testbed {
        &self.bed
    }
}

impl World {
    /// Puts everything up, and announces the driver unless the scenario wants that later.
    pub(super) async fn put_up(
        orders: &Orders,
        sandbox: &Sandbox,
        scenario: &Scenario,
        files: Option<&Files>,
    ) -> Result<Self> {
        let layout = sandbox.layout();
        furnish(&layout)?;
        let witness = MountWatch::start().context("cannot watch mounts")?;
        let witness = Claiming::new(witness, sandbox);
        let journal = Journal::new(Symbols::new(layout.clone()), Some(Box::new(witness)));
        let mut log = Log::new(journal.clone(), &layout);
        log.scenario(scenario);
        // The limits of a case hold here as well.
        let cgroup = testbed::limits::of_driver(orders, sandbox);
        let builder = builder(orders, scenario, files.is_none(), journal, layout).cgroup(cgroup);
        let around = builder.cleaned_by(sandbox.ledger()).surround().await?;
        add_objects(&around, scenario, files)?;
        log.add_line("driver_started", json!({ "args": null }));
        let volumes = create_volumes(&around, scenario, files, &mut log).await?;
        create_objects(&around.api_server, scenario, &around.layout)?;
        if let Some(files) = files {
            claims::create(&around, files)?;
        }
        let options = match files {
            Some(_) => around.node_options(),
            None => as_recorded(around.node_options(), scenario),
        };
        let bed = Testbed::start(around, options).await?;
        log.add_line("volume_manager_start", json!({ "resumed": false }));
        let mut world = Self {
            other: Other::prepare(&bed)?,
            bed,
            scenario: scenario.clone(),
            devices: sandbox.devices().to_vec(),
            log,
            time: Time::new(files.is_none()),
            announce_at: None,
            leaving: Vec::new(),
            pods: BTreeSet::new(),
            printed: 0,
            appeared: Vec::new(),
            volumes,
        };
        world.announce_after(scenario.driver.register_after_ms).await?;
        if files.is_some() {
            // The topology of volumes is known once the node has reported its own.
            world.bind_volumes();
        }
        Ok(world)
    }

    /// Tells the node of the driver: now, and waits until the node has heard, or later.
    pub(super) async fn announce_after(&mut self, millis: u64) -> Result<()> {
        if !self.has_driver() {
            return Ok(());
        }
        if millis > 0 {
            self.announce_at = Some(self.time.now() + Duration::from_millis(millis));
            return Ok(());
        }
        let answer = self.announce().await;
        self.log_registration(answer)
    }

    /// Records the node's answer to an announcement of a driver.
    pub(super) fn log_registration(&mut self, answer: Result<(), TestbedError>) -> Result<()> {
        let error = match answer {
            Ok(()) => String::new(),
            Err(error @ (TestbedError::Refused(_) | TestbedError::NotRegistered { .. })) => error.to_string(),
            Err(error) => return Err(error.into()),
        };
        self.log.add_line("driver_registered", json!({ "err": error }));
        Ok(())
    }

    /// Begins a moment: no call gets to the driver before it is over.
    pub(super) fn stand_still(&mut self) {
        if let Some(proxy) = self.try_proxy() {
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
        if let Some(proxy) = self.try_proxy() {
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

    /// Does what is due: announces a late driver, and ends pods without volumes.
    pub(super) async fn tick(&mut self) {
        if self.announce_at.is_some_and(|at| at <= self.time.now()) {
            self.announce_at = None;
            let answer = self.announce().await;
            if let Err(error) = self.log_registration(answer) {
                self.log.add_line("driver_registered", json!({ "err": format!("{error:#}") }));
            }
        }
        let mut leaving = std::mem::take(&mut self.leaving);
        let mut still = Vec::new();
        for (pod, since) in leaving.drain(..) {
            match self.node_of(&pod).wait_unmounted(&pod, Duration::ZERO).await {
                Ok(()) => {
                    let since = (self.time.now() - since).as_millis();
                    let gone =
                        json!({ "pod": pod, "since_removed_ms": u64::try_from(since).unwrap_or(u64::MAX) });
                    self.log.add_line("pod_volumes_gone", gone);
                }
                Err(_) => still.push((pod, since)),
            }
        }
        self.leaving = still;
    }

    /// Whether nothing is under way, except calls that a rule holds, and nothing is about to start.
    pub(super) async fn is_quiet(&self) -> bool {
        let held = self.try_proxy().map_or(0, Proxy::held);
        if self.journal.in_flight().len() > held {
            return false;
        }
        let attaching = |attachment: &std::sync::Arc<Attachment>| !attachment.attached;
        if self.api_server.list::<Attachment>().iter().any(attaching) {
            return false;
        }
        if let Some(other) = self.other_node()
            && (!other.journal.in_flight().is_empty()
                || other.node.wait_idle(Duration::from_millis(1)).await.is_err())
        {
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

    /// Waits a moment for operations that have just started, so that a story is at the same step in each run.
    pub(crate) async fn settle(&self) {
        let quiet = async {
            while !self.is_quiet().await {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        drop(tokio::time::timeout(MOMENT, quiet).await);
    }

    /// The story since the last look, if nothing is under way; otherwise a later look has it.
    pub(crate) async fn story(&mut self) -> String {
        match self.journal.in_flight().is_empty() && self.is_quiet().await {
            true => self.last_story(),
            false => String::new(),
        }
    }

    /// The story since the last look, whatever is under way.
    pub(crate) fn last_story(&self) -> String {
        let mut story = self.journal.look().to_string();
        let of_other = self.other_node().map(|other| other.journal.look().to_string()).unwrap_or_default();
        for line in Self::with_name(of_other.lines().map(str::to_owned)) {
            story += &format!("{line}\n");
        }
        story
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

/// The testbed of a scenario.
fn builder(
    orders: &Orders,
    scenario: &Scenario,
    is_recorded: bool,
    journal: Journal,
    layout: Layout,
) -> Builder {
    let (manifest, logs) = (orders.manifest.clone(), orders.directory.clone());
    let builder = Testbed::builder(journal, layout, manifest, logs)
        .attach_after(Duration::from_millis(scenario.attach_delay_ms))
        .patience(PATIENCE);
    // Recordings have no calls of controllers.
    let builder = if is_recorded { builder.controllers_unrecorded() } else { builder };
    if !scenario.driver.disable {
        return builder;
    }
    let said = Capabilities { name: DRIVER.to_owned(), node_id: NODE.to_owned(), ..Capabilities::default() };
    let volume = |volume: &VolumeConf| ExistingVolume::new(format!("no-volume-{}", volume.name));
    builder.never_started(said, scenario.volumes.iter().map(volume).collect())
}

/// Makes the driver's object, and changes the node's to that of the recordings.
fn add_objects(around: &Surroundings, scenario: &Scenario, files: Option<&Files>) -> Result<()> {
    around.api_server.change::<NodeObject>("", NODE, |node| node.allocatable.memory = MEMORY)?;
    if let Some(files) = files {
        let refused = |bad: Bad| match bad.hint {
            Some(hint) => anyhow::anyhow!("{} ({hint})", bad.what),
            None => anyhow::anyhow!(bad.what),
        };
        files.refuse(around.driver_name()).map_err(refused)?;
    }
    around.api_server.add_driver(match files {
        Some(files) => driver_as_written(around.capabilities(), around.manifest(), files)?,
        None => driver_object(around.driver_name(), scenario),
    })?;
    if let Some(proxy) = around.try_proxy() {
        proxy.hide_node_capabilities(scenario.driver.strip_node_caps.clone());
    }
    Ok(())
}

/// Has the driver make the volumes of a scenario. Returns their names.
async fn create_volumes(
    around: &Surroundings,
    scenario: &Scenario,
    files: Option<&Files>,
    log: &mut Log,
) -> Result<BTreeSet<String>> {
    for volume in &scenario.volumes {
        let made = around.provisioner.provision(&request(volume)).await?;
        if files.is_none() {
            // Volumes of the recordings were there for any node, also for one that no driver has labelled yet.
            around.api_server.change::<Volume>("", &made.volume, |volume| volume.affinity = None)?;
        }
        around.journal.symbols().expect_attachment(&volume.name, around.driver_name(), NODE);
        log.add_line("volume_created", json!({ "conf": volume, "name": volume.name }));
    }
    Ok(scenario.volumes.iter().map(|volume| volume.name.clone()).collect())
}

/// A node as in the recordings: pods were synced and nothing else, and the status came with its period only.
fn as_recorded(mut options: NodeOptions, scenario: &Scenario) -> NodeOptions {
    options.status_period = match scenario.node_status_ms {
        0 => Duration::from_millis(100),
        given => Duration::from_millis(given),
    };
    options.prompt_status = false;
    (options.sweep, options.pod_events) = (false, false);
    (options.resync, options.keep_tokens, options.measure) = (false, false, false);
    options
}

/// A value for a list that recordings leave out when it is empty.
pub(super) fn or_null<T: Into<Value>>(items: Vec<T>) -> Value {
    if items.is_empty() { Value::Null } else { Value::Array(items.into_iter().map(Into::into).collect()) }
}
