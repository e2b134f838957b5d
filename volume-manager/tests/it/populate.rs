//! The volumes that a pod may use, and the errors of the others.

use std::sync::Arc;

use api::names::AttachmentName;
use api::object::Bytes;
use api::pod::{PodVolume, SeLinuxOptions, VolumeDevice};
use api::storage::{AttachmentError, ClaimTemplate};
use api::{
    AccessMode, Attachment, Claim, ClaimPhase, CsiDriver, Key, Kind, Meta, Object, Owner, PersistentSource,
    Pod, Volume, VolumeMode, VolumeSource, get,
};
use expect_test::{Expect, expect};
use volume_manager::{PodState, WAIT_LIMIT, WaitError};

use crate::world::{World, pod, unique, volume};

/// The annotation with the group of a volume.
const GID: &str = "pv.beta.kubernetes.io/gid";

/// Compares the error of `web` after this change of `data` and its claim.
async fn check(change: impl FnOnce(&mut Claim, &mut Volume), expected: Expect) {
    check_pod(change, |_| {}, expected).await;
}

async fn check_pod(
    change: impl FnOnce(&mut Claim, &mut Volume),
    change_pod: impl FnOnce(&mut Pod),
    expected: Expect,
) {
    let world = World::new().await;
    world.volume("data");
    change_objects(&world, change).await;
    let mut web = pod("web", &["data"]);
    change_pod(&mut web);
    expected.assert_eq(&outcome(&world, web).await);
}

async fn change_objects(world: &World, change: impl FnOnce(&mut Claim, &mut Volume)) {
    change_objects_of(world, "data", change).await;
}

async fn change_objects_of(world: &World, name: &str, change: impl FnOnce(&mut Claim, &mut Volume)) {
    let mut claim = (*get::<Claim>(&*world.api, "default", name).await.expect("it is there")).clone();
    let mut volume = (*get::<Volume>(&*world.api, "", name).await.expect("it is there")).clone();
    change(&mut claim, &mut volume);
    world.api.put(Object::Claim(Arc::new(claim)));
    world.api.put(Object::Volume(Arc::new(volume)));
}

async fn outcome(world: &World, pod: Pod) -> String {
    let uid = pod.uid();
    world.manager.add_pod(Arc::new(pod));
    match world.manager.wait_mounted(&uid, WAIT_LIMIT).await {
        Ok(()) => world.toy.story().replace('\n', ", "),
        Err(error) => {
            assert_eq!(world.toy.story(), "", "what is refused is not touched");
            error.to_string()
        }
    }
}

