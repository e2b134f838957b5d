//! The resizer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::clock::TokioClock;
use api::names::Namespaced;
use api::storage::{ClaimReference, CsiSource};
use api::{Bytes, Claim, ClaimPhase, Meta, Notification, PersistentSource, Secret, Sensitive, Volume};
use async_trait::async_trait;
use cluster::{ExpandService, Resizer, ResizerConfig};
use csi_proto::v1;
use expect_test::expect;
use tonic::Status;

use super::api_server;
use crate::api_server::ApiServer;

const DRIVER: &str = "a.csi.example.com";

/// Notes each call, and answers it with the next answer that is left, or with the size that is asked for.
#[derive(Debug, Default)]
struct Script {
    calls: Mutex<Vec<String>>,
    answers: Mutex<VecDeque<Result<v1::ControllerExpandVolumeResponse, Status>>>,
}

#[async_trait]
impl ExpandService for Script {
    async fn expand(
        &self,
        request: v1::ControllerExpandVolumeRequest,
        _: Duration,
    ) -> Result<v1::ControllerExpandVolumeResponse, Status> {
        let size = request.capacity_range.map(|range| range.required_bytes).unwrap_or_default();
        let mode = request.volume_capability.and_then(|capability| capability.access_mode);
        let call = format!(
            "expand {} to {size}, {} secrets, mode {:?}",
            request.volume_id,
            request.secrets.len(),
            mode.map(|mode| mode.mode())
        );
        self.calls.lock().unwrap().push(call);
        let grown =
            v1::ControllerExpandVolumeResponse { capacity_bytes: size, node_expansion_required: true };
        self.answers.lock().unwrap().pop_front().unwrap_or(Ok(grown))
    }
}

struct World {
    api: ApiServer,
    script: Arc<Script>,
    _resizer: Resizer,
}

impl World {
    fn new(config: ResizerConfig) -> Self {
        let (api, script) = (api_server(), Arc::new(Script::default()));
        let data = [("password".to_owned(), Sensitive::new(b"1".to_vec()))].into();
        api.create(Secret { meta: Meta::named("default", "key"), data }).expect("it is new");
        let mut claim = Claim { meta: Meta::named("default", "data"), ..Claim::default() };
        (claim.spec.request, claim.spec.volume) = (Bytes(1), "pv".to_owned());
        (claim.status.phase, claim.status.capacity) = (ClaimPhase::Bound, Bytes(1));
        let claim = api.create(claim).expect("it is new");
        let csi = CsiSource {
            driver: DRIVER.into(),
            handle: "handle".into(),
            controller_expand_secret: Some(Namespaced::new("default", "key").into()),
            ..CsiSource::default()
        };
        let reference =
            ClaimReference { claim: Namespaced::new("default", "data"), uid: claim.meta.uid.clone() };
        api.create(Volume {
            meta: Meta::named("", "pv"),
            capacity: Bytes(1),
            claim: Some(reference),
            source: PersistentSource::Csi(Box::new(csi)),
            ..Volume::default()
        })
        .expect("it is new");
        let service: Arc<dyn ExpandService> = Arc::clone(&script) as _;
        let resizer = Resizer::start(
            config,
            api.seen_by(contracts::event::Client::Controller),
            TokioClock::shared(),
            service,
        );
        Self { api, script, _resizer: resizer }
    }

    fn answer(&self, answer: Result<v1::ControllerExpandVolumeResponse, Status>) {
        self.script.answers.lock().unwrap().push_back(answer);
    }

    fn ask(&self, size: u64) {
        self.api.change::<Claim>("default", "data", |claim| claim.spec.request = Bytes(size)).unwrap();
    }

    /// Lets the time of a few pauses pass.
    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// The calls and events since the last look, and how far the growth has come.
    fn story(&self) -> String {
        let mut lines = std::mem::take(&mut *self.script.calls.lock().unwrap());
        for event in self.api.list::<Notification>() {
            lines.push(format!("{}: {}", event.reason, event.message));
            self.api.delete::<Notification>("default", &event.meta.name).unwrap();
        }
        let claim = self.api.get::<Claim>("default", "data").expect("it is there");
        let conditions: Vec<_> = claim.status.conditions.iter().map(|one| one.kind.as_str()).collect();
        lines.push(format!(
            "{} of {} allocated {:?} {:?} {conditions:?}, volume {}",
            claim.status.capacity,
            claim.spec.request,
            claim.status.allocated.map(|allocated| allocated.0),
            claim.status.resize,
            self.api.get::<Volume>("", "pv").expect("it is there").capacity
        ));
        lines.join("\n")
    }
}

const MOMENT: Duration = Duration::from_millis(10);

