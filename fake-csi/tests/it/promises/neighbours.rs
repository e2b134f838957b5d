//! Probes of calls that have to leave other volumes and snapshots alone, and of what a refused call leaves.

use csi_proto::v1;
use csi_proto::v1::volume_content_source::{Type, VolumeSource};
use tonic::Code;

use super::{Chapter, probe};
use crate::scene::{Scene, WRITER, code};
use crate::world::{Csi, World, block, create, mounted, stage};

pub(super) const PROBES: Chapter = &[
    probe!("node-accepts-unknown-volume", unknown_volume_is_not_staged),
    probe!("detach-needs-node", node_of_a_detach_is_optional),
    probe!("detach-keeps-place", detached_volume_makes_room),
    probe!("create-too-large-is-internal", too_large_is_out_of_range),
    probe!("new-volume-has-file", new_volume_is_empty),
    probe!("list-forgets-newest", list_has_the_only_volume),
    probe!("failed-copy-stays", refused_copy_leaves_no_file),
    probe!("delete-snapshot-leaves-image", deleted_snapshot_leaves_no_file),
    probe!("delete-snapshot-takes-siblings", other_snapshot_stays),
    probe!("delete-empties-others", other_volume_keeps_its_data),
    probe!("block-shows-other", devices_are_distinguished),
    probe!("unstage-keeps-record", unstaged_volume_is_staged_elsewhere),
    probe!("copy-drops-links", copy_has_links),
    probe!("group-hides-itself", member_names_its_group),
    probe!("delete-member-of-group", member_is_not_deleted_alone),
    probe!("group-leaves-half", refused_group_leaves_no_file),
    probe!("get-snapshot-not-ready", gotten_snapshot_is_ready),
    probe!("expand-shrinks", size_stays_where_less_is_asked_for),
    probe!("refuses-single-node-writer", single_node_writer_is_confirmed),
    probe!("terminated-unmounts", target_outlives_the_end_of_the_driver),
    probe!("restart-forgets-snapshots", snapshot_outlives_a_restart),
    probe!("unpublish-needs-target", lost_target_is_unpublished),
    probe!("stats-swap-inodes", free_inodes_are_those_of_the_file_system),
    probe!("publish-leaks-memory", memory_does_not_grow),
];

