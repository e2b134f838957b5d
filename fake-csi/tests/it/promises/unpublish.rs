//! Unpublishing and unstaging: what is left.

use csi_proto::v1;

use super::{Chapter, probe};
use crate::scene::Scene;
use crate::world::{Csi, World, text};

pub(super) const PROBES: Chapter = &[
    probe!("unpublish-leaves-mount", unpublished_is_not_mounted),
    probe!("unpublish-keeps-target", the_target_is_gone),
    probe!("unpublish-forgets-idempotence", unpublishing_again_is_ok),
    probe!("unpublish-takes-all-targets", other_targets_stay),
    probe!("unpublish-deletes-data", unpublishing_keeps_data),
    probe!("unpublish-removes-siblings", what_is_beside_stays),
    probe!("unpublish-lazily", a_target_in_use_is_not_unpublished),
    probe!("inline-volume-stays", an_inline_volume_goes),
    probe!("inline-unpublish-not-found", unpublishing_inline_again_is_ok),
    probe!("unpublish-needs-mount", a_lost_mount_is_no_obstacle),
    probe!("unstage-succeeds-but-mounted", unstaged_is_not_mounted),
    probe!("unstage-forgets-idempotence", unstaging_again_is_ok),
    probe!("unstage-loses-last-write", what_was_written_is_there_again),
    probe!("stage-leaks-loop-device", a_cycle_holds_no_device),
    probe!("unstage-removes-directory", the_staging_directory_stays),
    probe!("unstage-while-published", the_published_is_not_unstaged),
];

async fn unpublished_is_not_mounted(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    scene.unpublish().await.unwrap();
    scene.mounts_at(&scene.target) == 0
}

async fn the_target_is_gone(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    scene.unpublish().await.unwrap();
    !scene.target.exists()
}

async fn unpublishing_again_is_ok(world: World) -> bool {
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

async fn unpublishing_keeps_data(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    std::fs::write(scene.target.join("x"), "kept").unwrap();
    scene.unpublish().await.unwrap();
    scene.staging.join("x").exists()
}

async fn what_is_beside_stays(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    let beside = scene.world.path("pod/vol_data.json");
    std::fs::write(&beside, "{}").unwrap();
    scene.unpublish().await.unwrap();
    beside.exists()
}

async fn a_target_in_use_is_not_unpublished(world: World) -> bool {
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

async fn an_inline_volume_goes(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let target = publish_inline(&mut csi, &world).await;
    csi.unpublish("csi-inline", &target).await.unwrap();
    let left = std::fs::read_dir(world.state().join("volumes")).unwrap().count();
    left == 0 && world.mounts(&world.root).is_empty()
}

async fn unpublishing_inline_again_is_ok(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let target = publish_inline(&mut csi, &world).await;
    csi.unpublish("csi-inline", &target).await.unwrap();
    csi.unpublish("csi-inline", &target).await.is_ok()
}

async fn a_lost_mount_is_no_obstacle(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    nix::mount::umount(&scene.target).unwrap();
    let unpublished = scene.unpublish().await.is_ok();
    nix::mount::umount(&scene.staging).unwrap();
    unpublished && scene.unstage().await.is_ok()
}

async fn unstaged_is_not_mounted(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    scene.unstage().await.unwrap();
    scene.mounts_at(&scene.staging) == 0
}

async fn unstaging_again_is_ok(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    scene.unstage().await.unwrap();
    scene.unstage().await.is_ok()
}

async fn what_was_written_is_there_again(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    std::fs::write(scene.target.join("x"), "kept").unwrap();
    scene.unpublish().await.unwrap();
    scene.unstage().await.unwrap();
    scene.stage().await.is_ok()
        && std::fs::read_to_string(scene.staging.join("x")).is_ok_and(|text| text == "kept")
}

async fn a_cycle_holds_no_device(world: World) -> bool {
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

async fn the_staging_directory_stays(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    scene.unstage().await.unwrap();
    scene.staging.is_dir()
}

async fn the_published_is_not_unstaged(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    scene.unstage().await.is_err() && scene.mounts_at(&scene.target) == 1
}
