//! Everything a node has around it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::clock::{AdvancingClock, Clock};
use tokio::sync::{Mutex, Notify};
use tonic::transport::Channel;

use super::{Fixtures, Prepared, TestbedError, service_account};
use crate::Layout;
use crate::api_server::{ApiServer, HttpApi, Provisioner, Served};
use crate::cgroup::Cgroup;
use crate::controllers::{Attaching, Controllers, Volumes};
use crate::driver::{Capabilities, Driver, Exit, Preparation, PreparationError};
use crate::guard::CloseError;
use crate::journal::Journal;
use crate::manifest::Manifest;
use crate::proxy::Proxy;

/// Driver, proxy, API server and controllers.
#[derive(Debug)]
pub struct Surroundings {
    // Fields are dropped in this order: first who asks, then who answers. A controller calls the driver through the
    // proxy, on account of the API's objects, and is in the middle of that at any time.
    pub(super) attaching: RefCell<Option<Attaching>>,
    pub(super) volumes: RefCell<Option<Volumes>>,
    pub provisioner: Provisioner,
    pub(super) _controllers: Controllers,
    /// Leads to the driver's controller.
    pub(super) channel: Channel,
    pub(super) proxy: Option<Proxy>,
    pub(super) served: Option<Served>,
    // After the proxy: a call that it passes on can be refused only by the driver itself.
    pub(super) driver: Option<Mutex<Driver>>,
    // After the driver, which uses it.
    pub(super) preparation: Mutex<Option<Preparation>>,
    pub(super) fixtures: Mutex<Fixtures>,
    /// Mounts, loop devices and files from before the driver's first start.
    pub prepared: Prepared,
    /// The API over HTTP, if the driver is a client of it.
    pub(super) http: Option<HttpApi>,
    /// The variables with its address, as in a pod.
    pub(super) variables: BTreeMap<String, String>,
    /// Whether the driver was killed on purpose.
    pub(super) driver_killed: Cell<bool>,
    pub(super) driver_is_back: Notify,
    pub api_server: ApiServer,
    // The record, after everybody who writes to it.
    pub journal: Journal,
    pub layout: Layout,
    /// The clock of the controllers, which the case may advance.
    pub clock: AdvancingClock,
    pub(super) cgroup: Option<Arc<Cgroup>>,
    pub(super) node: String,
    pub(super) manifest: Manifest,
    pub(super) capabilities: Capabilities,
    pub(super) logs: PathBuf,
    /// The time for a node to register a driver.
    pub(super) patience: Duration,
}

impl Surroundings {
    /// Whether a driver was ever started in them.
    pub fn has_driver(&self) -> bool {
        self.driver.is_some()
    }

    /// # Panics
    /// In surroundings without a driver.
    pub fn driver(&self) -> &Mutex<Driver> {
        self.driver.as_ref().expect("a driver was started")
    }

