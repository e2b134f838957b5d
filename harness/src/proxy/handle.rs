//! One call through the proxy, from its first byte to its last.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use api::clock::Instant;
use bytes::Bytes;
use contracts::rule::place::Place;
use serde_json::Value;
use tonic::body::Body;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::{Body as HttpBody, Service, http};
use tonic::metadata::MetadataMap;
use tonic::server::{Grpc, UnaryService};
use tonic::{Request, Response, Status};

use super::code::{code_from_name, code_name};
use super::codec::Raw;
use super::difference;
use super::forward::{Upstreams, as_json, deadline, json_or_size};
use super::pause::Pauses;
use super::rule::{Gate, Rule, Rules};
use super::unreadable::unreadable;
use crate::journal::{Journal, Outcome};
use crate::ledger::Ledger;

/// Bytes that are no message of any call.
const GARBLED: &[u8] = b"\xff\xff\xff";

/// The server: it takes calls of every path.
#[derive(Debug, Clone)]
pub(super) struct Front {
    pub(super) journal: Journal,
    pub(super) rules: Arc<Rules>,
    pub(super) pauses: Arc<Pauses>,
    pub(super) upstreams: Arc<Upstreams>,
    /// The ledger for requests with lasting effects, if the driver outlives the run.
    pub(super) ledger: Option<Arc<Ledger>>,
    /// The process at the other end of the connection, if it can be seen from here.
    pub(super) caller: Option<i32>,
}

type Answer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<B> Service<http::Request<B>> for Front
where
    B: HttpBody + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let path = request.uri().path_and_query().cloned();
        let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
        let call = Call { front: self.clone(), path };
        let mut grpc =
            Grpc::new(Raw).max_decoding_message_size(usize::MAX).max_encoding_message_size(usize::MAX);
        Box::pin(async move { Ok(grpc.unary(call, request).await) })
    }
}

/// A call under way.
struct Call {
    front: Front,
    path: PathAndQuery,
}

impl UnaryService<Bytes> for Call {
    type Response = Bytes;
    type Future = Answer<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let (front, path) = (self.front.clone(), self.path.clone());
        Box::pin(async move { front.pass(path, request).await })
    }
}

impl Front {
    /// Remembers the secrets of a request. Returns the request without them.
    pub(super) fn confide(&self, path: &str, message: &[u8]) -> Value {
        let (json, secrets) = csi_proto::json::request_and_secrets(path, message);
        let json = json_or_size(json, message);
        if !secrets.is_empty() {
            let beside = json.to_string();
            secrets.iter().for_each(|(key, secret)| self.journal.masks().confide(key, secret, &beside));
        }
        json
    }

    async fn pass(self, path: PathAndQuery, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        let (metadata, _, message) = request.into_parts();
        let method = path.path().rsplit('/').next().unwrap_or_default();
        let shown = self.confide(path.path(), &message);
        let handle = shown.get("volumeId").and_then(Value::as_str).unwrap_or_default().to_owned();
        let target = ["targetPath", "volumePath"].iter().find_map(|field| shown.get(field)?.as_str());
        let pod = target.and_then(|target| Place::of(target)?.pod()).unwrap_or_default().to_owned();
        let deadline = deadline(&metadata);
        self.journal.called_by(method, self.caller);
        // Recorded first: everything that the driver does for the call comes after this line.
        let call = self.journal.rpc_start(method, shown, deadline);
        let mut record = Record {
            journal: &self.journal,
            pauses: &self.pauses,
            call,
            deadline,
            since: self.pauses.now(),
            rule: None,
        };

        let sprung = self.pauses.spring(&self.journal);
        self.pauses.door(method, sprung).await;
        let message = self.pauses.without_staging(method, message);
        let symbol = self.journal.symbols().volume(&handle);
        let is_pod = |wanted: &str| wanted == pod || wanted == self.journal.symbols().pod(&pod);
        let (rule, gate) = self.rules.take(method, [&handle, &symbol], is_pod).unzip();
        record.rule = rule.as_ref().map(Rule::text);
        let rule = rule.unwrap_or_default();
        let garbled = rule.garbled;
        let (answer, first) = self.spoil(&path, metadata, message, rule, gate.flatten()).await;
        record.rule.iter_mut().for_each(|text| text.push_str(&first.suffix()));
        let answer = answer.map(|answer| self.pauses.without_hidden(method, answer));
        match garbled {
            // Recorded as the caller understands it.
            true => record.end(path.path(), &Err(Status::internal("injected: no message"))),
            false => record.end(path.path(), &answer),
        }
        answer
    }

