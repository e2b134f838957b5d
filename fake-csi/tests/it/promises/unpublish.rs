//! Probes of NodeUnpublishVolume and NodeUnstageVolume.

use csi_proto::v1;

use super::{Chapter, probe};
use crate::scene::Scene;
use crate::world::{Csi, World, text};

pub(super) const PROBES: Chapter = &[
    probe!("unpublish-leaves-mount", unpublished_target_is_not_mounted),
    probe!("unpublish-keeps-target", unpublished_target_is_removed),
    probe!("unpublish-forgets-idempotence", repeated_unpublish_is_ok),
    probe!("unpublish-takes-all-targets", other_targets_stay),
    probe!("unpublish-deletes-data", unpublish_keeps_the_data),
    probe!("unpublish-removes-all", unpublish_of_a_stacked_target_keeps_the_data),
    probe!("publish-records-late", killed_publish_is_unpublished),
    probe!("unpublish-removes-siblings", siblings_of_the_target_stay),
    probe!("unpublish-lazily", target_in_use_is_not_unpublished),
    probe!("inline-volume-stays", inline_volume_is_deleted),
    probe!("inline-unpublish-not-found", repeated_inline_unpublish_is_ok),
    probe!("unpublish-needs-mount", unpublish_of_a_lost_mount_is_ok),
    probe!("unstage-succeeds-but-mounted", unstaged_path_is_not_mounted),
    probe!("unstage-forgets-idempotence", repeated_unstage_is_ok),
    probe!("unstage-loses-last-write", data_is_there_after_unstage),
    probe!("stage-leaks-loop-device", cycle_leaves_no_loop_device),
    probe!("unstage-removes-directory", staging_directory_stays),
    probe!("unstage-while-published", published_volume_is_not_unstaged),
];

async fn unpublished_target_is_not_mounted(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    scene.unpublish().await.unwrap();
    scene.mounts_at(&scene.target) == 0
}

async fn unpublished_target_is_removed(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    scene.unpublish().await.unwrap();
    !scene.target.exists()
}

async fn repeated_unpublish_is_ok(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    scene.unpublish().await.unwrap();
    scene.unpublish().await.is_ok()
}

async fn other_targets_stay(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    let second = scene.world.path("pod/second");
    scene.publish_at(&second).await.unwrap();
    scene.unpublish().await.unwrap();
    scene.mounts_at(&second) == 1
}

async fn unpublish_keeps_the_data(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    std::fs::write(scene.target.join("x"), "kept").unwrap();
    scene.unpublish().await.unwrap();
    scene.staging.join("x").exists()
}

async fn unpublish_of_a_stacked_target_keeps_the_data(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    std::fs::write(scene.target.join("x"), "kept").unwrap();
    let nothing = None::<&str>;
    nix::mount::mount(Some(&scene.target), &scene.target, nothing, nix::mount::MsFlags::MS_BIND, nothing)
        .unwrap();
    drop(scene.unpublish().await);
    scene.staging.join("x").exists()
}

async fn killed_publish_is_unpublished(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    let mut csi = scene.csi.clone();
    let request = scene.publish_request();
    let call = tokio::spawn(async move { csi.node.node_publish_volume(request).await.map(drop) });
    while scene.mounts_at(&scene.target) == 0 && !call.is_finished() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    scene.csi = scene.world.restart().await;
    drop(call.await);
    scene.unpublish().await.is_ok() && scene.mounts_at(&scene.target) == 0
}

async fn siblings_of_the_target_stay(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    let beside = scene.world.path("pod/vol_data.json");
    std::fs::write(&beside, "{}").unwrap();
    scene.unpublish().await.unwrap();
    beside.exists()
}

async fn target_in_use_is_not_unpublished(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    let held = std::fs::File::create(scene.target.join("x")).unwrap();
    let refused = scene.unpublish().await.is_err();
    drop(held);
    refused && scene.unpublish().await.is_ok()
}

async fn publish_inline(csi: &mut Csi, scene: &World) -> std::path::PathBuf {
    let target = scene.path("pod/inline");
    let request = v1::NodePublishVolumeRequest {
        volume_id: "csi-inline".to_owned(),
        target_path: text(&target),
        volume_capability: Some(crate::world::mounted("", crate::scene::WRITER)),
        volume_context: [("csi.storage.k8s.io/ephemeral".to_owned(), "true".to_owned())].into(),
        ..Default::default()
    };
    csi.node.node_publish_volume(request).await.unwrap();
    assert!(target.join("lost+found").exists(), "an inline volume is a file system of its own");
    target
}

async fn inline_volume_is_deleted(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let target = publish_inline(&mut csi, &world).await;
    csi.unpublish("csi-inline", &target).await.unwrap();
    let left = std::fs::read_dir(world.state().join("volumes")).unwrap().count();
    left == 0 && world.mounts(&world.root).is_empty()
}

async fn repeated_inline_unpublish_is_ok(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let target = publish_inline(&mut csi, &world).await;
    csi.unpublish("csi-inline", &target).await.unwrap();
    csi.unpublish("csi-inline", &target).await.is_ok()
}

async fn unpublish_of_a_lost_mount_is_ok(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    nix::mount::umount(&scene.target).unwrap();
    let unpublished = scene.unpublish().await.is_ok();
    nix::mount::umount(&scene.staging).unwrap();
    unpublished && scene.unstage().await.is_ok()
}

async fn unstaged_path_is_not_mounted(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    scene.unstage().await.unwrap();
    scene.mounts_at(&scene.staging) == 0
}

async fn repeated_unstage_is_ok(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    scene.unstage().await.unwrap();
    scene.unstage().await.is_ok()
}

async fn data_is_there_after_unstage(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    std::fs::write(scene.target.join("x"), "kept").unwrap();
    scene.unpublish().await.unwrap();
    scene.unstage().await.unwrap();
    scene.stage().await.is_ok()
        && std::fs::read_to_string(scene.staging.join("x")).is_ok_and(|text| text == "kept")
}

async fn cycle_leaves_no_loop_device(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    scene.unstage().await.unwrap();
    for _ in 0..100 {
        if scene.world.loops().is_empty() {
            return true;
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    false
}

async fn staging_directory_stays(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    scene.unstage().await.unwrap();
    scene.staging.is_dir()
}

async fn published_volume_is_not_unstaged(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    scene.unstage().await.is_err() && scene.mounts_at(&scene.target) == 1
}
