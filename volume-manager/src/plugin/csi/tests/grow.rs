//! Growing volumes: before a pod gets them, and while it has them.

mod reports;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::names::Namespaced;
use api::storage::{ClaimReference, Condition};
use api::{AccessMode, Bytes, Claim, Meta, PersistentSource, Resource, Secret, Sensitive, VolumeMode};
use csi_proto::v1::node_service_capability::rpc::Type as Capability;
use expect_test::expect;
use plugin_api::Mounted;
use tonic::Code;

use crate::operation::{ExpandVolume, MountVolume, Operation};
use crate::plugin::testing::Bench;

/// A bench whose volume has the size 2 and whose claim still has the capacity 1, with that resize status.
fn grown(resize: &str) -> Bench {
    let mut bench = Bench::new();
    bench.driver.can(&[Capability::StageUnstageVolume, Capability::ExpandVolume]);
    bench.pod.node = "node-1".into();
    bench.change_volume(|volume| {
        volume.capacity = Bytes(2);
        volume.claim = Some(ClaimReference { claim: Namespaced::new("default", "data"), uid: "c1".into() });
    });
    let mut claim = Claim { meta: Meta::named("default", "data"), ..Claim::default() };
    claim.spec.request = Bytes(2);
    claim.status.capacity = Bytes(1);
    claim.status.resize = resize.into();
    claim.status.allocated = (!resize.is_empty()).then_some(Bytes(2));
    bench.put(claim.into_object());
    bench
}

/// Changes the claim of that volume.
fn claims(bench: &Bench, change: impl FnOnce(&mut Claim)) {
    let mut claim = bench.api.claim("default", "data");
    change(&mut claim);
    bench.put(claim.into_object());
}

fn condition(kind: &str) -> Condition {
    Condition { kind: kind.to_owned(), status: "True".to_owned(), message: String::new() }
}

fn expanding(bench: &Bench) -> ExpandVolume {
    ExpandVolume {
        volume: bench.name(),
        spec: Arc::clone(&bench.spec),
        plugin: "kubernetes.io/csi".into(),
        pod: Arc::new(bench.pod.clone()),
        mounted: Mounted {
            path: bench.path("pods/u1/volumes/kubernetes.io~csi/pv/mount"),
            read_only: false,
            managed: true,
            selinux_relabel: false,
        },
        device_path: String::new(),
        new_size: Bytes(2),
        old_size: Bytes(1),
        expansion_failed: false,
    }
}

#[tokio::test]
async fn a_volume_that_grew_unused_is_grown_after_its_publish() {
    for resize in ["", "NodeResizePending"] {
        let mut bench = grown(resize);
        let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        let end: String = story.split_inclusive('\n').skip_while(|line| !line.contains("Publish")).collect();
        assert_eq!(
            end.lines().collect::<Vec<_>>(),
            [
                "call NodePublishVolume",
                "     with a record beside the target",
                "call NodeGetCapabilities",
                "call NodeGetCapabilities",
                "call NodeExpandVolume",
                "event Pod Normal FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume \
                 \"pv\" node-1",
                "event PersistentVolumeClaim Normal FileSystemResizeSuccessful: MountVolume.NodeExpandVolume \
                 succeeded for volume \"pv\" node-1",
                "mark pod mounted",
                "done",
            ],
            "{resize:?}"
        );
        let claim = bench.api.claim("default", "data");
        assert_eq!((claim.status.capacity, claim.status.resize.as_str()), (Bytes(2), ""));
    }
}

