//! Registration of drivers: a registration socket appears, GetInfo names the driver, its answer to NodeGetInfo
//! goes to the API, the manager gets the driver, and the driver is notified.
//!
//! Talks to registration sockets and to drivers' node services. [`node_record`] writes the API objects,
//! [`watch`] watches the directory of sockets, and [`allocatable`] refreshes the drivers' volume limits.

pub mod allocatable;
pub mod node_record;
pub mod watch;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::clock::{self, Clock};
use api::names::{DriverName, is_path_component};
use api::{ApiError, ApiSource};
use csi_proto::registration::registration_client::RegistrationClient;
use csi_proto::registration::{InfoRequest, PluginInfo, RegistrationStatus};
use plugin_api::{Config, Connection, Dialer};
use tonic::{Response, Status};

use super::client::{Lines, Memory, Session};
use super::status::CallError;
use super::version::{self, Version, VersionError};
use crate::manager::VolumeManager;

/// The plugin type of CSI drivers.
const PLUGIN_TYPE: &str = "CSIPlugin";

/// Time limits of the three steps at the registration socket.
const DIAL: Duration = Duration::from_secs(10);
const GET_INFO: Duration = Duration::from_secs(1);
const NOTIFY: Duration = Duration::from_secs(5);

/// Registers and deregisters drivers with a manager. Clones share their state.
#[derive(Debug, Clone)]
pub struct Registrar {
    manager: VolumeManager,
    api: Arc<dyn ApiSource>,
    clock: Arc<dyn Clock>,
    dialer: Arc<dyn Dialer>,
    config: Arc<Config>,
    /// The lock is never held across an await.
    drivers: Arc<Mutex<BTreeMap<DriverName, Registered>>>,
}

#[derive(Debug, Clone)]
struct Registered {
    version: Version,
    /// The socket of the node service.
    endpoint: PathBuf,
    /// The registration socket; its removal ends the registration.
    socket: PathBuf,
}

impl Registrar {
    /// A registrar for a manager that was started with the same parts.
    pub fn new(
        manager: VolumeManager,
        config: Config,
        api: Arc<dyn ApiSource>,
        clock: Arc<dyn Clock>,
        dialer: Arc<dyn Dialer>,
    ) -> Self {
        Self { manager, api, clock, dialer, config: Arc::new(config), drivers: Arc::default() }
    }

    /// Registers the driver that listens on a socket, and notifies it of the outcome.
    ///
    /// A socket that was created anew is a new registration, even under the old path: the caller first reports
    /// the old one as [removed](Self::socket_removed).
    pub async fn socket_created(&self, socket: &Path) -> Result<DriverName, RegistrationError> {
        let mut client = RegistrationClient::new(self.dial(socket).await?);
        let asked = self.within(GET_INFO, "GetInfo", client.get_info(InfoRequest {})).await;
        let info = asked.map_err(|source| RegistrationError::Socket { socket: socket.to_owned(), source })?;
        let outcome = self.register(socket, info).await;
        let error = outcome.as_ref().err().map(|error| api::error::chain(error)).unwrap_or_default();
        let status = RegistrationStatus { plugin_registered: outcome.is_ok(), error };
        let notify = client.notify_registration_status(status);
        let notified = self.within(NOTIFY, "NotifyRegistrationStatus", notify).await;
        let name = outcome?;
        if let Err(source) = notified {
            // The driver has not learned that it is registered, so it is deregistered again; the caller repeats
            // it.
            self.deregister(&name).await;
            return Err(RegistrationError::Socket { socket: socket.to_owned(), source });
        }
        Ok(name)
    }

    /// Deregisters the driver that was registered through a socket.
    pub async fn socket_removed(&self, socket: &Path) -> Option<DriverName> {
        let registered = self.drivers().iter().find(|(_, driver)| driver.socket == socket).map(name_of);
        let name = registered?;
        self.deregister(&name).await;
        Some(name)
    }

    /// Asks a registered driver again for its volume limit and writes it to the CSINode object. Does nothing
    /// for a driver that is not registered.
    pub async fn refresh(&self, name: &DriverName) -> Result<(), RegistrationError> {
        let endpoint = self.drivers().get(name).map(|driver| driver.endpoint.clone());
        let Some(endpoint) = endpoint else { return Ok(()) };
        let info = self.node_info(name, &endpoint).await?;
        node_record::enter(&*self.api, &*self.clock, &self.config.node, name, &info).await
    }

    /// Whether a driver is registered through a socket.
    pub fn has(&self, socket: &Path) -> bool {
        self.drivers().values().any(|driver| driver.socket == socket)
    }

