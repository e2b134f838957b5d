//! Publishing: what appears at a target.

use std::io::Write as _;
use std::os::unix::fs::FileTypeExt as _;

use csi_proto::v1::volume_capability::access_mode::Mode;
use tonic::Code;

use super::{Chapter, probe};
use crate::scene::{Scene, WRITER, code};
use crate::world::{World, mounted};

pub(super) const PROBES: Chapter = &[
    probe!("publish-ignores-read-only", read_only_is_read_only),
    probe!("block-ignores-read-only", a_read_only_device_is_read_only),
    probe!("publish-wrong-volume", the_target_shows_the_volume),
    probe!("block-target-is-regular-file", the_target_is_a_device),
    probe!("publish-stacks-mounts", publishing_again_is_one_mount),
    probe!("publish-without-staging", the_unstaged_is_not_published),
    probe!("publish-creates-file", published_is_mounted),
    probe!("publish-follows-link", a_link_is_not_followed),
    probe!("publish-ignores-mount-flags", flags_are_in_force),
    probe!("publish-ignores-conflict", another_way_is_a_conflict),
    probe!("publish-ignores-single-writer", a_single_writer_is_alone),
];

async fn read_only_is_read_only(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    let mut request = scene.publish_request();
    request.readonly = true;
    scene.csi.node.node_publish_volume(request).await.unwrap();
    std::fs::write(scene.target.join("x"), "x").is_err()
}

async fn a_read_only_device_is_read_only(world: World) -> bool {
    let mut scene = Scene::block(world).await.staged().await;
    let mut request = scene.publish_request();
    request.readonly = true;
    scene.csi.node.node_publish_volume(request).await.unwrap();
    // The kernel lets a read-only device be opened for writing, and refuses the write.
    std::fs::File::options()
        .write(true)
        .open(&scene.target)
        .and_then(|mut file| file.write_all(b"x"))
        .is_err()
}

async fn the_target_shows_the_volume(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    let other = scene.csi.create("other", mounted("", WRITER)).await.volume_id;
    let path = scene.world.directory("other");
    scene.csi.stage(&other, &path, mounted("", WRITER)).await.unwrap();
    std::fs::write(scene.staging.join("mine"), "").unwrap();
    scene.publish().await.unwrap();
    scene.target.join("mine").exists()
}

async fn the_target_is_a_device(world: World) -> bool {
    let scene = Scene::block(world).await.published().await;
    std::fs::metadata(&scene.target).unwrap().file_type().is_block_device()
}

async fn publishing_again_is_one_mount(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    scene.publish().await.unwrap();
    scene.mounts_at(&scene.target) == 1
}

async fn the_unstaged_is_not_published(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    code(&scene.publish().await) == Code::FailedPrecondition && !scene.target.exists()
}

async fn published_is_mounted(world: World) -> bool {
    let scene = Scene::mount(world).await.published().await;
    scene.mounts_at(&scene.target) == 1 && scene.target.is_dir()
}

async fn a_link_is_not_followed(world: World) -> bool {
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

async fn another_way_is_a_conflict(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    let mut request = scene.publish_request();
    request.readonly = true;
    code(&scene.csi.node.node_publish_volume(request).await) == Code::AlreadyExists
}

async fn a_single_writer_is_alone(world: World) -> bool {
    let scene = Scene::with(world, &[], mounted("", Mode::SingleNodeSingleWriter)).await;
    let mut scene = scene.published().await;
    let second = scene.world.path("pod/second");
    code(&scene.publish_at(&second).await) == Code::FailedPrecondition
}
