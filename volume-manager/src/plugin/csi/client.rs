//! Calls to a driver's node service.
//!
//! A [`Session`] makes the calls of one operation: its capability probe and its main call share one deadline,
//! measured on the manager's clock. [`ClientStyle`] sets how often it connects and probes. Touches nothing but
//! the driver's socket, through the [`Dialer`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::clock::{Clock, Instant};
use api::names::DriverName;
use csi_proto::v1::node_client::NodeClient;
use csi_proto::v1::{self, node_service_capability};
use futures::future::BoxFuture;
use plugin_api::{ClientStyle, Connection, Dialer, RegisteredDriver};
use tonic::{Request, Response, Status};

use super::pod_info;
use super::status::CallError;

pub(crate) use csi_proto::v1::node_service_capability::rpc::Type as Capability;

/// The connection parameters of a session.
#[derive(Debug, Clone)]
pub(crate) struct Lines {
    pub(crate) dialer: Arc<dyn Dialer>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) style: ClientStyle,
    /// The time for all calls of a session together.
    pub(crate) deadline: Duration,
}

/// Connections and capabilities that the lean style remembers, by driver and registration.
#[derive(Debug, Default)]
pub(crate) struct Memories(Mutex<BTreeMap<DriverName, (u64, Arc<Memory>)>>);

impl Memories {
    /// The memory of this instance of the driver; that of an earlier instance is dropped.
    pub(crate) fn of(&self, name: &DriverName, driver: &RegisteredDriver) -> Arc<Memory> {
        let mut memories = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match memories.get(name) {
            Some((instance, memory)) if *instance == driver.instance => Arc::clone(memory),
            _ => {
                let memory = Arc::new(Memory::default());
                memories.insert(name.clone(), (driver.instance, Arc::clone(&memory)));
                memory
            }
        }
    }
}

/// The memory of one instance of a driver.
#[derive(Default)]
pub(crate) struct Memory(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    connection: Option<Connection>,
    capabilities: Option<Capabilities>,
    /// The calls under way on the connection, and the most that were.
    calls: usize,
    most_calls: usize,
}

/// A connection that has carried more calls at once than this is closed when the last of them has ended: its buffers stay as
/// large as that burst needed them, hundreds of bytes for each call.
const BURST: usize = 64;

type Capabilities = Arc<BTreeSet<i32>>;