#[tokio::test]
async fn growing_in_use_names_both_paths() {
    let mut bench = grown("NodeResizePending");
    bench.driver.tell_all();
    let story = bench.run(Operation::Expand(Arc::new(expanding(&bench)))).await;
    expect![[r#"
        call NodeGetCapabilities
        call NodeGetCapabilities
        call NodeExpandVolume {"capacityRange":{"requiredBytes":"2"},"stagingTargetPath":"$R/plugins/kubernetes.io/csi/d.example/$H/globalmount","volumeCapability":{"accessMode":{"mode":"SINGLE_NODE_WRITER"},"mount":{}},"volumeId":"h","volumePath":"$R/pods/u1/volumes/kubernetes.io~csi/pv/mount"}
        event Pod Normal FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume "pv" node-1
        event PersistentVolumeClaim Normal FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume "pv" node-1
        mark Resized(Bytes(2))
        done
    "#]].assert_eq(&story);
}

#[tokio::test]
async fn everything_the_volume_says_reaches_the_growing_call() {
    let mut bench = grown("NodeResizePending");
    bench.driver.tell_all();
    bench.change_volume(|volume| {
        volume.mount_options = vec!["noatime".into()];
        let PersistentSource::Csi(csi) = &mut volume.source else { unreachable!() };
        csi.fs_type = "xfs".into();
        csi.node_expand_secret = Some(Namespaced::new("ns", "grow").into());
    });
    let data = BTreeMap::from([("key".to_owned(), Sensitive::new(b"password".to_vec()))]);
    bench.put(Secret { meta: Meta::named("ns", "grow"), data }.into_object());
    let story = bench.run(Operation::Expand(Arc::new(expanding(&bench)))).await;
    let call = story.lines().find(|line| line.starts_with("call NodeExpandVolume")).unwrap();
    expect![[r#"call NodeExpandVolume {"capacityRange":{"requiredBytes":"2"},"secrets":{"key":"***"},"stagingTargetPath":"$R/plugins/kubernetes.io/csi/d.example/$H/globalmount","volumeCapability":{"accessMode":{"mode":"SINGLE_NODE_WRITER"},"mount":{"fsType":"xfs","mountFlags":["noatime"]}},"volumeId":"h","volumePath":"$R/pods/u1/volumes/kubernetes.io~csi/pv/mount"}"#]]
        .assert_eq(call);
}

#[tokio::test]
async fn a_growth_that_fails_keeps_the_pod_waiting_and_says_why() {
    let mut bench = grown("NodeResizePending");
    bench.driver.fail("NodeExpandVolume", Code::Internal);
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.contains("mark pod failed: Uncertain"), "{story}");
    assert!(story.contains("MountVolume.Setup failed while expanding volume for volume \"pv\""), "{story}");
    let claim = bench.api.claim("default", "data");
    assert_eq!(claim.status.capacity, Bytes(1), "it never says more than there is");
    assert_eq!(claim.status.resize, "NodeResizeInProgress");
    assert_eq!(claim.status.conditions[0].kind, "NodeResizeError");
}

fn marks(story: &str) -> Vec<&str> {
    story.lines().filter_map(|line| line.strip_prefix("mark ")).collect()
}

#[tokio::test]
async fn the_codes_of_growing_say_what_becomes_of_the_claim() {
    for (code, ends, resize, transitions) in [
        (Code::InvalidArgument, "failed Final", "NodeResizeInfeasible", &["ExpansionFailed(true)"][..]),
        (Code::OutOfRange, "failed Final", "NodeResizeInfeasible", &["ExpansionFailed(true)"]),
        (Code::NotFound, "failed Final", "NodeResizeInfeasible", &["ExpansionFailed(true)"]),
        (Code::Internal, "failed Final", "NodeResizeInProgress", &["ExpansionFailed(true)"]),
        (Code::Unavailable, "failed Uncertain", "NodeResizeInProgress", &[]),
        (Code::FailedPrecondition, "done", "NodeResizeInProgress", &["ExpansionBlocked"]),
    ] {
        let mut bench = grown("NodeResizePending");
        bench.driver.fail("NodeExpandVolume", code);
        let story = bench.run(Operation::Expand(Arc::new(expanding(&bench)))).await;
        assert!(story.lines().last().unwrap().starts_with(ends), "{code:?}: {story}");
        let status = &bench.api.claim("default", "data").status;
        assert_eq!(status.resize, resize, "{code:?}");
        // The user sees the reason for each code.
        assert_eq!(status.conditions[0].kind, "NodeResizeError", "{code:?}");
        assert_eq!(marks(&story), transitions, "{code:?}");
    }
}

/// If each node expands the volume, the first success sets the claim. An error of a later node would stay there for ever.
#[tokio::test]
async fn claim_that_has_its_size_shows_no_error_of_growing() {
    let settled = |conditions: &[&str]| {
        let bench = grown("");
        claims(&bench, |claim| {
            claim.spec.access_modes = vec![AccessMode::ReadWriteMany];
            claim.status.allocated = Some(Bytes(2));
            claim.status.capacity = Bytes(2);
            claim.status.conditions = conditions.iter().copied().map(condition).collect();
        });
        bench
    };
    for code in [Code::OutOfRange, Code::Internal, Code::Unavailable] {
        let mut bench = settled(&["Modified"]);
        let before = bench.api.claim("default", "data");
        bench.driver.fail("NodeExpandVolume", code);
        let story = bench.run(Operation::Expand(Arc::new(expanding(&bench)))).await;
        assert!(story.contains("event Pod Warning VolumeResizeFailed"), "{code:?}: {story}");
        assert_eq!(bench.api.claim("default", "data"), before, "{code:?}");
    }
    // The error of a node that failed while the claim was still waiting goes with that node's success.
    let mut bench = settled(&["NodeResizeError", "Modified"]);
    bench.run(Operation::Expand(Arc::new(expanding(&bench)))).await;
    let claim = bench.api.claim("default", "data");
    let kinds: Vec<_> = claim.status.conditions.iter().map(|condition| condition.kind.as_str()).collect();
    assert_eq!((kinds, claim.status.capacity), (vec!["Modified"], Bytes(2)));
}

/// For a driver without NodeExpandVolume, an expansion is done if the claim reports it as done, and fails if it is left
/// to the node.
#[tokio::test]
async fn a_node_that_is_asked_for_what_its_driver_cannot_do_has_failed() {
    let mut bench = grown("NodeResizePending");
    bench.driver.can(&[Capability::StageUnstageVolume]);
    let story = bench.run(Operation::Expand(Arc::new(expanding(&bench)))).await;
    assert!(story.lines().last().unwrap().starts_with("failed Final"), "{story}");
    assert_eq!(marks(&story), ["ExpansionFailed(true)"]);
}

/// A size that had a final error is not tried again once the claim no longer requests it.
#[tokio::test]
async fn shrunk_request_after_a_final_failure_is_infeasible() {
    for (code, resize) in [
        (Code::Internal, "NodeResizeInfeasible"),
        (Code::Unavailable, "NodeResizeInProgress"),
        (Code::FailedPrecondition, "NodeResizeInfeasible"),
    ] {
        let mut bench = grown("NodeResizePending");
        claims(&bench, |claim| claim.spec.request = Bytes(1));
        bench.driver.fail("NodeExpandVolume", code);
        let expand = ExpandVolume { expansion_failed: true, ..expanding(&bench) };
        bench.run(Operation::Expand(Arc::new(expand))).await;
        assert_eq!(bench.api.claim("default", "data").status.resize, resize, "{code:?}");
    }
    let mut bench = grown("NodeResizePending");
    claims(&bench, |claim| claim.spec.request = Bytes(1));
    bench.driver.fail("NodeExpandVolume", Code::Internal);
    let mount = MountVolume { expansion_failed: true, ..bench.mounting() };
    bench.run(Operation::Mount(Arc::new(mount))).await;
    assert_eq!(bench.api.claim("default", "data").status.resize, "NodeResizeInfeasible");
}

#[tokio::test]
async fn a_success_takes_back_that_growing_failed() {
    let mut bench = grown("NodeResizePending");
    let expand = ExpandVolume { expansion_failed: true, ..expanding(&bench) };
    let story = bench.run(Operation::Expand(Arc::new(expand))).await;
    assert_eq!(marks(&story), ["ExpansionFailed(false)", "Resized(Bytes(2))"]);
}

#[tokio::test]
async fn nothing_is_written_down_where_the_driver_was_not_asked() {
    let mut bench = grown("NodeResizePending");
    bench.know(|facts| facts.registered.clear());
    let story = bench.run(Operation::Expand(Arc::new(expanding(&bench)))).await;
    assert!(story.contains("failed Transient"), "{story}");
    assert_eq!(bench.api.claim("default", "data").status.conditions, []);
    assert_eq!(marks(&story), [""; 0]);
}

#[tokio::test]
async fn an_unknown_size_grows_nothing() {
    for (old, new) in [(0, 2), (1, 0)] {
        let mut bench = grown("");
        let expand = ExpandVolume { old_size: Bytes(old), new_size: Bytes(new), ..expanding(&bench) };
        let story = bench.run(Operation::Expand(Arc::new(expand))).await;
        assert!(!story.contains("call"), "{story}");
        assert!(story.contains("failed Transient: NodeExpandVolume.NodeExpandVolume failed"), "{story}");
    }
}

#[tokio::test]
async fn a_driver_that_refused_while_it_was_used_is_not_asked_again() {
    let mut bench = grown("");
    let mount = MountVolume { expansion_blocked: true, ..bench.mounting() };
    let story = bench.run(Operation::Mount(Arc::new(mount))).await;
    assert!(story.ends_with("mark pod mounted\ndone\n") && !story.contains("NodeExpandVolume"), "{story}");
}

#[tokio::test]
async fn read_only_volume_is_not_grown_and_its_pod_gets_an_event() {
    let mut bench = grown("NodeResizePending");
    Arc::make_mut(&mut bench.spec).read_only = true;
    let story = bench.run(Operation::Expand(Arc::new(expanding(&bench)))).await;
    expect![[r#"
        event Pod Warning FileSystemResizeFailed: MountVolume.NodeExpandVolume failed for volume "pv" requested read-only file system
        event PersistentVolumeClaim Warning FileSystemResizeFailed: MountVolume.NodeExpandVolume failed for volume "pv" requested read-only file system
        mark Resized(Bytes(2))
        done
    "#]].assert_eq(&story);
}

/// A claim with either of the two fields is written by a resizer that knows both.
#[tokio::test]
async fn a_claim_that_is_being_grown_waits_until_it_is_the_nodes_turn() {
    let mut bench = grown("");
    claims(&bench, |claim| claim.status.allocated = Some(Bytes(2)));
    let story = bench.run(Operation::Expand(Arc::new(expanding(&bench)))).await;
    assert_eq!(story, "done\n", "and nothing is recorded");
}

/// The allocated size counts, not the volume's capacity.
#[tokio::test]
async fn the_size_in_the_claim_is_the_one_to_grow_to() {
    let mut bench = grown("NodeResizePending");
    claims(&bench, |claim| claim.status.allocated = Some(Bytes(3)));
    bench.driver.tell_all();
    let story = bench.run(Operation::Expand(Arc::new(expanding(&bench)))).await;
    assert!(story.contains(r#""requiredBytes":"3""#), "{story}");
    assert_eq!(marks(&story), ["Resized(Bytes(3))"]);
}

/// Every node that uses such a volume expands it; the first one has written the claim.
#[tokio::test]
async fn a_volume_of_many_nodes_is_grown_on_each_and_its_claim_is_left_alone() {
    let many = || {
        let bench = grown("");
        claims(&bench, |claim| {
            claim.spec.access_modes = vec![AccessMode::ReadWriteMany];
            claim.status.allocated = Some(Bytes(2));
            claim.status.capacity = Bytes(2);
            claim.status.conditions = vec![condition("Resizing")];
        });
        bench
    };
    let mut bench = many();
    let before = bench.api.claim("default", "data");
    let story = bench.run(Operation::Expand(Arc::new(expanding(&bench)))).await;
    assert!(story.contains("call NodeExpandVolume"), "{story}");
    assert_eq!(marks(&story), ["Resized(Bytes(2))"]);
    assert_eq!(bench.api.claim("default", "data"), before);

    let mut bench = many();
    bench.driver.can(&[Capability::StageUnstageVolume]);
    let story = bench.run(Operation::Expand(Arc::new(expanding(&bench)))).await;
    assert_eq!(marks(&story), ["Resized(Bytes(2))"], "this driver has no part on the node");

    let mut bench = many();
    bench.driver.fail("NodeExpandVolume", Code::Internal);
    let story = bench.run(Operation::Expand(Arc::new(expanding(&bench)))).await;
    assert!(story.contains("failed Final") && !story.contains("Resized"), "{story}");

    let mut bench = many();
    let not_required = "volume.kubernetes.io/node-expansion-not-required".to_owned();
    claims(&bench, |claim| drop(claim.meta.annotations.insert(not_required, "true".to_owned())));
    let story = bench.run(Operation::Expand(Arc::new(expanding(&bench)))).await;
    assert!(!story.contains("call"), "{story}");
    assert_eq!(marks(&story), ["Resized(Bytes(2))"]);
}

#[tokio::test]
async fn conditions_of_growing_go_with_it_and_others_stay() {
    let conditions =
        ["Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError", "Modified"];
    for (code, left) in [
        (None, &["Modified"][..]),
        (
            Some(Code::Internal),
            &["Resizing", "FileSystemResizePending", "ControllerResizeError", "Modified", "NodeResizeError"],
        ),
    ] {
        let mut bench = grown("NodeResizePending");
        claims(&bench, |claim| claim.status.conditions = conditions.map(condition).into());
        if let Some(code) = code {
            bench.driver.fail("NodeExpandVolume", code);
        }
        bench.run(Operation::Expand(Arc::new(expanding(&bench)))).await;
        let claim = bench.api.claim("default", "data");
        let kinds: Vec<_> = claim.status.conditions.iter().map(|c| c.kind.as_str()).collect();
        assert_eq!(kinds, left, "{code:?}");
        if code.is_some() {
            let error = claim.status.conditions.last().unwrap();
            assert_eq!(error.status, "True");
            assert!(error.message.starts_with("failed to expand pvc with "), "{}", error.message);
            assert!(error.message.contains("code = Internal"), "{}", error.message);
        }
    }
}

/// A resizer that writes nothing down but the size.
#[tokio::test]
async fn an_older_resizer_is_served_by_the_size_alone() {
    let mut bench = grown("");
    claims(&bench, |claim| {
        claim.status.capacity = Bytes(2);
        claim.status.conditions = vec![condition("FileSystemResizePending")];
    });
    let before = bench.api.claim("default", "data");
    let story = bench.run(Operation::Expand(Arc::new(expanding(&bench)))).await;
    assert_eq!(marks(&story), ["Resized(Bytes(2))"]);
    assert_eq!(bench.api.claim("default", "data"), before, "the claim has this status already");

    for (code, ends, transitions) in [
        (Code::FailedPrecondition, "done", &["ExpansionBlocked", "Resized(Bytes(2))"][..]),
        (Code::Internal, "failed Final", &[]),
    ] {
        let mut bench = grown("");
        let before = bench.api.claim("default", "data");
        bench.driver.fail("NodeExpandVolume", code);
        let story = bench.run(Operation::Expand(Arc::new(expanding(&bench)))).await;
        assert!(story.lines().last().unwrap().starts_with(ends), "{code:?}: {story}");
        assert_eq!(marks(&story), transitions, "{code:?}");
        assert_eq!(bench.api.claim("default", "data"), before, "{code:?}");
    }
}

#[tokio::test]
async fn a_device_is_named_by_where_it_is_published() {
    let mut bench = grown("NodeResizePending");
    bench.change_volume(|volume| volume.mode = Some(VolumeMode::Block));
    bench.driver.tell_all();
    let expand = ExpandVolume { device_path: "/dev/vdx".to_owned(), ..expanding(&bench) };
    let story = bench.run(Operation::Expand(Arc::new(expand))).await;
    let call = story.lines().find(|line| line.contains("NodeExpandVolume {")).expect("it is asked");
    expect![[r#"call NodeExpandVolume {"capacityRange":{"requiredBytes":"2"},"stagingTargetPath":"$R/plugins/kubernetes.io/csi/volumeDevices/staging/pv","volumeCapability":{"accessMode":{"mode":"SINGLE_NODE_WRITER"},"block":{}},"volumeId":"h","volumePath":"/dev/vdx"}"#]].assert_eq(call);
}

#[tokio::test]
async fn a_driver_that_does_not_grow_on_the_node_is_done() {
    let mut bench = grown("");
    bench.driver.can(&[Capability::StageUnstageVolume]);
    let story = bench.run(Operation::Expand(Arc::new(expanding(&bench)))).await;
    assert_eq!(story, "call NodeGetCapabilities\nmark Resized(Bytes(2))\ndone\n");
}
