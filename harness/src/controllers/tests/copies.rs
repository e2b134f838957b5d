//! Snapshots, volumes that are made from them, and attribute classes: the controllers together, from a claim on.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::clock::TokioClock;
use api::names::Namespaced;
use api::snapshot::{ContentSource, SnapshotSource};
use api::storage::{DataSource, ModifyProgress};
use api::{
    AccessMode, AttributesClass, Bytes, Claim, Class, Meta, Snapshot, SnapshotClass, SnapshotContent, Volume,
    VolumeMode,
};
use async_trait::async_trait;
use cluster::{
    Binder, Modifier, ModifierConfig, ModifyService, Protection, ProvisionService, Provisioner,
    ProvisionerConfig, SnapshotController, SnapshotService, Snapshotter, SnapshotterConfig,
};
use contracts::event::Client;
use csi_proto::v1;
use expect_test::expect;
use tonic::Status;
use v1::volume_content_source::Type as Content;

use super::{Calls, api_server, warnings};
use crate::api_server::ApiServer;

const DRIVER: &str = "a.csi.example.com";
const MOMENT: Duration = Duration::from_millis(10);

/// Notes each call. Fails with the next error that is left.
#[derive(Debug, Default)]
struct Script {
    calls: Calls,
    /// The number of further answers that say that a snapshot is not ready.
    unready: Mutex<u32>,
}

#[async_trait]
impl ProvisionService for Script {
    async fn create(
        &self,
        request: v1::CreateVolumeRequest,
        _: Duration,
    ) -> Result<v1::CreateVolumeResponse, Status> {
        let mut call = format!("create {}", request.name);
        match request.volume_content_source.clone().and_then(|source| source.r#type) {
            Some(Content::Snapshot(source)) => call += &format!(" from {}", source.snapshot_id),
            Some(Content::Volume(source)) => call += &format!(" from {}", source.volume_id),
            None => {}
        }
        if !request.mutable_parameters.is_empty() {
            call += &format!(" with {:?}", request.mutable_parameters);
        }
        self.calls.call(call)?;
        let volume = v1::Volume {
            volume_id: format!("handle-of-{}", request.name),
            capacity_bytes: request.capacity_range.map(|range| range.required_bytes).unwrap_or_default(),
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
        self.calls.call(format!("delete {}", request.volume_id))?;
        Ok(v1::DeleteVolumeResponse {})
    }
}

#[async_trait]
impl SnapshotService for Script {
    async fn create(
        &self,
        request: v1::CreateSnapshotRequest,
        _: Duration,
    ) -> Result<v1::CreateSnapshotResponse, Status> {
        let (name, volume) = (&request.name, &request.source_volume_id);
        self.calls.call(format!("cut {name} of {volume} with {:?}", request.parameters))?;
        let mut left = self.unready.lock().unwrap();
        let unready = *left;
        *left = unready.saturating_sub(1);
        let snapshot = v1::Snapshot {
            snapshot_id: format!("id-of-{name}"),
            source_volume_id: volume.clone(),
            size_bytes: 5,
            ready_to_use: unready == 0,
            ..v1::Snapshot::default()
        };
        Ok(v1::CreateSnapshotResponse { snapshot: Some(snapshot) })
    }

    async fn delete(
        &self,
        request: v1::DeleteSnapshotRequest,
        _: Duration,
    ) -> Result<v1::DeleteSnapshotResponse, Status> {
        self.calls.call(format!("delete {}", request.snapshot_id))?;
        Ok(v1::DeleteSnapshotResponse {})
    }

