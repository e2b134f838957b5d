//! Another node on the same kernel, with its own root, process, driver and journal.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use api::Node as NodeObject;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tokio::sync::Mutex;

use super::builder::plugin_socket;
use super::{Surroundings, TestbedError};
use crate::Layout;
use crate::api_server::{ApiServer, Provisioner, Served};
use crate::driver::{Driver, DriverOptions, Exit, Registrar};
use crate::journal::Journal;
use crate::manifest::State;
use crate::node::{Node, NodeOptions};
use crate::observe::MountWatch;
use crate::proxy::{Proxy, ProxyOptions};

/// The size of the node's root.
const ROOT_BYTES: u64 = 64 << 20;

/// A node beside the first one. Its journal records it as the first node's journal records the first node.
#[derive(Debug)]
pub struct OtherNode {
    // Dropped in this order, as in a testbed: each before the one that it sends requests to.
    pub node: Node,
    /// Makes volumes through the node's driver.
    pub provisioner: Provisioner,
    registrar: Registrar,
    proxy: Proxy,
    _served: Served,
    driver: Mutex<Driver>,
    pub api_server: ApiServer,
    pub journal: Journal,
    pub layout: Layout,
    name: String,
}

impl Surroundings {
    /// Starts another node on a mounted [`NodeRoot`], with a driver of its own, and waits until the node has
    /// registered the driver. If the drivers share their state, the first driver's controller service serves both nodes.
    ///
    /// # Errors
    /// When a part does not start, or the node does not register the driver.
    pub async fn add_node(&self, name: &str, options: NodeOptions) -> Result<OtherNode, TestbedError> {
        let shares_state = self.manifest.state == State::Shared;
        let layout = self.layout.beside(name, shares_state);
        let watch = MountWatch::start().map_err(|error| TestbedError::Watch(std::io::Error::other(error)))?;
        let journal = self.journal.beside(layout.clone(), Box::new(watch));
        self.journal.leave_out(layout.root());
        journal.leave_out(self.layout.root());
        let api_server = self.api_server.recorded_in(name, journal.clone());
        api_server.add_node(name)?;
        self.write_kubeconfig(&layout)?;
        let controller = match shares_state {
            true => Some(self.controller_socket().await),
            false => None,
        };
        let driver_options = self.driver_options(name, &layout, controller.clone());
        let driver = Driver::start(driver_options, journal.clone()).await?;
        let proxy = ProxyOptions {
            listen: plugin_socket(&layout, self.driver_name())?,
            driver: layout.driver_socket(),
            controller: controller.or_else(|| driver.controller_socket()),
            ledger: None,
            replaces: false,
        };
        let proxy = Proxy::serve(proxy, journal.clone())?;
        if let Some(attaching) = &*self.attaching.borrow() {
            attaching.reach(&driver.capabilities().node_id, proxy.channel()?);
        }
        let served = api_server.serve(&layout.api_socket())?;
        let log = self.logs.join(format!("manager-{name}.log"));
        let options = NodeOptions { layout: layout.clone(), name: name.to_owned(), log, ..options };
        let node = Node::start(options, api_server.clone()).await?;
        let registration = layout.registration_socket(self.driver_name());
        let registrar = Registrar::serve(&registration, self.driver_name(), proxy.socket(), journal.clone())?;
        let (channel, capabilities) = (proxy.channel()?, driver.capabilities().clone());
        let provisioner = Provisioner::new(api_server.clone(), channel, self.manifest.clone(), capabilities)
            .tagged(self.provisioner.tag().to_owned());
        let driver = Mutex::new(driver);
        let (name, _served) = (name.to_owned(), served);
        let other = OtherNode {
            node,
            provisioner,
            registrar,
            proxy,
            _served,
            driver,
            api_server,
            journal,
            layout,
            name,
        };
        other.wait_registered(self).await?;
        Ok(other)
    }

    /// The options of the driver of another node. `controller`: the first driver's controller service.
    fn driver_options(&self, name: &str, layout: &Layout, controller: Option<PathBuf>) -> DriverOptions {
        DriverOptions {
            manifest: self.manifest.clone(),
            layout: layout.clone(),
            node: name.to_owned(),
            log: self.logs.join(format!("driver-{name}.log")),
            other_controller: controller.filter(|_| self.manifest.starts_controller()),
            variables: self.variables.clone(),
            cgroup: self.cgroup.clone(),
        }
    }
}

