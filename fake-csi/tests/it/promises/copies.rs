//! Probes of snapshots, copies, group snapshots, expansion and statistics.

use csi_proto::v1;
use tonic::{Code, Status};

use super::{Chapter, probe};
use crate::scene::{Scene, WRITER, code};
use crate::world::{World, create, mounted, text};

pub(super) const PROBES: Chapter = &[
    probe!("expand-accepts-any-size", impossible_size_is_refused),
    probe!("expand-left-to-nobody", node_expansion_is_reported),
    probe!("delete-snapshot-forgets-idempotence", deleted_snapshot_is_deleted_again),
    probe!("snapshot-dies-with-source", snapshot_outlives_its_source),
    probe!("snapshot-without-time", snapshot_has_a_time),
    probe!("list-snapshots-ignores-limit", pages_are_as_small_as_asked),
    probe!("snapshot-loses-unsynced-write", snapshot_has_unsynced_writes),
    probe!("clone-shares-blocks", clone_keeps_its_blocks),
    probe!("clone-dies-with-source", clone_outlives_its_source),
    probe!("copy-keeps-small-device", larger_copy_is_larger),
    probe!("copy-cuts-its-source", smaller_copy_is_refused),
    probe!("clone-collides-with-source", clone_is_mounted_beside_its_source),
    probe!("create-from-unknown-source", unknown_source_is_not_found),
    probe!("copy-hides-its-source", copy_names_its_source),
    probe!("group-forgets-idempotence", repeated_group_is_the_same),
    probe!("group-delete-keeps-snapshots", deleted_group_loses_its_snapshots),
    probe!("group-without-time", group_has_a_time),
    probe!("group-unknown-is-empty", unknown_group_is_not_found),
    probe!("expand-answers-early", device_has_grown_when_answered),
    probe!("stats-of-the-device-node", statistics_are_of_the_device),
    probe!("stats-in-blocks", statistics_are_in_bytes),
    probe!("stats-without-condition", statistics_have_a_condition),
    probe!("modify-forgets-idempotence", repeated_modify_is_ok),
];

impl Scene {
    async fn snapshot(&mut self, name: &str) -> v1::Snapshot {
        let request = v1::CreateSnapshotRequest {
            name: name.to_owned(),
            source_volume_id: self.id.clone(),
            ..Default::default()
        };
        self.csi.controller.create_snapshot(request).await.unwrap().into_inner().snapshot.unwrap()
    }

