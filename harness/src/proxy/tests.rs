//! Calls through a real proxy over real sockets, to a driver with scripted answers.

use std::sync::Mutex;
use std::time::Duration;

use api::clock::{Clock as _, TokioClock};
use contracts::event::{Event, Unreadable};
use csi_proto::v1;
use csi_proto::v1::node_client::NodeClient;
use csi_proto::v1::node_server::{Node, NodeServer};
use h2::Reason;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::codegen::http;
use tonic::{Code, Request, Response, Status};

use super::*;
use crate::Layout;
use crate::symbols::Symbols;

/// A driver that counts its calls.
#[derive(Default)]
struct Driver {
    calls: Arc<Mutex<Vec<String>>>,
}

/// A driver that implements NodeStageVolume, and NodeGetInfo with an answer that is too large.
macro_rules! only_stages {
    ($($name:ident($request:ident) -> $response:ident;)*) => {
        #[tonic::async_trait]
        impl Node for Driver {
            async fn node_stage_volume(
                &self,
                request: Request<v1::NodeStageVolumeRequest>,
            ) -> Result<Response<v1::NodeStageVolumeResponse>, Status> {
                self.stage(request.into_inner().volume_id).await
            }

            async fn node_get_info(
                &self,
                _: Request<v1::NodeGetInfoRequest>,
            ) -> Result<Response<v1::NodeGetInfoResponse>, Status> {
                Ok(Response::new(v1::NodeGetInfoResponse { node_id: "n".repeat(5 << 20), ..Default::default() }))
            }

            $(async fn $name(&self, _: Request<v1::$request>) -> Result<Response<v1::$response>, Status> {
                Err(Status::unimplemented(stringify!($name)))
            })*
        }
    };
}

only_stages! {
    node_unstage_volume(NodeUnstageVolumeRequest) -> NodeUnstageVolumeResponse;
    node_publish_volume(NodePublishVolumeRequest) -> NodePublishVolumeResponse;
    node_unpublish_volume(NodeUnpublishVolumeRequest) -> NodeUnpublishVolumeResponse;
    node_get_volume_stats(NodeGetVolumeStatsRequest) -> NodeGetVolumeStatsResponse;
    node_expand_volume(NodeExpandVolumeRequest) -> NodeExpandVolumeResponse;
    node_get_capabilities(NodeGetCapabilitiesRequest) -> NodeGetCapabilitiesResponse;
}

impl Driver {
    async fn stage(&self, volume: String) -> Result<Response<v1::NodeStageVolumeResponse>, Status> {
        self.calls.lock().unwrap().push(volume.clone());
        match volume.as_str() {
            "broken" => Err(Status::failed_precondition("it is broken")),
            "talkative" => Err(Status::failed_precondition("it is broken. ".repeat(5000))),
            "slow" => std::future::pending().await,
            _ => Ok(Response::new(v1::NodeStageVolumeResponse {})),
        }
    }
}

struct Stage {
    _directory: tempfile::TempDir,
    journal: Journal,
    proxy: Proxy,
    calls: Arc<Mutex<Vec<String>>>,
    client: NodeClient<Channel>,
}

fn stage() -> Stage {
    let served = Driver::default();
    let calls = Arc::clone(&served.calls);
    let server = tonic::transport::Server::builder().add_service(NodeServer::new(served));
    let stage = stage_with(|listener| {
        tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
    });
    Stage { calls, ..stage }
}

/// A stage with another driver.
fn stage_with(serve: impl FnOnce(UnixListener)) -> Stage {
    let directory = tempfile::tempdir().unwrap();
    let driver = directory.path().join("driver.sock");
    serve(UnixListener::bind(&driver).unwrap());
    let journal = Journal::new(Symbols::new(Layout::standard()), None);
    let options = ProxyOptions {
        listen: directory.path().join("csi.sock"),
        driver,
        controller: None,
        ledger: None,
        replaces: false,
    };
    let proxy = Proxy::serve(options, journal.clone()).unwrap();
    let client = NodeClient::new(proxy.channel().unwrap());
    Stage { _directory: directory, journal, proxy, calls: Arc::default(), client }
}

impl Stage {
    async fn call(&mut self, volume: &str) -> Result<(), Status> {
        self.client.node_stage_volume(request(volume)).await.map(|_| ())
    }

    fn ends(&self) -> Vec<(String, String)> {
        let end = |event: Event| match event {
            Event::RpcEnd(end) => Some((end.code, end.injected.unwrap_or_default())),
            _ => None,
        };
        self.journal.trace().into_iter().filter_map(|line| end(line.event)).collect()
    }

    fn reached(&self) -> usize {
        self.calls.lock().unwrap().len()
    }
}

fn request(volume: &str) -> v1::NodeStageVolumeRequest {
    let secrets = [("password".to_owned(), "hunter2".to_owned())].into();
    v1::NodeStageVolumeRequest { volume_id: volume.to_owned(), secrets, ..Default::default() }
}

