//! Group snapshots: the controllers together, from claims with a label on.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::clock::TokioClock;
use api::group_snapshot::{GroupContentSource, GroupSource};
use api::names::{DriverName, Namespaced, VolumeHandle};
use api::snapshot::SnapshotSource;
use api::storage::{ClaimReference, CsiSource, DataSource, Requirement};
use api::{
    Claim, ClaimPhase, GroupSnapshot, GroupSnapshotClass, GroupSnapshotContent, Meta, PersistentSource,
    Snapshot, SnapshotContent, Volume,
};
use async_trait::async_trait;
use cluster::{
    GroupSnapshotController, GroupSnapshotService, GroupSnapshotter, GroupSnapshotterConfig,
    SnapshotController, SnapshotService, Snapshotter, SnapshotterConfig,
};
use contracts::event::Client;
use csi_proto::v1;
use expect_test::expect;
use tonic::Status;

use super::{Calls, api_server, warnings};
use crate::api_server::ApiServer;

const DRIVER: &str = "a.csi.example.com";
const MOMENT: Duration = Duration::from_millis(10);

/// Notes each call. Fails with the next error that is left.
#[derive(Debug, Default)]
struct Script {
    calls: Calls,
    /// The number of further answers that say that a group is not ready.
    unready: Mutex<u32>,
    /// The number of snapshots that the answers leave out.
    missing: Mutex<usize>,
}

impl Script {
    fn group(&self, volumes: &[String]) -> v1::VolumeGroupSnapshot {
        let mut left = self.unready.lock().unwrap();
        let ready_to_use = *left == 0;
        *left = left.saturating_sub(1);
        let member = |volume: &String| v1::Snapshot {
            snapshot_id: format!("id-of-{volume}"),
            source_volume_id: volume.clone(),
            size_bytes: 5,
            ready_to_use,
            group_snapshot_id: "group".to_owned(),
            ..v1::Snapshot::default()
        };
        let missing = *self.missing.lock().unwrap();
        v1::VolumeGroupSnapshot {
            group_snapshot_id: "group".to_owned(),
            snapshots: volumes.iter().skip(missing).map(member).collect(),
            ready_to_use,
            ..v1::VolumeGroupSnapshot::default()
        }
    }
}

#[async_trait]
impl GroupSnapshotService for Script {
    async fn create(
        &self,
        request: v1::CreateVolumeGroupSnapshotRequest,
        _: Duration,
    ) -> Result<v1::CreateVolumeGroupSnapshotResponse, Status> {
        let (name, volumes) = (&request.name, &request.source_volume_ids);
        self.calls.call(format!("take {name} of {volumes:?} with {:?}", request.parameters))?;
        Ok(v1::CreateVolumeGroupSnapshotResponse { group_snapshot: Some(self.group(volumes)) })
    }

    async fn delete(
        &self,
        request: v1::DeleteVolumeGroupSnapshotRequest,
        _: Duration,
    ) -> Result<v1::DeleteVolumeGroupSnapshotResponse, Status> {
        self.calls.call(format!("delete {} with {:?}", request.group_snapshot_id, request.snapshot_ids))?;
        Ok(v1::DeleteVolumeGroupSnapshotResponse {})
    }

    async fn get(
        &self,
        request: v1::GetVolumeGroupSnapshotRequest,
        _: Duration,
    ) -> Result<v1::GetVolumeGroupSnapshotResponse, Status> {
        self.calls.call(format!("get {} with {:?}", request.group_snapshot_id, request.snapshot_ids))?;
        let group = v1::VolumeGroupSnapshot {
            group_snapshot_id: request.group_snapshot_id,
            ready_to_use: true,
            ..v1::VolumeGroupSnapshot::default()
        };
        Ok(v1::GetVolumeGroupSnapshotResponse { group_snapshot: Some(group) })
    }
}

#[async_trait]
impl SnapshotService for Script {
    async fn create(
        &self,
        request: v1::CreateSnapshotRequest,
        _: Duration,
    ) -> Result<v1::CreateSnapshotResponse, Status> {
        self.calls.call(format!("take {} alone", request.name))?;
        Ok(v1::CreateSnapshotResponse::default())
    }

