//! A controller's work is in proportion to what has changed, and not to what there is: counted in the objects that it
//! reads for the same changes among few claims and among many.

use std::sync::Arc;
use std::time::Duration;

use api::clock::TokioClock;
use api::group_snapshot::GroupMember;
use api::snapshot::SnapshotSource;
use api::storage::DataSource;
use api::{
    ApiSource, Attachment, Bytes, Claim, ClaimPhase, GroupSnapshot, GroupSnapshotContent, Key, Kind, Object,
    Pod, Resource, Snapshot, SnapshotContent, Volume,
};
use cluster::{
    Attacher, AttacherConfig, Binder, Ephemeral, GroupSnapshotController, GroupSnapshotter,
    GroupSnapshotterConfig, Modifier, ModifierConfig, Placement, Protection, Provisioner, ProvisionerConfig,
    Resizer, ResizerConfig, SnapshotController, Snapshotter, SnapshotterConfig,
};
use testing::MemoryApi;

use crate::counting::Counting;
use crate::obedient::Obedient;
use crate::others;
use crate::others::{ATTACHER, DRIVER, PROVISIONED_BY};

/// The namespace of what changes.
const HERE: &str = "here";

/// Longer than a controller needs for a change.
const LONG: Duration = Duration::from_secs(30);

/// Starts a controller among few other claims and among many, and makes the same changes.
async fn costs_the_same<R>(start: impl Fn(Arc<dyn ApiSource>) -> R, change: impl AsyncFn(&MemoryApi)) {
    costs_the_same_among(others::add, start, change).await;
}

/// The same among other objects.
async fn costs_the_same_among<R>(
    add: impl Fn(&MemoryApi, usize),
    start: impl Fn(Arc<dyn ApiSource>) -> R,
    change: impl AsyncFn(&MemoryApi),
) {
    let mut costs = Vec::new();
    for others in [100, 10_000] {
        let api = Arc::new(Counting::default());
        others::furnish(&api.inner);
        (0..others).for_each(|number| add(&api.inner, number));
        let _running = start(Arc::<Counting>::clone(&api));
        settle().await;
        api.take_read();
        change(&api.inner).await;
        costs.push(api.take_read());
    }
    let [few, many] = costs[..] else { unreachable!("there are two sizes") };
    assert!(few > 0, "nothing was looked at");
    assert!(2 * many <= 3 * few, "{few} objects are read among 100 claims, and {many} among 10,000");
}

async fn settle() {
    TokioClock::shared().sleep(LONG).await;
}

async fn put(api: &MemoryApi, object: impl Resource) {
    api.put(object.into_object());
    settle().await;
}

/// Deletes an object as a user does.
async fn delete<R: Resource>(api: &MemoryApi, namespace: &str, name: &str) {
    api.delete(&Key::namespaced(R::KIND, namespace, name)).await.expect("it is there");
    settle().await;
}

