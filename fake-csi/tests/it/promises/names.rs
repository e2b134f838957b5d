//! Probes of names, and of the answers of lists.

use csi_proto::v1;
use csi_proto::v1::volume_content_source::{Type, VolumeSource};
use tonic::{Code, Status};

use super::{Chapter, probe};
use crate::scene::{WRITER, code};
use crate::world::{Csi, World, block, create, mounted};

pub(super) const PROBES: Chapter = &[
    probe!("create-cuts-names", long_names_are_distinguished),
    probe!("create-ignores-use", device_of_a_taken_name_is_a_conflict),
    probe!("create-ignores-source", copy_of_another_source_is_a_conflict),
    probe!("create-ignores-taken-limit", smaller_limit_is_a_conflict),
    probe!("create-forgets-source", repeated_copy_is_the_same),
    probe!("create-defaults-over-limit", limit_alone_is_respected),
    probe!("create-races-itself", creates_at_once_are_one_volume),
    probe!("list-trusts-tokens", large_token_is_answered),
    probe!("list-trusts-counts", negative_count_is_answered),
    probe!("list-tells-half", listed_size_is_that_of_the_volume),
    probe!("expand-forgotten", grown_size_is_listed),
    probe!("list-snapshots-forgets-source", listed_snapshot_has_its_source),
];

async fn made(csi: &mut Csi, request: v1::CreateVolumeRequest) -> Result<v1::Volume, Status> {
    csi.controller.create_volume(request).await.map(|made| made.into_inner().volume.unwrap())
}

async fn long_names_are_distinguished(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let name = "n".repeat(100);
    let one = csi.create(&format!("{name}1"), mounted("", WRITER)).await;
    one.volume_id != csi.create(&format!("{name}2"), mounted("", WRITER)).await.volume_id
}

async fn device_of_a_taken_name_is_a_conflict(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    csi.create("data", mounted("", WRITER)).await;
    code(&made(&mut csi, create("data", block(WRITER))).await) == Code::AlreadyExists
}

async fn copy(csi: &mut Csi, source: &str) -> Result<v1::Volume, Status> {
    let kind = Type::Volume(VolumeSource { volume_id: source.to_owned() });
    let source = v1::VolumeContentSource { r#type: Some(kind) };
    let request = create("copy", mounted("", WRITER));
    made(csi, v1::CreateVolumeRequest { volume_content_source: Some(source), ..request }).await
}

async fn copy_of_another_source_is_a_conflict(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let one = csi.create("one", mounted("", WRITER)).await.volume_id;
    let two = csi.create("two", mounted("", WRITER)).await.volume_id;
    copy(&mut csi, &one).await.unwrap();
    code(&copy(&mut csi, &two).await) == Code::AlreadyExists
}

async fn repeated_copy_is_the_same(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let one = csi.create("one", mounted("", WRITER)).await.volume_id;
    let first = copy(&mut csi, &one).await.unwrap();
    copy(&mut csi, &one).await.is_ok_and(|again| again == first)
}

async fn smaller_limit_is_a_conflict(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let mut request = create("data", mounted("", WRITER));
    request.capacity_range = Some(v1::CapacityRange { required_bytes: 64 << 20, limit_bytes: 0 });
    made(&mut csi, request.clone()).await.unwrap();
    request.capacity_range = Some(v1::CapacityRange { required_bytes: 16 << 20, limit_bytes: 16 << 20 });
    code(&made(&mut csi, request).await) == Code::AlreadyExists
}

async fn limit_alone_is_respected(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let mut request = create("data", mounted("", WRITER));
    request.capacity_range = Some(v1::CapacityRange { required_bytes: 0, limit_bytes: 32 << 20 });
    made(&mut csi, request).await.unwrap().capacity_bytes <= 32 << 20
}

async fn creates_at_once_are_one_volume(mut world: World) -> bool {
    let csi = world.start(&[]).await;
    let request = create("data", mounted("", WRITER));
    let (mut one, mut two) = (csi.clone(), csi.clone());
    let (first, second) = tokio::join!(made(&mut one, request.clone()), made(&mut two, request));
    match (first, second) {
        (Ok(first), Ok(second)) => first.volume_id == second.volume_id,
        // One of them is refused, and its caller has to repeat it.
        _ => true,
    }
}

async fn listed(csi: &mut Csi, request: v1::ListVolumesRequest) -> Result<Vec<v1::Volume>, Status> {
    let list = csi.controller.list_volumes(request).await?.into_inner();
    Ok(list.entries.into_iter().filter_map(|entry| entry.volume).collect())
}

async fn large_token_is_answered(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let request = v1::ListVolumesRequest { starting_token: "1000000".to_owned(), ..Default::default() };
    drop(listed(&mut csi, request).await);
    listed(&mut csi, Default::default()).await.is_ok()
}

async fn negative_count_is_answered(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let request = v1::ListSnapshotsRequest { max_entries: -1, ..Default::default() };
    drop(csi.controller.list_snapshots(request).await);
    csi.controller.list_snapshots(v1::ListSnapshotsRequest::default()).await.is_ok()
}

async fn listed_size_is_that_of_the_volume(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let made = csi.create("data", mounted("", WRITER)).await;
    listed(&mut csi, Default::default()).await.unwrap()[0].capacity_bytes == made.capacity_bytes
}

async fn grown_size_is_listed(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let volume_id = csi.create("data", mounted("", WRITER)).await.volume_id;
    let request = v1::ControllerExpandVolumeRequest {
        volume_id,
        capacity_range: Some(v1::CapacityRange { required_bytes: 32 << 20, limit_bytes: 0 }),
        ..Default::default()
    };
    let grown = csi.controller.controller_expand_volume(request).await.unwrap().into_inner();
    listed(&mut csi, Default::default()).await.unwrap()[0].capacity_bytes == grown.capacity_bytes
}

async fn listed_snapshot_has_its_source(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let source_volume_id = csi.create("data", mounted("", WRITER)).await.volume_id;
    let request = v1::CreateSnapshotRequest {
        name: "one".to_owned(),
        source_volume_id: source_volume_id.clone(),
        ..Default::default()
    };
    csi.controller.create_snapshot(request).await.unwrap();
    let list = csi.controller.list_snapshots(v1::ListSnapshotsRequest::default()).await.unwrap().into_inner();
    list.entries[0].snapshot.as_ref().unwrap().source_volume_id == source_volume_id
}
