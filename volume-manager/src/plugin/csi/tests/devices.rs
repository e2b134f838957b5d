//! The requests to drivers for block volumes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use api::names::{AttachmentName, Namespaced};
use api::storage::DriverToken;
use api::{AccessMode, Attachment, Meta, PersistentSource, Resource, Secret, Sensitive, VolumeMode};
use csi_proto::v1::node_service_capability::rpc::Type as Capability;
use expect_test::expect;
use plugin_api::Spec;

use crate::operation::{MountVolume, Operation};
use crate::plugin::testing::{Bench, DRIVER};

/// A bench with a block volume whose driver publishes no device: the calls are all that happens.
fn block() -> Bench {
    let mut bench = Bench::new();
    bench.change_volume(|volume| volume.mode = Some(VolumeMode::Block));
    bench.driver.set_device(Path::new("/nowhere"));
    bench.driver.tell_all();
    bench
}

fn calls(story: &str) -> String {
    let calls = story.lines().filter(|line| line.starts_with("call"));
    calls.map(|line| format!("{line}\n")).collect()
}

#[tokio::test]
async fn everything_the_volume_says_reaches_both_calls_but_what_is_for_files() {
    let mut bench = block();
    bench.pod.security.fs_group = Some(4711);
    bench.pod.service_account = "robot".into();
    bench.driver.can(&[
        Capability::StageUnstageVolume,
        Capability::SingleNodeMultiWriter,
        Capability::VolumeMountGroup,
    ]);
    bench.object(|driver| {
        driver.attach_required = true;
        driver.pod_info = true;
        driver.tokens = vec![DriverToken::default()];
    });
    bench.change_volume(|volume| {
        volume.mount_options = vec!["noatime".into()];
        volume.access_modes = vec![AccessMode::ReadWriteOncePod];
        let PersistentSource::Csi(csi) = &mut volume.source else { unreachable!() };
        csi.fs_type = "xfs".into();
        csi.attributes = BTreeMap::from([("tier".into(), "fast".into())]);
        csi.node_stage_secret = Some(Namespaced::new("ns", "stage").into());
        csi.node_publish_secret = Some(Namespaced::new("ns", "publish").into());
    });
    bench.spec = Arc::new(Spec { read_only: true, ..(*bench.spec).clone() });
    for name in ["stage", "publish"] {
        let data = BTreeMap::from([(name.to_owned(), Sensitive::new(b"password".to_vec()))]);
        bench.put(Secret { meta: Meta::named("ns", name), data }.into_object());
    }
    let name = AttachmentName::of(&"h".into(), &DRIVER.into(), &"node-1".into());
    let attachment = Attachment {
        meta: Meta::named("", name.as_str()),
        attached: true,
        metadata: BTreeMap::from([("lun".into(), "7".into())]),
        ..Attachment::default()
    };
    bench.put(attachment.into_object());
    let map = MountVolume { attachable: true, selinux_label: "u:r:t:s0".to_owned(), ..bench.mounting() };
    let story = bench.run(Operation::Map(Arc::new(map))).await;
    expect![[r#"
        call NodeGetCapabilities
        call NodeGetCapabilities
        call NodeStageVolume {"publishContext":{"lun":"7"},"secrets":{"stage":"***"},"stagingTargetPath":"$R/plugins/kubernetes.io/csi/volumeDevices/staging/pv","volumeCapability":{"accessMode":{"mode":"SINGLE_NODE_SINGLE_WRITER"},"block":{}},"volumeContext":{"tier":"fast"},"volumeId":"h"}
        call NodeGetCapabilities
        call NodePublishVolume {"publishContext":{"lun":"7"},"readonly":true,"secrets":{"publish":"***"},"stagingTargetPath":"$R/plugins/kubernetes.io/csi/volumeDevices/staging/pv","targetPath":"$R/plugins/kubernetes.io/csi/volumeDevices/publish/pv/u1","volumeCapability":{"accessMode":{"mode":"SINGLE_NODE_SINGLE_WRITER"},"block":{}},"volumeContext":{"csi.storage.k8s.io/ephemeral":"false","csi.storage.k8s.io/pod.name":"web","csi.storage.k8s.io/pod.namespace":"default","csi.storage.k8s.io/pod.uid":"u1","csi.storage.k8s.io/serviceAccount.name":"robot","tier":"fast"},"volumeId":"h"}
    "#]].assert_eq(&calls(&story));
    assert_eq!(bench.api.tokens().len(), 0, "a device is published without tokens");
}

#[tokio::test]
async fn driver_without_staging_gets_a_staging_path_and_no_unstage() {
    let mut bench = block();
    bench.driver.can(&[]);
    let story = bench.run(Operation::Map(Arc::new(bench.mounting()))).await;
    expect![[r#"
        call NodeGetCapabilities
        call NodeGetCapabilities
        call NodePublishVolume {"stagingTargetPath":"$R/plugins/kubernetes.io/csi/volumeDevices/staging/pv","targetPath":"$R/plugins/kubernetes.io/csi/volumeDevices/publish/pv/u1","volumeCapability":{"accessMode":{"mode":"SINGLE_NODE_WRITER"},"block":{}},"volumeId":"h"}
    "#]].assert_eq(&calls(&story));
    bench.run(Operation::Unmap(Arc::new(bench.unmounting()))).await;
    let story = bench.run(Operation::UnmapDevice(Arc::new(bench.leaving()))).await;
    assert_eq!(story, "mark device undoing\nmark device unmounted\ndone\n", "there is no staging directory");
    assert_eq!(bench.files().await, [""; 0]);
}

/// A driver that has come to stage nothing any more is not asked to unstage, and its directory goes.
#[tokio::test]
async fn staging_directory_of_a_driver_without_stage_is_removed() {
    let mut bench = block();
    bench.run(Operation::Map(Arc::new(bench.mounting()))).await;
    bench.run(Operation::Unmap(Arc::new(bench.unmounting()))).await;
    bench.driver.can(&[]);
    let story = bench.run(Operation::UnmapDevice(Arc::new(bench.leaving()))).await;
    assert_eq!(calls(&story), "call NodeGetCapabilities\n");
    let staging = bench.path("plugins/kubernetes.io/csi/volumeDevices/staging/pv");
    assert!(bench.context.host.symlink_metadata(&staging).await.is_err_and(|error| error.is_not_found()));
}
