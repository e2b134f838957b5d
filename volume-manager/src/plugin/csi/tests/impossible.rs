//! Objects that no API server gives, and answers that no honest driver gives.

use std::path::PathBuf;
use std::sync::Arc;

use api::storage::CsiSource;
use api::{Bytes, PersistentSource, Volume};
use csi_proto::v1::{NodeGetVolumeStatsResponse, VolumeCondition, VolumeUsage};
use plugin_api::{Expand, Meter as _, Usage, VolumePlugin as _};

use crate::operation::Operation;
use crate::plugin::csi::CsiPlugin;
use crate::plugin::csi::client::Capability;
use crate::plugin::testing::Bench;

type Spoil = fn(&mut Volume);

fn csi(volume: &mut Volume) -> &mut CsiSource {
    let PersistentSource::Csi(csi) = &mut volume.source else { panic!("it is one of a driver") };
    csi
}

/// Names that lead out of their directory or are empty, with their errors.
const NAMES: [(Spoil, &str); 8] = [
    (|volume| csi(volume).handle = "".into(), "handle"),
    (|volume| csi(volume).driver = "".into(), "driver name"),
    (|volume| csi(volume).driver = ".".into(), "driver name"),
    (|volume| csi(volume).driver = "..".into(), "driver name"),
    (|volume| csi(volume).driver = "../d.example".into(), "driver name"),
    (|volume| csi(volume).driver = "d\0".into(), "driver name"),
    (|volume| volume.meta.name = String::new(), "name"),
    (|volume| volume.meta.name = "..".into(), "name"),
];

/// Why the bench's volume is not grown.
async fn not_grown(bench: &Bench, new_size: Bytes) -> String {
    not_grown_at(bench, bench.path("published"), new_size).await
}

async fn not_grown_at(bench: &Bench, volume_path: PathBuf, new_size: Bytes) -> String {
    let expand = Expand {
        spec: Arc::clone(&bench.spec),
        new_size,
        old_size: Bytes(1),
        volume_path,
        device_path: String::new(),
        staging_path: bench.path("staged"),
    };
    let plugin = CsiPlugin::new();
    let expander = plugin.expander().expect("drivers grow volumes");
    expander.expand(&bench.context, &expand).await.unwrap_err().chain()
}

#[tokio::test]
async fn volume_without_a_usable_name_is_refused_without_a_call() {
    for (spoil, what) in NAMES {
        let mut bench = Bench::new();
        bench.driver.can(&[Capability::StageUnstageVolume, Capability::ExpandVolume]);
        bench.change_volume(spoil);
        let refused = not_grown(&bench, Bytes(2)).await;
        let stories = [
            bench.run(Operation::Mount(Arc::new(bench.mounting()))).await,
            bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await,
            refused.clone(),
        ];
        for story in stories {
            assert!(!story.contains("call") && !story.contains("mark pod unmounted"), "{what}: {story}");
        }
        assert!(refused.ends_with(&format!("has an impossible {what}")), "{what}: {refused}");
        assert_eq!(bench.files().await, [""; 0], "{what}");
    }
}

#[tokio::test]
async fn a_size_or_a_path_that_no_call_can_name_grows_nothing() {
    for size in [Bytes(1 << 63), Bytes(u64::MAX)] {
        let bench = Bench::new();
        bench.driver.can(&[Capability::ExpandVolume]);
        let refused = not_grown(&bench, size).await;
        assert!(refused.contains("the size does not fit"), "{refused}");
        assert_eq!(bench.story.take(), "");
    }
    let bench = Bench::new();
    bench.driver.can(&[Capability::ExpandVolume]);
    let refused = not_grown_at(&bench, PathBuf::new(), Bytes(2)).await;
    assert!(refused.contains("it has no path"), "{refused}");
    assert_eq!(bench.story.take(), "");
}

#[tokio::test]
async fn unknown_capabilities_are_ignored() {
    let mut bench = Bench::new();
    bench.driver.can_all([i32::MIN, -1, 0, 4711, i32::MAX]);
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.ends_with("done\n") && !story.contains("NodeStageVolume"), "{story}");
}

#[tokio::test]
async fn unmeasurable_volume_has_no_usage() {
    let bench = Bench::new();
    bench.driver.can(&[Capability::GetVolumeStats, Capability::VolumeCondition]);
    let usage = |unit, [total, available, used]: [i64; 3]| VolumeUsage { unit, total, available, used };
    for (amounts, bytes) in [
        ([-1, 0, 0], None),
        ([0, i64::MIN, 0], None),
        ([0, 0, -1], None),
        ([0, 0, 0], Some(Usage::default())),
        ([i64::MAX; 3], Some(Usage { total: i64::MAX, available: i64::MAX, used: i64::MAX })),
    ] {
        let condition = VolumeCondition { abnormal: true, message: "x".repeat(1 << 20) };
        let answer = NodeGetVolumeStatsResponse {
            usage: vec![usage(1, amounts), usage(-1, [1; 3]), usage(2, [1; 3])],
            volume_condition: Some(condition.clone()),
        };
        bench.driver.set_stats(answer);
        let stats = CsiPlugin::new().stats(&bench.context, &bench.spec, &bench.pod.uid()).await.unwrap();
        assert_eq!((stats.bytes, stats.inodes.is_some()), (bytes, true), "{amounts:?}");
        assert_eq!(stats.abnormal, Some(condition.message));
    }
}
