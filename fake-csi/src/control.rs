//! The control socket in the state directory: orders faults of a running driver and reads its books.
//!
//! An order is a line of JSON, and so is its answer. [`Client`] is for tests and for the command line.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};

use crate::books::Books;
use crate::driver::Driver;
pub use crate::fault::Fault;
use crate::fault::Faults;

/// Name of the socket in the state directory.
pub const SOCKET: &str = "control.sock";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Order {
    Books,
    Calls,
    Fault(Fault),
    ClearFaults,
    Crash,
}

/// An order without an answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The socket cannot be reached, or the driver died.
    #[error("cannot reach the driver at `{path}`")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot parse the answer of the driver at `{path}`")]
    Answer {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
}

/// Client of a driver's control socket.
#[derive(Debug, Clone)]
pub struct Client {
    path: PathBuf,
}

impl Client {
    /// A client for the driver with this state directory. Each order makes a connection.
    pub fn new(state_dir: &Path) -> Self {
        Self { path: state_dir.join(SOCKET) }
    }

    /// The driver's books: volumes created, attached, staged and published.
    ///
    /// # Errors
    /// When the driver cannot be reached or does not answer.
    pub async fn books(&self) -> Result<Books, ControlError> {
        self.ask(&Order::Books).await
    }

    /// Calls of each method since the driver started.
    ///
    /// # Errors
    /// When the driver cannot be reached or does not answer.
    pub async fn calls(&self) -> Result<BTreeMap<String, u64>, ControlError> {
        self.ask(&Order::Calls).await
    }

    /// Orders a fault. Faults for a method take effect in the order they were given.
    ///
    /// # Errors
    /// When the driver cannot be reached or does not answer.
    pub async fn fault(&self, fault: Fault) -> Result<(), ControlError> {
        self.ask(&Order::Fault(fault)).await
    }

    /// Removes all ordered faults.
    ///
    /// # Errors
    /// When the driver cannot be reached or does not answer.
    pub async fn clear_faults(&self) -> Result<(), ControlError> {
        self.ask(&Order::ClearFaults).await
    }

    /// Makes the driver kill itself with `SIGKILL`. Returns when it is dead.
    ///
    /// # Errors
    /// When the driver cannot be reached.
    pub async fn crash(&self) -> Result<(), ControlError> {
        match self.exchange(&Order::Crash).await {
            Ok(_) => Ok(()),
            // The driver died before it answered, as ordered.
            Err(error) if is_hang_up(&error) => Ok(()),
            Err(source) => Err(ControlError::Io { path: self.path.clone(), source }),
        }
    }

    async fn ask<T: for<'de> Deserialize<'de>>(&self, order: &Order) -> Result<T, ControlError> {
        let line = self
            .exchange(order)
            .await
            .map_err(|source| ControlError::Io { path: self.path.clone(), source })?;
        serde_json::from_str(&line).map_err(|source| ControlError::Answer { path: self.path.clone(), source })
    }

    async fn exchange(&self, order: &Order) -> io::Result<String> {
        let mut stream = BufReader::new(UnixStream::connect(&self.path).await?);
        let mut line = serde_json::to_string(order)?;
        line.push('\n');
        stream.write_all(line.as_bytes()).await?;
        let mut answer = String::new();
        if stream.read_line(&mut answer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(answer)
    }
}

fn is_hang_up(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Answers orders until the process ends.
pub(crate) async fn serve(listener: UnixListener, driver: Arc<Driver>, faults: Arc<Faults>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (driver, faults) = (Arc::clone(&driver), Arc::clone(&faults));
                tokio::spawn(async move {
                    if let Err(error) = answer(stream, &driver, &faults).await {
                        tracing::warn!(%error, "a control connection failed; its order may be lost");
                    }
                });
            }
            Err(error) => tracing::warn!(%error, "cannot accept a control connection; waiting for the next"),
        }
    }
}

async fn answer(stream: UnixStream, driver: &Driver, faults: &Faults) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 {
        let order: Order = serde_json::from_str(&line)?;
        let mut answer = match order {
            Order::Books => {
                serde_json::to_string(&driver.journal.read(Clone::clone).map_err(io::Error::other)?)?
            }
            Order::Calls => serde_json::to_string(&faults.calls())?,
            Order::Fault(fault) => {
                faults.order(fault);
                "null".to_owned()
            }
            Order::ClearFaults => {
                faults.clear();
                "null".to_owned()
            }
            Order::Crash => crate::die(),
        };
        answer.push('\n');
        stream.write_all(answer.as_bytes()).await?;
        line.clear();
    }
    Ok(())
}
