//! The API over HTTP, for a driver with a client of Kubernetes: the same objects as the node and the controllers see,
//! and objects of other kinds that a client keeps there. Listens on the loopback address, in a thread of its own, so
//! that a client that floods it takes no time from the case.
//!
//! Answers are JSON, which all clients read; bodies may be protobuf, too. HTTP and HTTPS are served at one port: a
//! client in a pod insists on the latter. There are no roles: a client that has the token may do everything.

mod answering;
mod discovery;
mod document;
mod objects;
mod patch;
mod protobuf;
mod refusal;
mod resource;
mod selector;
mod serving;
mod target;
mod tls;
mod watching;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use contracts::event::{Client, Verb};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::ApiServer;
use crate::yaml;
use objects::Objects;
use resource::Resource;
use tls::Tls;

/// The version of Kubernetes whose API this is.
const VERSION: &str = "v1.34.0";

/// Why the API cannot be served to a driver.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpApiError {
    #[error("cannot listen on the loopback address")]
    Listen(#[source] io::Error),
    #[error("cannot make a certificate")]
    Certificate(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("cannot read `{path}`")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot use `{path}`: {why}")]
    Object { path: PathBuf, why: String },
}

/// The store, as the threads that serve it have it.
#[derive(Debug, Clone)]
struct Shared {
    api: ApiServer,
    token: Arc<str>,
}

impl Shared {
    /// On behalf of the driver.
    fn with<T>(&self, act: impl FnOnce(Objects<'_>) -> T) -> T {
        act(Objects { store: &mut self.api.store(), by: Client::Driver })
    }

    /// On behalf of the case, which has made the cluster.
    fn set_up<T>(&self, act: impl FnOnce(Objects<'_>) -> T) -> T {
        act(Objects { store: &mut self.api.store(), by: Client::Case })
    }
}

/// A served API. Dropping it ends all connections.
#[derive(Debug)]
pub struct HttpApi {
    shared: Shared,
    address: SocketAddr,
    /// The certificate that vouches for the server.
    authority: Arc<str>,
    namespace: String,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The namespaces of every cluster.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

impl HttpApi {
    /// Serves an API to a driver that lives in `namespace`, on a port that nothing else has.
    ///
    /// # Errors
    /// When there is no loopback address to listen on.
    pub fn serve(api: &ApiServer, namespace: &str) -> Result<Self, HttpApiError> {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).map_err(HttpApiError::Listen)?;
        listener.set_nonblocking(true).map_err(HttpApiError::Listen)?;
        let address = listener.local_addr().map_err(HttpApiError::Listen)?;
        let token = {
            let mut store = api.store();
            let version = store.version();
            store.log.keep(version);
            let account = format!("{namespace}:driver");
            store.give_out(format!("token-driver-{:016x}", random()), account, None).token.reveal().clone()
        };
        let shared = Shared { api: api.clone(), token: token.into() };
        for name in NAMESPACES.into_iter().chain([namespace]) {
            shared.add_namespace(name);
        }
        let (end, ended) = oneshot::channel();
        let served = shared.clone();
        let tls = Tls::new().map_err(HttpApiError::Certificate)?;
        let authority = Arc::clone(&tls.authority);
        let thread = std::thread::Builder::new().name("kube-api".to_owned());
        let thread = thread.spawn(move || serving::serve(listener, &served, &tls, ended));
        let thread = Some(thread.map_err(HttpApiError::Listen)?);
        Ok(Self { shared, address, authority, namespace: namespace.to_owned(), end: Some(end), thread })
    }

    /// The address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The token that clients have to show.
    pub fn token(&self) -> &str {
        &self.shared.token
    }

    /// The files of the service account that a client in a pod looks for, by their names.
    pub fn service_account(&self) -> [(&'static str, &str); 3] {
        [("ca.crt", &self.authority), ("namespace", &self.namespace), ("token", self.token())]
    }

    /// The variables by which a client in a pod finds the server.
    pub fn service_variables(&self) -> [(&'static str, String); 3] {
        let (host, port) = (self.address.ip().to_string(), self.address.port().to_string());
        [
            ("KUBERNETES_SERVICE_HOST", host),
            ("KUBERNETES_SERVICE_PORT", port.clone()),
            ("KUBERNETES_SERVICE_PORT_HTTPS", port),
        ]
    }

    /// A kubeconfig for clients of this server.
    pub fn kubeconfig(&self) -> String {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "volproof", "cluster": { "server": format!("http://{}/{}", self.address, self.token()) } }],
            "users": [{ "name": "driver", "user": { "token": self.token() } }],
            "contexts": [{
                "name": "volproof",
                "context": { "cluster": "volproof", "user": "driver", "namespace": self.namespace },
            }],
            "current-context": "volproof",
        });
        // JSON is YAML as well.
        serde_json::to_string_pretty(&config).expect("text keys only") + "\n"
    }

    /// Makes the objects in a file of manifests, as `kubectl apply` would before the driver is installed.
    ///
    /// # Errors
    /// When the file cannot be read, or an object is refused.
    pub fn add_objects(&self, path: &Path) -> Result<(), HttpApiError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| HttpApiError::Read { path: path.to_owned(), source })?;
        let unusable = |why: String| HttpApiError::Object { path: path.to_owned(), why };
        yaml::check_depth(&text).map_err(|deep| unusable(format!("line {}: {deep}", deep.line)))?;
        for document in serde_yaml_ng::Deserializer::from_str(yaml::without_mark(&text)) {
            let document: Value =
                serde::Deserialize::deserialize(document).map_err(|error| unusable(error.to_string()))?;
            self.add_document(document).map_err(unusable)?;
        }
        Ok(())
    }

    fn add_document(&self, document: Value) -> Result<(), String> {
        if document.is_null() {
            return Ok(());
        }
        if document["kind"] == "List" {
            let items = document["items"].as_array().cloned().unwrap_or_default();
            return items.into_iter().try_for_each(|item| self.add_document(item));
        }
        self.shared.set_up(|mut objects| {
            let (kind, version) = (&document["kind"], &document["apiVersion"]);
            let same = |resource: &Resource| *kind == resource.kind && *version == resource.api_version();
            let resource = objects.resources().into_iter().find(same);
            let resource = resource.ok_or_else(|| format!("there is no {kind} of {version}"))?;
            let namespace = match resource.is_namespaced {
                true => document["metadata"]["namespace"].as_str().unwrap_or(&self.namespace).to_owned(),
                false => String::new(),
            };
            match objects.create(&resource, &namespace, document) {
                // The object exists already, such as the driver's own namespace.
                Err(refused) if refused.reason == "AlreadyExists" => Ok(()),
                created => created.map(drop).map_err(|refused| refused.message),
            }
        })
    }
}

impl Shared {
    fn add_namespace(&self, name: &str) {
        let labels = json!({ "kubernetes.io/metadata.name": name });
        let body = json!({ "metadata": { "name": name, "labels": labels } });
        // Two of the same name are one.
        let _ = self.set_up(|mut objects| {
            let resource = objects::namespaces();
            let made = objects.create(&resource, "", body)?;
            let active = json!({ "metadata": made["metadata"], "status": { "phase": "Active" } });
            objects.replace(&resource, ("", name), true, active, Verb::Update)
        });
    }
}

impl Drop for HttpApi {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened.
            let _ = thread.join();
        }
    }
}

fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests;
