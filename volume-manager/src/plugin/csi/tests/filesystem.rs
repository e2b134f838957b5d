//! File-system volumes that nothing goes wrong with.

use std::sync::Arc;

use csi_proto::v1::node_service_capability::rpc::Type as Capability;
use expect_test::expect;
use plugin_api::Before;

use crate::operation::Operation;
use crate::plugin::testing::Bench;

#[tokio::test]
async fn is_staged_and_published_and_leaves_the_other_way_round() {
    let mut bench = Bench::new();
    let mount = bench.mounting();
    expect![[r#"
        call NodeGetCapabilities
        call NodeGetCapabilities
        call NodeGetCapabilities
        mark device uncertain
        call NodeStageVolume
             with a record beside the target
        mark device mounted
        call NodeGetCapabilities
        call NodeGetCapabilities
        call NodeGetCapabilities
        mark pod uncertain
        call NodePublishVolume
             with a record beside the target
        mark pod mounted
        done
    "#]]
    .assert_eq(&bench.run(Operation::Mount(Arc::new(mount))).await);
    expect![[r#"
        $R/plugins 750/
        $R/plugins/kubernetes.io 750/
        $R/plugins/kubernetes.io/csi 750/
        $R/plugins/kubernetes.io/csi/d.example 750/
        $R/plugins/kubernetes.io/csi/d.example/$H 750/
        $R/plugins/kubernetes.io/csi/d.example/$H/globalmount 750/
        $R/plugins/kubernetes.io/csi/d.example/$H/vol_data.json 644
        $R/pods 750/
        $R/pods/u1 750/
        $R/pods/u1/volumes 750/
        $R/pods/u1/volumes/kubernetes.io~csi 750/
        $R/pods/u1/volumes/kubernetes.io~csi/pv 750/
        $R/pods/u1/volumes/kubernetes.io~csi/pv/mount 755/
        $R/pods/u1/volumes/kubernetes.io~csi/pv/vol_data.json 644
    "#]]
    .assert_eq(&bench.tree().await);
    let unmount = bench.unmounting();
    expect![[r#"
        mark pod undoing
        call NodeUnpublishVolume
        mark pod unmounted
        done
    "#]]
    .assert_eq(&bench.run(Operation::Unmount(Arc::new(unmount))).await);
    let leave = bench.leaving();
    expect![[r#"
        mark device undoing
        call NodeGetCapabilities
        call NodeUnstageVolume
        mark device unmounted
        done
    "#]]
    .assert_eq(&bench.run(Operation::UnmountDevice(Arc::new(leave))).await);
    expect![[r#"
        $R/plugins 750/
        $R/plugins/kubernetes.io 750/
        $R/plugins/kubernetes.io/csi 750/
        $R/plugins/kubernetes.io/csi/d.example 750/
        $R/pods 750/
        $R/pods/u1 750/
        $R/pods/u1/volumes 750/
        $R/pods/u1/volumes/kubernetes.io~csi 750/
    "#]]
    .assert_eq(&bench.tree().await);
}

#[tokio::test]
async fn without_staging_only_the_directory_is_made_and_taken_away_again() {
    let mut bench = Bench::new();
    bench.driver.can(&[]);
    bench.driver.tell_all();
    let mount = bench.mounting();
    expect![[r#"
        call NodeGetCapabilities
        mark device mounted
        call NodeGetCapabilities
        call NodeGetCapabilities
        call NodeGetCapabilities
        mark pod uncertain
        call NodePublishVolume {"targetPath":"$R/pods/u1/volumes/kubernetes.io~csi/pv/mount","volumeCapability":{"accessMode":{"mode":"SINGLE_NODE_WRITER"},"mount":{}},"volumeId":"h"}
             with a record beside the target
        mark pod mounted
        done
    "#]]
    .assert_eq(&bench.run(Operation::Mount(Arc::new(mount))).await);
    let unmount = bench.unmounting();
    bench.run(Operation::Unmount(Arc::new(unmount))).await;
    let leave = bench.leaving();
    expect![[r#"
        mark device undoing
        call NodeGetCapabilities
        mark device unmounted
        done
    "#]]
    .assert_eq(&bench.run(Operation::UnmountDevice(Arc::new(leave))).await);
    expect![[r#"
        $R/plugins 750/
        $R/plugins/kubernetes.io 750/
        $R/plugins/kubernetes.io/csi 750/
        $R/plugins/kubernetes.io/csi/d.example 750/
        $R/pods 750/
        $R/pods/u1 750/
        $R/pods/u1/volumes 750/
        $R/pods/u1/volumes/kubernetes.io~csi 750/
    "#]]
    .assert_eq(&bench.tree().await);
}

#[tokio::test]
async fn a_staged_volume_is_only_published_for_a_second_pod() {
    let mut bench = Bench::new();
    let mut mount = bench.mounting();
    mount.device = Before::Mounted;
    bench.driver.can(&[Capability::StageUnstageVolume, Capability::SingleNodeMultiWriter]);
    bench.driver.tell_all();
    expect![[r#"
        call NodeGetCapabilities
        call NodeGetCapabilities
        call NodeGetCapabilities
        mark pod uncertain
        call NodePublishVolume {"stagingTargetPath":"$R/plugins/kubernetes.io/csi/d.example/$H/globalmount","targetPath":"$R/pods/u1/volumes/kubernetes.io~csi/pv/mount","volumeCapability":{"accessMode":{"mode":"SINGLE_NODE_MULTI_WRITER"},"mount":{}},"volumeId":"h"}
             with a record beside the target
        mark pod mounted
        done
    "#]].assert_eq(&bench.run(Operation::Mount(Arc::new(mount))).await);
}

/// A node that comes back after its volumes were taken from it by force finds no attachment, and needs none.
#[tokio::test]
async fn is_taken_back_without_an_attachment() {
    let mut bench = Bench::new();
    let mounting = Arc::new(bench.mounting());
    bench.run(Operation::Mount(mounting)).await;
    bench.object(|driver| driver.attach_required = true);
    let unmounting = Arc::new(bench.unmounting());
    let story = bench.run(Operation::Unmount(unmounting)).await;
    assert!(story.contains("call NodeUnpublishVolume") && story.ends_with("done\n"), "{story}");
    let leaving = Arc::new(bench.leaving());
    let story = bench.run(Operation::UnmountDevice(leaving)).await;
    assert!(story.contains("call NodeUnstageVolume") && story.ends_with("done\n"), "{story}");
}
