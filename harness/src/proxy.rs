//! The proxy before a driver's socket: records every call and can change it.
//!
//! It passes any unary call on without knowing its type. The start and the end of a call are recorded in the
//! journal before they are passed on, so that what the driver does lies between the two. [`Rule`]s change what
//! happens to calls: they answer instead of the driver, wait, lose the answer, or send a request twice. It
//! listens on one socket, connects to the driver's, and touches nothing else.

mod code;
mod codec;
mod difference;
mod forward;
mod handle;
mod pause;
mod put_off;
mod rule;
mod unreadable;
mod version;

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use csi_proto::json::JsonError;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

pub use code::{code_from_name, code_name, code_names};
pub use put_off::{is_not_now, repeated};
pub use rule::{Gate, Rule, RuleError};
pub(crate) use unreadable::{explained, no_answer};
pub use unreadable::{is_unanswered, unreadable};
pub(crate) use version::serves_csi_0;

use crate::journal::{Edge, Journal};
use crate::ledger::Ledger;
use forward::Upstreams;
use handle::Front;
use pause::Pauses;
use rule::Rules;

/// The sockets of a proxy.
#[derive(Debug, Clone)]
pub struct ProxyOptions {
    /// The socket that the proxy listens on; the node connects to it.
    pub listen: PathBuf,
    /// The driver's own socket.
    pub driver: PathBuf,
    /// The socket of the controller service, if it is another one.
    pub controller: Option<PathBuf>,
    /// The ledger for volumes of a driver that outlives the run.
    pub ledger: Option<Arc<Ledger>>,
    /// Whether it atomically replaces the socket of another process.
    pub replaces: bool,
}

/// Why a proxy cannot work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// The socket cannot be created.
    #[error("cannot listen on `{path}`")]
    Listen {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The path cannot be a socket's.
    #[error("cannot connect to `{path}`")]
    Connect {
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: tonic::transport::Error,
    },
}

/// A running proxy. Dropping it closes the socket and every connection.
#[derive(Debug)]
pub struct Proxy {
    listen: PathBuf,
    /// The socket's own number: another process may have put its socket in this one's place.
    inode: u64,
    front: Front,
    task: AbortHandle,
    /// Whether callers are asked to go. Each connection has a receiver, and the listener another.
    leaving: watch::Sender<bool>,
}

impl Proxy {
    /// Starts to listen and to pass calls on.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn serve(options: ProxyOptions, journal: Journal) -> Result<Self, ProxyError> {
        let failed = |source| ProxyError::Listen { path: options.listen.clone(), source };
        let listener = match options.replaces {
            true => replace(&options.listen),
            false => listen(&options.listen),
        };
        let listener = listener.map_err(failed)?;
        let inode = inode_of(&options.listen).map_err(failed)?;
        let front = Front {
            journal,
            rules: Arc::new(Rules::default()),
            pauses: Arc::new(Pauses::default()),
            upstreams: Arc::new(Upstreams::new(options.driver, options.controller)),
            ledger: options.ledger,
            caller: None,
        };
        let (leaving, asked) = watch::channel(false);
        let task = tokio::spawn(accept(listener, front.clone(), asked)).abort_handle();
        Ok(Self { listen: options.listen, inode, front, task, leaving })
    }

    /// Adds a rule for calls from now on. Of several rules for a call the newest is used.
    pub fn inject(&self, rule: Rule) {
        self.front.rules.add(rule, None);
    }

    /// Passes the next call of a method to the driver and holds its answer until the gate is opened.
    pub fn hold(&self, method: &str) -> Gate {
        self.hold_with(Rule { forward: true, times: Some(1), ..Rule::of(method) })
    }

    /// Adds a rule and holds the answers of its calls until the gate is opened.
    pub fn hold_with(&self, rule: Rule) -> Gate {
        let gate = Gate::new();
        self.front.rules.add(rule, Some(gate.clone()));
        gate
    }

    /// Adds a rule that is used after the present rules for that method are used up.
    pub fn inject_in_turn(&self, rule: Rule) {
        self.front.rules.add_in_turn(rule);
    }

    /// Hides these node capabilities in the driver's answers from now on.
    pub fn hide_node_capabilities(&self, names: impl IntoIterator<Item = String>) {
        self.front.pauses.hide(names);
    }

    /// Holds all calls until [`Self::open`], so that several changes take effect at one moment.
    pub fn shut(&self) {
        self.front.pauses.shut();
    }

    /// Does as [`Self::shut`] when the `count`-th call of a method has begun or ended: its caller has no answer
    /// yet and does nothing more.
    pub fn shut_at(&self, method: &str, edge: Edge, count: usize) {
        self.front.pauses.shut_at(method, edge, count);
    }

    /// Passes on the call that [`Self::shut_at`] was triggered by, if that is held, and no later one.
    pub fn let_in(&self) {
        self.front.pauses.let_in();
    }

    /// Passes calls on again.
    pub fn open(&self) {
        self.front.pauses.open();
    }

    /// Advances the clock of all pauses: calls that are delayed up to then continue at once.
    pub fn advance(&self, by: Duration) {
        self.front.pauses.advance(by);
    }

    /// The number of calls that rules hold at present.
    pub fn held(&self) -> usize {
        self.front.pauses.held()
    }

    /// Removes all rules for a method, or for all methods if it is empty.
    pub fn clear(&self, method: &str) {
        self.front.rules.clear(method);
    }

    /// Drops the connection to a driver that was started again.
    pub fn reconnect(&self) {
        self.front.upstreams.forget();
    }

    /// The socket it listens on.
    pub fn socket(&self) -> &Path {
        &self.listen
    }

    /// Calls the driver without journal and rules, as another client than the node would. Request and answer
    /// are JSON.
    ///
    /// # Errors
    /// When there is no such method or its request has no such fields.
    pub async fn call(&self, method: &str, request: Value) -> Result<Result<Value, Status>, JsonError> {
        let path = csi_proto::descriptor::path(method)
            .ok_or_else(|| JsonError::UnknownMethod { method: method.to_owned() })?;
        let message = csi_proto::json::encode(&path, request)?;
        self.front.confide(&path, &message);
        let uri = PathAndQuery::try_from(path.as_str()).expect("names have no blanks");
        let answer = self.front.forward(&uri, MetadataMap::new(), message.into()).await;
        Ok(match answer {
            Ok(answer) => {
                let answer = csi_proto::json::response(&path, answer.get_ref())?;
                self.front.journal.look_for_secrets_in_context(method, &answer);
                Ok(answer)
            }
            Err(status) => {
                self.front.journal.look_for_secrets(method, status.message());
                Err(status)
            }
        })
    }

    /// A connection through the proxy for the harness's own calls, so that they are recorded, too.
    ///
    /// # Errors
    /// When the socket's path is none that can be connected to.
    pub fn channel(&self) -> Result<Channel, ProxyError> {
        connect(&self.listen)
    }
}

