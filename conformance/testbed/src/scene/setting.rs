//! Setting the scene: who is started in which order, and what a refusal says.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use harness::Layout;
use harness::cgroup::Cgroup;
use harness::cluster::{AttachDetach, Cluster, Provisioner, driver_object};
use harness::driver::{Driver, DriverOptions, Registrar};
use harness::journal::{Journal, Witness};
use harness::manifest::{Manifest, Secrets, Sensitive};
use harness::node::{Node, NodeOptions};
use harness::observe::MountWatch;
use harness::proxy::{Proxy, ProxyOptions};
use harness::sandbox::Sandbox;
use harness::symbols::Symbols;
use tokio::sync::{Mutex, Notify};

use super::disks::Disks;
use super::{Result, Scene, SceneError};
use crate::failure::chain;
use crate::foreign::{self, Foreign};
use crate::limits::{self, DeviceGroups};
use crate::message::{Abilities, Orders, Refusal};

/// The node every case plays.
pub(crate) const NODE: &str = "node-1";

impl Scene {
    /// Starts everything. The witness comes first, so that nothing happens unseen; the node comes last,
    /// since it finds its driver, as a node that boots does.
    pub async fn set(
        orders: &Orders,
        sandbox: &Sandbox,
        abilities: &Abilities,
    ) -> std::result::Result<Self, Refusal> {
        let layout = sandbox.layout();
        let watch = MountWatch::start().map_err(|error| Refusal::of(&error))?;
        let foreign = Foreign::of(orders)?;
        let driver_is_outside = foreign.is_some() && foreign::names_processes(&watch);
        let witness: Box<dyn Witness> = match &foreign {
            Some(foreign) => foreign.witness(watch, layout.root()),
            None => Box::new(watch),
        };
        let journal = Journal::new(Symbols::new(layout.clone()), Some(witness));
        journal.with_actors(|actors| actors.driver_is_outside = driver_is_outside);
        // A worker that is killed leaves what it saw; one that ends writes the trace anew, with symbols.
        journal.keep(&orders.directory.join("trace.jsonl")).map_err(|error| Refusal::of(&error))?;
        let cluster = Cluster::new(journal.clone());
        let served = cluster.serve(&layout.cluster_socket()).map_err(|error| Refusal::of(&error))?;
        cluster.add_node(NODE).map_err(|error| Refusal::of(&error))?;
        cluster.add_driver(driver_object(&abilities.says)).map_err(|error| Refusal::of(&error))?;

        let cgroup = limits::of_driver(orders, sandbox);
        let options = driver_options(&orders.manifest, &layout, &orders.directory, cgroup.clone());
        let driver =
            Driver::start(options, journal.clone()).await.map_err(|error| Refusal::of_driver(&error))?;
        let sockets = ProxyOptions {
            listen: layout.csi_socket(&abilities.says.name),
            driver: driver.socket().to_owned(),
            controller: orders.manifest.controller_socket.clone(),
            ledger: foreign.as_ref().map(Foreign::ledger),
        };
        let proxy = Proxy::serve(sockets, journal.clone()).map_err(|error| Refusal::of(&error))?;
        let channel = proxy.channel().map_err(|error| Refusal::of(&error))?;
        let said = abilities.says.clone();
        let attacher =
            AttachDetach::start(cluster.clone(), channel.clone(), said.clone(), NODE, Duration::ZERO);
        let provisioner = Provisioner::new(cluster.clone(), channel, orders.manifest.clone(), said)
            .tagged(foreign::tag(orders, sandbox));

        let log = orders.directory.join("manager.log");
        let node = Node::start(NodeOptions::new(layout, NODE, log), cluster.clone()).await;
        let node = node.map_err(|error| Refusal::of(&error))?;
        let limit = orders.timeout.mul_f64(0.5);
        let registrar = announce(&driver, &proxy, &journal).map_err(Refusal::of_scene)?;
        registered(&registrar, limit).await.map_err(Refusal::of_scene)?;
        Ok(Self {
            containers: RefCell::default(),
            device_groups: DeviceGroups::of(orders, sandbox),
            node: Mutex::new(node),
            registrar: RefCell::new(Some(registrar)),
            _attacher: attacher,
            provisioner,
            proxy,
            _served: served,
            driver: Mutex::new(driver),
            cluster,
            journal,
            abilities: abilities.clone(),
            foreign,
            cgroup,
            secrets: secrets(&orders.manifest)?,
            fs_types: orders.manifest.volume.fs_types.clone(),
            inline_attributes: orders.manifest.volume.inline_attributes.clone(),
            volumes: RefCell::default(),
            pods: RefCell::default(),
            leaving: RefCell::default(),
            gates: RefCell::default(),
            nfs: super::nfs::Nfs::new(orders.spoil),
            driver_killed: Cell::new(false),
            driver_is_back: Notify::new(),
            repeats: Cell::new(false),
            limit,
            disks: Disks::default(),
            fuse: RefCell::default(),
            machine: RefCell::default(),
            directory: orders.directory.clone(),
            seed: orders.seed,
        })
    }
}

/// How the driver is started in this sandbox.
pub(crate) fn driver_options(
    manifest: &Manifest,
    layout: &Layout,
    directory: &Path,
    cgroup: Option<Arc<Cgroup>>,
) -> DriverOptions {
    let (manifest, layout) = (manifest.clone(), layout.clone());
    DriverOptions { manifest, layout, node: NODE.to_owned(), log: directory.join("driver.log"), cgroup }
}

/// Tells the node that there is a driver behind the proxy.
pub(super) fn announce(driver: &Driver, proxy: &Proxy, journal: &Journal) -> Result<Registrar> {
    let name = &driver.capabilities().name;
    let socket = driver.layout().registration_socket(name);
    let registrar = Registrar::serve(&socket, name, proxy.socket(), journal.clone());
    registrar.map_err(|error| SceneError::ours(&error))
}

/// Waits until the node has taken the driver.
pub(super) async fn registered(registrar: &Registrar, limit: Duration) -> Result {
    match tokio::time::timeout(limit, registrar.registered()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(why)) => Err(SceneError::Broken(vec!["The node does not take the driver.".to_owned(), why])),
        Err(_) => Err(SceneError::Ours(vec![format!(
            "the node did not look at the driver within {} s",
            limit.as_secs()
        )])),
    }
}

/// Every secret value of the manifest.
fn secrets(manifest: &Manifest) -> std::result::Result<Vec<Sensitive<String>>, Refusal> {
    let files = &manifest.secrets;
    let files = [
        &files.provision,
        &files.controller_publish,
        &files.node_stage,
        &files.node_publish,
        &files.controller_expand,
        &files.node_expand,
        &files.snapshot,
    ];
    let mut secrets = Vec::new();
    for file in files {
        let values = Secrets::load(file.as_deref()).map_err(|error| Refusal::of(&error))?;
        // A value that is empty would be found everywhere.
        secrets.extend(values.into_values().filter(|value| !value.reveal().is_empty()));
    }
    Ok(secrets)
}

impl Refusal {
    fn of(error: &(dyn std::error::Error + 'static)) -> Self {
        Self { chain: chain(error), hint: None, log: vec![], driver: false }
    }

    fn of_scene(error: SceneError) -> Self {
        let (chain, driver) = match error {
            SceneError::Broken(chain) => (chain, true),
            SceneError::Ours(chain) => (chain, false),
        };
        Self { chain, hint: None, log: vec![], driver }
    }
}