    async fn copy(
        &mut self,
        name: &str,
        source: v1::volume_content_source::Type,
        bytes: i64,
    ) -> Result<v1::Volume, Status> {
        let request = v1::CreateVolumeRequest {
            volume_content_source: Some(v1::VolumeContentSource { r#type: Some(source) }),
            capacity_range: Some(v1::CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
            ..create(name, self.capability.clone())
        };
        Ok(self.csi.controller.create_volume(request).await?.into_inner().volume.unwrap())
    }

    async fn grow(&mut self, bytes: i64) -> Result<v1::ControllerExpandVolumeResponse, Status> {
        let request = v1::ControllerExpandVolumeRequest {
            volume_id: self.id.clone(),
            capacity_range: Some(v1::CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
            ..Default::default()
        };
        Ok(self.csi.controller.controller_expand_volume(request).await?.into_inner())
    }

    async fn group(&mut self) -> v1::VolumeGroupSnapshot {
        let request = v1::CreateVolumeGroupSnapshotRequest {
            name: "group".to_owned(),
            source_volume_ids: vec![self.id.clone()],
            ..Default::default()
        };
        let made = self.csi.group.create_volume_group_snapshot(request).await.unwrap();
        made.into_inner().group_snapshot.unwrap()
    }

    async fn get_group(&mut self, id: &str) -> Result<(), Status> {
        let request =
            v1::GetVolumeGroupSnapshotRequest { group_snapshot_id: id.to_owned(), ..Default::default() };
        self.csi.group.get_volume_group_snapshot(request).await.map(drop)
    }
}

fn of_volume(id: &str) -> v1::volume_content_source::Type {
    let volume_id = id.to_owned();
    v1::volume_content_source::Type::Volume(v1::volume_content_source::VolumeSource { volume_id })
}

fn of_snapshot(snapshot: &v1::Snapshot) -> v1::volume_content_source::Type {
    let snapshot_id = snapshot.snapshot_id.clone();
    v1::volume_content_source::Type::Snapshot(v1::volume_content_source::SnapshotSource { snapshot_id })
}

async fn impossible_size_is_refused(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    code(&scene.grow(1 << 62).await) == Code::OutOfRange
}

async fn node_expansion_is_reported(world: World) -> bool {
    use v1::node_service_capability::{Type, rpc};
    let mut scene = Scene::mount(world).await;
    let is_required = scene.grow(384 << 20).await.unwrap().node_expansion_required;
    let reported = scene.csi.node.node_get_capabilities(v1::NodeGetCapabilitiesRequest {}).await.unwrap();
    let expands = reported.into_inner().capabilities.into_iter().filter_map(|one| one.r#type).any(|kind| {
        let Type::Rpc(rpc) = kind;
        rpc.r#type() == rpc::Type::ExpandVolume
    });
    expands || !is_required
}

async fn deleted_snapshot_is_deleted_again(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    let snapshot_id = scene.snapshot("one").await.snapshot_id;
    let request = v1::DeleteSnapshotRequest { snapshot_id, ..Default::default() };
    scene.csi.controller.delete_snapshot(request.clone()).await.unwrap();
    scene.csi.controller.delete_snapshot(request).await.is_ok()
}

async fn snapshot_outlives_its_source(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    let snapshot = scene.snapshot("one").await;
    let id = scene.id.clone();
    scene.csi.delete(&id).await.unwrap();
    scene.copy("copy", of_snapshot(&snapshot), 0).await.is_ok()
}

async fn snapshot_has_a_time(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    scene.snapshot("one").await.creation_time.is_some()
}

async fn pages_are_as_small_as_asked(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    scene.snapshot("one").await;
    scene.snapshot("two").await;
    let request = v1::ListSnapshotsRequest { max_entries: 1, ..Default::default() };
    scene.csi.controller.list_snapshots(request).await.unwrap().into_inner().entries.len() == 1
}

async fn snapshot_has_unsynced_writes(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    std::fs::write(scene.target.join("unsynced"), "cached").unwrap();
    let snapshot = scene.snapshot("one").await;
    scene.unpublish().await.unwrap();
    scene.unstage().await.unwrap();
    scene.id = scene.copy("copy", of_snapshot(&snapshot), 0).await.unwrap().volume_id;
    let scene = scene.published().await;
    std::fs::read(scene.target.join("unsynced")).is_ok_and(|found| found == b"cached")
}

/// A published block volume with "before" at its start, and a clone of it.
async fn cloned(world: World) -> (Scene, String) {
    let mut scene = Scene::block(world).await.published().await;
    std::fs::write(&scene.target, "before").unwrap();
    let source = of_volume(&scene.id);
    let clone = scene.copy("copy", source, 0).await.unwrap().volume_id;
    (scene, clone)
}

async fn shows_before(mut scene: Scene, clone: String) -> bool {
    scene.id = clone;
    let scene = scene.published().await;
    std::fs::read(&scene.target).unwrap().starts_with(b"before")
}

async fn clone_keeps_its_blocks(world: World) -> bool {
    let (mut scene, clone) = cloned(world).await;
    std::fs::write(&scene.target, "after!").unwrap();
    scene.unpublish().await.unwrap();
    scene.unstage().await.unwrap();
    shows_before(scene, clone).await
}

async fn clone_outlives_its_source(world: World) -> bool {
    let (mut scene, clone) = cloned(world).await;
    scene.unpublish().await.unwrap();
    scene.unstage().await.unwrap();
    let id = scene.id.clone();
    scene.csi.delete(&id).await.unwrap();
    shows_before(scene, clone).await
}

async fn larger_copy_is_larger(world: World) -> bool {
    use std::io::Seek as _;
    const LARGER: i64 = 128 << 20;
    let mut scene = Scene::block(world).await;
    let source = of_volume(&scene.id);
    scene.id = scene.copy("copy", source, LARGER).await.unwrap().volume_id;
    let scene = scene.published().await;
    let mut device = std::fs::File::open(&scene.target).unwrap();
    device.seek(std::io::SeekFrom::End(0)).unwrap() >= LARGER.unsigned_abs()
}

async fn smaller_copy_is_refused(world: World) -> bool {
    let mut scene = Scene::block(world).await;
    let source = of_volume(&scene.id);
    code(&scene.copy("copy", source, 1 << 20).await) == Code::OutOfRange
}

async fn clone_is_mounted_beside_its_source(world: World) -> bool {
    let mut scene = Scene::with(world, &[], mounted("xfs", WRITER)).await.published().await;
    let source = of_volume(&scene.id);
    let clone = scene.copy("copy", source, 0).await.unwrap().volume_id;
    let (staging, capability) = (scene.world.directory("beside"), scene.capability.clone());
    scene.csi.stage(&clone, &staging, capability).await.is_ok()
}

async fn unknown_source_is_not_found(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    code(&scene.copy("copy", of_volume("no-such-volume"), 0).await) == Code::NotFound
}

async fn copy_names_its_source(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    let source = of_volume(&scene.id);
    scene.copy("copy", source, 0).await.unwrap().content_source.is_some()
}

async fn repeated_group_is_the_same(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    scene.group().await.group_snapshot_id == scene.group().await.group_snapshot_id
}

async fn deleted_group_loses_its_snapshots(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    let group_snapshot_id = scene.group().await.group_snapshot_id;
    let request = v1::DeleteVolumeGroupSnapshotRequest { group_snapshot_id, ..Default::default() };
    scene.csi.group.delete_volume_group_snapshot(request).await.unwrap();
    let listed = scene.csi.controller.list_snapshots(v1::ListSnapshotsRequest::default()).await.unwrap();
    listed.into_inner().entries.is_empty()
}

async fn group_has_a_time(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    scene.group().await.creation_time.is_some()
}

async fn unknown_group_is_not_found(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    code(&scene.get_group("no-such-group").await) == Code::NotFound
}

const GROWN: i64 = 128 << 20;

async fn device_has_grown_when_answered(world: World) -> bool {
    use std::io::Seek as _;
    let mut scene = Scene::block(world).await.published().await;
    scene.grow(GROWN).await.unwrap();
    let request = v1::NodeExpandVolumeRequest {
        volume_id: scene.id.clone(),
        volume_path: text(&scene.target),
        ..Default::default()
    };
    scene.csi.node.node_expand_volume(request).await.unwrap();
    let mut device = std::fs::File::open(&scene.target).unwrap();
    device.seek(std::io::SeekFrom::End(0)).unwrap() >= GROWN.unsigned_abs()
}

async fn statistics(scene: &mut Scene) -> v1::NodeGetVolumeStatsResponse {
    let request = v1::NodeGetVolumeStatsRequest {
        volume_id: scene.id.clone(),
        volume_path: text(&scene.target),
        ..Default::default()
    };
    scene.csi.node.node_get_volume_stats(request).await.unwrap().into_inner()
}

async fn statistics_are_of_the_device(world: World) -> bool {
    use std::io::Seek as _;
    let mut scene = Scene::block(world).await.published().await;
    let reported = statistics(&mut scene).await;
    let mut device = std::fs::File::open(&scene.target).unwrap();
    reported.usage[0].total.unsigned_abs() == device.seek(std::io::SeekFrom::End(0)).unwrap()
}

async fn statistics_are_in_bytes(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    statistics(&mut scene).await.usage[0].total > 1 << 20
}

async fn statistics_have_a_condition(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    statistics(&mut scene).await.volume_condition.is_some()
}

async fn repeated_modify_is_ok(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    let request = v1::ControllerModifyVolumeRequest {
        volume_id: scene.id.clone(),
        mutable_parameters: [("tier".to_owned(), "gold".to_owned())].into(),
        ..Default::default()
    };
    scene.csi.controller.controller_modify_volume(request.clone()).await.unwrap();
    scene.csi.controller.controller_modify_volume(request).await.is_ok()
}
