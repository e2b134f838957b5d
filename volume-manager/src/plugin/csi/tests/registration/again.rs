//! Repeated registrations, repeated calls of NodeGetInfo, drivers that do not answer, and other drivers of the node.

use std::time::Duration;

use api::storage::AttachmentError;
use api::{Attachment, CsiDriver, CsiNodeDriver, Owner};

use super::*;
use crate::plugin::csi::registration::allocatable;
use testing::Answer;

const SOCKET: &str = "/reg.sock";
const NODE_IDS: &str = "csi.volume.kubernetes.io/nodeid";

impl Scene {
    fn node(&self) -> Node {
        self.bench.api.read("", "node-1").unwrap()
    }

    /// The drivers of the node, and how many of their volumes fit.
    fn drivers(&self) -> Vec<(String, Option<i32>)> {
        let entry: CsiNode = self.bench.api.read("", "node-1").unwrap();
        entry.drivers.into_iter().map(|driver| (driver.name, driver.allocatable)).collect()
    }

    fn fits(&self, max_volumes_per_node: i64) {
        let node_id = "the-node".to_owned();
        self.bench.driver.set_info(NodeGetInfoResponse {
            node_id,
            max_volumes_per_node,
            accessible_topology: None,
        });
    }
}

#[tokio::test]
async fn driver_without_an_endpoint_is_reached_at_its_registration_socket() {
    for (endpoint, reached) in [("", SOCKET), ("/csi.sock", "/csi.sock"), ("unix:///csi.sock", "/csi.sock")] {
        let mut scene = Scene::new();
        scene.socket.info.lock().unwrap().endpoint = endpoint.to_owned();
        scene.register().await.unwrap();
        let added = Registration::Added { driver: DRIVER.into(), endpoint: PathBuf::from(reached) };
        assert_eq!(scene.registrations(), [added], "{endpoint:?}");
    }
}

