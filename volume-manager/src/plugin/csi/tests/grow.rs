//! Growing volumes: before a pod gets them, and while it has them.

use std::sync::Arc;

use csi_proto::v1::node_service_capability::rpc::Type as Capability;
use expect_test::expect;
use tonic::Code;

use crate::api::storage::ClaimReference;
use crate::api::{Bytes, Claim, Meta, Resource};
use crate::names::Namespaced;
use crate::operation::{ExpandVolume, Operation};
use crate::plugin::Mounted;
use crate::plugin::testing::Bench;

/// A bench whose volume has grown to 2 and whose claim still says 1, with that resize status.
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

#[tokio::test]
async fn the_codes_of_growing_say_what_becomes_of_the_claim() {
    for (code, ends, resize, transition) in [
        (Code::InvalidArgument, "failed Final", "NodeResizeInfeasible", Some("ExpansionFailed(true)")),
        (Code::OutOfRange, "failed Final", "NodeResizeInfeasible", Some("ExpansionFailed(true)")),
        (Code::Internal, "failed Final", "NodeResizeInProgress", Some("ExpansionFailed(true)")),
        (Code::Unavailable, "failed Uncertain", "NodeResizeInProgress", None),
        (Code::FailedPrecondition, "done", "NodeResizeInProgress", Some("ExpansionBlocked")),
    ] {
        let mut bench = grown("NodeResizePending");
        bench.driver.fail("NodeExpandVolume", code);
        let story = bench.run(Operation::Expand(Arc::new(expanding(&bench)))).await;
        assert!(story.lines().last().unwrap().starts_with(ends), "{code:?}: {story}");
        let status = &bench.api.claim("default", "data").status;
        assert_eq!(status.resize, resize, "{code:?}");
        // The user sees why, whatever the code.
        assert_eq!(status.conditions[0].kind, "NodeResizeError", "{code:?}");
        assert_eq!(
            transition.is_some_and(|word| story.contains(&format!("mark {word}"))),
            transition.is_some(),
            "{code:?}: {story}"
        );
        assert!(!story.contains("mark Resized"), "{code:?}: {story}");
    }
}

#[tokio::test]
async fn a_driver_that_does_not_grow_on_the_node_is_done() {
    let mut bench = grown("");
    bench.driver.can(&[Capability::StageUnstageVolume]);
    let story = bench.run(Operation::Expand(Arc::new(expanding(&bench)))).await;
    assert_eq!(story, "call NodeGetCapabilities\nmark Resized(Bytes(2))\ndone\n");
}