    async fn list(
        &self,
        request: v1::ListSnapshotsRequest,
        _: Duration,
    ) -> Result<v1::ListSnapshotsResponse, Status> {
        self.calls.call(format!("list {}", request.snapshot_id))?;
        let snapshot = v1::Snapshot {
            snapshot_id: request.snapshot_id,
            ready_to_use: true,
            size_bytes: 7,
            ..v1::Snapshot::default()
        };
        let entry = v1::list_snapshots_response::Entry { snapshot: Some(snapshot) };
        Ok(v1::ListSnapshotsResponse { entries: vec![entry], ..v1::ListSnapshotsResponse::default() })
    }
}

#[async_trait]
impl ModifyService for Script {
    async fn modify(
        &self,
        request: v1::ControllerModifyVolumeRequest,
        _: Duration,
    ) -> Result<v1::ControllerModifyVolumeResponse, Status> {
        self.calls.call(format!("modify {} to {:?}", request.volume_id, request.mutable_parameters))?;
        Ok(v1::ControllerModifyVolumeResponse {})
    }
}

struct World {
    api: ApiServer,
    script: Arc<Script>,
    _running: (Protection, Binder, Provisioner, SnapshotController, Snapshotter, Modifier),
}

impl World {
    /// With a class of volumes, a class of snapshots and a claim that is bound.
    async fn with_claim() -> Self {
        let (api, script) = (api_server(), Arc::new(Script::default()));
        let provisions = ProvisionerConfig {
            snapshots: true,
            clones: true,
            modifies: true,
            ..ProvisionerConfig::new(DRIVER)
        };
        let snapshots = SnapshotterConfig { lists: true, ..SnapshotterConfig::new(DRIVER) };
        let source = || api.seen_by(Client::Controller);
        let clock = TokioClock::shared;
        let running = (
            Protection::start(source(), clock()),
            Binder::start(source(), clock()),
            Provisioner::start(provisions, source(), clock(), Arc::<Script>::clone(&script)),
            SnapshotController::start(source(), clock()),
            Snapshotter::start(snapshots, source(), clock(), Arc::<Script>::clone(&script)),
            Modifier::start(ModifierConfig::new(DRIVER), source(), clock(), Arc::<Script>::clone(&script)),
        );
        let world = Self { api, script, _running: running };
        let class = Class {
            meta: Meta::named("", "fast"),
            provisioner: DRIVER.to_owned(),
            reclaim: "Delete".to_owned(),
            ..Class::default()
        };
        world.api.create(class).expect("it is new");
        world.snapshot_class("daily", "Delete");
        world.claim("data", |_| {});
        world.story().await;
        world
    }

