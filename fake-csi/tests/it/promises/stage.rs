//! Probes of NodeStageVolume.

use csi_proto::v1::volume_capability::AccessType;
use tonic::Code;

use super::{Chapter, probe};
use crate::scene::{Scene, WRITER, code};
use crate::world::{World, mounted, stage};

pub(super) const PROBES: Chapter = &[
    probe!("stage-without-mount", staging_path_is_mounted),
    probe!("stage-stacks-mounts", repeated_stage_is_one_mount),
    probe!("stage-formats-again", stage_keeps_the_data),
    probe!("stage-ignores-fs-type", file_system_is_the_requested_one),
    probe!("stage-ignores-mount-flags", flags_are_in_force),
    probe!("stage-fails-but-mounts", failed_stage_leaves_no_mount),
    probe!("stage-follows-link", link_is_not_followed),
    probe!("stage-ignores-conflict", other_capability_is_a_conflict),
    probe!("stage-accepts-stale-context", stale_context_is_refused),
    probe!("publish-ignores-group", group_can_write),
    probe!("stage-answers-garbage", first_stage_is_answered),
];

async fn first_stage_is_answered(world: World) -> bool {
    Scene::mount(world).await.stage().await.is_ok()
}

async fn staging_path_is_mounted(world: World) -> bool {
    let scene = Scene::mount(world).await.staged().await;
    scene.mounts_at(&scene.staging) == 1
}

async fn repeated_stage_is_one_mount(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    scene.stage().await.unwrap();
    scene.mounts_at(&scene.staging) == 1
}

async fn stage_keeps_the_data(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    std::fs::write(scene.staging.join("x"), "kept").unwrap();
    scene.unstage().await.unwrap();
    scene.stage().await.unwrap();
    scene.staging.join("x").exists()
}

async fn file_system_is_the_requested_one(world: World) -> bool {
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

async fn failed_stage_leaves_no_mount(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    let failed = scene.stage().await.is_err();
    // The honest driver fails only for mount flags that no file system knows.
    scene = scene.with_flags(&["no-such-flag"]);
    let failed =
        failed || scene.csi.unstage(&scene.id, &scene.staging).await.is_err() || scene.stage().await.is_err();
    failed && scene.mounts_at(&scene.staging) == 0
}

async fn link_is_not_followed(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    let elsewhere = scene.world.directory("elsewhere");
    std::fs::remove_dir(&scene.staging).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &scene.staging).unwrap();
    scene.stage().await.is_err() && scene.mounts_at(&elsewhere) == 0
}

async fn other_capability_is_a_conflict(world: World) -> bool {
    let scene = Scene::mount(world).await.staged().await;
    let mut scene = scene.with_flags(&["noexec"]);
    code(&scene.stage().await) == Code::AlreadyExists
}

async fn stale_context_is_refused(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    let mut request = stage(&scene.id, &scene.staging, scene.capability.clone());
    request.publish_context.insert("fake.csi.volproof.dev/generation".into(), "4711".into());
    code(&scene.csi.node.node_stage_volume(request).await) == Code::FailedPrecondition
}

async fn group_can_write(world: World) -> bool {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let mut scene = Scene::mount(world).await;
    if let Some(AccessType::Mount(mount)) = &mut scene.capability.access_type {
        mount.volume_mount_group = "4711".to_owned();
    }
    let scene = scene.published().await;
    let found = std::fs::metadata(&scene.target).unwrap();
    found.gid() == 4711 && found.permissions().mode() & 0o2070 == 0o2070
}