    async fn delete(
        &self,
        request: v1::DeleteSnapshotRequest,
        _: Duration,
    ) -> Result<v1::DeleteSnapshotResponse, Status> {
        self.calls.call(format!("delete {} alone", request.snapshot_id))?;
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
            group_snapshot_id: "group".to_owned(),
            ..v1::Snapshot::default()
        };
        let entry = v1::list_snapshots_response::Entry { snapshot: Some(snapshot) };
        Ok(v1::ListSnapshotsResponse { entries: vec![entry], ..v1::ListSnapshotsResponse::default() })
    }
}

struct World {
    api: ApiServer,
    script: Arc<Script>,
    _running: (SnapshotController, Snapshotter, GroupSnapshotController, GroupSnapshotter),
}

impl World {
    /// With a class and two claims that are bound and have the label, `data` and `log`.
    async fn with_claims() -> Self {
        let (api, script) = (api_server(), Arc::new(Script::default()));
        let source = || api.seen_by(Client::Controller);
        let (clock, service) = (TokioClock::shared, || Arc::<Script>::clone(&script));
        let alone = SnapshotterConfig { lists: true, ..SnapshotterConfig::new(DRIVER) };
        let running = (
            SnapshotController::start_with_groups(source(), clock()),
            Snapshotter::start(alone, source(), clock(), service()),
            GroupSnapshotController::start(source(), clock()),
            GroupSnapshotter::start(GroupSnapshotterConfig::new(DRIVER), source(), clock(), service()),
        );
        let world = Self { api, script, _running: running };
        world.class("weekly", "Delete");
        world.claim("data", |_| {});
        world.claim("log", |_| {});
        world.claim("other", |claim| claim.meta.labels.clear());
        world.story().await;
        world
    }