#[tokio::test(start_paused = true)]
async fn volume_grows_by_the_controller_and_then_by_the_node() {
    let world = World::new(ResizerConfig::new(DRIVER));
    world.pass(MOMENT).await;
    world.ask(3);
    world.pass(MOMENT).await;
    expect![[r#"
        expand handle to 3, 1 secrets, mode Some(SingleNodeWriter)
        Resizing: External resizer is resizing volume pv
        FileSystemResizeRequired: Require file system resize of volume on node
        1 of 3 allocated Some(3) "NodeResizePending" ["FileSystemResizePending"], volume 3"#]]
    .assert_eq(&world.story());
}

#[tokio::test(start_paused = true)]
async fn volume_that_the_node_has_no_part_in_is_grown_at_once() {
    let world = World::new(ResizerConfig::new(DRIVER));
    world
        .answer(Ok(v1::ControllerExpandVolumeResponse { capacity_bytes: 4, node_expansion_required: false }));
    world.ask(3);
    world.pass(MOMENT).await;
    let story = world.story();
    assert!(story.ends_with(r#"4 of 3 allocated Some(3) "" [], volume 4"#), "{story}");
    let claim = world.api.get::<Claim>("default", "data").unwrap();
    assert_eq!(claim.meta.annotations["volume.kubernetes.io/node-expansion-not-required"], "true");
}

#[tokio::test(start_paused = true)]
async fn driver_without_a_controllers_part_is_not_asked() {
    let world = World::new(ResizerConfig { expands: false, ..ResizerConfig::new(DRIVER) });
    world.ask(3);
    world.pass(MOMENT).await;
    assert!(!world.story().contains("expand handle"));
    assert_eq!(world.api.get::<Claim>("default", "data").unwrap().status.resize, "NodeResizePending");
}

#[tokio::test(start_paused = true)]
async fn refused_growth_is_reported_and_recovers_with_a_smaller_size() {
    let world = World::new(ResizerConfig::new(DRIVER));
    world.answer(Err(Status::out_of_range("only 2")));
    world.ask(3);
    world.pass(MOMENT).await;
    expect![[r#"
        expand handle to 3, 1 secrets, mode Some(SingleNodeWriter)
        Resizing: External resizer is resizing volume pv
        VolumeResizeFailed: resize volume "pv" by resizer "a.csi.example.com" failed: rpc error: code = OutOfRange desc = only 2
        1 of 3 allocated Some(3) "ControllerResizeInfeasible" ["ControllerResizeError"], volume 1"#]]
    .assert_eq(&world.story());
    world.ask(2);
    world.pass(MOMENT).await;
    let story = world.story();
    assert!(
        story.ends_with(
            r#"1 of 2 allocated Some(2) "NodeResizePending" ["FileSystemResizePending"], volume 2"#
        ),
        "{story}"
    );
}

#[tokio::test(start_paused = true)]
async fn growth_of_unknown_outcome_is_seen_through_at_its_size() {
    let world = World::new(ResizerConfig::new(DRIVER));
    world.answer(Err(Status::deadline_exceeded("slow")));
    world.ask(3);
    world.pass(MOMENT).await;
    world.ask(2);
    world.pass(Duration::from_secs(2)).await;
    let calls: Vec<_> = world.script.calls.lock().unwrap().iter().map(|call| call[..18].to_owned()).collect();
    assert_eq!(calls, ["expand handle to 3", "expand handle to 3"]);
}

#[tokio::test(start_paused = true)]
async fn growth_by_less_than_requested_is_reported() {
    let world = World::new(ResizerConfig::new(DRIVER));
    world.answer(Ok(v1::ControllerExpandVolumeResponse { capacity_bytes: 2, node_expansion_required: true }));
    world.ask(3);
    world.pass(MOMENT).await;
    let story = world.story();
    assert!(story.contains("answered 2 bytes, and 3 were asked for"), "{story}");
    assert_eq!(world.api.get::<Volume>("", "pv").unwrap().capacity, Bytes(1));
}

#[tokio::test(start_paused = true)]
async fn growth_that_the_node_gave_up_is_begun_again_after_the_longest_pause_or_with_another_size() {
    let world = World::new(ResizerConfig::new(DRIVER));
    let calls = || world.script.calls.lock().unwrap().len();
    let give_up = || {
        let given_up = |claim: &mut Claim| claim.status.resize = "NodeResizeInfeasible".to_owned();
        world.api.change("default", "data", given_up).unwrap();
    };
    world.ask(3);
    world.pass(MOMENT).await;
    give_up();
    world.pass(Duration::from_secs(200)).await;
    assert_eq!(calls(), 1);
    world.pass(Duration::from_secs(101)).await;
    assert_eq!(calls(), 2);
    give_up();
    world.pass(MOMENT).await;
    world.ask(4);
    world.pass(MOMENT).await;
    assert_eq!(calls(), 3);
}
