//! Puts up a testbed.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::CsiDriver;
use api::clock::{AdvancingClock, Clock};
use tokio::sync::Mutex;

use super::surroundings::write_kubeconfig;
use super::{FixtureError, Fixtures, Prepared, Surroundings, Testbed, TestbedError, service_account};
use crate::Layout;
use crate::api_server::{ApiServer, HttpApi, Provisioner, driver_object};
use crate::cgroup::Cgroup;
use crate::controllers::{Attaching, Controllers};
use crate::driver::{Capabilities, Driver, DriverOptions, Preparation};
use crate::journal::Journal;
use crate::ledger::Ledger;
use crate::manifest::{ExistingVolume, Manifest};
use crate::node::NodeOptions;
use crate::proxy::{self, Proxy, ProxyOptions};

/// The settings of a testbed.
#[derive(Debug)]
#[must_use = "nothing is started before `surround` or `put_up`"]
pub struct Builder {
    journal: Journal,
    layout: Layout,
    manifest: Manifest,
    logs: PathBuf,
    node: String,
    cgroup: Option<Arc<Cgroup>>,
    ledger: Option<Arc<Ledger>>,
    cleaned_by: Option<Arc<Ledger>>,
    tag: String,
    attach_after: Option<Duration>,
    controllers_unrecorded: bool,
    never_started: Option<Capabilities>,
    patience: Duration,
}

/// The default time for a node to register a driver: longer than any machine needs.
const PATIENCE: Duration = Duration::from_secs(30);

impl Testbed {
    /// A testbed with one node, `node-1`, and without attachments. Logs go to the directory `logs`.
    ///
    /// The journal is the caller's to make: its witness has to watch before anything is started, so that nothing
    /// happens unseen.
    pub fn builder(journal: Journal, layout: Layout, manifest: Manifest, logs: PathBuf) -> Builder {
        manifest.all_secrets().for_each(|secrets| journal.masks().learn(secrets));
        Builder {
            journal,
            layout,
            manifest,
            logs,
            node: "node-1".to_owned(),
            cgroup: None,
            ledger: None,
            cleaned_by: None,
            tag: String::new(),
            attach_after: None,
            controllers_unrecorded: false,
            never_started: None,
            patience: PATIENCE,
        }
    }
}

impl Builder {
    /// Puts the driver's processes into this control group.
    pub fn cgroup(self, cgroup: Option<Arc<Cgroup>>) -> Self {
        Self { cgroup, ..self }
    }

    /// For a driver that outlives the testbed: requests with lasting effects go to the ledger, and `tag` distinguishes its
    /// volumes from those of another testbed with the same names.
    pub fn outlived(self, ledger: Option<Arc<Ledger>>, tag: String) -> Self {
        Self { ledger, tag, ..self }
    }

    /// Notes what the manifest's commands prepare, so that it is undone also when this process is killed.
    pub fn cleaned_by(self, cleaned_by: Option<Arc<Ledger>>) -> Self {
        Self { cleaned_by, ..self }
    }

    /// Runs the controller that attaches volumes; each attachment takes at least so long.
    pub fn attach_after(self, delay: Duration) -> Self {
        Self { attach_after: Some(delay), ..self }
    }

    /// Gives the node so long to look at the driver.
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Leaves what controllers say to the driver out of the record.
    pub fn controllers_unrecorded(self) -> Self {
        Self { controllers_unrecorded: true, ..self }
    }

    /// With a driver that exists only as API objects, with these volumes and capabilities.
    pub fn never_started(mut self, capabilities: Capabilities, volumes: Vec<ExistingVolume>) -> Self {
        self.manifest.volume.existing = volumes;
        Self { never_started: Some(capabilities), ..self }
    }