    fn class(&self, name: &str, deletion: &str) {
        let parameters = [("depth", "full"), ("csi.storage.k8s.io/unknown", "x")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let class = GroupSnapshotClass {
            meta: Meta::named("", name),
            driver: DRIVER.to_owned(),
            parameters: parameters.into(),
            deletion: deletion.to_owned(),
        };
        self.api.create(class).expect("it is new");
    }

    /// A claim with the label that is bound.
    fn claim(&self, name: &str, change: impl FnOnce(&mut Claim)) {
        let mut claim = Claim { meta: Meta::named("default", name), ..Claim::default() };
        claim.meta.uid = format!("uid-{name}");
        claim.meta.labels.insert("app".to_owned(), "db".to_owned());
        claim.spec.volume = format!("pv-{name}");
        claim.status.phase = ClaimPhase::Bound;
        change(&mut claim);
        let csi = CsiSource {
            driver: DriverName::new(DRIVER),
            handle: VolumeHandle::new(name),
            ..CsiSource::default()
        };
        let reference =
            ClaimReference { claim: Namespaced::new("default", name), uid: format!("uid-{name}") };
        let volume = Volume {
            meta: Meta::named("", format!("pv-{name}")),
            claim: Some(reference),
            source: PersistentSource::Csi(Box::new(csi)),
            ..Volume::default()
        };
        self.api.create(volume).expect("it is new");
        self.api.create(claim).expect("it is new");
    }

    fn group(&self, change: impl FnOnce(&mut GroupSnapshot)) {
        let mut meta = Meta::named("default", "monday");
        meta.uid = "uid-monday".to_owned();
        let app = Requirement { key: "app".into(), operator: "In".into(), values: vec!["db".into()] };
        let mut group = GroupSnapshot {
            meta,
            source: GroupSource::Claims(vec![app]),
            class: Some("weekly".to_owned()),
            ..GroupSnapshot::default()
        };
        change(&mut group);
        self.api.create(group).expect("it is new");
    }

    /// The snapshot of the claim `data` that is part of the group.
    fn member(&self) -> Arc<Snapshot> {
        let of_data = |snapshot: &Arc<Snapshot>| snapshot.source == SnapshotSource::Claim("data".to_owned());
        self.api.list::<Snapshot>().into_iter().find(of_data).expect("it was taken")
    }

    fn fail(&self, status: Status) {
        self.script.calls.fail(status);
    }

    fn delete_group(&self) {
        self.api.delete::<GroupSnapshot>("default", "monday").expect("it is there");
    }

    /// The calls and warnings since the last look, and how groups, snapshots and contents are now.
    async fn story(&self) -> String {
        tokio::time::sleep(MOMENT).await;
        let mut lines = self.script.calls.take();
        lines.extend(warnings(&self.api));
        let state = |ready: bool, meta: &Meta| {
            let ready = if ready { "ready" } else { "not ready" };
            let going = if meta.is_deleting() { ", going" } else { "" };
            format!("{ready}{going}")
        };
        for group in self.api.list::<GroupSnapshot>() {
            lines.push(format!("{} {}", group.meta.name, state(group.status.ready, &group.meta)));
        }
        for content in self.api.list::<GroupSnapshotContent>() {
            lines.push(format!("{} {:?}", content.meta.name, content.status.handle));
        }
        for snapshot in self.api.list::<Snapshot>() {
            let SnapshotSource::Claim(claim) = &snapshot.source else { continue };
            let (group, state) = (&snapshot.status.group, state(snapshot.status.ready, &snapshot.meta));
            lines.push(format!("snapshot of {claim} in {group:?} {state}"));
        }
        for content in self.api.list::<SnapshotContent>() {
            lines.push(format!("content {:?} of {:?}", content.status.handle, content.status.group));
        }
        lines.join("\n").replace(&self.hash(), "#data")
    }

    /// The name of the group's snapshot of `data`, without its beginning.
    fn hash(&self) -> String {
        let (name, _) = api::group_snapshot::GroupMember::names("uid-monday", "data");
        name.trim_start_matches("snapshot-").to_owned()
    }

    async fn after(&self, seconds: u64) -> String {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        self.story().await
    }
}

#[tokio::test(start_paused = true)]
async fn group_is_taken_and_goes_with_its_snapshots() {
    let world = World::with_claims().await;
    world.group(|_| {});
    expect![[r#"
        take groupsnapshot-uid-monday of ["data", "log"] with {"depth": "full"}
        monday ready
        groupsnapcontent-uid-monday "group"
        snapshot of data in "monday" ready
        snapshot of log in "monday" ready
        content "id-of-data" of "group"
        content "id-of-log" of "group""#]]
    .assert_eq(&world.story().await);
    world.delete_group();
    expect![[r#"delete group with ["id-of-data", "id-of-log"]"#]].assert_eq(&world.story().await);
}

#[tokio::test(start_paused = true)]
async fn snapshots_of_a_group_are_there_before_it_is_ready() {
    let world = World::with_claims().await;
    *world.script.unready.lock().unwrap() = 1;
    world.group(|_| {});
    expect![[r#"
        take groupsnapshot-uid-monday of ["data", "log"] with {"depth": "full"}
        list id-of-data
        list id-of-log
        monday not ready
        groupsnapcontent-uid-monday "group"
        snapshot of data in "monday" ready
        snapshot of log in "monday" ready
        content "id-of-data" of "group"
        content "id-of-log" of "group""#]]
    .assert_eq(&world.story().await);
    expect![[r#"
        take groupsnapshot-uid-monday of ["data", "log"] with {"depth": "full"}
        monday ready
        groupsnapcontent-uid-monday "group"
        snapshot of data in "monday" ready
        snapshot of log in "monday" ready
        content "id-of-data" of "group"
        content "id-of-log" of "group""#]]
    .assert_eq(&world.after(10).await);
}

#[tokio::test(start_paused = true)]
async fn snapshot_of_a_group_is_not_deleted_alone() {
    let world = World::with_claims().await;
    world.group(|_| {});
    world.story().await;
    world.api.delete::<Snapshot>("default", &world.member().meta.name).expect("it is there");
    expect![[r#"
        SnapshotDeletePending: deletion of the individual volume snapshot default/snapshot-#data is not allowed as it belongs to group snapshot default/monday. Deleting the group snapshot will trigger the deletion of all the individual volume snapshots that are part of the group.
        monday ready
        groupsnapcontent-uid-monday "group"
        snapshot of data in "monday" ready, going
        snapshot of log in "monday" ready
        content "id-of-data" of "group"
        content "id-of-log" of "group""#]].assert_eq(&world.after(60).await);
    world.delete_group();
    expect![[r#"delete group with ["id-of-data", "id-of-log"]"#]].assert_eq(&world.after(1).await);
}

#[tokio::test(start_paused = true)]
async fn group_is_not_deleted_while_a_claim_is_made_from_one_of_its_snapshots() {
    let world = World::with_claims().await;
    world.group(|_| {});
    world.story().await;
    let (name, kind) = (world.member().meta.name.clone(), "VolumeSnapshot".to_owned());
    world.claim("copy", |claim| {
        claim.spec.data_source = Some(DataSource { kind, name });
        claim.spec.volume.clear();
        claim.meta.labels.clear();
        claim.status.phase = ClaimPhase::Pending;
    });
    world.delete_group();
    expect![[r#"
        SnapshotDeletePending: Snapshot default/snapshot-#data belonging to VolumeGroupSnapshot default/monday is being used to restore a PVC
        monday ready, going
        groupsnapcontent-uid-monday "group"
        snapshot of data in "monday" ready
        snapshot of log in "monday" ready
        content "id-of-data" of "group"
        content "id-of-log" of "group""#]].assert_eq(&world.story().await);
    world.api.change::<Claim>("default", "copy", |claim| claim.status.phase = ClaimPhase::Bound).unwrap();
    expect![[r#"delete group with ["id-of-data", "id-of-log"]"#]].assert_eq(&world.story().await);
}

#[tokio::test(start_paused = true)]
async fn retained_content_stays_with_those_of_its_snapshots() {
    let world = World::with_claims().await;
    world.class("kept", "Retain");
    world.group(|group| group.class = Some("kept".to_owned()));
    world.story().await;
    world.delete_group();
    expect![[r#"
        groupsnapcontent-uid-monday "group"
        content "id-of-data" of "group"
        content "id-of-log" of "group""#]]
    .assert_eq(&world.story().await);
}

#[tokio::test(start_paused = true)]
async fn group_of_unknown_outcome_is_seen_through_before_it_is_deleted() {
    let world = World::with_claims().await;
    world.fail(Status::deadline_exceeded("slow"));
    world.group(|_| {});
    expect![[r#"
        take groupsnapshot-uid-monday of ["data", "log"] with {"depth": "full"}
        GroupSnapshotCreationFailed: Failed to create group snapshot: failed to take group snapshot of the volumes [data log]: rpc error: code = DeadlineExceeded desc = slow
        monday not ready
        groupsnapcontent-uid-monday """#]].assert_eq(&world.story().await);
    world.delete_group();
    expect![[r#"
        take groupsnapshot-uid-monday of ["data", "log"] with {"depth": "full"}
        delete group with ["id-of-data", "id-of-log"]"#]]
    .assert_eq(&world.after(10).await);
}

#[tokio::test(start_paused = true)]
async fn group_that_was_refused_is_deleted_without_a_call() {
    let world = World::with_claims().await;
    world.fail(Status::failed_precondition("not together"));
    world.group(|_| {});
    expect![[r#"
        take groupsnapshot-uid-monday of ["data", "log"] with {"depth": "full"}
        GroupSnapshotCreationFailed: Failed to create group snapshot: failed to take group snapshot of the volumes [data log]: rpc error: code = FailedPrecondition desc = not together
        monday not ready
        groupsnapcontent-uid-monday """#]].assert_eq(&world.story().await);
    world.delete_group();
    expect![[r#""#]].assert_eq(&world.story().await);
}

#[tokio::test(start_paused = true)]
async fn answer_without_a_volume_is_reported_and_its_snapshots_are_deleted_with_the_group() {
    let world = World::with_claims().await;
    *world.script.missing.lock().unwrap() = 1;
    world.group(|_| {});
    expect![[r#"
        take groupsnapshot-uid-monday of ["data", "log"] with {"depth": "full"}
        GroupSnapshotCreationFailed: Failed to create group snapshot: failed to take group snapshot of the volumes [data log]: the driver answered snapshots of [log] instead of one snapshot of each volume
        monday not ready
        groupsnapcontent-uid-monday "group""#]].assert_eq(&world.story().await);
    world.delete_group();
    expect![[r#"delete group with ["id-of-log"]"#]].assert_eq(&world.story().await);
}

#[tokio::test(start_paused = true)]
async fn group_without_bound_claims_or_a_class_waits() {
    let world = World::with_claims().await;
    world.group(|group| {
        let nothing = Requirement { key: "x".into(), operator: "Exists".into(), values: Vec::new() };
        group.source = GroupSource::Claims(vec![nothing]);
    });
    expect![[r#"
        GroupSnapshotContentCreationFailed: failed to create group snapshot content with error the label selector of the group snapshot is not applied to any PVC
        monday not ready"#]].assert_eq(&world.story().await);
    world.delete_group();
    world.story().await;
    world.group(|group| group.class = None);
    expect![[r#"
        GroupSnapshotContentCreationFailed: failed to create group snapshot content with error cannot find default group snapshot class
        monday not ready"#]].assert_eq(&world.story().await);
    world.delete_group();
    world.story().await;
    world.claim("late", |claim| claim.status.phase = ClaimPhase::Pending);
    world.group(|_| {});
    expect![[r#"
        GroupSnapshotContentCreationFailed: failed to create group snapshot content with error the PVC late is not yet bound to a PV, will not attempt to take a group snapshot
        monday not ready"#]].assert_eq(&world.story().await);
    world.api.change::<Claim>("default", "late", |claim| claim.status.phase = ClaimPhase::Bound).unwrap();
    expect![[r#"
        take groupsnapshot-uid-monday of ["data", "late", "log"] with {"depth": "full"}
        monday ready
        groupsnapcontent-uid-monday "group"
        snapshot of data in "monday" ready
        snapshot of log in "monday" ready
        snapshot of late in "monday" ready
        content "id-of-data" of "group"
        content "id-of-log" of "group"
        content "id-of-late" of "group""#]]
    .assert_eq(&world.after(1).await);
}

#[tokio::test(start_paused = true)]
async fn content_that_is_written_down_is_bound_to_the_group_that_it_names() {
    let world = World::with_claims().await;
    let content = |name: &str, of: &str| GroupSnapshotContent {
        meta: Meta::named("", name),
        group: Namespaced::new("default", of),
        driver: DRIVER.to_owned(),
        deletion: "Delete".to_owned(),
        source: GroupContentSource::Group { group: "old".to_owned(), snapshots: vec!["s".to_owned()] },
        ..GroupSnapshotContent::default()
    };
    world.api.create(content("mine", "monday")).unwrap();
    world.api.create(content("other", "tuesday")).unwrap();
    world.group(|group| group.source = GroupSource::Content("mine".to_owned()));
    expect![[r#"
        get old with ["s"]
        monday ready
        mine "old"
        other """#]]
    .assert_eq(&world.story().await);
    world.delete_group();
    expect![[r#"
        delete old with ["s"]
        other """#]]
    .assert_eq(&world.story().await);
    world.group(|group| group.source = GroupSource::Content("other".to_owned()));
    expect![[r#"
        GroupSnapshotContentMisbound: VolumeGroupSnapshotContent [other] is bound to a different group snapshot
        monday not ready
        other """#]].assert_eq(&world.story().await);
    world.delete_group();
    world.story().await;
    world.group(|group| group.source = GroupSource::Content("missing".to_owned()));
    expect![[r#"
        GroupSnapshotContentMissing: VolumeGroupSnapshotContent is missing
        monday not ready
        other """#]]
    .assert_eq(&world.story().await);
}
