//! The effects of a CSIDriver object on volumes, annotations without an effect, and calls for capabilities.

use std::sync::Arc;

use api::{PersistentSource, VolumeMode};
use csi_proto::v1::NodeGetVolumeStatsResponse;
use csi_proto::v1::node_service_capability::rpc::Type as Capability;
use expect_test::expect;
use plugin_api::{Meter as _, VolumePlugin as _};

use crate::operation::Operation;
use crate::plugin::csi::CsiPlugin;
use crate::plugin::testing::Bench;

#[tokio::test]
async fn a_drivers_object_says_what_its_volumes_need_and_its_absence_says_the_usual() {
    let bench = Bench::new();
    let plugin = CsiPlugin::new();
    let needs = || {
        let (facts, spec) = (bench.context.facts(), &bench.spec);
        (
            plugin.can_attach(spec, &facts),
            plugin.requires_remount(spec, &facts),
            plugin.takes_selinux_mount(spec, &facts),
        )
    };
    bench.object(|driver| driver.attach_required = true);
    assert_eq!(needs(), (true, false, false));
    bench.object(|driver| driver.attach_required = false);
    assert_eq!(needs(), (false, false, false));
    bench.object(|driver| driver.requires_republish = true);
    assert_eq!(needs(), (false, true, false));
    bench.object(|driver| driver.selinux_mount = true);
    assert_eq!(needs(), (false, true, true));
    bench.know(|facts| facts.csi_drivers.clear());
    assert_eq!(needs(), (true, false, false));
}

#[tokio::test]
async fn volume_without_a_driver_needs_no_attachment() {
    let mut bench = Bench::new();
    bench.change_volume(|volume| {
        volume.source = PersistentSource::Local { path: "/disk".to_owned(), fs_type: String::new() };
    });
    let (plugin, facts) = (CsiPlugin::new(), bench.context.facts());
    assert!(!plugin.can_attach(&bench.spec, &facts) && !plugin.can_device_mount(&bench.spec));
}

/// The annotation has mount options for other kinds of volumes; a driver gets those of the field.
#[tokio::test]
async fn mount_options_in_an_annotation_are_not_the_drivers() {
    let mut bench = Bench::new();
    bench.driver.tell_all();
    bench.change_volume(|volume| {
        volume.mount_options = vec!["noatime".into()];
        let annotation = "volume.beta.kubernetes.io/mount-options".to_owned();
        volume.meta.annotations.insert(annotation, "nodev,nosuid".to_owned());
    });
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert_eq!(story.matches(r#""mountFlags":["noatime"]"#).count(), 2, "{story}");
}

/// Both calls name the group where the pod has one and the driver takes it, and nothing in its place otherwise.
#[tokio::test]
async fn a_pod_without_a_group_delegates_none() {
    let mut bench = Bench::new();
    bench.driver.tell_all();
    bench.driver.can(&[Capability::StageUnstageVolume, Capability::VolumeMountGroup]);
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.ends_with("done\n") && !story.contains("volumeMountGroup"), "{story}");
}

#[tokio::test]
async fn a_volume_is_measured_where_its_pod_has_it() {
    let mut bench = Bench::new();
    bench.driver.tell_all();
    bench.driver.can(&[Capability::GetVolumeStats, Capability::VolumeCondition]);
    bench.driver.set_stats(NodeGetVolumeStatsResponse::default());
    for mode in [VolumeMode::Filesystem, VolumeMode::Block] {
        bench.change_volume(|volume| volume.mode = Some(mode));
        let stats = CsiPlugin::new().stats(&bench.context, &bench.spec, &bench.pod.uid()).await;
        assert_eq!(
            stats.unwrap().bytes,
            None,
            "a driver that knows how its volumes are need not measure them"
        );
    }
    let story = bench.story.take();
    let calls: String = story.split_inclusive('\n').filter(|line| line.contains("Stats")).collect();
    expect![[r#"
        call NodeGetVolumeStats {"volumeId":"h","volumePath":"$R/pods/u1/volumes/kubernetes.io~csi/pv/mount"}
        call NodeGetVolumeStats {"volumeId":"h","volumePath":"$R/plugins/kubernetes.io/csi/volumeDevices/pv/dev/u1"}
    "#]]
    .assert_eq(&calls);
}
