//! The driver's registrar: announces the driver's socket to the node. Serves one socket.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use contracts::event::{Lifecycle, Role};
use csi_proto::registration::registration_server::{Registration, RegistrationServer};
use csi_proto::registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use crate::journal::Journal;
use crate::proxy;

/// The registration socket cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on `{path}`")]
pub struct RegistrarError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// The node's answer, once there is one.
type Answer = Arc<watch::Sender<Option<Result<(), String>>>>;

/// An announced driver. Dropping it removes the registration socket.
#[derive(Debug)]
pub struct Registrar {
    socket: PathBuf,
    answer: Answer,
    task: AbortHandle,
}

impl Registrar {
    /// Announces that `driver` can be reached at `endpoint`.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn serve(
        socket: &Path,
        driver: &str,
        endpoint: &Path,
        journal: Journal,
    ) -> Result<Self, RegistrarError> {
        let listener =
            proxy::listen(socket).map_err(|source| RegistrarError { path: socket.to_owned(), source })?;
        let answer = Answer::new(watch::Sender::new(None));
        let info = PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: driver.to_owned(),
            endpoint: endpoint.to_string_lossy().into_owned(),
            supported_versions: vec!["1.0.0".to_owned()],
        };
        let service = RegistrationServer::new(SocketService { info, answer: Arc::clone(&answer), journal });
        let server = tonic::transport::Server::builder().add_service(service);
        let task = tokio::spawn(async move {
            // The server ends only with this task.
            let _ = server.serve_with_incoming(UnixListenerStream::new(listener)).await;
        });
        Ok(Self { socket: socket.to_owned(), answer, task: task.abort_handle() })
    }

    /// Waits until the node has accepted or refused the driver.
    ///
    /// # Errors
    /// When the node refused it.
    pub async fn registered(&self) -> Result<(), String> {
        let mut answers = self.answer.subscribe();
        match answers.wait_for(Option::is_some).await {
            Ok(answer) => answer.clone().unwrap_or(Ok(())),
            Err(_) => Err("the announcement was taken back".to_owned()),
        }
    }

    /// Forgets the answer of a node that is started again.
    pub fn expect_again(&self) {
        self.answer.send_replace(None);
    }
}

impl Drop for Registrar {
    fn drop(&mut self) {
        self.task.abort();
        // The socket may be gone with its directory.
        let _ = fs::remove_file(&self.socket);
    }
}

/// The registration service at the socket.
struct SocketService {
    info: PluginInfo,
    answer: Answer,
    journal: Journal,
}

#[tonic::async_trait]
impl Registration for SocketService {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        status: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = status.into_inner();
        let error = Some(status.error).filter(|error| !error.is_empty());
        self.journal.process(Role::Driver, Lifecycle::Registered, error.clone());
        let answer = match status.plugin_registered {
            true => Ok(()),
            false => Err(error.unwrap_or_else(|| "the node refused it".to_owned())),
        };
        self.answer.send_replace(Some(answer));
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
