//! Faults that a test orders: calls that fail, wait, hang or kill the driver.
//!
//! They act between the wire and the service. A fault "after" happens when the work is done: the caller must treat
//! the outcome as uncertain.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tonic::body::Body;
use tonic::codegen::http::{HeaderValue, Request, Response};
use tonic::codegen::{BoxFuture, Service};
use tonic::{Code, Status};

use crate::garbage::{Garbage, Noise};
use crate::sabotage::Sabotage;

/// A fault that calls of one method have until it is used up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fault {
    /// The bare name of the method, such as `NodeStageVolume`.
    pub method: String,
    /// Number of calls to let pass first.
    pub skip: u64,
    /// Number of calls that it affects; 0 means all.
    pub times: u64,
    /// Milliseconds to wait before anything else.
    pub delay_ms: u64,
    /// Do the work first, then fail: the caller gets an error for a call that has succeeded.
    pub after: bool,
    /// Number of the gRPC code to answer; absent means the answer of the work.
    pub code: Option<i32>,
    /// The message beside the code.
    pub message: String,
    /// Never answer. The work is done first if `after` is set.
    pub hang: bool,
    /// Kill the driver with `SIGKILL` instead of answering. The work is done first if `after` is set.
    pub crash: bool,
    /// A shell command to run before anything is answered; after the work if `after` is set.
    pub run: String,
    /// Answer this instead of anything that a client can read. The work is done first if `after` is set.
    pub garbage: Option<Garbage>,
}

/// Ordered faults, and counters of calls.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    state: Mutex<State>,
    running: AtomicU64,
    pub(crate) noise: Noise,
}

/// A running call, for the sabotage `deadlocks-in-parallel`.
#[derive(Debug)]
struct Running(Arc<Faults>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct State {
    ordered: Vec<Fault>,
    calls: BTreeMap<String, u64>,
}

impl Faults {
    pub(crate) fn order(&self, fault: Fault) {
        self.lock().ordered.push(fault);
    }

    pub(crate) fn clear(&self) {
        self.lock().ordered.clear();
    }

    pub(crate) fn calls(&self) -> BTreeMap<String, u64> {
        self.lock().calls.clone()
    }

    /// Counts a call and takes its fault.
    fn take(&self, method: &str) -> Option<Fault> {
        let mut state = self.lock();
        *state.calls.entry(method.to_owned()).or_default() += 1;
        let index = state.ordered.iter_mut().position(|fault| {
            let is_due = fault.method == method && fault.skip == 0;
            if fault.method == method {
                fault.skip = fault.skip.saturating_sub(1);
            }
            is_due
        })?;
        let fault = state.ordered[index].clone();
        match fault.times {
            0 => {}
            1 => drop(state.ordered.remove(index)),
            _ => state.ordered[index].times -= 1,
        }
        Some(fault)
    }

    /// With the sabotage, a second call that changes a node waits for ever while a first one runs.
    async fn run(self: &Arc<Self>, method: &str, sabotage: Option<Sabotage>) -> Option<Running> {
        const CHANGING: [&str; 4] =
            ["NodeStageVolume", "NodeUnstageVolume", "NodePublishVolume", "NodeUnpublishVolume"];
        if sabotage != Some(Sabotage::DeadlocksInParallel) || !CHANGING.contains(&method) {
            return None;
        }
        if self.running.fetch_add(1, Ordering::Relaxed) > 0 {
            std::future::pending::<()>().await;
        }
        Some(Running(Arc::clone(self)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A service with faults.
#[derive(Debug, Clone)]
pub(crate) struct Faulty<S> {
    pub(crate) inner: S,
    pub(crate) faults: Arc<Faults>,
    pub(crate) sabotage: Option<Sabotage>,
}

impl<S> Service<Request<Body>> for Faulty<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        tracing::debug!(method, "called");
        let fault = self.faults.take(&method);
        // The service that was polled ready must be the one that is called; its clone stays here.
        let fresh = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, fresh);
        let (faults, sabotage) = (Arc::clone(&self.faults), self.sabotage);
        Box::pin(async move {
            let _running = faults.run(&method, sabotage).await;
            let Some(fault) = fault else {
                return inner.call(request).await.map(|answer| spoil(answer, sabotage));
            };
            tracing::info!(method, ?fault, "meeting an ordered fault");
            tokio::time::sleep(Duration::from_millis(fault.delay_ms)).await;
            if !fault.after {
                run(&fault.run);
            }
            let has_answer = fault.hang || fault.crash || fault.code.is_some() || fault.garbage.is_some();
            let work = (!has_answer || fault.after).then(|| inner.call(request));
            let answer = match work {
                Some(work) => Some(work.await?),
                None => None,
            };
            if fault.after {
                run(&fault.run);
            }
            if let Some(answer) = answer.filter(|_| !has_answer) {
                return Ok(answer);
            }
            Ok(end(&fault, &faults.noise).await)
        })
    }
}

/// Replaces the right code with INTERNAL, or leaves out the message, if that is the sabotage.
fn spoil(mut answer: Response<Body>, sabotage: Option<Sabotage>) -> Response<Body> {
    if sabotage == Some(Sabotage::ErrorsWithoutWords) {
        answer.headers_mut().remove(Status::GRPC_MESSAGE);
    }
    let failed = answer.headers().get(Status::GRPC_STATUS).is_some_and(|code| code != "0");
    if failed && sabotage == Some(Sabotage::ErrorsWithDetails) {
        answer.headers_mut().insert("grpc-status-details-bin", HeaderValue::from_static("CAM"));
    }
    let spoiled = match sabotage {
        Some(Sabotage::WrongCodeForMissingField) => Code::InvalidArgument,
        Some(Sabotage::WrongCodeForUnknownVolume) => Code::NotFound,
        _ => return answer,
    };
    let code = answer.headers().get(Status::GRPC_STATUS).map(|code| Code::from_bytes(code.as_bytes()));
    if code == Some(spoiled) {
        answer.headers_mut().insert(Status::GRPC_STATUS, HeaderValue::from(Code::Internal as i32));
    }
    answer
}

/// Everything waits meanwhile, as for a driver that does it itself.
fn run(command: &str) {
    if !command.is_empty() {
        let ended = std::process::Command::new("sh").args(["-c", command]).status();
        tracing::info!(command, ?ended, "ran what was ordered");
    }
}

async fn end(fault: &Fault, noise: &Noise) -> Response<Body> {
    if fault.crash {
        crate::die();
    }
    if fault.hang {
        std::future::pending::<()>().await;
    }
    if let Some(garbage) = fault.garbage {
        return garbage.answer(noise);
    }
    let code = tonic::Code::from(fault.code.unwrap_or_default());
    Status::new(code, fault.message.clone()).into_http()
}
