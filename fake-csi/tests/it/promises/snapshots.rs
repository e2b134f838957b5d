//! Probes of the promises about snapshots and group snapshots.

use csi_proto::v1;

use super::{Chapter, probe};
use crate::scene::{Scene, WRITER};
use crate::world::{Csi, World, block, create};

pub(super) const PROBES: Chapter = &[
    probe!("snapshot-shares-blocks", snapshot_keeps_its_data),
    probe!("snapshot-forgets-idempotence", repeated_snapshot_is_the_same),
    probe!("snapshot-refuses-long-names", long_name_is_accepted),
    probe!("group-misses-one", group_has_all_snapshots),
    probe!("list-snapshots-ignores-filter", list_applies_the_filter),
];

async fn take_snapshot(csi: &mut Csi, name: &str, id: &str) -> v1::Snapshot {
    let request = v1::CreateSnapshotRequest {
        name: name.to_owned(),
        source_volume_id: id.to_owned(),
        ..Default::default()
    };
    csi.controller.create_snapshot(request).await.unwrap().into_inner().snapshot.unwrap()
}

async fn long_name_is_accepted(world: World) -> bool {
    let mut scene = Scene::block(world).await;
    let (name, source_volume_id) = ("n".repeat(128), scene.id.clone());
    let request = v1::CreateSnapshotRequest { name, source_volume_id, ..Default::default() };
    scene.csi.controller.create_snapshot(request).await.is_ok()
}

async fn snapshot_keeps_its_data(world: World) -> bool {
    use csi_proto::v1::volume_content_source::{SnapshotSource, Type};
    let mut scene = Scene::block(world).await.published().await;
    std::fs::write(&scene.target, "before").unwrap();
    let snapshot_id = take_snapshot(&mut scene.csi, "snap", &scene.id).await.snapshot_id;
    std::fs::write(&scene.target, "after!").unwrap();
    scene.unpublish().await.unwrap();
    scene.unstage().await.unwrap();
    let source = Type::Snapshot(SnapshotSource { snapshot_id });
    let request = v1::CreateVolumeRequest {
        volume_content_source: Some(v1::VolumeContentSource { r#type: Some(source) }),
        ..create("restored", block(WRITER))
    };
    scene.id =
        scene.csi.controller.create_volume(request).await.unwrap().into_inner().volume.unwrap().volume_id;
    let scene = scene.published().await;
    std::fs::read(&scene.target).unwrap().starts_with(b"before")
}

async fn repeated_snapshot_is_the_same(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    let first = take_snapshot(&mut scene.csi, "snap", &scene.id).await;
    take_snapshot(&mut scene.csi, "snap", &scene.id).await == first
}

async fn group_has_all_snapshots(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    let other = scene.csi.create("other", block(WRITER)).await.volume_id;
    let request = v1::CreateVolumeGroupSnapshotRequest {
        name: "group".to_owned(),
        source_volume_ids: vec![scene.id.clone(), other],
        ..Default::default()
    };
    let made = scene.csi.group.create_volume_group_snapshot(request).await.unwrap().into_inner();
    made.group_snapshot.unwrap().snapshots.len() == 2
}

async fn list_applies_the_filter(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    let one = take_snapshot(&mut scene.csi, "one", &scene.id).await;
    take_snapshot(&mut scene.csi, "other", &scene.id).await;
    let request = v1::ListSnapshotsRequest { snapshot_id: one.snapshot_id, ..Default::default() };
    scene.csi.controller.list_snapshots(request).await.unwrap().into_inner().entries.len() == 1
}