    /// # Panics
    /// In surroundings without a driver.
    pub fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().expect("a driver was started")
    }

    /// The socket of the driver's controller service.
    pub(super) async fn controller_socket(&self) -> PathBuf {
        let driver = self.driver().lock().await;
        driver.controller_socket().unwrap_or_else(|| driver.socket().to_owned())
    }

    /// The proxy, where there is a driver behind it.
    pub fn try_proxy(&self) -> Option<&Proxy> {
        self.proxy.as_ref()
    }

    /// The driver's answers to the first questions.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    pub fn driver_name(&self) -> &str {
        &self.capabilities.name
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Runs the controller that attaches volumes from now on.
    ///
    /// # Errors
    /// When the driver's socket is none to connect to.
    pub fn attach_after(&self, delay: Duration) -> Result<(), TestbedError> {
        let channel = self.proxy().channel()?;
        let clock = Arc::new(self.clock.clone());
        let attaching = Attaching::start(&self.api_server, clock, channel, &self.capabilities, delay);
        self.attaching.replace(Some(attaching));
        Ok(())
    }

    /// Has volumes bound, made and deleted from now on, as claims ask for it.
    pub fn bind_volumes(&self) {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let volumes = Volumes::start(&self.api_server, &clock, self.channel.clone(), &self.capabilities);
        self.volumes.replace(Some(volumes));
    }

    /// Kills the driver, at once and with all its processes.
    pub async fn kill_driver(&self) {
        // Before it dies: who waits for its end must not take this for a crash.
        self.driver_killed.set(true);
        self.driver().lock().await.kill().await;
    }

    /// Notes that other code is about to kill the driver on purpose.
    pub fn expect_driver_death(&self) {
        self.driver_killed.set(true);
    }

    /// Whether the driver is dead because that was wanted.
    pub fn driver_is_killed(&self) -> bool {
        self.driver_killed.get()
    }

    /// Starts a driver that was killed. Its announcement to the node stays as it is.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start_driver_unannounced(&self) -> Result<(), TestbedError> {
        // A reboot and a new container have taken the files of its account with them.
        self.http.as_ref().map(service_account::install).transpose()?;
        self.driver().lock().await.restart().await?;
        self.proxy().reconnect();
        self.driver_killed.set(false);
        self.driver_is_back.notify_waiters();
        Ok(())
    }

    /// Has the driver end, and kills it when it has not within that time.
    ///
    /// Returns whether it ended by itself.
    pub async fn end_driver(&self, within: Duration) -> bool {
        self.driver_killed.set(true);
        match &self.driver {
            Some(driver) => driver.lock().await.terminate(within).await,
            None => true,
        }
    }

    /// Ends the sessions with the manifest's iSCSI targets, as a reboot does.
    ///
    /// # Errors
    /// When one is left.
    pub async fn end_sessions(&self) -> Result<(), CloseError> {
        Fixtures::log_out_of(&self.fixtures).await
    }

    /// Undoes what the manifest's commands have prepared, and takes its fixtures down, once the driver has ended.
    ///
    /// # Errors
    /// When the command fails, or the driver has left something on a disk.
    pub async fn clean_up(&self) -> Result<(), PreparationError> {
        if let Some(preparation) = &mut *self.preparation.lock().await {
            preparation.close().await?;
        }
        let mut fixtures = std::mem::take(&mut *self.fixtures.lock().await);
        let closed = tokio::task::spawn_blocking(move || fixtures.close()).await;
        closed.map_err(|error| CloseError::Os {
            what: "wait for their end".to_owned(),
            source: io::Error::other(error),
        })??;
        Ok(())
    }

    /// Writes down for a driver how it finds the API, if it is given one.
    pub(super) fn write_kubeconfig(&self, layout: &Layout) -> Result<(), TestbedError> {
        self.http.as_ref().map_or(Ok(()), |http| write_kubeconfig(http, layout))
    }

    /// The exit of the driver, unless it was killed on purpose.
    pub async fn driver_crash(&self) -> Option<Exit> {
        let exit = self.driver().lock().await.exit();
        exit.filter(|_| !self.driver_killed.get())
    }

    /// Returns when the driver has ended without being killed on purpose.
    pub async fn driver_crashes(&self) -> Exit {
        loop {
            let back = self.driver_is_back.notified();
            let exited = self.driver().lock().await.exited();
            let exit = exited.await;
            if !self.driver_killed.get() {
                return exit;
            }
            back.await;
        }
    }

    /// Serves the API where the node looks for it.
    pub(super) fn serve_api(&mut self) -> Result<(), TestbedError> {
        self.served = Some(self.api_server.serve(&self.layout.api_socket())?);
        Ok(())
    }
}

/// A secret of the driver: it holds the token.
pub(super) fn write_kubeconfig(http: &HttpApi, layout: &Layout) -> Result<(), TestbedError> {
    let path = layout.kubeconfig();
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    let written = made.and_then(|()| std::fs::write(&path, http.kubeconfig()));
    written.map_err(|source| TestbedError::Prepare { path, source })
}
