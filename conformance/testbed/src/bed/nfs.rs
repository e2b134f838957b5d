//! The NFS server of a case, and volumes on it that no driver has to do with.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;

use harness::Layout;
use harness::guard::Guard;
use harness::nfs_export::{Misbehaviour, NfsError, NfsExport};

use super::{Bed, Result, StepError};
use crate::failure::chain;

/// The plugin these volumes belong to.
pub(super) const PLUGIN: &str = "kubernetes.io/nfs";

/// The NFS server of a case and its volumes.
#[derive(Debug)]
pub(super) struct Nfs {
    server: RefCell<Option<NfsExport>>,
    volumes: RefCell<BTreeSet<String>>,
    spoil: Option<Misbehaviour>,
}

/// A volume on the server, as a case wants it.
#[derive(Debug, Clone)]
pub(crate) struct NfsSpec {
    pub(crate) name: String,
    pub(crate) version: u8,
    pub(crate) options: Vec<String>,
}

impl Nfs {
    pub(super) fn new(spoil: Option<Misbehaviour>) -> Self {
        Self { server: RefCell::default(), volumes: RefCell::default(), spoil }
    }

    /// Whether there is a server.
    pub(super) fn is_there(&self) -> bool {
        self.server.borrow().is_some()
    }

    /// Whether a volume is on the server.
    pub(super) fn serves(&self, volume: &str) -> bool {
        self.volumes.borrow().contains(volume)
    }
}

impl Bed {
    pub(crate) async fn start_nfs(&self) -> Result {
        let spoil = self.nfs.spoil;
        let directory = Layout::standard().state().join("export");
        let started = tokio::task::spawn_blocking(move || NfsExport::start(&directory, spoil)).await;
        let server = started.map_err(|error| StepError::ours(&error))?;
        self.nfs.server.replace(Some(server.map_err(|error| StepError::ours(&error))?));
        Ok(())
    }

    /// Does something with the server, which may take a second.
    pub(crate) async fn with_nfs(
        &self,
        what: impl FnOnce(&mut NfsExport) -> std::result::Result<(), NfsError> + Send + 'static,
    ) -> Result {
        let Some(mut server) = self.nfs.server.take() else {
            return Err(no_server());
        };
        let done = tokio::task::spawn_blocking(move || {
            let done = what(&mut server);
            (server, done)
        });
        let (server, done) = done.await.map_err(|error| StepError::ours(&error))?;
        self.nfs.server.replace(Some(server));
        done.map_err(|error| StepError::ours(&error))
    }

    /// The path of a file of the export on the server.
    fn on_server(&self, file: &str) -> Result<PathBuf> {
        let server = self.nfs.server.borrow();
        let server = server.as_ref().ok_or_else(no_server)?;
        Ok(server.directory().join(file))
    }

    /// Makes a volume of the export, and a claim that is bound to it.
    pub(crate) fn create_nfs_volume(&self, spec: &NfsSpec) -> Result {
        let server = self.nfs.server.borrow();
        let server = server.as_ref().ok_or_else(no_server)?;
        let version = if spec.version == 3 { "vers=3" } else { "vers=4.2" };
        let options = spec.options.iter().cloned().chain([version.to_owned()]).collect();
        let bound = server.bind(&self.api_server, &spec.name, &server.path(spec.version), options);
        bound.map_err(|error| StepError::ours(&error))?;
        self.nfs.volumes.borrow_mut().insert(spec.name.clone());
        Ok(())
    }

    /// Writes a file on the server's side.
    pub(crate) fn put_on_server(&self, file: &str, text: &str) -> Result {
        std::fs::write(self.on_server(file)?, text).map_err(|error| StepError::ours(&error))
    }

    /// Compares a file on the server's side.
    pub(crate) fn server_has(&self, file: &str, text: &str) -> Result {
        match std::fs::read_to_string(self.on_server(file)?) {
            Ok(found) if found == text => Ok(()),
            Ok(found) => Err(StepError::Broken(vec![format!(
                "The server's `{file}` should hold {text:?}, and holds {found:?}."
            )])),
            Err(error) => Err(StepError::Broken(vec![
                format!("The server's `{file}` cannot be read."),
                error.to_string(),
            ])),
        }
    }

    /// Ends the server. Says what stood in the way.
    pub(super) async fn end_nfs(&self) -> Option<String> {
        let server = self.nfs.server.take()?;
        match tokio::task::spawn_blocking(move || server.close()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(chain(&error).join(": ")),
            Err(panicked) => Some(panicked.to_string()),
        }
    }
}

fn no_server() -> StepError {
    StepError::Ours(vec!["the case has no NFS server".to_owned()])
}
