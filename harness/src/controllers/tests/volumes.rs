//! The binder, the provisioner, ephemeral claims and placement together: a claim from its making to its end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::clock::TokioClock;
use api::storage::{AllowedValues, ClaimTemplate, NodeAffinity, Requirement};
use api::{
    AccessMode, Bytes, Claim, ClaimPhase, Class, CsiNode, CsiNodeDriver, Meta, Node, Notification,
    PersistentSource, Pod, PodVolume, Secret, Sensitive, Volume, VolumeMode, VolumeSource,
};
use async_trait::async_trait;
use cluster::{Binder, Ephemeral, Placement, Protection, ProvisionService, Provisioner, ProvisionerConfig};
use csi_proto::v1;
use expect_test::expect;
use tonic::Status;

use super::{Calls, api_server};
use crate::api_server::ApiServer;

const DRIVER: &str = "a.csi.example.com";
const MOMENT: Duration = Duration::from_millis(10);

/// Notes each call. Fails with the next error that is left, and makes volumes of the size that is asked for.
#[derive(Debug, Default)]
struct Script {
    calls: Calls,
    smaller: Mutex<bool>,
}

#[async_trait]
impl ProvisionService for Script {
    async fn create(
        &self,
        request: v1::CreateVolumeRequest,
        _: Duration,
    ) -> Result<v1::CreateVolumeResponse, Status> {
        let asked = request.capacity_range.map(|range| range.required_bytes).unwrap_or_default();
        let mut call = format!("create {} of {asked}, {:?}", request.name, request.parameters);
        if !request.secrets.is_empty() {
            call += &format!(", {} secrets", request.secrets.len());
        }
        if let Some(topology) = &request.accessibility_requirements {
            let places = topology.preferred.iter().map(|place| format!("{:?}", place.segments));
            call += &format!(", in {}", places.collect::<Vec<_>>().join(" or "));
        }
        if let Some(v1::volume_content_source::Type::Volume(source)) =
            request.volume_content_source.clone().and_then(|source| source.r#type)
        {
            call += &format!(", from {}", source.volume_id);
        }
        self.calls.call(call)?;
        let capacity_bytes = if *self.smaller.lock().unwrap() { asked - 1 } else { asked };
        let volume = v1::Volume {
            volume_id: format!("handle-of-{}", request.name),
            capacity_bytes,
            content_source: request.volume_content_source,
            ..v1::Volume::default()
        };
        Ok(v1::CreateVolumeResponse { volume: Some(volume) })
    }

    async fn delete(
        &self,
        request: v1::DeleteVolumeRequest,
        _: Duration,
    ) -> Result<v1::DeleteVolumeResponse, Status> {
        self.calls.call(format!("delete {}, {} secrets", request.volume_id, request.secrets.len()))?;
        Ok(v1::DeleteVolumeResponse {})
    }
}

struct World {
    api: ApiServer,
    script: Arc<Script>,
    _running: (Protection, Binder, Ephemeral, Placement, Provisioner),
}

impl World {
    fn new(config: ProvisionerConfig) -> Self {
        let (api, script) = (api_server(), Arc::new(Script::default()));
        let service: Arc<dyn ProvisionService> = Arc::clone(&script) as _;
        let source = || api.seen_by(contracts::event::Client::Controller);
        let running = (
            Protection::start(source(), TokioClock::shared()),
            Binder::start(source(), TokioClock::shared()),
            Ephemeral::start(source(), TokioClock::shared()),
            Placement::start(source(), TokioClock::shared()),
            Provisioner::start(config, source(), TokioClock::shared(), service),
        );
        Self { api, script, _running: running }
    }

    fn class(&self, parameters: &[(&str, &str)], change: impl FnOnce(&mut Class)) {
        let mut class = Class {
            meta: Meta::named("", "fast"),
            provisioner: DRIVER.to_owned(),
            parameters: parameters.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect(),
            reclaim: "Delete".to_owned(),
            ..Class::default()
        };
        change(&mut class);
        self.api.create(class).expect("it is new");
    }