#[tokio::test]
async fn a_call_goes_through_and_is_recorded_without_its_secrets() {
    let mut stage = stage();
    stage.call("data").await.unwrap();
    assert_eq!(stage.ends(), [("OK".to_owned(), String::new())]);
    let jsonl = stage.journal.jsonl();
    assert!(jsonl.contains("\"volumeId\":\"data\""), "{jsonl}");
    assert!(jsonl.contains("\"password\":\"***\""), "{jsonl}");
    assert!(!jsonl.contains("hunter2"));
}

#[tokio::test]
async fn error_of_the_driver_goes_through_unchanged() {
    let mut stage = stage();
    let status = stage.call("broken").await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "it is broken"));
    assert_eq!(stage.ends(), [("FailedPrecondition".to_owned(), String::new())]);
}

#[tokio::test]
async fn long_error_of_the_driver_goes_through_unchanged() {
    let mut stage = stage();
    let error = stage.call("talkative").await.unwrap_err();
    assert_eq!((error.code(), error.message().len()), (Code::FailedPrecondition, 70_000));
}

/// A driver that answers NOT_FOUND. It has not begun with its first call: it refuses that, or closes the connection.
async fn hesitate(listener: UnixListener, refuses: bool) {
    let mut is_first = true;
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        if is_first && !refuses {
            connection.abrupt_shutdown(Reason::NO_ERROR);
        }
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            if is_first && refuses {
                respond.send_reset(Reason::REFUSED_STREAM);
            } else {
                let answer = http::Response::builder().header("grpc-status", "5").body(()).unwrap();
                respond.send_response(answer, true).unwrap();
            }
            is_first = false;
        }
        is_first = false;
    }
}

#[tokio::test]
async fn call_that_the_driver_has_not_begun_with_is_made_again() {
    for refuses in [true, false] {
        let mut stage = stage_with(|listener| drop(tokio::spawn(hesitate(listener, refuses))));
        assert_eq!(stage.call("data").await.unwrap_err().code(), Code::NotFound, "{refuses}");
    }
}

#[tokio::test]
async fn dismissed_callers_connect_again_and_calls_under_way_are_answered() {
    let mut stage = stage();
    let gate = stage.proxy.hold("NodeStageVolume");
    let mut client = stage.client.clone();
    let held = tokio::spawn(async move { client.node_stage_volume(request("data")).await.map(|_| ()) });
    gate.reached().await;
    assert!(stage.proxy.has_callers());
    stage.proxy.dismiss();
    gate.open();
    held.await.unwrap().unwrap();
    while stage.proxy.has_callers() {
        TokioClock.sleep(Duration::from_millis(5)).await;
    }
    stage.call("more").await.unwrap();
    assert_eq!(stage.reached(), 2);
}

#[tokio::test]
async fn injected_code_replaces_the_answer_the_given_number_of_times() {
    let mut stage = stage();
    stage.proxy.inject(Rule::of("NodeStageVolume").code("Internal").times(2));
    assert_eq!(stage.call("data").await.unwrap_err().code(), Code::Internal);
    assert_eq!(stage.call("data").await.unwrap_err().message(), "injected");
    assert_eq!(stage.reached(), 0);
    stage.call("data").await.unwrap();
    assert_eq!(stage.reached(), 1);
    let rule = "code=Internal delay=0 after=0 forward=false hang=false";
    assert_eq!(stage.ends()[0], ("Internal".to_owned(), rule.to_owned()));
}