#[tokio::test]
async fn other_drivers_of_the_node_stay_as_they_are() {
    let scene = Scene::new();
    let mut node = scene.node();
    node.meta.annotations.insert(NODE_IDS.into(), r#"{"other":"x"}"#.into());
    scene.bench.put(node.into_object());
    let owners = vec![Owner { uid: "n1".into(), ..Owner::default() }];
    let meta = Meta { owners, ..Meta::named("", "node-1") };
    let other = CsiNodeDriver { name: "other".into(), ..CsiNodeDriver::default() };
    scene.bench.put(CsiNode { meta, drivers: vec![other] }.into_object());

    let registrar = scene.registrar();
    registrar.socket_created(Path::new(SOCKET)).await.unwrap();
    assert!(registrar.has(Path::new(SOCKET)) && !registrar.has(Path::new("/other.sock")));
    assert_eq!(scene.drivers(), [("other".to_owned(), None), (DRIVER.to_owned(), Some(7))]);
    assert_eq!(scene.node().meta.annotations[NODE_IDS], r#"{"d.example":"the-node","other":"x"}"#);

    assert_eq!(registrar.socket_removed(Path::new("/other.sock")).await, None);
    assert_eq!(registrar.socket_removed(Path::new(SOCKET)).await, Some(DRIVER.into()));
    assert!(!registrar.has(Path::new(SOCKET)));
    assert_eq!(scene.drivers(), [("other".to_owned(), None)]);
    assert_eq!(scene.node().meta.annotations[NODE_IDS], r#"{"other":"x"}"#);
}

#[tokio::test]
async fn refreshed_driver_has_its_entry_replaced() {
    let scene = Scene::new();
    let registrar = scene.registrar();
    registrar.refresh(&DRIVER.into()).await.unwrap();
    assert_eq!(scene.bench.story.take(), "", "a driver that is not registered is not called");
    registrar.socket_created(Path::new(SOCKET)).await.unwrap();
    scene.fits(9);
    registrar.refresh(&DRIVER.into()).await.unwrap();
    assert_eq!(scene.drivers(), [(DRIVER.to_owned(), Some(9))]);
    scene.bench.driver.fail("NodeGetInfo", Code::Internal);
    registrar.refresh(&DRIVER.into()).await.unwrap_err();
    assert_eq!(scene.drivers(), [(DRIVER.to_owned(), Some(9))], "the entry stays when NodeGetInfo fails");
}

#[tokio::test]
async fn only_a_newer_version_replaces_a_registration() {
    for (version, takes_it) in [("0.9.0", false), ("1.0.9", false), ("1.1.0", false), ("1.1.1", true)] {
        let scene = Scene::new();
        let speaks = |version: &str| {
            scene.socket.info.lock().unwrap().supported_versions = vec![version.to_owned()];
        };
        speaks("1.1.0");
        let registrar = scene.registrar();
        registrar.socket_created(Path::new(SOCKET)).await.unwrap();
        speaks(version);
        let outcome = registrar.socket_created(Path::new(SOCKET)).await;
        assert_eq!(outcome.is_ok(), takes_it, "{version}: {outcome:?}");
        assert_eq!(scene.statuses().last().unwrap().0, takes_it, "{version}");
    }
}

/// Four attempts, after ten milliseconds, fifty and two hundred and fifty more.
#[tokio::test(start_paused = true)]
async fn registration_retries_while_the_api_is_unavailable() {
    for (away, registered) in [(5, true), (100, true), (305, true), (1000, false)] {
        let mut scene = Scene::new();
        scene.bench.api.set_away(true);
        let coming_back = async {
            scene.bench.context.clock.sleep(Duration::from_millis(away)).await;
            scene.bench.api.set_away(false);
        };
        let (outcome, ()) = tokio::join!(scene.register(), coming_back);
        assert_eq!(outcome.is_ok(), registered, "{away} ms: {outcome:?}");
        assert_eq!(scene.registrations().len(), usize::from(registered), "{away} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn driver_that_does_not_answer_is_not_registered() {
    for (method, seconds) in [("dial", 10), ("GetInfo", 1), ("NotifyRegistrationStatus", 5)] {
        let mut scene = Scene::new();
        scene.socket.unanswered = Some(method);
        let began = scene.bench.now();
        let error = scene.register().await.unwrap_err();
        assert_eq!((scene.bench.now() - began).as_secs(), seconds, "{method}");
        assert!(matches!(error, RegistrationError::Socket { .. }), "{error:?}");
        let registered = scene.registrations().into_iter().fold(false, |_, heard| match heard {
            Registration::Added { .. } => true,
            Registration::Removed { .. } => false,
        });
        assert!(!registered, "{method}");
    }
    let mut scene = Scene::new();
    scene.bench.driver.answer("NodeGetInfo", &[Answer::Hang]);
    let began = scene.bench.now();
    let error = scene.register().await.unwrap_err();
    assert_eq!((scene.bench.now() - began).as_secs(), 120, "as long as any call of a driver");
    assert!(matches!(error, RegistrationError::NodeInfo { .. }), "{error:?}");
    assert_eq!(scene.registrations(), []);
}

/// Periodically as its CSIDriver object says, and at once after an attachment failed because the node is full.
#[tokio::test(start_paused = true)]
async fn driver_is_refreshed_periodically_and_when_the_node_is_full() {
    let scene = Scene::new();
    let (registrar, clock) = (scene.registrar(), Arc::clone(&scene.bench.context.clock));
    registrar.socket_created(Path::new(SOCKET)).await.unwrap();
    let asking = tokio::spawn(allocatable::run(registrar));
    let allocatable = || scene.drivers()[0].1;
    let object = |period| {
        let driver = CsiDriver { allocatable_period: period, ..CsiDriver::default() };
        scene.bench.put(CsiDriver { meta: Meta::named("", DRIVER), ..driver }.into_object());
    };
    object(Some(60));
    scene.fits(9);
    clock.sleep(Duration::from_secs(59)).await;
    assert_eq!(allocatable(), Some(7), "its time has not come");
    clock.sleep(Duration::from_secs(2)).await;
    assert_eq!(allocatable(), Some(9));

    scene.fits(11);
    let error = AttachmentError { message: "full".to_owned(), code: Some(8) };
    let failed = Attachment {
        meta: Meta::named("", "va"),
        attacher: DRIVER.to_owned(),
        node: "node-1".to_owned(),
        attach_error: Some(error),
        ..Attachment::default()
    };
    scene.bench.put(failed.into_object());
    clock.sleep(Duration::from_secs(1)).await;
    assert_eq!(allocatable(), Some(11), "at once");

    object(None);
    scene.fits(13);
    clock.sleep(Duration::from_secs(3600)).await;
    assert_eq!(allocatable(), Some(11), "its object does not ask for it any more");
    asking.abort();
}