    fn claim(&self, name: &str, change: impl FnOnce(&mut Claim)) {
        let mut claim = Claim { meta: Meta::named("default", name), ..Claim::default() };
        claim.meta.uid = format!("uid-{name}");
        claim.spec.access_modes = vec![AccessMode::ReadWriteOnce];
        claim.spec.request = Bytes(5);
        claim.spec.class = Some("fast".to_owned());
        change(&mut claim);
        self.api.create(claim).expect("it is new");
    }

    fn written_down(&self, name: &str, size: u64, change: impl FnOnce(&mut Volume)) {
        let mut volume = Volume {
            meta: Meta::named("", name),
            capacity: Bytes(size),
            access_modes: vec![AccessMode::ReadWriteOnce],
            mode: Some(VolumeMode::Filesystem),
            class: "fast".to_owned(),
            reclaim: "Retain".to_owned(),
            source: PersistentSource::Local { path: "/disk".to_owned(), fs_type: String::new() },
            ..Volume::default()
        };
        change(&mut volume);
        self.api.create(volume).expect("it is new");
    }

    fn pod(&self, name: &str, source: VolumeSource) {
        let pod = Pod {
            meta: Meta::named("default", name),
            node: "node-1".to_owned(),
            volumes: vec![PodVolume { name: "data".into(), source }],
            ..Pod::default()
        };
        self.api.create(pod).expect("it is new");
    }

    fn fail(&self, status: Status) {
        self.script.calls.fail(status);
    }

    fn register(&self) {
        let mut meta = Meta::named("", "node-1");
        meta.labels.insert("zone".to_owned(), "a".to_owned());
        self.api.create(Node { meta, ..Node::default() }).expect("it is new");
        let driver = CsiNodeDriver {
            name: DRIVER.into(),
            topology_keys: vec!["zone".to_owned()],
            ..CsiNodeDriver::default()
        };
        let node = CsiNode { meta: Meta::named("", "node-1"), drivers: vec![driver] };
        self.api.create(node).expect("it is new");
    }