    fn drivers(&self) -> MutexGuard<'_, BTreeMap<DriverName, Registered>> {
        self.drivers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn dial(&self, socket: &Path) -> Result<Connection, RegistrationError> {
        let failed = |source| RegistrationError::Socket { socket: socket.to_owned(), source };
        match clock::within(&*self.clock, DIAL, self.dialer.dial(socket)).await {
            Some(Ok(connection)) => Ok(connection),
            Some(Err(error)) => Err(failed(CallError::unreachable("GetInfo", socket, &error))),
            None => Err(failed(CallError::deadline("GetInfo"))),
        }
    }

    async fn within<R>(
        &self,
        limit: Duration,
        method: &'static str,
        call: impl Future<Output = Result<Response<R>, Status>>,
    ) -> Result<R, CallError> {
        match clock::within(&*self.clock, limit, call).await {
            Some(Ok(answer)) => Ok(answer.into_inner()),
            Some(Err(status)) => Err(CallError::new(method, &status, [])),
            None => Err(CallError::deadline(method)),
        }
    }

    async fn register(&self, socket: &Path, info: PluginInfo) -> Result<DriverName, RegistrationError> {
        let (name, version) = self.validate(&info)?;
        let endpoint = match info.endpoint.as_str() {
            "" => socket.to_owned(),
            endpoint => PathBuf::from(endpoint.strip_prefix("unix://").unwrap_or(endpoint)),
        };
        let info = self.node_info(&name, &endpoint).await?;
        node_record::enter(&*self.api, &*self.clock, &self.config.node, &name, &info).await?;
        let registered = Registered { version, endpoint: endpoint.clone(), socket: socket.to_owned() };
        self.drivers().insert(name.clone(), registered);
        self.manager.driver_registered(name.clone(), endpoint);
        Ok(name)
    }

    fn validate(&self, info: &PluginInfo) -> Result<(DriverName, Version), RegistrationError> {
        if info.r#type != PLUGIN_TYPE {
            return Err(RegistrationError::ForeignType(info.r#type.clone()));
        }
        let name = DriverName::new(&info.name);
        // The name becomes a directory.
        if !is_path_component(name.as_str()) {
            return Err(RegistrationError::BadName(name));
        }
        let version = version::highest(&info.supported_versions)
            .map_err(|source| RegistrationError::Version { driver: name.clone(), source })?;
        let present = self.drivers().get(&name).map(|driver| driver.version);
        match present {
            Some(present) if present >= version => Err(RegistrationError::AlreadyThere(name)),
            _ => Ok((name, version)),
        }
    }

    async fn node_info(
        &self,
        driver: &DriverName,
        endpoint: &Path,
    ) -> Result<csi_proto::v1::NodeGetInfoResponse, RegistrationError> {
        let lines = Lines {
            dialer: Arc::clone(&self.dialer),
            clock: Arc::clone(&self.clock),
            style: self.config.client_style,
            deadline: self.config.call_deadline,
        };
        let session = Session::new(endpoint, Arc::new(Memory::default()), lines);
        let info = session.info().await;
        let info = info.map_err(|source| RegistrationError::NodeInfo { driver: driver.clone(), source })?;
        match info.node_id.as_str() {
            "" => Err(RegistrationError::NoNodeId(driver.clone())),
            _ => Ok(info),
        }
    }

    async fn deregister(&self, name: &DriverName) {
        self.drivers().remove(name);
        self.manager.registration(crate::Registration::Removed { driver: name.clone() });
        if let Err(error) = node_record::remove(&*self.api, &*self.clock, &self.config.node, name).await {
            let error = api::error::chain(&error);
            tracing::warn!(driver = %name, error, "cannot remove an unregistered driver from the node's objects; they list it until it registers again");
        }
    }
}

fn name_of((name, _): (&DriverName, &Registered)) -> DriverName {
    name.clone()
}

/// Why a driver is not registered.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// The registration socket failed.
    #[error("cannot register what listens on `{}`", socket.display())]
    Socket { socket: PathBuf, source: CallError },
    /// The plugin is of another type.
    #[error("no handler registered for plugin type: {0}")]
    ForeignType(String),
    /// The driver's name cannot name a directory.
    #[error("`{0}` is no name for a driver")]
    BadName(DriverName),
    /// The driver supports no version of CSI that is supported here.
    #[error("cannot register driver {driver}")]
    Version { driver: DriverName, source: VersionError },
    /// A driver of that name is registered with the same or a higher version.
    #[error("driver {0} is already registered with an equal or higher version")]
    AlreadyThere(DriverName),
    #[error("error updating node with driver {driver}: NodeGetInfo failed")]
    NodeInfo { driver: DriverName, source: CallError },
    /// NodeGetInfo returned an empty node id.
    #[error("driver {0} returned an empty node ID")]
    NoNodeId(DriverName),
    /// A topology segment contradicts a label that the node has already.
    #[error(
        "detected topology value collision: driver reported {key:?}:{wanted:?} but existing label is {key:?}:{present:?}"
    )]
    Topology { key: String, wanted: String, present: String },
    /// The node's objects could not be written.
    #[error("error updating the node's objects")]
    Api(#[from] ApiError),
}