#[tokio::test(start_paused = true)]
async fn attacher_looks_at_what_has_changed() {
    let start =
        |api| Attacher::start(AttacherConfig::new(DRIVER), api, TokioClock::shared(), Arc::new(Obedient));
    costs_the_same(start, async |api| {
        let mut volume = others::volume(HERE, "new");
        volume.meta.finalizers.clear();
        put(api, volume).await;
        put(api, others::attachment("new")).await;
        assert!(api.read::<Attachment>("", "csi-new").expect("it was put in").attached);
        let mut volume: Volume = api.read("", "pv-new").expect("it was put in");
        assert_eq!(volume.meta.finalizers, [ATTACHER]);
        volume.meta.deleted = Some("now".to_owned());
        put(api, volume).await;
        delete::<Attachment>(api, "", "csi-new").await;
        assert_eq!(api.read::<Volume>("", "pv-new"), None);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn binder_looks_at_what_has_changed() {
    costs_the_same(
        |api| Binder::start(api, TokioClock::shared()),
        async |api| {
            put(api, others::claim(HERE, "new")).await;
            put(api, others::volume(HERE, "new")).await;
            let claim = api.claim(HERE, "new");
            assert_eq!((claim.status.phase, claim.spec.volume.as_str()), (ClaimPhase::Bound, "pv-new"));
            api.remove(&claim.key());
            settle().await;
            assert_eq!(api.read::<Volume>("", "pv-new").expect("it was put in").phase, "Released");
        },
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn free_volume_is_offered_to_one_claim_of_its_class() {
    let unbound = |namespace: &str, name: &str| {
        let mut claim = others::claim(namespace, name);
        claim.spec.class = Some("by-hand".to_owned());
        claim
    };
    let add = |api: &MemoryApi, number: usize| {
        api.put(unbound(&format!("n{}", number / 10), &format!("c{number}")).into_object());
    };
    costs_the_same_among(
        add,
        |api| Binder::start(api, TokioClock::shared()),
        async |api| {
            for number in 0..3 {
                let mut volume = others::volume(HERE, &format!("free-{number}"));
                (volume.class, volume.claim, volume.phase) = ("by-hand".to_owned(), None, String::new());
                put(api, volume).await;
            }
            let claims = api.all(Kind::Claim);
            let is_bound = |object: &&Object| {
                matches!(object, Object::Claim(claim) if claim.status.phase == ClaimPhase::Bound)
            };
            assert_eq!(claims.iter().filter(is_bound).count(), 3);
        },
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn ephemeral_controller_looks_at_what_has_changed() {
    costs_the_same(
        |api| Ephemeral::start(api, TokioClock::shared()),
        async |api| {
            let mut pod = others::pod(HERE, "new", "data");
            pod.volumes.push(others::own());
            put(api, pod).await;
            api.claim(HERE, "new-own");
            delete::<Pod>(api, HERE, "new").await;
            assert_eq!(api.read::<Claim>(HERE, "new-own"), None);
        },
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn placement_looks_at_what_has_changed() {
    costs_the_same(
        |api| Placement::start(api, TokioClock::shared()),
        async |api| {
            let mut claim = others::claim(HERE, "new");
            claim.spec.class = Some("late".to_owned());
            put(api, claim).await;
            put(api, others::pod(HERE, "new", "new")).await;
            let node = "volume.kubernetes.io/selected-node";
            assert_eq!(api.claim(HERE, "new").meta.annotations[node], others::NODE);
        },
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn protection_looks_at_what_has_changed() {
    costs_the_same(
        |api| Protection::start(api, TokioClock::shared()),
        async |api| {
            put(api, others::bound(HERE, "new")).await;
            put(api, others::volume(HERE, "new")).await;
            put(api, others::pod(HERE, "new", "new")).await;
            delete::<Claim>(api, HERE, "new").await;
            delete::<Volume>(api, "", "pv-new").await;
            assert!(api.claim(HERE, "new").meta.is_deleting());
            delete::<Pod>(api, HERE, "new").await;
            assert_eq!(api.read::<Claim>(HERE, "new"), None);
            assert_eq!(api.read::<Volume>("", "pv-new"), None);
        },
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn provisioner_looks_at_what_has_changed() {
    let config = || ProvisionerConfig { topology: true, clones: true, ..ProvisionerConfig::new(DRIVER) };
    let start = |api| Provisioner::start(config(), api, TokioClock::shared(), Arc::new(Obedient));
    costs_the_same(start, async |api| {
        let mut source = others::bound(HERE, "source");
        source.meta.finalizers.clear();
        put(api, source).await;
        put(api, others::volume(HERE, "source")).await;
        let mut copy = others::claim(HERE, "copy");
        let asked = "volume.kubernetes.io/storage-provisioner";
        copy.meta.annotations.insert(asked.to_owned(), DRIVER.to_owned());
        let (kind, name) = ("PersistentVolumeClaim".to_owned(), "source".to_owned());
        copy.spec.data_source = Some(DataSource { kind, name });
        put(api, copy).await;
        let mut made: Volume = api.read("", "pvc-claim-copy").expect("it is provisioned");
        delete::<Claim>(api, HERE, "source").await;
        assert!(api.claim(HERE, "source").meta.is_deleting(), "its copy is not bound");
        let mut copy = api.claim(HERE, "copy");
        copy.spec.volume.clone_from(&made.meta.name);
        put(api, copy).await;
        assert_eq!(api.read::<Claim>(HERE, "source"), None);
        made.phase = "Released".to_owned();
        assert_eq!(made.meta.annotations[PROVISIONED_BY], DRIVER);
        put(api, made).await;
        assert_eq!(api.read::<Volume>("", "pvc-claim-copy"), None);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn resizer_looks_at_what_has_changed() {
    let start =
        |api| Resizer::start(ResizerConfig::new(DRIVER), api, TokioClock::shared(), Arc::new(Obedient));
    costs_the_same(start, async |api| {
        put(api, others::volume(HERE, "new")).await;
        let claim = others::bound(HERE, "new");
        put(api, claim.clone()).await;
        let mut larger = claim;
        larger.spec.request = Bytes(2);
        put(api, larger).await;
        assert_eq!(api.claim(HERE, "new").status.capacity, Bytes(2));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn modifier_looks_at_what_has_changed() {
    let start =
        |api| Modifier::start(ModifierConfig::new(DRIVER), api, TokioClock::shared(), Arc::new(Obedient));
    costs_the_same(start, async |api| {
        put(api, others::volume(HERE, "new")).await;
        let mut claim = others::bound(HERE, "new");
        claim.spec.attributes_class = "gold".to_owned();
        put(api, claim).await;
        assert_eq!(api.claim(HERE, "new").status.attributes_class, "gold");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn snapshot_controller_looks_at_what_has_changed() {
    costs_the_same(
        |api| SnapshotController::start(api, TokioClock::shared()),
        async |api| {
            put(api, others::volume(HERE, "new")).await;
            put(api, others::bound(HERE, "new")).await;
            put(api, others::snapshot(HERE, "new")).await;
            let mut content: SnapshotContent = api.read("", "snapcontent-snapshot-new").expect("it is made");
            content.status.handle = "cut".to_owned();
            content.status.ready = true;
            put(api, content).await;
            assert!(api.read::<Snapshot>(HERE, "of-new").expect("it was put in").status.ready);
            assert_eq!(api.claim(HERE, "new").meta.finalizers.len(), 1, "its snapshot is finished");
            delete::<Snapshot>(api, HERE, "of-new").await;
            assert_eq!(api.read::<Snapshot>(HERE, "of-new"), None);
        },
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn snapshotter_looks_at_what_has_changed() {
    let start = |api| {
        Snapshotter::start(SnapshotterConfig::new(DRIVER), api, TokioClock::shared(), Arc::new(Obedient))
    };
    costs_the_same(start, async |api| {
        put(api, others::content(HERE, "new")).await;
        let name = "snapcontent-snapshot-new";
        let mut content: SnapshotContent = api.read("", name).expect("it was put in");
        assert!(content.status.ready);
        let deleted = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted";
        content.meta.annotations.insert(deleted.to_owned(), "yes".to_owned());
        content.meta.deleted = Some("now".to_owned());
        put(api, content).await;
        assert_eq!(api.read::<SnapshotContent>("", name), None);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn group_snapshot_controller_looks_at_what_has_changed() {
    costs_the_same(
        |api| GroupSnapshotController::start(api, TokioClock::shared()),
        async |api| {
            put(api, others::volume(HERE, "new")).await;
            let mut claim = others::bound(HERE, "new");
            claim.meta.labels.insert("new".to_owned(), String::new());
            put(api, claim).await;
            put(api, others::group(HERE, "new")).await;
            let name = "groupsnapcontent-group-new";
            let mut content: GroupSnapshotContent = api.read("", name).expect("it is made");
            content.status.handle = "group".to_owned();
            content.status.members = vec![GroupMember {
                volume: "handle-of-new".to_owned(),
                snapshot: "cut".to_owned(),
                ..GroupMember::default()
            }];
            content.status.ready = true;
            put(api, content).await;
            assert!(api.read::<GroupSnapshot>(HERE, "group-new").expect("it was put in").status.ready);
            let (snapshot, _) = GroupMember::names("group-new", "handle-of-new");
            let member: Snapshot = api.read(HERE, &snapshot).expect("it is made");
            assert_eq!(member.source, SnapshotSource::Claim("new".to_owned()));
            delete::<GroupSnapshot>(api, HERE, "group-new").await;
            assert_eq!(api.read::<GroupSnapshot>(HERE, "group-new"), None);
        },
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn group_snapshotter_looks_at_what_has_changed() {
    let start = |api| {
        let config = GroupSnapshotterConfig::new(DRIVER);
        GroupSnapshotter::start(config, api, TokioClock::shared(), Arc::new(Obedient))
    };
    costs_the_same(start, async |api| {
        put(api, others::group_content(HERE, "new")).await;
        let name = "groupsnapcontent-group-new";
        let mut content: GroupSnapshotContent = api.read("", name).expect("it was put in");
        assert_eq!((content.status.ready, content.status.members.len()), (true, 1));
        let deleted = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted";
        content.meta.annotations.insert(deleted.to_owned(), "yes".to_owned());
        content.meta.deleted = Some("now".to_owned());
        put(api, content).await;
        assert_eq!(api.read::<GroupSnapshotContent>("", name), None);
    })
    .await;
}