    /// The calls and events since the last look, and how claims and volumes are now.
    async fn story(&self) -> String {
        tokio::time::sleep(MOMENT).await;
        let mut lines = self.script.calls.take();
        for event in self.api.list::<Notification>() {
            let message = event.message.split(" either by").next().unwrap_or_default();
            lines.push(format!("{}: {message}", event.reason));
            self.api.delete::<Notification>("default", &event.meta.name).unwrap();
        }
        for claim in self.api.list::<Claim>() {
            let (phase, capacity) = (claim.status.phase, claim.status.capacity);
            lines.push(format!("{} {phase:?} {:?} {capacity}", claim.meta.name, claim.spec.volume));
        }
        for volume in self.api.list::<Volume>() {
            let claim = volume.claim.as_ref().map(|reference| reference.claim.name.as_str());
            lines.push(format!("{} {} {:?}", volume.meta.name, volume.phase, claim.unwrap_or_default()));
        }
        lines.join("\n")
    }
}

#[tokio::test(start_paused = true)]
async fn claim_gets_a_volume_of_its_class_and_the_volume_goes_with_it() {
    let world = World::new(ProvisionerConfig::new(DRIVER));
    let data = [("password".to_owned(), Sensitive::new(b"1".to_vec()))].into();
    world.api.create(Secret { meta: Meta::named("default", "of-data"), data }).expect("it is new");
    let secret = "csi.storage.k8s.io/provisioner-secret";
    let parameters = [
        ("tier", "gold"),
        (&*format!("{secret}-name"), "of-${pvc.name}"),
        (&*format!("{secret}-namespace"), "${pvc.namespace}"),
    ];
    world.class(&parameters, |_| {});
    world.claim("data", |_| {});
    expect![[r#"
        create pvc-uid-data of 5, {"tier": "gold"}, 1 secrets
        ExternalProvisioning: Waiting for a volume to be created
        Provisioning: External provisioner is provisioning volume for claim "default/data"
        ProvisioningSucceeded: Successfully provisioned volume pvc-uid-data
        data Bound "pvc-uid-data" 5
        pvc-uid-data Bound "data""#]]
    .assert_eq(&world.story().await);
    world.api.delete::<Claim>("default", "data").unwrap();
    expect!["delete handle-of-pvc-uid-data, 1 secrets"].assert_eq(&world.story().await);
}

#[tokio::test(start_paused = true)]
async fn volume_that_is_retained_stays_when_its_claim_goes() {
    let world = World::new(ProvisionerConfig::new(DRIVER));
    world.class(&[], |class| class.reclaim = "Retain".to_owned());
    world.claim("data", |_| {});
    world.story().await;
    world.api.delete::<Claim>("default", "data").unwrap();
    expect![[r#"pvc-uid-data Released "data""#]].assert_eq(&world.story().await);
    world.claim("data", |claim| claim.meta.uid = "another".to_owned());
    assert!(world.story().await.contains("pvc-another"), "the released volume is bound to no claim");
}

#[tokio::test(start_paused = true)]
async fn class_that_waits_makes_a_volume_where_the_first_pod_is() {
    let config = ProvisionerConfig { topology: true, ..ProvisionerConfig::new(DRIVER) };
    let world = World::new(config);
    world.class(&[], |class| class.wait_for_consumer = true);
    world.claim("data", |_| {});
    expect![[r#"
        WaitForFirstConsumer: waiting for first consumer to be created before binding
        data Pending "" 0"#]]
    .assert_eq(&world.story().await);
    world.register();
    world.pod("web", VolumeSource::Claim { claim: "data".to_owned(), read_only: false });
    let story = world.story().await;
    assert!(story.starts_with(r#"create pvc-uid-data of 5, {}, in {"zone": "a"}"#), "{story}");
    assert!(story.contains(r#"data Bound "pvc-uid-data" 5"#), "{story}");
}

#[tokio::test(start_paused = true)]
async fn volume_is_made_in_a_place_that_its_class_allows() {
    /// The events and calls for a claim of a pod in zone `a`.
    async fn story(wait_for_consumer: bool, zones: &[&str]) -> String {
        let world = World::new(ProvisionerConfig { topology: true, ..ProvisionerConfig::new(DRIVER) });
        let values = zones.iter().map(|zone| (*zone).to_owned()).collect();
        world.class(&[], |class| {
            class.wait_for_consumer = wait_for_consumer;
            class.allowed_topologies = vec![vec![AllowedValues { key: "zone".to_owned(), values }]];
        });
        world.register();
        world.claim("data", |_| {});
        world.pod("web", VolumeSource::Claim { claim: "data".to_owned(), read_only: false });
        world.story().await
    }
    let made = story(false, &["b", "c"]).await;
    assert!(made.contains(r#"create pvc-uid-data of 5, {}, in {"zone": "b"} or {"zone": "c"}"#), "{made}");
    let made = story(true, &["0", "a"]).await;
    assert!(made.contains(r#"create pvc-uid-data of 5, {}, in {"zone": "a"} or {"zone": "0"}"#), "{made}");
    let refused = story(true, &["b"]).await;
    assert!(refused.contains("ProvisioningFailed") && refused.contains("allowedTopologies"), "{refused}");
    assert!(!refused.contains("create pvc-uid-data"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn volume_that_is_written_down_is_preferred_to_a_new_one() {
    let world = World::new(ProvisionerConfig::new(DRIVER));
    world.class(&[], |_| {});
    world.written_down("large", 9, |_| {});
    world.written_down("other-class", 5, |volume| volume.class = "slow".to_owned());
    expect![[r#"
        large Available ""
        other-class Available """#]]
    .assert_eq(&world.story().await);
    world.claim("data", |_| {});
    expect![[r#"
        data Bound "large" 9
        large Bound "data"
        other-class Available """#]]
    .assert_eq(&world.story().await);
}

#[tokio::test(start_paused = true)]
async fn local_volume_is_bound_once_its_node_is_known() {
    let world = World::new(ProvisionerConfig::new(DRIVER));
    world.class(&[], |class| {
        class.provisioner = "kubernetes.io/no-provisioner".to_owned();
        class.wait_for_consumer = true;
    });
    let zone = |value: &str| {
        let zone = Requirement { key: "zone".into(), operator: "In".into(), values: vec![value.into()] };
        Some(NodeAffinity { terms: vec![vec![zone]] })
    };
    world.written_down("elsewhere", 5, |volume| volume.affinity = zone("b"));
    world.written_down("here", 6, |volume| volume.affinity = zone("a"));
    world.claim("data", |_| {});
    assert!(world.story().await.contains("data Pending"));
    world.register();
    world.pod("web", VolumeSource::Claim { claim: "data".to_owned(), read_only: false });
    assert!(world.story().await.contains(r#"data Bound "here" 6"#));
}

#[tokio::test(start_paused = true)]
async fn claims_that_want_the_same_volume_do_not_share_it() {
    let world = World::new(ProvisionerConfig::new(DRIVER));
    world.class(&[], |class| class.provisioner = "kubernetes.io/no-provisioner".to_owned());
    world.claim("a", |_| {});
    world.claim("b", |_| {});
    world.story().await;
    world.written_down("one", 5, |_| {});
    tokio::time::sleep(Duration::from_secs(60)).await;
    let story = world.story().await;
    assert_eq!(story.matches(" Bound \"one\"").count(), 1, "{story}");
    world.written_down("two", 5, |_| {});
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!world.story().await.contains("Pending"));
}

#[tokio::test(start_paused = true)]
async fn claim_with_a_volume_name_gets_that_volume_or_an_event() {
    let world = World::new(ProvisionerConfig::new(DRIVER));
    world.class(&[], |_| {});
    world.written_down("small", 4, |_| {});
    world.claim("data", |claim| claim.spec.volume = "small".to_owned());
    expect![[r#"
        VolumeMismatch: Cannot bind to requested volume "small": requested PV is too small
        data Pending "small" 0
        small Available """#]]
    .assert_eq(&world.story().await);
    world.written_down("right", 5, |_| {});
    world.claim("other", |claim| claim.spec.volume = "right".to_owned());
    assert!(world.story().await.contains(r#"other Bound "right" 5"#));
}

#[tokio::test(start_paused = true)]
async fn bound_claim_whose_volume_goes_is_lost() {
    let world = World::new(ProvisionerConfig::new(DRIVER));
    world.class(&[], |_| {});
    world.written_down("one", 5, |_| {});
    world.claim("data", |_| {});
    world.story().await;
    world.api.change::<Volume>("", "one", |volume| volume.meta.finalizers.clear()).unwrap();
    world.api.delete::<Volume>("", "one").unwrap();
    expect![[r#"
        ClaimLost: Bound claim has lost its PersistentVolume. Data on the volume is lost!
        data Lost "one" 5"#]]
    .assert_eq(&world.story().await);
}

#[tokio::test(start_paused = true)]
async fn unserved_claim_gets_one_event() {
    let world = World::new(ProvisionerConfig::new(DRIVER));
    world.claim("data", |_| {});
    world.claim("plain", |claim| claim.spec.class = Some(String::new()));
    tokio::time::sleep(Duration::from_secs(100)).await;
    expect![[r#"
        ProvisioningFailed: storageclass.storage.k8s.io "fast" not found
        FailedBinding: no persistent volumes available for this claim and no storage class is set
        data Pending "" 0
        plain Pending "" 0"#]]
    .assert_eq(&world.story().await);
    world.class(&[], |_| {});
    assert!(world.story().await.contains("data Bound"), "the class has come");
}

#[tokio::test(start_paused = true)]
async fn claim_without_a_class_gets_the_default_one() {
    let world = World::new(ProvisionerConfig::new(DRIVER));
    world.claim("data", |claim| claim.spec.class = None);
    world.story().await;
    world.class(&[], |class| {
        let key = "storageclass.kubernetes.io/is-default-class".to_owned();
        class.meta.annotations.insert(key, "true".to_owned());
    });
    assert!(world.story().await.contains("data Bound"));
}

#[tokio::test(start_paused = true)]
async fn refused_volume_is_reported_and_requested_again_by_the_same_name() {
    let world = World::new(ProvisionerConfig::new(DRIVER));
    world.class(&[], |_| {});
    world.fail(Status::invalid_argument("no such tier"));
    world.claim("data", |_| {});
    let story = world.story().await;
    let event = r#"ProvisioningFailed: failed to provision volume with StorageClass "fast": rpc error: code = InvalidArgument desc = no such tier"#;
    assert!(story.contains(event), "{story}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let story = world.story().await;
    assert!(story.starts_with("create pvc-uid-data of 5"), "{story}");
}

#[tokio::test(start_paused = true)]
async fn volume_of_unknown_outcome_is_seen_through_although_its_claim_is_gone() {
    let world = World::new(ProvisionerConfig::new(DRIVER));
    world.class(&[], |_| {});
    world.fail(Status::deadline_exceeded("slow"));
    world.claim("data", |_| {});
    world.story().await;
    world.api.delete::<Claim>("default", "data").unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    expect![[r#"
        create pvc-uid-data of 5, {}
        delete handle-of-pvc-uid-data, 0 secrets
        ProvisioningSucceeded: Successfully provisioned volume pvc-uid-data"#]]
    .assert_eq(&world.story().await);
}

/// The provisioner asked the scheduler to choose again, and the controllers have started again since.
#[tokio::test(start_paused = true)]
async fn volume_of_unknown_outcome_is_seen_through_without_a_chosen_node() {
    let world = World::new(ProvisionerConfig::new(DRIVER));
    world.class(&[], |class| class.wait_for_consumer = true);
    world.claim("data", |claim| {
        let provisioner = "volume.kubernetes.io/storage-provisioner".to_owned();
        claim.meta.annotations.insert(provisioner, DRIVER.to_owned());
        claim.meta.finalizers.push("volproof.dev/volume-being-made".to_owned());
    });
    assert!(!world.story().await.contains("create pvc"));
    world.api.delete::<Claim>("default", "data").unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let story = world.story().await;
    assert!(story.starts_with("create pvc-uid-data of 5"), "{story}");
    assert!(story.contains("delete handle-of-pvc-uid-data"), "{story}");
}

#[tokio::test(start_paused = true)]
async fn volume_that_is_smaller_than_asked_is_given_back() {
    let world = World::new(ProvisionerConfig::new(DRIVER));
    world.class(&[], |_| {});
    *world.script.smaller.lock().unwrap() = true;
    world.claim("data", |_| {});
    let story = world.story().await;
    assert!(story.contains("delete handle-of-pvc-uid-data"), "{story}");
    assert!(story.contains("created volume capacity 4 less than requested capacity 5"), "{story}");
    assert!(story.contains("data Pending"), "{story}");
}

#[tokio::test(start_paused = true)]
async fn clone_is_made_of_a_bound_claim_that_is_no_larger() {
    let config = ProvisionerConfig { clones: true, ..ProvisionerConfig::new(DRIVER) };
    let world = World::new(config);
    world.class(&[], |_| {});
    let source = |claim: &mut Claim| {
        let kind = "PersistentVolumeClaim".to_owned();
        claim.spec.data_source = Some(api::storage::DataSource { kind, name: "data".to_owned() });
    };
    world.claim("copy", source);
    assert!(world.story().await.contains("copy Pending"), "its source is missing");
    world.claim("data", |_| {});
    assert!(world.story().await.contains("create pvc-uid-copy of 5, {}, from handle-of-pvc-uid-data"));
    world.claim("small", |claim| {
        source(claim);
        claim.spec.request = Bytes(4);
    });
    assert!(world.story().await.contains("requested 4 but source is 5"));
}

#[tokio::test(start_paused = true)]
async fn ephemeral_claim_is_made_for_its_pod_and_goes_with_it() {
    let world = World::new(ProvisionerConfig::new(DRIVER));
    world.class(&[], |_| {});
    let mut template = ClaimTemplate::default();
    template.spec.access_modes = vec![AccessMode::ReadWriteOnce];
    (template.spec.request, template.spec.class) = (Bytes(3), Some("fast".to_owned()));
    world.pod("web", VolumeSource::Ephemeral { template: Box::new(template.clone()) });
    let story = world.story().await;
    assert!(story.contains("web-data Bound"), "{story}");
    world.api.delete::<api::Pod>("default", "web").unwrap();
    let story = world.story().await;
    assert!(story.starts_with("delete handle-of"), "{story}");
    assert!(world.api.list::<Claim>().is_empty() && world.api.list::<Volume>().is_empty());

    world.claim("taken-data", |_| {});
    world.pod("taken", VolumeSource::Ephemeral { template: Box::new(template) });
    let event = r#"FailedBinding: PersistentVolumeClaim "taken-data" was not created for pod "taken""#;
    assert!(world.story().await.contains(event));
    assert_eq!(world.api.get::<Claim>("default", "taken-data").unwrap().status.phase, ClaimPhase::Bound);
}