async fn target_outlives_the_end_of_the_driver(world: World) -> bool {
    let scene = Scene::mount(world).await.published().await;
    let pid = nix::unistd::Pid::from_raw(scene.world.pid().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    for _ in 0..100 {
        if !scene.world.root.join("csi.sock").exists() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    scene.mounts_at(&scene.target) == 1
}

async fn snapshot_outlives_a_restart(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let id = csi.create("data", mounted("", WRITER)).await.volume_id;
    let taken = snapshot(&mut csi, "one", &id).await;
    let mut csi = world.restart().await;
    get_snapshot(&mut csi, &taken).await.is_some()
}

async fn lost_target_is_unpublished(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    nix::mount::umount(&scene.target).unwrap();
    std::fs::remove_dir(&scene.target).unwrap();
    scene.unpublish().await.is_ok()
}

async fn free_inodes_are_those_of_the_file_system(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    let request = v1::NodeGetVolumeStatsRequest {
        volume_id: scene.id.clone(),
        volume_path: crate::world::text(&scene.target),
        ..Default::default()
    };
    let reported = scene.csi.node.node_get_volume_stats(request).await.unwrap().into_inner();
    let inodes = &reported.usage[1];
    inodes.available > inodes.used
}

async fn memory_does_not_grow(world: World) -> bool {
    const CYCLES: usize = 5;
    let mut scene = Scene::mount(world).await.published().await;
    let own = |pid: u32| -> usize {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    let before = own(scene.world.pid());
    for _ in 0..CYCLES {
        scene.unpublish().await.unwrap();
        scene.publish().await.unwrap();
    }
    own(scene.world.pid()) < before + CYCLES * 1024
}

async fn unknown_volume_is_not_staged(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let request = stage("no-such-volume", &world.directory("staging"), mounted("", WRITER));
    code(&csi.node.node_stage_volume(request).await) == Code::NotFound
}

async fn attach(csi: &mut Csi, id: &str) -> Code {
    let node_id = csi.node.node_get_info(v1::NodeGetInfoRequest {}).await.unwrap().into_inner().node_id;
    let request = v1::ControllerPublishVolumeRequest {
        volume_id: id.to_owned(),
        node_id,
        volume_capability: Some(mounted("", WRITER)),
        ..Default::default()
    };
    code(&csi.controller.controller_publish_volume(request).await)
}

async fn detach(csi: &mut Csi, id: &str) -> Code {
    let request = v1::ControllerUnpublishVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
    code(&csi.controller.controller_unpublish_volume(request).await)
}

async fn node_of_a_detach_is_optional(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let id = csi.create("data", mounted("", WRITER)).await.volume_id;
    attach(&mut csi, &id).await;
    detach(&mut csi, &id).await == Code::Ok
}

async fn detached_volume_makes_room(mut world: World) -> bool {
    let mut csi = world.start(&["--max-volumes=1"]).await;
    let one = csi.create("one", mounted("", WRITER)).await.volume_id;
    let two = csi.create("two", mounted("", WRITER)).await.volume_id;
    attach(&mut csi, &one).await;
    detach(&mut csi, &one).await;
    attach(&mut csi, &two).await == Code::Ok
}

async fn too_large_is_out_of_range(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let mut request = create("data", mounted("", WRITER));
    request.capacity_range = Some(v1::CapacityRange { required_bytes: 1 << 62, limit_bytes: 0 });
    code(&csi.controller.create_volume(request).await) == Code::OutOfRange
}

async fn new_volume_is_empty(world: World) -> bool {
    let scene = Scene::mount(world).await.staged().await;
    let entries = std::fs::read_dir(&scene.staging).unwrap().flatten();
    entries.filter(|entry| entry.file_name() != "lost+found").count() == 0
}

async fn list_has_the_only_volume(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    csi.create("data", mounted("", WRITER)).await;
    let list = csi.controller.list_volumes(v1::ListVolumesRequest::default()).await.unwrap();
    list.into_inner().entries.len() == 1
}

fn copy_of(id: &str) -> v1::CreateVolumeRequest {
    let kind = Type::Volume(VolumeSource { volume_id: id.to_owned() });
    let source = v1::VolumeContentSource { r#type: Some(kind) };
    v1::CreateVolumeRequest { volume_content_source: Some(source), ..create("copy", mounted("", WRITER)) }
}

fn files(world: &World, kind: &str) -> usize {
    std::fs::read_dir(world.state().join(kind)).unwrap().count()
}

async fn refused_copy_leaves_no_file(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    csi.controller.create_volume(copy_of("no-such-volume")).await.unwrap_err();
    files(&world, "volumes") == 0
}

async fn snapshot(csi: &mut Csi, name: &str, id: &str) -> String {
    let request = v1::CreateSnapshotRequest {
        name: name.to_owned(),
        source_volume_id: id.to_owned(),
        ..Default::default()
    };
    csi.controller.create_snapshot(request).await.unwrap().into_inner().snapshot.unwrap().snapshot_id
}

async fn delete_snapshot(csi: &mut Csi, id: &str) -> Code {
    let request = v1::DeleteSnapshotRequest { snapshot_id: id.to_owned(), ..Default::default() };
    code(&csi.controller.delete_snapshot(request).await)
}

async fn deleted_snapshot_leaves_no_file(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let id = csi.create("data", mounted("", WRITER)).await.volume_id;
    let taken = snapshot(&mut csi, "one", &id).await;
    delete_snapshot(&mut csi, &taken).await;
    files(&world, "snapshots") == 0
}

async fn get_snapshot(csi: &mut Csi, id: &str) -> Option<v1::Snapshot> {
    let request = v1::GetSnapshotRequest { snapshot_id: id.to_owned(), ..Default::default() };
    csi.controller.get_snapshot(request).await.ok()?.into_inner().snapshot
}

async fn other_snapshot_stays(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let id = csi.create("data", mounted("", WRITER)).await.volume_id;
    let one = snapshot(&mut csi, "one", &id).await;
    let two = snapshot(&mut csi, "two", &id).await;
    delete_snapshot(&mut csi, &one).await;
    get_snapshot(&mut csi, &two).await.is_some()
}

async fn gotten_snapshot_is_ready(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let id = csi.create("data", mounted("", WRITER)).await.volume_id;
    let taken = snapshot(&mut csi, "one", &id).await;
    get_snapshot(&mut csi, &taken).await.is_some_and(|found| found.ready_to_use)
}

async fn other_volume_keeps_its_data(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    std::fs::write(scene.staging.join("x"), "kept").unwrap();
    scene.unstage().await.unwrap();
    let other = scene.csi.create("other", mounted("", WRITER)).await.volume_id;
    scene.csi.delete(&other).await.unwrap();
    scene.stage().await.is_ok() && scene.staging.join("x").exists()
}

async fn devices_are_distinguished(world: World) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let mut scene = Scene::block(world).await.published().await;
    let other = scene.csi.create("other", block(WRITER)).await.volume_id;
    let staging = scene.world.directory("other");
    scene.csi.stage(&other, &staging, block(WRITER)).await.unwrap();
    let target = scene.world.path("other-target");
    let request = crate::world::publish(&other, &staging, &target, block(WRITER));
    scene.csi.node.node_publish_volume(request).await.unwrap();
    scene.target.metadata().unwrap().rdev() != target.metadata().unwrap().rdev()
}

async fn unstaged_volume_is_staged_elsewhere(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    scene.unstage().await.unwrap();
    let elsewhere = scene.world.directory("elsewhere");
    scene.csi.stage(&scene.id, &elsewhere, scene.capability.clone()).await.is_ok()
}

async fn copy_has_links(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    std::os::unix::fs::symlink("x", scene.staging.join("link")).unwrap();
    let request = copy_of(&scene.id);
    let made = scene.csi.controller.create_volume(request).await.unwrap().into_inner().volume.unwrap();
    let path = scene.world.directory("copy");
    scene.csi.stage(&made.volume_id, &path, scene.capability.clone()).await.unwrap();
    path.join("link").is_symlink()
}

async fn group(csi: &mut Csi, ids: &[&str]) -> Option<v1::VolumeGroupSnapshot> {
    let request = v1::CreateVolumeGroupSnapshotRequest {
        name: "group".to_owned(),
        source_volume_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        ..Default::default()
    };
    csi.group.create_volume_group_snapshot(request).await.ok()?.into_inner().group_snapshot
}

async fn member_names_its_group(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let id = csi.create("data", mounted("", WRITER)).await.volume_id;
    let group = group(&mut csi, &[&id]).await.unwrap();
    group.snapshots[0].group_snapshot_id == group.group_snapshot_id
}

async fn member_is_not_deleted_alone(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let id = csi.create("data", mounted("", WRITER)).await.volume_id;
    let group = group(&mut csi, &[&id]).await.unwrap();
    delete_snapshot(&mut csi, &group.snapshots[0].snapshot_id).await == Code::InvalidArgument
}

async fn refused_group_leaves_no_file(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let id = csi.create("data", mounted("", WRITER)).await.volume_id;
    group(&mut csi, &[&id, "no-such-volume"]).await.is_none() && files(&world, "snapshots") == 0
}

async fn size_stays_where_less_is_asked_for(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let made = csi.create("data", mounted("", WRITER)).await;
    let request = v1::ControllerExpandVolumeRequest {
        volume_id: made.volume_id,
        capacity_range: Some(v1::CapacityRange { required_bytes: 8 << 20, limit_bytes: 0 }),
        ..Default::default()
    };
    let grown = csi.controller.controller_expand_volume(request).await.unwrap().into_inner();
    grown.capacity_bytes >= made.capacity_bytes
}

async fn single_node_writer_is_confirmed(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let volume_id = csi.create("data", mounted("", WRITER)).await.volume_id;
    let request = v1::ValidateVolumeCapabilitiesRequest {
        volume_id,
        volume_capabilities: vec![mounted("", WRITER)],
        ..Default::default()
    };
    let answer = csi.controller.validate_volume_capabilities(request).await.unwrap().into_inner();
    answer.confirmed.is_some()
}