    /// Starts everything but the node, which knows its name and no driver: the caller adds the driver's object.
    ///
    /// # Errors
    /// When the driver cannot be used, or a socket cannot be made.
    pub async fn surround(self) -> Result<Surroundings, TestbedError> {
        let api_server = ApiServer::new(self.journal.clone());
        api_server.add_node(&self.node)?;
        let http = match self.never_started.is_none() && self.manifest.wants_kubernetes() {
            true => Some(self.serve_driver(&api_server)?),
            false => None,
        };
        let variables = http.as_ref().map_or_else(|| Ok(BTreeMap::new()), service_account::install)?;
        let (fixtures, preparation) = match &self.never_started {
            None => {
                let fixtures = self.fixtures().await?;
                (fixtures, Some(self.prepare().await?))
            }
            Some(_) => (Fixtures::default(), None),
        };
        let prepared = Prepared::now(fixtures.devices());
        // The driver comes before the proxy, which listens at a path that has the driver's name in it.
        let driver = match &self.never_started {
            None => {
                let options = DriverOptions { variables: variables.clone(), ..self.driver_options() };
                Some(Driver::start(options, self.journal.clone()).await?)
            }
            Some(_) => None,
        };
        let capabilities = match (&driver, self.never_started) {
            (Some(driver), _) => driver.capabilities().clone(),
            (None, never_started) => never_started.unwrap_or_default(),
        };
        let socket = match &driver {
            Some(driver) => driver.socket().to_owned(),
            None => self.layout.driver_socket(),
        };
        let controller = driver.as_ref().and_then(Driver::controller_socket);
        let proxy = match &driver {
            Some(_) => {
                let options = ProxyOptions {
                    listen: plugin_socket(&self.layout, &capabilities.name)?,
                    driver: socket.clone(),
                    controller: controller.clone(),
                    ledger: self.ledger,
                    replaces: false,
                };
                Some(Proxy::serve(options, self.journal.clone())?)
            }
            None => None,
        };
        // Controllers come after the proxy, since all they say goes through it.
        let channel = match &proxy {
            Some(proxy) if !self.controllers_unrecorded => proxy.channel()?,
            _ => proxy::connect(controller.as_ref().unwrap_or(&socket))?,
        };
        let clock = AdvancingClock::default();
        let shared_clock: Arc<dyn Clock> = Arc::new(clock.clone());
        let attaching = self.attach_after.map(|delay| {
            Attaching::start(&api_server, Arc::clone(&shared_clock), channel.clone(), &capabilities, delay)
        });
        let provisioner = Provisioner::new(
            api_server.clone(),
            channel.clone(),
            self.manifest.clone(),
            capabilities.clone(),
        );
        Ok(Surroundings {
            attaching: attaching.into(),
            volumes: None.into(),
            channel: channel.clone(),
            provisioner: provisioner.tagged(self.tag),
            _controllers: Controllers::start(&api_server, shared_clock, channel, &capabilities),
            proxy,
            served: None,
            driver: driver.map(Mutex::new),
            preparation: Mutex::new(preparation),
            fixtures: Mutex::new(fixtures),
            prepared,
            http,
            variables,
            driver_killed: false.into(),
            driver_is_back: tokio::sync::Notify::new(),
            api_server,
            journal: self.journal,
            layout: self.layout,
            clock,
            cgroup: self.cgroup,
            node: self.node,
            manifest: self.manifest,
            capabilities,
            logs: self.logs,
            patience: self.patience,
        })
    }

    /// Starts everything, the node last, as one that boots and finds its driver installed. Waits until the node has
    /// taken the driver.
    ///
    /// # Errors
    /// When a part does not start, or the node refuses to register the driver.
    pub async fn put_up(self) -> Result<Testbed, TestbedError> {
        let attaches = self.attach_after.is_some();
        let surroundings = self.surround().await?;
        let object = driver_object(&surroundings.capabilities);
        let attach_required = attaches && object.attach_required;
        surroundings.api_server.add_driver(CsiDriver { attach_required, ..object })?;
        let options = surroundings.node_options();
        let bed = Testbed::start(surroundings, options).await?;
        bed.announce().await?;
        Ok(bed)
    }

    /// Gives the driver the API of a cluster, with the objects that its manifest names.
    fn serve_driver(&self, api_server: &ApiServer) -> Result<HttpApi, TestbedError> {
        let wanted = self.manifest.kubernetes.clone().unwrap_or_default();
        let http = HttpApi::serve(api_server, &wanted.namespace)?;
        wanted.objects.iter().try_for_each(|path| http.add_objects(path))?;
        write_kubeconfig(&http, &self.layout)?;
        Ok(http)
    }

    /// The disks and the export of the manifest. mkfs and the NFS server take up to a second.
    async fn fixtures(&self) -> Result<Fixtures, TestbedError> {
        if !self.manifest.wants_fixtures() {
            return Ok(Fixtures::default());
        }
        let (manifest, layout, node) = (self.manifest.clone(), self.layout.clone(), self.node.clone());
        let made = tokio::task::spawn_blocking(move || Fixtures::make(&manifest, &layout, &node)).await;
        Ok(made.map_err(FixtureError::Thread)??)
    }

    async fn prepare(&self) -> Result<Preparation, TestbedError> {
        let state = self.layout.driver_state();
        let made = std::fs::create_dir_all(&state);
        made.map_err(|source| TestbedError::Prepare { path: state, source })?;
        Ok(Preparation::of_case(&self.driver_options(), self.cleaned_by.clone()).await?)
    }

    fn driver_options(&self) -> DriverOptions {
        DriverOptions {
            manifest: self.manifest.clone(),
            layout: self.layout.clone(),
            node: self.node.clone(),
            log: self.logs.join("driver.log"),
            other_controller: None,
            variables: BTreeMap::new(),
            cgroup: self.cgroup.clone(),
        }
    }
}

/// The socket at which a node looks for the driver, in a directory with the mode that a node gives it.
pub(super) fn plugin_socket(layout: &Layout, driver: &str) -> Result<PathBuf, TestbedError> {
    let socket = layout.csi_socket(driver);
    if let Some(directory) = socket.parent() {
        let made = DirBuilder::new().recursive(true).mode(0o750).create(directory);
        made.map_err(|source| TestbedError::Prepare { path: directory.to_owned(), source })?;
    }
    Ok(socket)
}

impl Surroundings {
    /// The default options of a node in these surroundings: the kubelet's.
    pub fn node_options(&self) -> NodeOptions {
        NodeOptions::new(self.layout.clone(), &self.node, self.logs.join("manager.log"))
    }
}
