//! Probes of NodePublishVolume.

use std::io::Write as _;
use std::os::unix::fs::FileTypeExt as _;

use csi_proto::v1::volume_capability::access_mode::Mode;
use tonic::Code;

use super::{Chapter, probe};
use crate::scene::{Scene, WRITER, code};
use crate::world::{World, mounted};

pub(super) const PROBES: Chapter = &[
    probe!("publish-ignores-read-only", read_only_target_is_read_only),
    probe!("block-ignores-read-only", read_only_device_refuses_writes),
    probe!("publish-wrong-volume", target_shows_the_volume),
    probe!("block-target-is-regular-file", target_is_a_device),
    probe!("publish-stacks-mounts", repeated_publish_is_one_mount),
    probe!("publish-without-staging", unstaged_volume_is_not_published),
    probe!("publish-creates-file", published_target_is_mounted),
    probe!("publish-follows-link", link_is_not_followed),
    probe!("publish-ignores-mount-flags", flags_are_in_force),
    probe!("publish-ignores-conflict", other_request_is_a_conflict),
    probe!("publish-ignores-single-writer", single_writer_has_one_target),
    probe!("publish-replaces-record", record_beside_the_target_stays),
];

async fn record_beside_the_target_stays(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    let record = scene.target.with_file_name("vol_data.json");
    std::fs::write(&record, "{}").unwrap();
    scene.publish().await.unwrap();
    std::fs::symlink_metadata(&record).unwrap().is_file()
}

async fn read_only_target_is_read_only(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    let mut request = scene.publish_request();
    request.readonly = true;
    scene.csi.node.node_publish_volume(request).await.unwrap();
    std::fs::write(scene.target.join("x"), "x").is_err()
}

async fn read_only_device_refuses_writes(world: World) -> bool {
    let mut scene = Scene::block(world).await.staged().await;
    let mut request = scene.publish_request();
    request.readonly = true;
    scene.csi.node.node_publish_volume(request).await.unwrap();
    // The kernel permits opening a read-only device for writing, and refuses the write.
    std::fs::File::options()
        .write(true)
        .open(&scene.target)
        .and_then(|mut file| file.write_all(b"x"))
        .is_err()
}

async fn target_shows_the_volume(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    let other = scene.csi.create("other", mounted("", WRITER)).await.volume_id;
    let path = scene.world.directory("other");
    scene.csi.stage(&other, &path, mounted("", WRITER)).await.unwrap();
    std::fs::write(scene.staging.join("mine"), "").unwrap();
    scene.publish().await.unwrap();
    scene.target.join("mine").exists()
}

async fn target_is_a_device(world: World) -> bool {
    let scene = Scene::block(world).await.published().await;
    std::fs::metadata(&scene.target).unwrap().file_type().is_block_device()
}

async fn repeated_publish_is_one_mount(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    scene.publish().await.unwrap();
    scene.mounts_at(&scene.target) == 1
}

async fn unstaged_volume_is_not_published(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    code(&scene.publish().await) == Code::FailedPrecondition && !scene.target.exists()
}

async fn published_target_is_mounted(world: World) -> bool {
    let scene = Scene::mount(world).await.published().await;
    scene.mounts_at(&scene.target) == 1 && scene.target.is_dir()
}

async fn link_is_not_followed(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    let elsewhere = scene.world.directory("elsewhere");
    std::os::unix::fs::symlink(&elsewhere, &scene.target).unwrap();
    scene.publish().await.is_err() && scene.mounts_at(&elsewhere) == 0
}

async fn flags_are_in_force(world: World) -> bool {
    let scene = Scene::mount(world).await.with_flags(&["noatime"]).published().await;
    let mounts = scene.world.mounts(&scene.world.root);
    mounts.iter().any(|(path, options)| *path == scene.target && options.contains("noatime"))
}

async fn other_request_is_a_conflict(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    let mut request = scene.publish_request();
    request.readonly = true;
    code(&scene.csi.node.node_publish_volume(request).await) == Code::AlreadyExists
}

async fn single_writer_has_one_target(world: World) -> bool {
    let scene = Scene::with(world, &[], mounted("", Mode::SingleNodeSingleWriter)).await;
    let mut scene = scene.published().await;
    let second = scene.world.path("pod/second");
    code(&scene.publish_at(&second).await) == Code::FailedPrecondition
}