    /// Applies a rule; a rule without a fault passes the call on. If the rule sends the request twice, also returns how the
    /// two answers differ.
    async fn spoil(
        &self,
        path: &PathAndQuery,
        metadata: MetadataMap,
        message: Bytes,
        rule: Rule,
        gate: Option<Gate>,
    ) -> (Result<Response<Bytes>, Status>, First) {
        self.pauses.pause(rule.delay_ms).await;
        let code = rule.code.as_deref().filter(|code| !code.is_empty());
        let replaced = code.is_some() || rule.hang;
        let mut answer = match replaced && !rule.forward {
            true => Err(Status::unknown("injected")),
            false => self.forward(path, metadata.clone(), message.clone()).await,
        };
        let mut compared = First::Same;
        if rule.duplicate {
            let first = std::mem::replace(&mut answer, self.forward(path, metadata, message).await);
            let said = |answer: &Response<Bytes>| as_json(path.path(), answer);
            compared = match (first, &answer) {
                (Err(status), _) => First::Failed(status.code()),
                (Ok(first), Ok(second)) => match difference::describe(&said(&first), &said(second)) {
                    same if same.is_empty() => First::Same,
                    differs => First::Differs(differs),
                },
                _ => First::Same,
            };
        }
        if let Some(gate) = gate {
            gate.pass(answer.as_ref().map_or_else(Status::code, |_| tonic::Code::Ok)).await;
        }
        if rule.hang {
            self.pauses.hang().await;
        }
        self.pauses.pause(rule.after_ms).await;
        let answer = match code {
            _ if rule.garbled => Ok(Response::new(Bytes::from_static(GARBLED))),
            Some("OK") => answer.or_else(|_| Ok(Response::new(Bytes::new()))),
            Some(code) => {
                let code = code_from_name(code).unwrap_or(tonic::Code::Unknown);
                Err(Status::new(code, "injected"))
            }
            None => answer,
        };
        (answer, compared)
    }
}

/// The first answer to a request that was sent twice, beside the second.
enum First {
    Same,
    /// Both answers were OK and differ in these fields.
    Differs(String),
    Failed(tonic::Code),
}

impl First {
    /// The text behind the rule in a trace.
    fn suffix(&self) -> String {
        match self {
            First::Same => String::new(),
            First::Differs(fields) => format!(" answers=differ in {fields}"),
            First::Failed(code) => format!(" first={}", code_name(*code)),
        }
    }
}

impl Front {
    /// Passes a call on. What it leaves to be undone is in the ledger before the driver sees it.
    pub(super) async fn forward(
        &self,
        path: &PathAndQuery,
        metadata: MetadataMap,
        message: Bytes,
    ) -> Result<Response<Bytes>, Status> {
        let Some(ledger) = &self.ledger else { return self.upstreams.call(path, metadata, message).await };
        let method = path.path().rsplit('/').next().unwrap_or_default();
        let request = json_or_size(csi_proto::json::request(path.path(), &message), &message);
        ledger.before_call(method, &request, &message);
        let answer = self.upstreams.call(path, metadata, message).await;
        let response = |answer: &Response<Bytes>| as_json(path.path(), answer);
        let recorded = answer.as_ref().map(response).map_err(is_final);
        ledger.after_call(method, &request, recorded.as_ref().map_err(|is_final| *is_final));
        answer
    }
}

/// Whether an error is final: the driver has not done the work and will not do it.
fn is_final(status: &Status) -> bool {
    use tonic::Code;
    // An unreadable answer does not say whether the work is done.
    let is_read = unreadable(status).is_none();
    is_read
        && matches!(
            status.code(),
            Code::InvalidArgument
                | Code::NotFound
                | Code::AlreadyExists
                | Code::PermissionDenied
                | Code::ResourceExhausted
                | Code::FailedPrecondition
                | Code::OutOfRange
                | Code::Unimplemented
                | Code::Unauthenticated
        )
}

/// Ends the call in the journal, also when its caller goes away and this is dropped.
struct Record<'a> {
    journal: &'a Journal,
    pauses: &'a Pauses,
    call: u64,
    deadline: Option<Duration>,
    since: Instant,
    rule: Option<String>,
}

impl Record<'_> {
    fn end(mut self, path: &str, answer: &Result<Response<Bytes>, Status>) {
        let injected = self.rule.take();
        let outcome = match answer {
            Ok(response) => {
                let resp = as_json(path, response);
                Outcome { code: "OK".to_owned(), resp, injected, ..Outcome::default() }
            }
            Err(status) => Outcome {
                code: code_name(status.code()).to_owned(),
                message: status.message().to_owned(),
                injected,
                unreadable: unreadable(status),
                // With a deadline over, or the connection lost, the driver may go on with its work.
                abandoned: matches!(
                    status.code(),
                    tonic::Code::DeadlineExceeded | tonic::Code::Cancelled | tonic::Code::Unavailable
                ),
                ..Outcome::default()
            },
        };
        self.journal.rpc_end(self.call, outcome);
        // Before the caller gets the answer, so that it makes no further call in between.
        self.pauses.spring(self.journal);
        // Ended: dropping it reports nothing any more.
        self.call = 0;
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        if self.call == 0 {
            return;
        }
        let over =
            self.deadline.is_some_and(|deadline| self.pauses.now() - self.since + ON_THE_WAY >= deadline);
        let (code, message) = match over {
            true => ("DeadlineExceeded", "the caller's time was over"),
            false => ("Canceled", "the caller went away"),
        };
        let outcome = Outcome {
            code: code.to_owned(),
            message: message.to_owned(),
            injected: self.rule.take(),
            abandoned: true,
            ..Outcome::default()
        };
        self.journal.rpc_end(self.call, outcome);
        self.pauses.spring(self.journal);
    }
}

/// The time by which a caller's clock may have started earlier than this one.
const ON_THE_WAY: Duration = Duration::from_millis(20);
