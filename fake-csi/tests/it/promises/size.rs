//! Probes of expansion, modification and statistics.

use std::io::Seek as _;
use std::path::Path;

use csi_proto::v1;
use tonic::{Code, Status};

use super::{Chapter, probe};
use crate::scene::{Scene, WRITER, code};
use crate::world::{World, mounted, text};

pub(super) const PROBES: Chapter = &[
    probe!("expand-forgets-device", device_grows),
    probe!("expand-forgets-file-system", file_system_grows),
    probe!("expand-reports-old-size", new_size_is_answered),
    probe!("expand-forgets-idempotence", repeated_expand_is_ok),
    probe!("stats-of-the-host", statistics_are_of_the_volume),
    probe!("stats-of-any-path", unknown_path_is_not_found),
    probe!("always-healthy", lost_mount_is_abnormal),
    probe!("modify-applies-half", refused_modify_changes_nothing),
];

const GROWN: i64 = 384 << 20;

impl Scene {
    async fn expand(&mut self) -> Result<i64, Status> {
        let request = v1::ControllerExpandVolumeRequest {
            volume_id: self.id.clone(),
            capacity_range: Some(v1::CapacityRange { required_bytes: GROWN, limit_bytes: 0 }),
            ..Default::default()
        };
        let answer = self.csi.controller.controller_expand_volume(request).await?;
        Ok(answer.into_inner().capacity_bytes)
    }

    async fn expand_on_node(&mut self) -> Result<(), Status> {
        let request = v1::NodeExpandVolumeRequest {
            volume_id: self.id.clone(),
            volume_path: text(&self.target),
            staging_target_path: text(&self.staging),
            capacity_range: Some(v1::CapacityRange { required_bytes: GROWN, limit_bytes: 0 }),
            ..Default::default()
        };
        self.csi.node.node_expand_volume(request).await.map(drop)
    }

    async fn stats(&mut self, path: &Path) -> Result<v1::NodeGetVolumeStatsResponse, Status> {
        let request = v1::NodeGetVolumeStatsRequest {
            volume_id: self.id.clone(),
            volume_path: text(path),
            ..Default::default()
        };
        Ok(self.csi.node.node_get_volume_stats(request).await?.into_inner())
    }
}

async fn device_grows(world: World) -> bool {
    let mut scene = Scene::block(world).await.published().await;
    scene.expand().await.unwrap();
    scene.expand_on_node().await.unwrap();
    let mut device = std::fs::File::open(&scene.target).unwrap();
    device.seek(std::io::SeekFrom::End(0)).unwrap() >= u64::try_from(GROWN).unwrap()
}

async fn file_system_grows(world: World) -> bool {
    // Not ext4: growing a mounted one needs a capability that containers often lack.
    let mut scene = Scene::with(world, &[], mounted("btrfs", WRITER)).await.published().await;
    scene.expand().await.unwrap();
    scene.expand_on_node().await.unwrap();
    let found = nix::sys::statvfs::statvfs(&scene.target).unwrap();
    found.blocks() * found.fragment_size() > 320 << 20
}

async fn new_size_is_answered(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    scene.expand().await.unwrap() >= GROWN
}

async fn repeated_expand_is_ok(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    scene.expand().await.unwrap();
    scene.expand().await.is_ok()
}

async fn statistics_are_of_the_volume(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    let usage = scene.stats(&scene.target.clone()).await.unwrap().usage;
    let bytes = usage.iter().find(|usage| usage.unit() == v1::volume_usage::Unit::Bytes).unwrap();
    bytes.total > 0 && bytes.total <= 16 << 20
}

async fn unknown_path_is_not_found(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    code(&scene.stats(Path::new("/tmp")).await) == Code::NotFound
}

async fn lost_mount_is_abnormal(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    nix::mount::umount(&scene.target).unwrap();
    match scene.stats(&scene.target.clone()).await {
        Ok(stats) => stats.volume_condition.unwrap().abnormal,
        Err(_) => true,
    }
}

async fn refused_modify_changes_nothing(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    let request = v1::ControllerModifyVolumeRequest {
        volume_id: scene.id.clone(),
        mutable_parameters: [("tier".into(), "gold".into()), ("colour".into(), "red".into())].into(),
        ..Default::default()
    };
    let refused = scene.csi.controller.controller_modify_volume(request).await;
    let books = scene.world.control().books().await.unwrap();
    code(&refused) == Code::InvalidArgument && books.volumes[&scene.id].mutable_parameters.is_empty()
}