    fn snapshot_class(&self, name: &str, deletion: &str) {
        let parameters = [("depth", "full"), ("csi.storage.k8s.io/unknown", "x")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let class = SnapshotClass {
            meta: Meta::named("", name),
            driver: DRIVER.to_owned(),
            parameters: parameters.into(),
            deletion: deletion.to_owned(),
        };
        self.api.create(class).expect("it is new");
    }

    fn attributes(&self, name: &str, iops: &str) {
        let parameters = [("iops".to_owned(), iops.to_owned())].into();
        let class = AttributesClass { meta: Meta::named("", name), driver: DRIVER.to_owned(), parameters };
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

    fn snapshot(&self, name: &str, change: impl FnOnce(&mut Snapshot)) {
        let mut meta = Meta::named("default", name);
        meta.uid = format!("uid-{name}");
        let mut snapshot = Snapshot {
            meta,
            source: SnapshotSource::Claim("data".to_owned()),
            class: Some("daily".to_owned()),
            ..Snapshot::default()
        };
        change(&mut snapshot);
        self.api.create(snapshot).expect("it is new");
    }

    fn restore(&self, claim: &str, change: impl FnOnce(&mut Claim)) {
        self.claim(claim, |claim| {
            let source = DataSource { kind: "VolumeSnapshot".to_owned(), name: "monday".to_owned() };
            claim.spec.data_source = Some(source);
            change(claim);
        });
    }

    fn fail(&self, status: Status) {
        self.script.calls.fail(status);
    }

    fn delete_snapshot(&self) {
        self.api.delete::<Snapshot>("default", "monday").expect("it is there");
    }

    /// The calls and warnings since the last look, and how claims, snapshots and contents are now.
    async fn story(&self) -> String {
        tokio::time::sleep(MOMENT).await;
        let mut lines = self.script.calls.take();
        lines.extend(warnings(&self.api));
        for claim in self.api.list::<Claim>() {
            let mut line = format!("{} {:?}", claim.meta.name, claim.status.phase);
            if claim.meta.finalizers.iter().any(|held| held.contains("as-source")) {
                line += ", kept for a snapshot";
            }
            if !claim.status.attributes_class.is_empty() {
                line += &format!(", is {}", claim.status.attributes_class);
            }
            if let Some(modifying) = &claim.status.modifying {
                line += &format!(", {:?} to {}", modifying.progress, modifying.target);
            }
            lines.push(line);
        }
        for snapshot in self.api.list::<Snapshot>() {
            let ready = if snapshot.status.ready { "ready" } else { "not ready" };
            let going = if snapshot.meta.is_deleting() { ", going" } else { "" };
            lines.push(format!("{} {ready}{going}", snapshot.meta.name));
        }
        for content in self.api.list::<SnapshotContent>() {
            lines.push(format!("{} {:?}", content.meta.name, content.status.handle));
        }
        lines.join("\n")
    }

    async fn after(&self, seconds: u64) -> String {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        self.story().await
    }
}

#[tokio::test(start_paused = true)]
async fn snapshot_is_taken_restored_and_deleted() {
    let world = World::with_claim().await;
    world.snapshot("monday", |_| {});
    expect![[r#"
        cut snapshot-uid-monday of handle-of-pvc-uid-data with {"depth": "full"}
        data Bound
        monday ready
        snapcontent-uid-monday "id-of-snapshot-uid-monday""#]]
    .assert_eq(&world.story().await);
    world.restore("copy", |_| {});
    expect![[r#"
        create pvc-uid-copy from id-of-snapshot-uid-monday
        copy Bound
        data Bound
        monday ready
        snapcontent-uid-monday "id-of-snapshot-uid-monday""#]]
    .assert_eq(&world.story().await);
    world.delete_snapshot();
    expect![[r#"
        delete id-of-snapshot-uid-monday
        copy Bound
        data Bound"#]]
    .assert_eq(&world.story().await);
}

#[tokio::test(start_paused = true)]
async fn snapshot_waits_for_its_claim_to_be_bound() {
    let world = World::with_claim().await;
    world.snapshot("monday", |snapshot| snapshot.source = SnapshotSource::Claim("late".to_owned()));
    expect![[r#"
        SnapshotContentCreationFailed: Failed to create snapshot content with error persistentvolumeclaims "late" not found
        data Bound
        monday not ready"#]].assert_eq(&world.story().await);
    world.claim("late", |_| {});
    expect![[r#"
        create pvc-uid-late
        cut snapshot-uid-monday of handle-of-pvc-uid-late with {"depth": "full"}
        SnapshotContentCreationFailed: Failed to create snapshot content with error the PVC late is not yet bound to a PV, will not attempt to take a snapshot
        data Bound
        late Bound
        monday ready
        snapcontent-uid-monday "id-of-snapshot-uid-monday""#]].assert_eq(&world.story().await);
}

#[tokio::test(start_paused = true)]
async fn default_class_is_that_of_the_driver_and_there_has_to_be_one() {
    let world = World::with_claim().await;
    world.snapshot("monday", |snapshot| snapshot.class = None);
    expect![[r#"
        SnapshotContentCreationFailed: Failed to create snapshot content with error cannot find default snapshot class
        data Bound
        monday not ready"#]].assert_eq(&world.story().await);
    let default = |class: &mut SnapshotClass| {
        let key = "snapshot.storage.kubernetes.io/is-default-class".to_owned();
        class.meta.annotations.insert(key, "true".to_owned());
    };
    world.api.change::<SnapshotClass>("", "daily", default).unwrap();
    let story = world.after(60).await;
    assert!(story.contains("monday ready"), "{story}");
}

#[tokio::test(start_paused = true)]
async fn claim_stays_until_its_snapshot_is_ready() {
    let world = World::with_claim().await;
    *world.script.unready.lock().unwrap() = 2;
    world.snapshot("monday", |_| {});
    world.story().await;
    world.api.delete::<Claim>("default", "data").unwrap();
    expect![[r#"
        data Bound, kept for a snapshot
        monday not ready
        snapcontent-uid-monday "id-of-snapshot-uid-monday""#]]
    .assert_eq(&world.story().await);
    expect![[r#"
        cut snapshot-uid-monday of handle-of-pvc-uid-data with {"depth": "full"}
        cut snapshot-uid-monday of handle-of-pvc-uid-data with {"depth": "full"}
        delete handle-of-pvc-uid-data
        monday ready
        snapcontent-uid-monday "id-of-snapshot-uid-monday""#]]
    .assert_eq(&world.after(10).await);
}

#[tokio::test(start_paused = true)]
async fn copy_of_unknown_outcome_is_seen_through_though_its_source_has_grown() {
    let world = World::with_claim().await;
    world.fail(Status::deadline_exceeded("slow"));
    world.claim("copy", |claim| {
        let source = DataSource { kind: "PersistentVolumeClaim".to_owned(), name: "data".to_owned() };
        claim.spec.data_source = Some(source);
    });
    world.story().await;
    world
        .api
        .change("", "pvc-uid-data", |volume: &mut Volume| volume.capacity = Bytes(9))
        .expect("it is there");
    world.api.delete::<Claim>("default", "copy").expect("it is there");
    expect![[r#"
        create pvc-uid-copy from handle-of-pvc-uid-data
        delete handle-of-pvc-uid-copy
        data Bound"#]]
    .assert_eq(&world.after(10).await);
}

#[tokio::test(start_paused = true)]
async fn claim_goes_with_the_last_snapshots_that_it_was_kept_for() {
    let world = World::with_claim().await;
    *world.script.unready.lock().unwrap() = 100;
    world.snapshot("monday", |_| {});
    world.story().await;
    world.api.delete::<Claim>("default", "data").unwrap();
    // Of a claim that is being deleted no snapshot is taken.
    ["tuesday", "friday"].iter().for_each(|name| world.snapshot(name, |_| {}));
    world.story().await;
    for name in ["monday", "tuesday", "friday"] {
        world.api.delete::<Snapshot>("default", name).unwrap();
    }
    expect![[r#"
        delete id-of-snapshot-uid-monday
        delete handle-of-pvc-uid-data"#]]
    .assert_eq(&world.after(10).await);
}

#[tokio::test(start_paused = true)]
async fn snapshot_of_unknown_outcome_is_seen_through_before_it_is_deleted() {
    let world = World::with_claim().await;
    world.fail(Status::deadline_exceeded("slow"));
    world.snapshot("monday", |_| {});
    expect![[r#"
        cut snapshot-uid-monday of handle-of-pvc-uid-data with {"depth": "full"}
        SnapshotCreationFailed: Failed to create snapshot: failed to take snapshot of the volume handle-of-pvc-uid-data: rpc error: code = DeadlineExceeded desc = slow
        data Bound, kept for a snapshot
        monday not ready
        snapcontent-uid-monday """#]].assert_eq(&world.story().await);
    world.delete_snapshot();
    expect![[r#"
        cut snapshot-uid-monday of handle-of-pvc-uid-data with {"depth": "full"}
        delete id-of-snapshot-uid-monday
        data Bound"#]]
    .assert_eq(&world.after(10).await);
}

#[tokio::test(start_paused = true)]
async fn snapshot_that_was_refused_is_deleted_without_a_call() {
    let world = World::with_claim().await;
    world.fail(Status::internal("broken"));
    world.snapshot("monday", |_| {});
    world.story().await;
    world.delete_snapshot();
    expect!["data Bound"].assert_eq(&world.story().await);
}

#[tokio::test(start_paused = true)]
async fn deletion_that_fails_is_tried_again_and_the_snapshot_stays() {
    let world = World::with_claim().await;
    world.snapshot("monday", |_| {});
    world.story().await;
    world.fail(Status::failed_precondition("in use"));
    world.delete_snapshot();
    expect![[r#"
        delete id-of-snapshot-uid-monday
        SnapshotDeleteError: Failed to delete snapshot
        data Bound
        monday ready, going
        snapcontent-uid-monday "id-of-snapshot-uid-monday""#]]
    .assert_eq(&world.story().await);
    expect![[r#"
        delete id-of-snapshot-uid-monday
        data Bound"#]]
    .assert_eq(&world.after(10).await);
}

#[tokio::test(start_paused = true)]
async fn retained_content_stays_when_its_snapshot_goes() {
    let world = World::with_claim().await;
    world.snapshot_class("kept", "Retain");
    world.snapshot("monday", |snapshot| snapshot.class = Some("kept".to_owned()));
    world.story().await;
    world.delete_snapshot();
    expect![[r#"
        data Bound
        snapcontent-uid-monday "id-of-snapshot-uid-monday""#]]
    .assert_eq(&world.story().await);
}

#[tokio::test(start_paused = true)]
async fn snapshot_is_not_deleted_while_a_claim_is_made_from_it() {
    let world = World::with_claim().await;
    world.snapshot("monday", |_| {});
    world.story().await;
    world.fail(Status::unavailable("later"));
    world.restore("copy", |_| {});
    world.story().await;
    world.delete_snapshot();
    expect![[r#"
        SnapshotDeletePending: Snapshot is being used to restore a PVC
        copy Pending
        data Bound
        monday ready, going
        snapcontent-uid-monday "id-of-snapshot-uid-monday""#]]
    .assert_eq(&world.story().await);
}

#[tokio::test(start_paused = true)]
async fn restored_volume_has_at_least_the_size_and_the_mode_of_its_snapshot() {
    let world = World::with_claim().await;
    world.snapshot("monday", |_| {});
    world.story().await;
    world.restore("small", |claim| claim.spec.request = Bytes(4));
    world.restore("block", |claim| claim.spec.mode = VolumeMode::Block);
    expect![[r#"
        ProvisioningFailed: failed to provision volume with StorageClass "fast": requested volume default/block modifies the mode of the source volume but does not have permission to do so. snapshot.storage.kubernetes.io/allow-volume-mode-change annotation is not present on snapshotcontent snapcontent-uid-monday
        ProvisioningFailed: failed to provision volume with StorageClass "fast": requested volume size 4 is less than the size 5 for the source snapshot monday
        block Pending
        data Bound
        small Pending
        monday ready
        snapcontent-uid-monday "id-of-snapshot-uid-monday""#]].assert_eq(&world.story().await);
}

#[tokio::test(start_paused = true)]
async fn content_that_is_written_down_is_bound_to_the_snapshot_that_it_names() {
    let world = World::with_claim().await;
    let content = |name: &str, of: &str| SnapshotContent {
        meta: Meta::named("", name),
        snapshot: Namespaced::new("default", of),
        driver: DRIVER.to_owned(),
        deletion: "Delete".to_owned(),
        source: ContentSource::Snapshot("old".to_owned()),
        ..SnapshotContent::default()
    };
    world.api.create(content("mine", "monday")).unwrap();
    world.api.create(content("other", "tuesday")).unwrap();
    let of = |name: &str| SnapshotSource::Content(name.to_owned());
    world.snapshot("monday", |snapshot| snapshot.source = of("mine"));
    world.snapshot("sunday", |snapshot| snapshot.source = of("other"));
    world.snapshot("never", |snapshot| snapshot.source = of("missing"));
    expect![[r#"
        list old
        SnapshotContentMissing: VolumeSnapshotContent is missing
        SnapshotContentMisbound: VolumeSnapshotContent [other] is bound to a different snapshot
        data Bound
        monday ready
        never not ready
        sunday not ready
        mine "old"
        other """#]]
    .assert_eq(&world.story().await);
}

#[tokio::test(start_paused = true)]
async fn attributes_change_with_the_class_that_a_claim_names() {
    let world = World::with_claim().await;
    world.attributes("silver", "10");
    world.claim("other", |claim| claim.spec.attributes_class = "silver".to_owned());
    expect![[r#"
        create pvc-uid-other with {"iops": "10"}
        data Bound
        other Bound, is silver"#]]
    .assert_eq(&world.story().await);
    let name = |class: &'static str| move |claim: &mut Claim| claim.spec.attributes_class = class.to_owned();
    world.api.change::<Claim>("default", "other", name("gold")).unwrap();
    expect![[r#"
        VolumeModifyFailed: VAC "gold" does not exist.
        data Bound
        other Bound, is silver, Pending to gold"#]]
    .assert_eq(&world.story().await);
    world.attributes("gold", "100");
    expect![[r#"
        modify handle-of-pvc-uid-other to {"iops": "100"}
        data Bound
        other Bound, is gold"#]]
    .assert_eq(&world.story().await);
    let volume = world.api.get::<Volume>("", "pvc-uid-other").expect("it is bound");
    assert_eq!(volume.attributes_class, "gold");
}

#[tokio::test(start_paused = true)]
async fn attributes_that_a_driver_refuses_are_infeasible_until_another_class_is_named() {
    let world = World::with_claim().await;
    world.attributes("silver", "10");
    world.attributes("gold", "100");
    world.fail(Status::invalid_argument("too many"));
    let name = |class: &'static str| move |claim: &mut Claim| claim.spec.attributes_class = class.to_owned();
    world.api.change::<Claim>("default", "data", name("gold")).unwrap();
    expect![[r#"
        modify handle-of-pvc-uid-data to {"iops": "100"}
        VolumeModifyFailed: rpc error: code = InvalidArgument desc = too many
        data Bound, Infeasible to gold"#]]
    .assert_eq(&world.after(100).await);
    let claim = world.api.get::<Claim>("default", "data").expect("it is there");
    let progress = claim.status.modifying.as_ref().map(|modifying| modifying.progress);
    assert_eq!(progress, Some(ModifyProgress::Infeasible));
    world.api.change::<Claim>("default", "data", name("silver")).unwrap();
    expect![[r#"
        modify handle-of-pvc-uid-data to {"iops": "10"}
        data Bound, is silver"#]]
    .assert_eq(&world.story().await);
}

#[tokio::test(start_paused = true)]
async fn change_of_unknown_outcome_is_finished_before_another_begins() {
    let world = World::with_claim().await;
    world.attributes("silver", "10");
    world.attributes("gold", "100");
    world.fail(Status::deadline_exceeded("slow"));
    let name = |class: &'static str| move |claim: &mut Claim| claim.spec.attributes_class = class.to_owned();
    world.api.change::<Claim>("default", "data", name("gold")).unwrap();
    world.story().await;
    world.api.change::<Claim>("default", "data", name("silver")).unwrap();
    expect![[r#"
        modify handle-of-pvc-uid-data to {"iops": "100"}
        modify handle-of-pvc-uid-data to {"iops": "10"}
        data Bound, is silver"#]]
    .assert_eq(&world.after(10).await);
}
