//! Registration of drivers: what is written for a valid one, the refusal of an invalid one, and the removal.

mod again;
mod sockets;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use api::{CsiNode, Meta, Node, Resource};
use async_trait::async_trait;
use csi_proto::registration::registration_server::{Registration as RegistrationService, RegistrationServer};
use csi_proto::registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use csi_proto::v1::node_server::NodeServer;
use csi_proto::v1::{NodeGetInfoResponse, Topology};
use plugin_api::{Connection, DialError, Dialer};
use tokio::sync::mpsc;
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status};

use crate::Registration;
use crate::event::Event;
use crate::manager::VolumeManager;
use crate::plugin::csi::registration::{Registrar, RegistrationError};
use crate::plugin::testing::{Bench, DRIVER};
use testing::{ScriptedDriver, pipe};

/// Connects to the registration socket of a driver, or to the driver itself.
#[derive(Debug, Clone)]
struct ToyDialer {
    driver: ScriptedDriver,
    socket: ToySocket,
}

/// The service at the registration socket of a driver.
#[derive(Debug, Clone)]
struct ToySocket {
    info: Arc<Mutex<PluginInfo>>,
    statuses: Arc<Mutex<Vec<RegistrationStatus>>>,
    /// Whether NotifyRegistrationStatus fails.
    refuses_status: bool,
    /// The call that is never answered.
    unanswered: Option<&'static str>,
}

impl ToySocket {
    /// Never returns for the call that is never answered.
    async fn hang_if_unanswered(&self, method: &'static str) {
        if self.unanswered == Some(method) {
            std::future::pending().await
        }
    }
}

