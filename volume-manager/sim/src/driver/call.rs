//! One call to the simulated driver.

use std::time::Duration;

use contracts::event::{Actor, Event, RpcEnd, RpcStart};
use prost::Message;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::{Code, Response, Status};

use super::SimulatedDriver;
use super::fate::Fate;
use crate::crash::Life;
use crate::script::CrashPoint;

impl SimulatedDriver {
    /// A call of the manager, which may crash before or after it.
    pub(super) async fn node_call<Q, R>(
        &self,
        method: &'static str,
        request: Q,
        work: impl FnOnce(&Self, &Q) -> Result<R, Status> + Send + 'static,
    ) -> Result<Response<R>, Status>
    where
        Q: Message + 'static,
        R: Message + Default + 'static,
    {
        match self.crash.reach(CrashPoint::Call) {
            Life::GoesOn => self.call(method, request, work).await,
            Life::Ended => std::future::pending().await,
            Life::EndsAfter => {
                // The caller has crashed, so the answer does not matter.
                let _ = self.call(method, request, work).await;
                self.crash.happens();
                std::future::pending().await
            }
        }
    }

    /// A call of a controller, which may crash before or after it, with a limit of time.
    pub(super) async fn controller_call<Q, R>(
        &self,
        method: &'static str,
        request: Q,
        limit: Duration,
        work: impl FnOnce(&Self, &Q) -> Result<R, Status> + Send + 'static,
    ) -> Result<R, Status>
    where
        Q: Message + 'static,
        R: Message + Default + 'static,
    {
        let life = self.controllers.reach(CrashPoint::Call);
        if life == Life::Ended {
            return std::future::pending().await;
        }
        let late = |_| Status::deadline_exceeded("context deadline exceeded");
        let call = tokio::time::timeout(limit, self.call(method, request, work));
        let answer = call.await.map_err(late).flatten();
        if life == Life::EndsAfter {
            self.controllers.happens();
            return std::future::pending().await;
        }
        answer.map(Response::into_inner)
    }

    /// A call of any client.
    async fn call<Q, R>(
        &self,
        method: &'static str,
        request: Q,
        work: impl FnOnce(&Self, &Q) -> Result<R, Status> + Send + 'static,
    ) -> Result<Response<R>, Status>
    where
        Q: Message + 'static,
        R: Message + Default + 'static,
    {
        let (id, fate) = {
            let mut inner = self.open();
            inner.calls += 1;
            (inner.calls, inner.fates.next(method))
        };
        let begun = Instant::now();
        let req = csi_proto::json::request(&path(method), &request.encode_to_vec()).unwrap_or(Value::Null);
        let named = ["volumeId", "name", "snapshotId", "groupSnapshotId"].map(|field| req[field].as_str());
        let volume = named.into_iter().flatten().next().unwrap_or_default().to_owned();
        self.trace.record(Event::RpcStart(RpcStart { id, method: method.to_owned(), req, deadline_s: None }));
        // A call that breaks off is recorded as unavailable, which is what its caller sees.
        let mut end = End { driver: self, id, method, begun, recorded: false };
        let answer = match self.is_at_work_on(&volume) {
            true => Err(Status::aborted("an operation on this volume is under way")),
            false => self.meet(fate, volume, move |driver| work(driver, &request)).await,
        };
        self.trace.look_at_mounts(Actor::Driver);
        end.record(answer.as_ref().map(Message::encode_to_vec));
        answer.map(Response::new)
    }

    async fn meet<R: Send + 'static>(
        &self,
        fate: Fate,
        volume: String,
        work: impl FnOnce(&Self) -> Result<R, Status> + Send + 'static,
    ) -> Result<R, Status> {
        match fate {
            Fate::Work => work(self),
            Fate::Stall(time) => {
                tokio::time::sleep(time).await;
                work(self)
            }
            Fate::Late(time) => {
                let late = self.late(volume, time, work);
                late.await.unwrap_or_else(|_| Err(Status::unavailable("the driver has died")))
            }
            Fate::FailBefore(code) => Err(Status::new(code, "as ordered")),
            Fate::FailAfter(code) => {
                work(self)?;
                Err(Status::new(code, "as ordered, after the work"))
            }
            Fate::HangBefore => std::future::pending().await,
            Fate::HangAfter => {
                work(self)?;
                self.trace.look_at_mounts(Actor::Driver);
                std::future::pending().await
            }
        }
    }

    /// Does the work of a call even if its caller has gone, unless the driver dies first. Until it is done,
    /// other calls on the volume get ABORTED.
    fn late<R: Send + 'static>(
        &self,
        volume: String,
        time: Duration,
        work: impl FnOnce(&Self) -> Result<R, Status> + Send + 'static,
    ) -> JoinHandle<Result<R, Status>> {
        let driver = self.clone();
        self.open().at_work.insert(volume.clone());
        let task = tokio::spawn(async move {
            tokio::time::sleep(time).await;
            let done = work(&driver);
            driver.open().at_work.remove(&volume);
            driver.trace.look_at_mounts(Actor::Driver);
            done
        });
        self.open().tasks.push(task.abort_handle());
        task
    }

    fn is_at_work_on(&self, volume: &str) -> bool {
        !volume.is_empty() && self.open().at_work.contains(volume)
    }
}

/// The end of a call, recorded once, even if the call is dropped.
struct End<'a> {
    driver: &'a SimulatedDriver,
    id: u64,
    method: &'static str,
    begun: Instant,
    recorded: bool,
}

impl End<'_> {
    fn record(&mut self, answer: Result<Vec<u8>, &Status>) {
        self.recorded = true;
        let (code, message, resp) = match answer {
            Ok(bytes) => {
                let resp = csi_proto::json::response(&path(self.method), &bytes).unwrap_or(Value::Null);
                ("OK".to_owned(), String::new(), resp)
            }
            Err(status) => (code_name(status.code()), status.message().to_owned(), Value::Null),
        };
        self.driver.trace.record(Event::RpcEnd(RpcEnd {
            id: self.id,
            method: self.method.to_owned(),
            code,
            message,
            dur_ms: self.begun.elapsed().as_secs_f64() * 1000.0,
            resp,
            injected: None,
            abandoned: false,
            unreadable: None,
        }));
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        if !self.recorded {
            self.driver.trace.look_at_mounts(Actor::Driver);
            self.record(Err(&Status::unavailable("broken off")));
        }
    }
}

/// A code in the spelling of Go, as in traces.
fn code_name(code: Code) -> String {
    match code {
        Code::Cancelled => "Canceled".to_owned(),
        Code::Ok => "OK".to_owned(),
        other => format!("{other:?}"),
    }
}

/// The method's path on the wire.
fn path(method: &str) -> String {
    let service = match () {
        () if method.starts_with("Node") => "Node",
        () if method.contains("GroupSnapshot") => "GroupController",
        () => "Controller",
    };
    format!("/csi.v1.{service}/{method}")
}
