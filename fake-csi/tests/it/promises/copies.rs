//! Probes of snapshots, copies and growth, as a cluster uses them.

use csi_proto::v1;
use tonic::{Code, Status};

use super::{Chapter, probe};
use crate::scene::{Scene, code};
use crate::world::{World, create};

pub(super) const PROBES: Chapter = &[
    probe!("expand-accepts-any-size", impossible_size_is_refused),
    probe!("expand-left-to-nobody", node_expansion_is_reported),
    probe!("delete-snapshot-forgets-idempotence", deleted_snapshot_is_deleted_again),
    probe!("snapshot-dies-with-source", snapshot_outlives_its_source),
    probe!("snapshot-without-time", snapshot_has_a_time),
    probe!("list-snapshots-ignores-limit", pages_are_as_small_as_asked),
    probe!("snapshot-loses-unsynced-write", snapshot_has_unsynced_writes),
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
    let follows = scene.grow(384 << 20).await.unwrap().node_expansion_required;
    let reported = scene.csi.node.node_get_capabilities(v1::NodeGetCapabilitiesRequest {}).await.unwrap();
    let expands = reported.into_inner().capabilities.into_iter().filter_map(|one| one.r#type).any(|kind| {
        let Type::Rpc(rpc) = kind;
        rpc.r#type() == rpc::Type::ExpandVolume
    });
    expands || !follows
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