#[async_trait]
impl RegistrationService for ToySocket {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        self.hang_if_unanswered("GetInfo").await;
        Ok(Response::new(self.info.lock().unwrap().clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        self.hang_if_unanswered("NotifyRegistrationStatus").await;
        if self.refuses_status {
            return Err(Status::internal("refused by the test"));
        }
        self.statuses.lock().unwrap().push(request.into_inner());
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

#[async_trait]
impl Dialer for ToyDialer {
    async fn dial(&self, endpoint: &Path) -> Result<Connection, DialError> {
        if endpoint == Path::new("/csi.sock") {
            return self.driver.dial(endpoint).await;
        }
        assert!(endpoint.ends_with("reg.sock"), "{}", endpoint.display());
        self.socket.hang_if_unanswered("dial").await;
        // The node service is served at the same socket, as a driver may do.
        let server = Routes::new(RegistrationServer::new(self.socket.clone()));
        let (pipe, _) = pipe::serve(server.add_service(NodeServer::new(self.driver.clone())));
        pipe.connection(endpoint).await
    }
}

struct Scene {
    bench: Bench,
    socket: ToySocket,
    events: mpsc::UnboundedReceiver<Event>,
    manager: VolumeManager,
}

impl Scene {
    fn new() -> Self {
        let bench = Bench::new();
        let mut node = Node { meta: Meta::named("", "node-1"), ..Node::default() };
        node.meta.uid = "n1".into();
        bench.put(node.into_object());
        let segments = BTreeMap::from([("zone".to_owned(), "a".to_owned())]);
        bench.driver.set_info(NodeGetInfoResponse {
            node_id: "the-node".into(),
            max_volumes_per_node: 7,
            accessible_topology: Some(Topology { segments }),
        });
        let info = PluginInfo {
            r#type: "CSIPlugin".into(),
            name: DRIVER.into(),
            endpoint: "/csi.sock".into(),
            supported_versions: vec!["1.0.0".into()],
        };
        let info = Arc::new(Mutex::new(info));
        let socket = ToySocket { info, statuses: Arc::default(), refuses_status: false, unanswered: None };
        let (sender, events) = mpsc::unbounded_channel();
        Self { bench, socket, events, manager: VolumeManager::sending_to(sender) }
    }

    fn registrar(&self) -> Registrar {
        let cx = &self.bench.context;
        let dialer = ToyDialer { driver: self.bench.driver.clone(), socket: self.socket.clone() };
        Registrar::new(
            self.manager.clone(),
            (*cx.config).clone(),
            Arc::clone(&cx.api),
            Arc::clone(&cx.clock),
            Arc::new(dialer),
        )
    }

    async fn register(&self) -> Result<String, RegistrationError> {
        let registered = self.registrar().socket_created(Path::new("/reg.sock")).await;
        registered.map(|name| name.to_string())
    }

    /// The registrations that the manager was told of since the last call.
    fn registrations(&mut self) -> Vec<Registration> {
        let mut registrations = Vec::new();
        while let Ok(Event::Driver(registration)) = self.events.try_recv() {
            registrations.push(registration);
        }
        registrations
    }

    fn statuses(&self) -> Vec<(bool, String)> {
        let statuses = self.socket.statuses.lock().unwrap();
        statuses.iter().map(|status| (status.plugin_registered, status.error.clone())).collect()
    }
}

#[tokio::test]
async fn registered_driver_is_in_the_nodes_objects_and_notified() {
    let mut scene = Scene::new();
    let registrar = scene.registrar();
    registrar.socket_created(Path::new("/reg.sock")).await.unwrap();
    let added = Registration::Added { driver: DRIVER.into(), endpoint: PathBuf::from("/csi.sock") };
    assert_eq!(scene.registrations(), [added]);
    assert_eq!(scene.statuses(), [(true, String::new())]);
    let calls = scene.bench.story.take();
    assert_eq!(calls, "call NodeGetInfo\n", "registration makes no other call");

    let node: Node = scene.bench.api.read("", "node-1").unwrap();
    assert_eq!(node.meta.annotations["csi.volume.kubernetes.io/nodeid"], r#"{"d.example":"the-node"}"#);
    assert_eq!(node.meta.labels["zone"], "a");
    let entry: CsiNode = scene.bench.api.read("", "node-1").unwrap();
    let owner = &entry.meta.owners[0];
    let owner = [&owner.api_version, &owner.kind, &owner.name, &owner.uid];
    assert_eq!(owner, ["v1", "Node", "node-1", "n1"]);
    let driver = &entry.drivers[0];
    assert_eq!((driver.node_id.as_str(), driver.allocatable), ("the-node", Some(7)));
    assert_eq!(driver.topology_keys, ["zone"]);

    assert_eq!(registrar.socket_removed(Path::new("/reg.sock")).await, Some(DRIVER.into()));
    assert_eq!(scene.registrations(), [Registration::Removed { driver: DRIVER.into() }]);
    let node: Node = scene.bench.api.read("", "node-1").unwrap();
    assert!(node.meta.annotations.is_empty());
    assert_eq!(node.meta.labels["zone"], "a", "the topology label stays");
    let entry: CsiNode = scene.bench.api.read("", "node-1").unwrap();
    assert!(entry.drivers.is_empty());
}

#[tokio::test]
async fn invalid_registration_is_refused_with_its_reason() {
    type Spoil = fn(&mut PluginInfo);
    let cases: [(Spoil, &str); 5] = [
        (|info| info.r#type = "DevicePlugin".into(), "no handler registered for plugin type: DevicePlugin"),
        (|info| info.name = "../evil".into(), "`../evil` is no name for a driver"),
        (|info| info.name = String::new(), "`` is no name for a driver"),
        (|info| info.supported_versions = vec!["0.3.0".into()], "none of the CSI versions"),
        (|info| info.supported_versions.clear(), "empty list for supported versions"),
    ];
    for (spoil, text) in cases {
        let mut scene = Scene::new();
        spoil(&mut scene.socket.info.lock().unwrap());
        scene.register().await.unwrap_err();
        let [(false, error)] = &scene.statuses()[..] else { panic!("{:?}", scene.statuses()) };
        assert!(error.contains(text), "{error}");
        assert_eq!(scene.registrations(), []);
        assert_eq!(scene.bench.story.take(), "", "the node service is not called");
    }
}

#[tokio::test]
async fn driver_without_node_info_is_not_registered() {
    let mut scene = Scene::new();
    scene.bench.driver.fail("NodeGetInfo", Code::Internal);
    scene.register().await.unwrap_err();
    scene.bench.driver.set_info(NodeGetInfoResponse::default());
    scene.register().await.unwrap_err();
    let statuses = scene.statuses();
    assert!(statuses[0].1.contains("NodeGetInfo failed: rpc error: code = Internal"), "{statuses:?}");
    assert_eq!(statuses[1], (false, "driver d.example returned an empty node ID".into()));
    assert_eq!(scene.registrations(), []);
}

#[tokio::test]
async fn node_info_may_be_as_large_as_one_grpc_message() {
    let mut scene = Scene::new();
    let segments = (0..10_000).map(|number| (format!("key-{number}"), "v".repeat(63)));
    let topology = Topology { segments: segments.collect() };
    let info = NodeGetInfoResponse { node_id: "n".repeat(1 << 20), ..NodeGetInfoResponse::default() };
    let with = |node_id: String| NodeGetInfoResponse { node_id, ..info.clone() };
    scene.bench.driver.set_info(NodeGetInfoResponse { accessible_topology: Some(topology), ..info.clone() });
    scene.register().await.unwrap();
    let node: Node = scene.bench.api.read("", "node-1").unwrap();
    assert_eq!(node.meta.labels.len(), 10_000);
    let entry: CsiNode = scene.bench.api.read("", "node-1").unwrap();
    assert_eq!((entry.drivers[0].node_id.len(), entry.drivers[0].topology_keys.len()), (1 << 20, 10_000));

    // More than fits one message of gRPC.
    scene.registrations();
    scene.bench.driver.set_info(with("n".repeat(5 << 20)));
    let error = scene.register().await.unwrap_err();
    assert!(matches!(error, RegistrationError::NodeInfo { .. }), "{error}");
    assert_eq!(scene.registrations(), []);
}

#[tokio::test]
async fn topology_that_contradicts_a_label_of_the_node_is_refused() {
    let scene = Scene::new();
    let mut node: Node = scene.bench.api.read("", "node-1").unwrap();
    node.meta.labels.insert("zone".into(), "b".into());
    scene.bench.put(node.into_object());
    let error = scene.register().await.unwrap_err();
    assert!(matches!(error, RegistrationError::Topology { .. }), "{error}");
}

#[tokio::test]
async fn second_registration_with_an_equal_version_is_refused() {
    let scene = Scene::new();
    let registrar = scene.registrar();
    registrar.socket_created(Path::new("/reg.sock")).await.unwrap();
    let error = registrar.socket_created(Path::new("/reg.sock")).await.unwrap_err();
    assert!(matches!(error, RegistrationError::AlreadyThere(_)), "{error}");
}

#[tokio::test]
async fn driver_that_refuses_its_status_is_not_registered() {
    let mut scene = Scene::new();
    scene.socket.refuses_status = true;
    scene.register().await.unwrap_err();
    let heard = scene.registrations();
    assert_eq!(heard.last(), Some(&Registration::Removed { driver: DRIVER.into() }), "{heard:?}");
    let entry: CsiNode = scene.bench.api.read("", "node-1").unwrap();
    assert!(entry.drivers.is_empty());
}

#[tokio::test]
async fn csinode_of_an_earlier_node_of_the_same_name_is_replaced() {
    let scene = Scene::new();
    let mut meta = Meta::named("", "node-1");
    meta.owners = vec![api::Owner { uid: "n0".into(), ..Default::default() }];
    let old = api::CsiNodeDriver { name: "old".into(), ..Default::default() };
    scene.bench.put(CsiNode { meta, drivers: vec![old] }.into_object());
    scene.register().await.unwrap();
    let entry: CsiNode = scene.bench.api.read("", "node-1").unwrap();
    assert_eq!(entry.meta.owners[0].uid, "n1");
    assert_eq!(entry.drivers.len(), 1);
}