impl OtherNode {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// The node's id for controller calls, as NodeGetInfo answers it.
    pub async fn driver_node_id(&self) -> String {
        self.driver.lock().await.capabilities().node_id.clone()
    }

    /// How the node's driver has ended, if it has.
    pub async fn driver_exit(&self) -> Option<Exit> {
        self.driver.lock().await.exit()
    }

    /// The process groups of the node's driver, those that have ended included.
    pub fn driver_groups(&self) -> BTreeSet<i32> {
        self.journal.with_actors(|actors| actors.drivers.clone())
    }

    /// Ends the machine, as the loss of its power does: node and driver are killed, their mounts are gone, and the cluster
    /// marks the node as not ready. The node's root stays as it is.
    ///
    /// # Errors
    /// When the node's object cannot be written.
    pub async fn lose(&self) -> Result<(), TestbedError> {
        self.node.kill().await;
        self.driver.lock().await.kill().await;
        for target in self.journal.mounted() {
            // An error means that the mount went with another one above it.
            let _ = umount2(&target, MntFlags::MNT_DETACH);
        }
        self.set_ready(false)
    }

    /// Starts driver and node of a lost machine again: the files on its disk are there, its mounts are not.
    ///
    /// # Errors
    /// When the driver or the node does not start, or the node's object cannot be written.
    pub async fn come_back(&self, around: &Surroundings) -> Result<(), TestbedError> {
        self.driver.lock().await.restart().await?;
        self.proxy.reconnect();
        self.registrar.expect_again();
        self.node.restart().await?;
        self.wait_registered(around).await?;
        self.set_ready(true)
    }

    /// Adds the out-of-service taint to the node, or removes it.
    ///
    /// # Errors
    /// When the node's object cannot be written.
    pub fn declare_out_of_service(&self, is_out: bool) -> Result<(), TestbedError> {
        let taint = api::Taint { key: OUT_OF_SERVICE.to_owned(), ..api::Taint::default() };
        self.api_server.change::<NodeObject>("", &self.name, |node| {
            node.taints.retain(|taint| taint.key != OUT_OF_SERVICE);
            node.taints.extend(is_out.then_some(taint));
        })?;
        Ok(())
    }

    /// Kills the node, then ends its driver: with SIGTERM, and after the time `within` with SIGKILL.
    pub async fn end(&self, within: Duration) {
        tokio::join!(self.node.kill(), async { self.driver.lock().await.terminate(within).await });
    }

    fn set_ready(&self, ready: bool) -> Result<(), TestbedError> {
        self.api_server.change::<NodeObject>("", &self.name, |node| node.ready = ready)?;
        Ok(())
    }

    async fn wait_registered(&self, around: &Surroundings) -> Result<(), TestbedError> {
        match tokio::time::timeout(around.patience, self.registrar.registered()).await {
            Ok(answer) => answer.map_err(TestbedError::Refused),
            Err(_) => Err(TestbedError::NotRegistered { within: around.patience }),
        }
    }
}

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// The mounted root of another node. It comes before the node and outlives it.
///
/// Dropped, it is only detached: it ends with its last user, such as a listener whose task ends a moment later.
#[derive(Debug)]
pub struct NodeRoot(PathBuf);

impl NodeRoot {
    /// Mounts it as a peer group of its own, as a sandbox mounts that of the first node.
    ///
    /// # Errors
    /// When it cannot be mounted.
    pub fn mount(layout: &Layout) -> Result<Self, TestbedError> {
        for directory in [layout.root(), &layout.sockets(), &layout.state().join("drv")] {
            let failed = |source| TestbedError::Prepare { path: directory.to_owned(), source };
            fs::create_dir_all(directory).map_err(failed)?;
        }
        let options = format!("size={ROOT_BYTES},mode=0755");
        let failed =
            |errno: Errno| TestbedError::Prepare { path: layout.root().to_owned(), source: errno.into() };
        mount(Some("volproof"), layout.root(), Some("tmpfs"), MsFlags::empty(), Some(&*options))
            .map_err(failed)?;
        let root = Self(layout.root().to_owned());
        mount(None::<&str>, layout.root(), None::<&str>, MsFlags::MS_SHARED, None::<&str>).map_err(failed)?;
        Ok(root)
    }
}

impl Drop for NodeRoot {
    fn drop(&mut self) {
        // The sandbox's namespace takes away what cannot be detached.
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}