impl Proxy {
    /// Removes the socket: new clients cannot connect, and connected ones go on.
    pub fn withdraw(&self) {
        if !self.is_replaced() {
            // The socket may be gone with its directory.
            let _ = fs::remove_file(&self.listen);
        }
    }

    /// Asks callers to go: calls under way are answered, and later ones need a new connection.
    pub fn dismiss(&self) {
        self.leaving.send_replace(true);
    }

    /// Whether there are connections of callers.
    pub fn has_callers(&self) -> bool {
        self.leaving.receiver_count() > 1
    }

    /// Whether another process has put its socket in this one's place.
    pub fn is_replaced(&self) -> bool {
        inode_of(&self.listen).is_ok_and(|inode| inode != self.inode)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.withdraw();
    }
}

/// A connection to a Unix socket, made at its first use and again after it was lost.
///
/// # Errors
/// When the path is none that can be connected to.
pub fn connect(socket: &Path) -> Result<Channel, ProxyError> {
    let failed = |source| ProxyError::Connect { path: socket.to_owned(), source };
    let endpoint = Endpoint::try_from(format!("unix:{}", socket.display())).map_err(failed)?;
    Ok(endpoint.http2_max_header_list_size(LARGEST_HEADERS).connect_lazy())
}

/// The largest headers that are read, among them the message of an error: as much as gRPC clients in other languages read.
const LARGEST_HEADERS: u32 = 16 << 20;

/// A request with a time limit for its answer.
pub fn within<T>(message: T, limit: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(limit);
    request
}

/// Whether a path is a socket without a listener.
pub fn is_abandoned(path: &Path) -> bool {
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
        && StdStream::connect(path).err().is_some_and(refused)
}

/// Listens at a path and replaces an abandoned socket there.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    UnixListener::bind(path)
}

/// Listens at a path in place of another process, so that at no moment there is no listener.
fn replace(path: &Path) -> io::Result<UnixListener> {
    let beside = path.with_extension(format!("{}.sock", std::process::id()));
    let listener = listen(&beside)?;
    fs::rename(&beside, path).inspect_err(|_| drop(fs::remove_file(&beside)))?;
    Ok(listener)
}

fn inode_of(path: &Path) -> io::Result<u64> {
    fs::symlink_metadata(path).map(|found| found.ino())
}

async fn accept(listener: UnixListener, front: Front, leaving: watch::Receiver<bool>) {
    // Connections are in this set, so that aborting the task ends them, too.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => {
                // The caller may have gone before it was accepted.
                let Ok((stream, _)) = accepted else { continue };
                let caller = stream.peer_cred().ok().and_then(|caller| caller.pid()).filter(|pid| *pid > 0);
                let front = TowerToHyperService::new(Front { caller, ..front.clone() });
                let mut leaving = leaving.clone();
                connections.spawn(async move {
                    let mut server = http2::Builder::new(TokioExecutor::new());
                    // Callers decide how much they ask at once, and how often they give up.
                    server.max_concurrent_streams(None).max_pending_accept_reset_streams(usize::MAX);
                    let mut served = pin!(server.serve_connection(TokioIo::new(stream), front));
                    // The end of a connection does not matter: its calls are recorded one by one.
                    tokio::select! {
                        biased;
                        _ = &mut served => return,
                        _ = leaving.wait_for(|leaving| *leaving) => served.as_mut().graceful_shutdown(),
                    }
                    let _ = served.await;
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
