//! Staging: once per volume and node.

use csi_proto::v1::volume_capability::AccessType;
use tonic::Code;

use super::{Chapter, probe};
use crate::scene::{Scene, WRITER, code};
use crate::world::{World, mounted, stage};

pub(super) const PROBES: Chapter = &[
    probe!("stage-without-mount", staged_is_mounted),
    probe!("stage-stacks-mounts", staging_again_is_one_mount),
    probe!("stage-formats-again", data_are_not_formatted_away),
    probe!("stage-ignores-fs-type", the_type_is_as_asked),
    probe!("stage-ignores-mount-flags", flags_are_in_force),
    probe!("stage-fails-but-mounts", failing_leaves_nothing),
    probe!("stage-follows-link", a_link_is_not_followed),
    probe!("stage-ignores-conflict", another_capability_is_a_conflict),
    probe!("stage-accepts-stale-context", a_stale_context_is_refused),
    probe!("publish-ignores-group", the_group_can_write),
];

async fn staged_is_mounted(world: World) -> bool {
    let scene = Scene::mount(world).await.staged().await;
    scene.mounts_at(&scene.staging) == 1
}

async fn staging_again_is_one_mount(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    scene.stage().await.unwrap();
    scene.mounts_at(&scene.staging) == 1
}

async fn data_are_not_formatted_away(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    std::fs::write(scene.staging.join("x"), "kept").unwrap();
    scene.unstage().await.unwrap();
    scene.stage().await.unwrap();
    scene.staging.join("x").exists()
}

async fn the_type_is_as_asked(world: World) -> bool {
    let mut scene = Scene::with(world, &[], mounted("btrfs", WRITER)).await;
    scene.stage().await.unwrap();
    const BTRFS: i64 = 0x9123_683e;
    let found = nix::sys::statfs::statfs(&scene.staging).unwrap();
    found.filesystem_type() == nix::sys::statfs::FsType(BTRFS)
}

async fn flags_are_in_force(world: World) -> bool {
    let scene = Scene::mount(world).await.with_flags(&["noexec", "noatime"]).staged().await;
    let mounts = scene.world.mounts(&scene.world.root);
    let options = &mounts.iter().find(|(path, _)| *path == scene.staging).unwrap().1;
    options.contains("noexec") && options.contains("noatime")
}

async fn failing_leaves_nothing(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    let failed = scene.stage().await.is_err();
    // The honest driver has nothing to fail at but flags that no file system knows.
    scene = scene.with_flags(&["no-such-flag"]);
    let failed =
        failed || scene.csi.unstage(&scene.id, &scene.staging).await.is_err() || scene.stage().await.is_err();
    failed && scene.mounts_at(&scene.staging) == 0
}

async fn a_link_is_not_followed(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    let elsewhere = scene.world.directory("elsewhere");
    std::fs::remove_dir(&scene.staging).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &scene.staging).unwrap();
    scene.stage().await.is_err() && scene.mounts_at(&elsewhere) == 0
}

async fn another_capability_is_a_conflict(world: World) -> bool {
    let scene = Scene::mount(world).await.staged().await;
    let mut scene = scene.with_flags(&["noexec"]);
    code(&scene.stage().await) == Code::AlreadyExists
}

async fn a_stale_context_is_refused(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    let mut request = stage(&scene.id, &scene.staging, scene.capability.clone());
    request.publish_context.insert("fake.csi.volproof.dev/generation".into(), "4711".into());
    code(&scene.csi.node.node_stage_volume(request).await) == Code::FailedPrecondition
}

async fn the_group_can_write(world: World) -> bool {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let mut scene = Scene::mount(world).await;
    if let Some(AccessType::Mount(mount)) = &mut scene.capability.access_type {
        mount.volume_mount_group = "4711".to_owned();
    }
    let scene = scene.published().await;
    let found = std::fs::metadata(&scene.target).unwrap();
    found.gid() == 4711 && found.permissions().mode() & 0o2070 == 0o2070
}