#[tokio::test(start_paused = true)]
async fn claims() {
    check(|_, _| {}, expect!["stage data, publish data web, "]).await;
    check(|claim, _| claim.status.phase = ClaimPhase::Pending, expect!["unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: error processing PVC default/data: PVC is not bound"]).await;
    check(|claim, _| claim.spec.volume.clear(), expect!["unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: error processing PVC default/data: PVC has empty pvc.Spec.VolumeName"]).await;
    check(|claim, _| claim.spec.volume = "gone".to_owned(), expect![[r#"unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: error fetching PV "gone" (PVC default/data): persistentvolumes "gone" not found"#]]).await;
}

#[tokio::test(start_paused = true)]
async fn claims_that_are_being_deleted() {
    let deleted = |claim: &mut Claim| claim.meta.deleted = Some("2026-01-01T00:00:00Z".to_owned());
    check(|claim, _| deleted(claim), expect!["unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: error processing PVC default/data: PVC is being deleted"]).await;
    let protected = |claim: &mut Claim, _: &mut Volume| {
        deleted(claim);
        claim.meta.finalizers = vec!["kubernetes.io/pvc-protection".to_owned()];
    };
    check(protected, expect!["stage data, publish data web, "]).await;
}

#[tokio::test(start_paused = true)]
async fn bindings() {
    check(|_, volume| volume.claim = None, expect![[r#"unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: found PV object "data" but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"#]]).await;
    check(|claim, _| claim.meta.uid = "another".to_owned(), expect![[r#"unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: found PV object "data" but its pv.Spec.ClaimRef.UID "uid-data" does not point to claim.UID "another""#]]).await;
}

#[tokio::test(start_paused = true)]
async fn modes() {
    check(|_, volume| volume.mode = None, expect!["unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: cannot get volumeMode for volume: data"]).await;
    check(|_, volume| volume.mode = Some(VolumeMode::Block), expect!["unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: volume data has volumeMode Block, but is specified in volumeMounts"]).await;
    let as_device = |pod: &mut Pod| {
        pod.containers[0].mounts.clear();
        pod.containers[0].devices =
            vec![VolumeDevice { volume: "data".to_owned(), path: "/dev/x".to_owned() }];
    };
    check_pod(|_, _| {}, as_device, expect!["unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: volume data has volumeMode Filesystem, but is specified in volumeDevices"]).await;
}

#[tokio::test(start_paused = true)]
async fn missing_claims() {
    let world = World::new().await;
    expect![[r#"unmounted volumes=[nope], unattached volumes=[], failed to process volumes=[nope]: error processing PVC default/nope: failed to fetch PVC from API server: persistentvolumeclaims "nope" not found"#]].assert_eq(&outcome(&world, pod("web", &["nope"])).await);
}

#[tokio::test(start_paused = true)]
async fn volumes_no_container_uses_are_not_even_looked_up() {
    let world = World::new().await;
    let mut web = pod("web", &["nope"]);
    web.containers[0].mounts.clear();
    assert_eq!(outcome(&world, web).await, "");
}

#[tokio::test(start_paused = true)]
async fn a_claim_under_two_names_is_one_volume() {
    let world = World::new().await;
    world.volume("data");
    let mut web = pod("web", &["data"]);
    web.volumes.push(PodVolume { name: "again".into(), ..web.volumes[0].clone() });
    let mut mount = web.containers[0].mounts[0].clone();
    mount.volume = "again".to_owned();
    web.containers[0].mounts.push(mount);
    expect!["stage data, publish data web, "].assert_eq(&outcome(&world, web).await);
    let names: Vec<_> = world.manager.mounted_volumes(&"web".into()).await.into_keys().collect();
    expect![[r#"
        [
            "again",
            "data",
        ]
    "#]]
    .assert_debug_eq(&names);
}

#[tokio::test(start_paused = true)]
async fn generic_ephemeral_volumes_belong_to_their_pod() {
    expect!["stage web-data, publish web-data web, "].assert_eq(&ephemeral_owned_by("web").await);
    expect!["unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: PVC default/web-data was not created for pod default/web (pod is not owner)"].assert_eq(&ephemeral_owned_by("other").await);
}

async fn ephemeral_owned_by(uid: &str) -> String {
    let world = World::new().await;
    world.volume("web-data");
    let claim = get::<Claim>(&*world.api, "default", "web-data").await.expect("it is there");
    let mut claim = (*claim).clone();
    claim.meta.owners = vec![Owner { uid: uid.to_owned(), controller: true, ..Owner::default() }];
    world.api.put(Object::Claim(Arc::new(claim)));
    let mut web = pod("web", &["data"]);
    web.volumes[0].source = VolumeSource::Ephemeral { template: Box::new(ClaimTemplate::default()) };
    outcome(&world, web).await
}

/// The claim of a generic ephemeral volume is always writable.
#[tokio::test(start_paused = true)]
async fn read_only_of_a_claim_is_the_pods_reference() {
    let own = || VolumeSource::Ephemeral { template: Box::new(ClaimTemplate::default()) };
    let claim = |read_only| VolumeSource::Claim { claim: "web-data".to_owned(), read_only };
    for (source, is_read) in [(claim(true), true), (claim(false), false), (own(), false)] {
        let world = World::new().await;
        world.volume("web-data");
        change_objects_of(&world, "web-data", |claim, _| {
            claim.meta.owners = vec![Owner { uid: "web".to_owned(), controller: true, ..Owner::default() }];
        })
        .await;
        let mut web = pod("web", &["data"]);
        web.volumes[0].source = source;
        outcome(&world, web).await;
        assert_eq!(world.manager.mounted_volumes(&"web".into()).await[&"data".into()].read_only, is_read);
    }
}

#[tokio::test(start_paused = true)]
async fn names_that_leave_their_directory_are_refused() {
    let world = World::new().await;
    world.volume("..");
    let mut web = pod("web", &["data"]);
    web.volumes[0].source = VolumeSource::Claim { claim: "..".to_owned(), read_only: false };
    expect![[r#"unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: volume name ".." cannot name a directory"#]].assert_eq(&outcome(&world, web).await);
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_uid_leaves_its_directory_gets_nothing() {
    let world = World::new().await;
    world.volume("data");
    let mut web = pod("web", &["data"]);
    web.meta.uid = "../../etc".to_owned();
    expect!["unmounted volumes=[], unattached volumes=[], failed to process volumes=[]: context canceled"]
        .assert_eq(&outcome(&world, web).await);
}

#[tokio::test(start_paused = true)]
async fn volume_without_a_plugin_is_refused() {
    let world = World::new().await;
    let mut web = pod("web", &["data"]);
    web.volumes[0].source = VolumeSource::Other { kind: "flocker".to_owned() };
    expect![[r#"unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: failed to get Plugin from volumeSpec for volume "data" err=no volume plugin matched: there is none for flocker"#]].assert_eq(&outcome(&world, web).await);
}

/// The kubelet has a plugin for it, behind a gate that is off.
#[tokio::test(start_paused = true)]
async fn repository_is_refused_by_the_name_of_its_kind() {
    let world = World::new().await;
    let mut web = pod("web", &["data"]);
    web.volumes[0].source = VolumeSource::GitRepo { repository: "https://example/code.git".to_owned() };
    assert!(outcome(&world, web).await.ends_with("no volume plugin matched: there is none for gitRepo"));
}

/// The kubelet passes them to the CSI drivers that replace them.
#[tokio::test(start_paused = true)]
async fn a_clouds_own_kinds_are_not_its_drivers() {
    for persistent in [true, false] {
        let world = World::new().await;
        world.manager.driver_registered("ebs.csi.aws.com".into(), "/ebs.sock");
        world.volume("data");
        let kind = "awsElasticBlockStore".to_owned();
        let mut web = pod("web", &["data"]);
        if persistent {
            let source = PersistentSource::Other { kind };
            change_objects(&world, |_, volume| volume.source = source).await;
        } else {
            web.volumes[0].source = VolumeSource::Other { kind };
        }
        expect![[r#"unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: failed to get Plugin from volumeSpec for volume "data" err=no volume plugin matched: there is none for awsElasticBlockStore"#]].assert_eq(&outcome(&world, web).await);
    }
}

/// Objects that no API server would accept affect only their own pod.
#[tokio::test(start_paused = true)]
async fn invalid_objects_do_not_affect_other_pods() {
    type Spoil = fn(&mut Claim, &mut Volume);
    let spoils: [(Spoil, &str); 10] = [
        (|_, volume| volume.capacity = Bytes(0), "publish data web"),
        (|_, volume| volume.capacity = Bytes(u64::MAX), "publish data web"),
        (|claim, _| claim.status.capacity = Bytes(u64::MAX), "publish data web"),
        (|_, volume| volume.access_modes = vec![AccessMode::ReadWriteOnce; 10_000], "publish data web"),
        (
            |_, volume| {
                let huge = "x".repeat(1 << 20);
                volume.meta.annotations = [(GID.to_owned(), huge.clone()), (huge.clone(), huge)].into();
            },
            "publish data web",
        ),
        (|claim, _| claim.spec.volume = "../data".to_owned(), "error fetching PV \"../data\""),
        (|claim, _| claim.spec.volume = "x".repeat(1 << 20), "error fetching PV"),
        (|claim, _| claim.meta.uid.clear(), "does not point to claim.UID \"\""),
        (|_, volume| volume.claim.iter_mut().for_each(|claim| claim.uid.clear()), "ClaimRef.UID \"\""),
        (
            |_, volume| volume.source = PersistentSource::Other { kind: String::new() },
            "no volume plugin matched",
        ),
    ];
    for (spoil, message) in spoils {
        let world = World::new().await;
        world.volume("data");
        world.volume("good");
        change_objects(&world, spoil).await;
        let said = outcome(&world, pod("web", &["data"])).await;
        assert!(said.contains(message), "{message}: {said:.1000}");
        let good = outcome(&world, pod("other", &["good"])).await;
        assert!(good.contains("publish good other"), "{message}: {good:.1000}");
    }
}

#[tokio::test(start_paused = true)]
async fn several_errors_are_reported_together_and_in_order() {
    let world = World::new().await;
    world.volume("good");
    let error = outcome_of(&world, pod("web", &["b", "a", "good"])).await;
    expect![[r#"unmounted volumes=[a b good], unattached volumes=[], failed to process volumes=[a b]: error processing PVC default/a: failed to fetch PVC from API server: persistentvolumeclaims "a" not found; error processing PVC default/b: failed to fetch PVC from API server: persistentvolumeclaims "b" not found"#]].assert_eq(&error);
}

async fn outcome_of(world: &World, pod: Pod) -> String {
    let uid = pod.uid();
    world.manager.add_pod(Arc::new(pod));
    let waited = world.manager.wait_mounted(&uid, WAIT_LIMIT).await;
    waited.expect_err("two claims are missing").to_string()
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_claim_appears_gets_it_without_asking_again() {
    let world = World::new().await;
    world.run("web", &["data"]).await;
    world.sees(expect![[""]]);
    world.volume("data");
    world.idle().await;
    world.sees(expect![[r#"
        stage data
        publish data web
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_comes_later_brings_its_volumes() {
    let world = World::new().await;
    world.volume("data");
    let web = pod("web", &["data"]);
    let mut alone = web.clone();
    alone.containers[0].mounts.clear();
    world.manager.add_pod(Arc::new(alone));
    world.idle().await;
    world.sees(expect![[""]]);
    world.manager.update_pod(Arc::new(web));
    world.idle().await;
    world.sees(expect![[r#"
        stage data
        publish data web
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_looked_at_again_when_the_api_is_back() {
    let world = World::new().await;
    world.volume("data");
    world.api.set_down(Kind::Volume, true);
    world.run("web", &["data"]).await;
    world.pass(400).await;
    world.api.set_down(Kind::Volume, false);
    world.pass(100).await;
    world.sees(expect![[r#"
        stage data
        publish data web
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_ending_gets_nothing_new() {
    let world = World::new().await;
    world.volume("data");
    world.manager.set_pod_state(&"web".into(), PodState::Terminating);
    world.run("web", &["data"]).await;
    world.sees(expect![[""]]);
}

#[tokio::test(start_paused = true)]
async fn wait_of_a_terminating_pod_ends_at_once_with_its_missing_volumes() {
    for state in [PodState::Terminating, PodState::RuntimeGone] {
        let world = World::new().await;
        world.volume("data");
        let web = world.run("web", &["data", "nope"]).await;
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        let wait = world.manager.wait_mounted(&web, WAIT_LIMIT);
        // The error of the pod no longer counts, and its mounted volumes are still known.
        world.manager.set_pod_state(&web, state);
        let error = wait.await.expect_err("it has not got everything");
        expect![
            "unmounted volumes=[nope], unattached volumes=[], failed to process volumes=[nope]: context canceled"
        ]
        .assert_eq(&error.to_string());
    }
}

#[tokio::test(start_paused = true)]
async fn wait_of_a_terminating_pod_with_all_volumes_has_no_error() {
    let world = World::new().await;
    world.volume("data");
    let web = world.run("web", &["data"]).await;
    let wait = world.manager.wait_mounted(&web, WAIT_LIMIT);
    world.manager.set_pod_state(&web, PodState::Terminating);
    assert_eq!(wait.await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn errors_of_a_pod_are_forgotten_with_it() {
    for (state, removed) in [
        (PodState::Running, true),
        (PodState::Terminating, true),
        (PodState::RuntimeGone, true),
        (PodState::RuntimeGone, false),
    ] {
        let world = World::new().await;
        world.volume("data");
        for name in ["web", "db"] {
            world.run(name, &["data", "nope"]).await;
        }
        world.manager.set_pod_state(&"web".into(), state);
        if removed {
            world.manager.remove_pod(&"web".into());
        }
        world.idle().await;
        let errors = world.manager.dump().await.expect("it runs").errors;
        assert_eq!(errors.into_keys().collect::<Vec<_>>(), ["db"], "{state:?} {removed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_goes_while_it_is_waited_for_ends_the_wait() {
    let world = World::new().await;
    let web = world.run("web", &["nope"]).await;
    let manager = world.manager.clone();
    world.volume("nope");
    world.toy.hold("stage nope");
    let waiting = tokio::spawn({
        let web = web.clone();
        async move { manager.wait_mounted(&web, WAIT_LIMIT).await }
    });
    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    world.end(&web);
    let error = waiting.await.expect("it only waits").expect_err("the pod is gone");
    expect![
        "unmounted volumes=[nope], unattached volumes=[], failed to process volumes=[]: context canceled"
    ]
    .assert_eq(&error.to_string());
    world.toy.release("stage nope");
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_its_time() {
    let world = World::new().await;
    world.volume("data");
    world.toy.set_attachable(true);
    let error = outcome(&world, pod("web", &["data"])).await;
    expect!["unmounted volumes=[data], unattached volumes=[data], failed to process volumes=[]: context deadline exceeded"].assert_eq(&error);
}

/// A pod on a node that can attach no more volumes, and the objects that the attacher has marked as full.
async fn full() -> (World, [Key; 2]) {
    let world = World::new().await;
    world.volume("data");
    world.toy.set_attachable(true);
    let name = AttachmentName::of(&"data".into(), &"toy.example".into(), &"node".into());
    let error = AttachmentError { message: "no more".to_owned(), code: Some(8) };
    let attachment = Object::Attachment(Arc::new(Attachment {
        meta: Meta::named("", name.as_str()),
        node: "node".to_owned(),
        attach_error: Some(error),
        ..Attachment::default()
    }));
    let driver = Object::CsiDriver(Arc::new(CsiDriver {
        meta: Meta::named("", "toy.example"),
        allocatable_period: Some(10),
        ..CsiDriver::default()
    }));
    let keys = [attachment.key(), driver.key()];
    world.api.put(attachment);
    world.api.put(driver);
    world.add("web", &["data"]);
    (world, keys)
}

#[tokio::test(start_paused = true)]
async fn a_node_that_can_attach_no_more_says_so() {
    let (world, _) = full().await;
    let error = world.manager.wait_mounted(&"web".into(), WAIT_LIMIT).await.expect_err("it is not attached");
    assert!(matches!(error, WaitError::AttachmentLimit { .. }), "{error:?}");
    expect!["Node has reached its volume attachment limit, rejecting pod. volume data: no more"]
        .assert_eq(&error.to_string());
}

#[tokio::test(start_paused = true)]
async fn volume_deleted_during_a_hang_up_does_not_count_to_the_limit() {
    for gone in [None, Some(0), Some(1)] {
        let (world, keys) = full().await;
        world.idle().await;
        world.api.hang_up();
        if let Some(gone) = gone {
            world.api.remove(&keys[gone]);
        }
        world.pass(2_000).await;
        let error =
            world.manager.wait_mounted(&"web".into(), WAIT_LIMIT).await.expect_err("it is not attached");
        let limit = matches!(error, WaitError::AttachmentLimit { .. });
        assert_eq!(limit, gone.is_none(), "without {gone:?}: {error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn volumes_of_a_pod_are_in_the_desired_state() {
    let world = World::new().await;
    let mut data = volume("data");
    data.access_modes = vec![AccessMode::ReadWriteOncePod];
    data.capacity = Bytes(16 << 20);
    data.meta.annotations.insert("pv.beta.kubernetes.io/gid".to_owned(), "1234".to_owned());
    world.put_volume(data);
    let mut web = pod("web", &["data"]);
    web.security.selinux =
        Some(Box::new(SeLinuxOptions { level: "s0:c1".to_owned(), ..SeLinuxOptions::default() }));
    world.manager.add_pod(Arc::new(web));
    world.idle().await;
    let dump = world.manager.dump().await.expect("it runs");
    expect![[r#"
        {
            "pod web kubernetes.io/toy/data": "outer=data attachable=false reportedInUse=false desiredSize=16Mi",
        }
    "#]].assert_debug_eq(&dump.desired);
    let mounted = world.manager.mounted_volumes(&"web".into()).await;
    assert_eq!(mounted[&"data".into()].gid.as_deref(), Some("1234"));
    assert_eq!(mounted[&"data".into()].volume, unique("data"));
}