#[tokio::test]
async fn an_answer_can_be_lost_after_the_driver_has_done_its_work() {
    let mut stage = stage();
    stage.proxy.inject(Rule::of("NodeStageVolume").code("Unavailable").forward().times(1));
    assert_eq!(stage.call("data").await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(stage.reached(), 1);
}

#[tokio::test]
async fn a_request_can_reach_the_driver_twice() {
    let mut stage = stage();
    stage.proxy.inject(Rule { duplicate: true, ..Rule::of("NodeStageVolume") });
    stage.call("data").await.unwrap();
    assert_eq!(stage.reached(), 2);
    stage.call("broken").await.unwrap_err();
    let first: Vec<bool> =
        stage.ends().iter().map(|(_, rule)| rule.ends_with(" first=FailedPrecondition")).collect();
    assert_eq!(first, [false, true]);
}

#[tokio::test]
async fn a_rule_can_be_for_one_volume() {
    let mut stage = stage();
    stage.journal.symbols().name_volume("mine", "pv-mine", "handle-mine");
    let rule = Rule { volume: Some("mine".into()), ..Rule::of("NodeStageVolume").code("Internal") };
    stage.proxy.inject(rule);
    stage.call("data").await.unwrap();
    assert_eq!(stage.call("handle-mine").await.unwrap_err().code(), Code::Internal);
}

#[tokio::test]
async fn a_held_answer_waits_for_its_gate() {
    let stage = stage();
    let gate = stage.proxy.hold("NodeStageVolume");
    let mut client = stage.client.clone();
    let calling = tokio::spawn(async move { client.node_stage_volume(request("data")).await });
    gate.reached().await;
    assert_eq!(stage.reached(), 1);
    assert!(!calling.is_finished());
    assert_eq!(stage.journal.in_flight().len(), 1);
    gate.open();
    calling.await.unwrap().unwrap();
}

#[tokio::test]
async fn call_ends_when_its_caller_goes_away() {
    let mut stage = stage();
    let mut slow = Request::new(request("slow"));
    slow.set_timeout(Duration::from_millis(50));
    stage.client.node_stage_volume(slow).await.unwrap_err();
    let ended = stage.journal.wait(Duration::from_secs(10), |journal| journal.in_flight().is_empty()).await;
    assert!(ended);
    let [(code, _)] = stage.ends().try_into().unwrap();
    assert!(["DeadlineExceeded", "Canceled"].contains(&code.as_str()), "{code}");
}

#[tokio::test]
async fn call_to_an_absent_driver_is_unavailable_until_the_driver_listens() {
    let directory = tempfile::tempdir().unwrap();
    let driver = directory.path().join("driver.sock");
    let journal = Journal::new(Symbols::new(Layout::standard()), None);
    let listen = directory.path().join("csi.sock");
    let options =
        ProxyOptions { listen, driver: driver.clone(), controller: None, ledger: None, replaces: false };
    let proxy = Proxy::serve(options, journal).unwrap();
    let mut client = NodeClient::new(proxy.channel().unwrap());
    let status = client.node_stage_volume(request("data")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.message().contains("No such file"), "{status:?}");

    let listener = UnixListener::bind(&driver).unwrap();
    let server = tonic::transport::Server::builder().add_service(NodeServer::new(Driver::default()));
    tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
    client.node_stage_volume(request("data")).await.unwrap();
}

#[test]
fn rule_with_a_misspelt_code_or_method_is_refused() {
    let wrong = Rule::of("NodeStageVolume").code("Unavailible").check().unwrap_err();
    assert_eq!(wrong, RuleError::Code { code: "Unavailible".into(), nearest: Some("Unavailable") });
    assert!(matches!(Rule::of("NodeStageVolum").check(), Err(RuleError::Method { .. })));
    let rule: Rule =
        serde_json::from_str(r#"{"method":"NodeStageVolume","delayMs":3000,"times":1}"#).unwrap();
    assert_eq!((rule.delay_ms, rule.times), (3000, Some(1)));
}

#[tokio::test]
async fn answer_of_more_than_four_mebibytes_is_refused() {
    let mut stage = stage();
    let refused = stage.client.node_get_info(v1::NodeGetInfoRequest {}).await.unwrap_err();
    assert_eq!(unreadable(&refused), Some(Unreadable::TooLarge), "{refused:?}");
    assert!(refused.message().ends_with(" bytes"), "{}", refused.message());
}

#[tokio::test]
async fn call_after_a_shut_edge_waits() {
    let mut stage = stage();
    stage.proxy.shut_at("NodeStageVolume", Edge::End, 1);
    stage.call("first").await.unwrap();
    let begin = |volume: &'static str| {
        let mut client = stage.client.clone();
        tokio::spawn(async move { client.node_stage_volume(request(volume)).await.map(drop) })
    };
    let started = async |count| {
        let within = Duration::from_secs(20);
        assert!(stage.journal.wait_rpc("NodeStageVolume", Edge::Start, count, within).await);
    };
    let second = begin("second");
    started(2).await;
    assert_eq!(*stage.calls.lock().unwrap(), ["first"]);
    stage.proxy.let_in();
    stage.proxy.shut_at("NodeStageVolume", Edge::Start, 3);
    let third = begin("third");
    started(3).await;
    stage.proxy.let_in();
    third.await.unwrap().unwrap();
    // `let_in` passes the call that is held at the edge, and not the second call, which came after it was shut.
    assert_eq!(*stage.calls.lock().unwrap(), ["first", "third"]);
    stage.proxy.open();
    second.await.unwrap().unwrap();
    assert_eq!(*stage.calls.lock().unwrap(), ["first", "third", "second"]);
}

/// A field that rules read and that CSI does not have would read as empty for ever.
#[test]
fn each_field_that_rules_read_is_one_of_csi() {
    for (message, field) in contracts::csi::FIELDS.iter().chain(contracts::csi::ANSWERED_FIELDS) {
        let name = format!("csi.v1.{message}");
        let message = csi_proto::descriptor::pool().get_message_by_name(&name);
        let message = message.unwrap_or_else(|| panic!("no message {name}"));
        assert!(message.get_field_by_json_name(field).is_some(), "{name} has no {field}");
    }
}
