//! The attacher.

use std::sync::Arc;
use std::time::Duration;

use api::clock::TokioClock;
use api::names::Namespaced;
use api::storage::CsiSource;
use api::{Attachment, CsiNode, CsiNodeDriver, Meta, PersistentSource, Secret, Sensitive, Volume};
use async_trait::async_trait;
use cluster::{AttachService, Attacher, AttacherConfig, Protection};
use csi_proto::v1;
use expect_test::expect;
use tonic::Status;

use super::{Calls, api_server};
use crate::api_server::ApiServer;

const DRIVER: &str = "a.csi.example.com";

/// Notes each call, and answers it with the next error that is left.
#[derive(Debug, Default)]
struct Script {
    calls: Calls,
}

#[async_trait]
impl AttachService for Script {
    async fn publish(
        &self,
        request: v1::ControllerPublishVolumeRequest,
        _: Duration,
    ) -> Result<v1::ControllerPublishVolumeResponse, Status> {
        let (volume, node) = (&request.volume_id, &request.node_id);
        self.calls.call(format!("publish {volume} to {node}, {} secrets", request.secrets.len()))?;
        let publish_context = [("device".to_owned(), "sdx".to_owned())].into();
        Ok(v1::ControllerPublishVolumeResponse { publish_context })
    }

    async fn unpublish(
        &self,
        request: v1::ControllerUnpublishVolumeRequest,
        _: Duration,
    ) -> Result<v1::ControllerUnpublishVolumeResponse, Status> {
        self.calls.call(format!("unpublish {} from {}", request.volume_id, request.node_id))?;
        Ok(v1::ControllerUnpublishVolumeResponse {})
    }
}

struct World {
    api: ApiServer,
    script: Arc<Script>,
    _running: (Protection, Attacher),
}

impl World {
    fn new() -> Self {
        let (api, script) = (api_server(), Arc::new(Script::default()));
        let service: Arc<dyn AttachService> = Arc::clone(&script) as _;
        let config = AttacherConfig::new(DRIVER);
        let source = || api.seen_by(contracts::event::Client::Controller);
        let running = (
            Protection::start(source(), TokioClock::shared()),
            Attacher::start(config, source(), TokioClock::shared(), service),
        );
        Self { api, script, _running: running }
    }

    fn register(&self) {
        let driver =
            CsiNodeDriver { name: DRIVER.into(), node_id: "its-id".into(), ..CsiNodeDriver::default() };
        self.api
            .create(CsiNode { meta: Meta::named("", "node-1"), drivers: vec![driver] })
            .expect("it is new");
    }

    fn volume(&self) {
        let csi = CsiSource {
            driver: DRIVER.into(),
            handle: "handle".into(),
            controller_publish_secret: Some(Namespaced::new("default", "key").into()),
            ..CsiSource::default()
        };
        let source = PersistentSource::Csi(Box::new(csi));
        self.api
            .create(Volume { meta: Meta::named("", "pv"), source, ..Volume::default() })
            .expect("it is new");
        let data = [("password".to_owned(), Sensitive::new(b"1".to_vec()))].into();
        self.api.create(Secret { meta: Meta::named("default", "key"), data }).expect("it is new");
    }

    fn attach(&self) {
        let attachment = Attachment {
            meta: Meta::named("", "csi-1"),
            attacher: DRIVER.into(),
            node: "node-1".into(),
            volume: "pv".into(),
            ..Attachment::default()
        };
        self.api.create(attachment).expect("it is new");
    }

    fn attachment(&self) -> Option<Arc<Attachment>> {
        self.api.get::<Attachment>("", "csi-1")
    }

    fn error(&self) -> String {
        let attachment = self.attachment().expect("it is there");
        attachment.attach_error.as_ref().map(|error| error.message.clone()).unwrap_or_default()
    }

    fn fail(&self, status: Status) {
        self.script.calls.fail(status);
    }
}

async fn pass(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

#[tokio::test(start_paused = true)]
async fn volume_is_published_before_it_counts_as_attached_and_unpublished_before_it_goes() {
    let world = World::new();
    world.register();
    world.volume();
    world.attach();
    pass(1).await;
    let attached = world.attachment().expect("it is there");
    assert!(attached.attached && attached.metadata["device"] == "sdx", "{attached:?}");
    assert_eq!(attached.meta.finalizers, ["external-attacher/a-csi-example-com"]);
    assert_eq!(world.script.calls.take(), ["publish handle to its-id, 1 secrets"]);

    // The volume's object outlives its attachment, and the node's need not.
    world.api.delete::<Volume>("", "pv").expect("it is there");
    world.api.delete::<CsiNode>("", "node-1").expect("it is there");
    pass(1).await;
    assert!(world.api.get::<Volume>("", "pv").is_some());
    world.api.delete::<Attachment>("", "csi-1").expect("it is there");
    pass(1).await;
    assert_eq!(world.script.calls.take(), ["unpublish handle from its-id"]);
    assert!(world.attachment().is_none() && world.api.get::<Volume>("", "pv").is_none());
}

#[tokio::test(start_paused = true)]
async fn failed_call_is_reported_and_repeated_after_growing_pauses() {
    let world = World::new();
    world.register();
    world.volume();
    (0..3).for_each(|_| world.fail(Status::internal("no")));
    world.attach();
    pass(1).await;
    expect![[r#"rpc error: code = Internal desc = no"#]].assert_eq(&world.error());
    pass(1000).await;
    assert_eq!(world.script.calls.take().len(), 2);
    pass(1900).await;
    assert_eq!(world.script.calls.take().len(), 0, "the second pause is two seconds");
    pass(5000).await;
    assert_eq!(world.script.calls.take().len(), 2);
    assert_eq!((world.error().as_str(), world.attachment().map(|it| it.attached)), ("", Some(true)));
}

#[tokio::test(start_paused = true)]
async fn deletion_ends_the_pause_of_a_failed_attachment() {
    let world = World::new();
    world.register();
    world.volume();
    world.fail(Status::deadline_exceeded("late"));
    world.attach();
    pass(1).await;
    world.api.delete::<Attachment>("", "csi-1").expect("it is there");
    pass(1).await;
    // It is unknown whether the first call had its effect.
    assert_eq!(
        world.script.calls.take(),
        ["publish handle to its-id, 1 secrets", "unpublish handle from its-id"]
    );
    assert!(world.attachment().is_none());
}

#[tokio::test(start_paused = true)]
async fn attachment_waits_for_its_volume_and_for_the_driver_on_its_node() {
    let world = World::new();
    world.attach();
    pass(1).await;
    expect![[r#"persistentvolumes "pv" not found"#]].assert_eq(&world.error());
    world.volume();
    pass(1).await;
    expect![[r#"csinodes "node-1" not found"#]].assert_eq(&world.error());
    assert_eq!(world.script.calls.take().len(), 0);
    world.register();
    pass(1).await;
    assert_eq!(world.script.calls.take().len(), 1, "without a pause");
    assert_eq!(world.attachment().map(|it| it.attached), Some(true));
}