impl Memory {
    /// The lock is never held across an await.
    fn open(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call under way on the connection of a memory.
struct UnderWay<'a>(&'a Memory);

impl<'a> UnderWay<'a> {
    fn begin(memory: &'a Memory) -> Self {
        let mut remembered = memory.open();
        remembered.calls += 1;
        remembered.most_calls = remembered.most_calls.max(remembered.calls);
        Self(memory)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut remembered = self.0.open();
        remembered.calls -= 1;
        if remembered.calls == 0 && std::mem::take(&mut remembered.most_calls) > BURST {
            remembered.connection = None;
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

/// The calls of one operation to one driver.
#[derive(Debug)]
pub(crate) struct Session {
    endpoint: PathBuf,
    memory: Arc<Memory>,
    lines: Lines,
    deadline: Instant,
}

impl Session {
    /// Starts a session; the deadline of all its calls counts from now.
    pub(crate) fn new(endpoint: impl Into<PathBuf>, memory: Arc<Memory>, lines: Lines) -> Self {
        let deadline = lines.clock.now() + lines.deadline;
        Self { endpoint: endpoint.into(), memory, lines, deadline }
    }

    /// Whether the driver's node service reports `capability`.
    ///
    /// The kubelet asks every time, and so does the style named after it. The lean style asks once per
    /// registration, and again after it has lost the connection.
    pub(crate) async fn has(&self, capability: Capability) -> Result<bool, CallError> {
        let known = match self.lines.style {
            ClientStyle::Kubelet => None,
            ClientStyle::Lean => self.memory.open().capabilities.clone(),
        };
        let capabilities = match known {
            Some(capabilities) => capabilities,
            None => self.ask_capabilities().await?,
        };
        Ok(capabilities.contains(&(capability as i32)))
    }

    async fn ask_capabilities(&self) -> Result<Capabilities, CallError> {
        let request = v1::NodeGetCapabilitiesRequest {};
        let answer = self
            .call("NodeGetCapabilities", request, &[], |mut client, request| {
                Box::pin(async move { client.node_get_capabilities(request).await })
            })
            .await?;
        let rpcs = answer.capabilities.into_iter().filter_map(|capability| match capability.r#type? {
            node_service_capability::Type::Rpc(rpc) => Some(rpc.r#type),
        });
        let capabilities = Arc::new(rpcs.collect::<BTreeSet<_>>());
        if self.lines.style == ClientStyle::Lean {
            self.memory.open().capabilities = Some(Arc::clone(&capabilities));
        }
        Ok(capabilities)
    }

    /// The driver's answer about this node.
    pub(crate) async fn info(&self) -> Result<v1::NodeGetInfoResponse, CallError> {
        self.call("NodeGetInfo", v1::NodeGetInfoRequest {}, &[], |mut client, request| {
            Box::pin(async move { client.node_get_info(request).await })
        })
        .await
    }

    pub(crate) async fn stage(&self, request: v1::NodeStageVolumeRequest) -> Result<(), CallError> {
        let secrets: Vec<String> = request.secrets.values().cloned().collect();
        self.call("NodeStageVolume", request, &secrets, |mut client, request| {
            Box::pin(async move { client.node_stage_volume(request).await })
        })
        .await
        .map(drop)
    }

    pub(crate) async fn unstage(&self, request: v1::NodeUnstageVolumeRequest) -> Result<(), CallError> {
        self.call("NodeUnstageVolume", request, &[], |mut client, request| {
            Box::pin(async move { client.node_unstage_volume(request).await })
        })
        .await
        .map(drop)
    }

    pub(crate) async fn publish(&self, request: v1::NodePublishVolumeRequest) -> Result<(), CallError> {
        let mut secrets: Vec<String> = request.secrets.values().cloned().collect();
        // Tokens are in the volume context unless the driver wants them among the secrets.
        for given in [&request.volume_context, &request.secrets] {
            let Some(tokens) = given.get(pod_info::TOKENS_KEY) else { continue };
            secrets.push(tokens.clone());
            secrets.extend(pod_info::each_token(tokens));
        }
        self.call("NodePublishVolume", request, &secrets, |mut client, request| {
            Box::pin(async move { client.node_publish_volume(request).await })
        })
        .await
        .map(drop)
    }

    pub(crate) async fn unpublish(&self, request: v1::NodeUnpublishVolumeRequest) -> Result<(), CallError> {
        self.call("NodeUnpublishVolume", request, &[], |mut client, request| {
            Box::pin(async move { client.node_unpublish_volume(request).await })
        })
        .await
        .map(drop)
    }

    pub(crate) async fn expand(&self, request: v1::NodeExpandVolumeRequest) -> Result<(), CallError> {
        let secrets: Vec<String> = request.secrets.values().cloned().collect();
        self.call("NodeExpandVolume", request, &secrets, |mut client, request| {
            Box::pin(async move { client.node_expand_volume(request).await })
        })
        .await
        .map(drop)
    }

    pub(crate) async fn stats(
        &self,
        request: v1::NodeGetVolumeStatsRequest,
    ) -> Result<v1::NodeGetVolumeStatsResponse, CallError> {
        self.call("NodeGetVolumeStats", request, &[], |mut client, request| {
            Box::pin(async move { client.node_get_volume_stats(request).await })
        })
        .await
    }

    /// Makes one call within the rest of the deadline.
    async fn call<Q, R>(
        &self,
        method: &'static str,
        message: Q,
        secrets: &[String],
        send: impl FnOnce(NodeClient<Connection>, Request<Q>) -> BoxFuture<'static, Result<Response<R>, Status>>,
    ) -> Result<R, CallError> {
        let _under_way = UnderWay::begin(&self.memory);
        let exchange = async {
            let connection = self.connection(method).await?;
            let mut request = Request::new(message);
            // The timeout is sent to the driver; the wait itself is ended by the manager's clock, below.
            request.set_timeout(self.deadline.saturating_duration_since(self.lines.clock.now()));
            let answer = send(NodeClient::new(connection), request).await;
            answer
                .map(Response::into_inner)
                .map_err(|status| CallError::new(method, &status, secrets.iter().map(String::as_str)))
        };
        let outcome = tokio::select! {
            biased;
            outcome = exchange => outcome,
            () = self.lines.clock.sleep_until(self.deadline) => Err(CallError::deadline(method)),
        };
        if outcome.as_ref().is_err_and(CallError::lost_the_driver) {
            let mut remembered = self.memory.open();
            (remembered.connection, remembered.capabilities) = (None, None);
        }
        outcome
    }

    async fn connection(&self, method: &'static str) -> Result<Connection, CallError> {
        if self.lines.style == ClientStyle::Lean
            && let Some(kept) = self.memory.open().connection.clone().filter(|kept| !kept.is_closed())
        {
            return Ok(kept);
        }
        let endpoint: &Path = &self.endpoint;
        let dialled = self.lines.dialer.dial(endpoint).await;
        let connection = dialled.map_err(|error| CallError::unreachable(method, endpoint, &error))?;
        if self.lines.style == ClientStyle::Lean {
            self.memory.open().connection = Some(connection.clone());
        }
        Ok(connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connection_of_a_burst_is_closed_after_its_last_call() {
        let memory = Memory::default();
        let (ours, _theirs) = tokio::io::duplex(1 << 10);
        memory.open().connection = Some(Connection::over(ours).await.unwrap());
        let calls = |many| (0..many).map(|_| UnderWay::begin(&memory)).collect::<Vec<_>>();
        drop(calls(BURST));
        assert!(memory.open().connection.is_some());
        let mut burst = calls(BURST + 1);
        burst.truncate(1);
        assert!(memory.open().connection.is_some());
        drop(burst);
        assert!(memory.open().connection.is_none());
    }
}
