//! Probes of what stands in answers, and of what is left beside them.

use std::os::unix::fs::PermissionsExt;

use csi_proto::v1;
use nix::mount::umount;
use tonic::Code;

use super::{Chapter, probe};
use crate::scene::{Scene, WRITER, code};
use crate::world::{World, block, create, mounted};

pub(super) const PROBES: Chapter = &[
    probe!("context-too-large", context_has_at_most_4_kib),
    probe!("version-missing", version_is_reported),
    probe!("well-without-words", condition_has_words),
    probe!("negative-volume-limit", volume_limit_is_not_negative),
    probe!("errors-without-words", errors_have_words),
    probe!("expansion-without-call", expansion_has_its_call),
    probe!("topology-unannounced", topology_is_announced),
    probe!("secret-in-context", context_has_no_secret),
    probe!("validate-looks-at-first", each_capability_is_looked_at),
    probe!("snapshot-never-ready", snapshot_is_ready),
    probe!("publish-leaves-zombie", publish_leaves_no_zombie),
    probe!("restart-forgets-published", published_volume_is_known_after_a_restart),
    probe!("restart-needs-clean-end", killed_driver_starts_again),
    probe!("publish-swaps-devices", devices_are_not_swapped),
    probe!("target-open-to-all", target_is_not_open),
    probe!("detach-from-none", detach_without_a_node_is_from_all),
];

async fn context_has_at_most_4_kib(mut world: World) -> bool {
    let context = world.start(&[]).await.create("data", mounted("", WRITER)).await.volume_context;
    context.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() <= 4096
}

async fn version_is_reported(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let info = csi.identity.get_plugin_info(v1::GetPluginInfoRequest {}).await.unwrap().into_inner();
    !info.vendor_version.is_empty()
}

async fn condition_has_words(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    let request = v1::NodeGetVolumeStatsRequest {
        volume_id: scene.id.clone(),
        volume_path: scene.target.to_string_lossy().into_owned(),
        ..Default::default()
    };
    let stats = scene.csi.node.node_get_volume_stats(request).await.unwrap().into_inner();
    !stats.volume_condition.unwrap().message.is_empty()
}

async fn volume_limit_is_not_negative(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let info = csi.node.node_get_info(v1::NodeGetInfoRequest {}).await.unwrap().into_inner();
    info.max_volumes_per_node >= 0
}

async fn errors_have_words(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let refused = csi.controller.delete_volume(v1::DeleteVolumeRequest::default()).await.unwrap_err();
    !refused.message().is_empty()
}

async fn expansion_has_its_call(mut world: World) -> bool {
    use v1::node_service_capability::{Rpc, Type, rpc};
    let mut csi = world.start(&[]).await;
    let request = v1::NodeGetCapabilitiesRequest {};
    let listed = csi.node.node_get_capabilities(request).await.unwrap().into_inner().capabilities;
    let wanted = Some(Type::Rpc(Rpc { r#type: rpc::Type::ExpandVolume.into() }));
    listed.iter().any(|capability| capability.r#type == wanted)
}

async fn topology_is_announced(mut world: World) -> bool {
    use v1::plugin_capability::{Service, Type, service};
    let mut csi = world.start(&[]).await;
    let request = v1::GetPluginCapabilitiesRequest {};
    let listed = csi.identity.get_plugin_capabilities(request).await.unwrap().into_inner().capabilities;
    let wanted = service::Type::VolumeAccessibilityConstraints.into();
    listed.iter().any(|capability| capability.r#type == Some(Type::Service(Service { r#type: wanted })))
}

async fn context_has_no_secret(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let mut request = create("data", mounted("", WRITER));
    request.secrets.insert("password".to_owned(), "open-sesame".to_owned());
    let made = csi.controller.create_volume(request).await.unwrap().into_inner().volume.unwrap();
    !made.volume_context.values().any(|value| value.contains("open-sesame"))
}

async fn each_capability_is_looked_at(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let volume_id = csi.create("data", mounted("", WRITER)).await.volume_id;
    let volume_capabilities = vec![mounted("", WRITER), mounted("no-such-fs", WRITER)];
    let request =
        v1::ValidateVolumeCapabilitiesRequest { volume_id, volume_capabilities, ..Default::default() };
    let answer = csi.controller.validate_volume_capabilities(request).await.unwrap();
    answer.into_inner().confirmed.is_none()
}

async fn snapshot_is_ready(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let source_volume_id = csi.create("data", mounted("", WRITER)).await.volume_id;
    let request =
        v1::CreateSnapshotRequest { source_volume_id, name: "one".to_owned(), ..Default::default() };
    let taken = csi.controller.create_snapshot(request).await.unwrap().into_inner();
    taken.snapshot.unwrap().ready_to_use
}

async fn publish_leaves_no_zombie(world: World) -> bool {
    let scene = Scene::mount(world).await.published().await;
    let pid = scene.world.pid().to_string();
    let is_left = |entry: &std::fs::DirEntry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        fields.get(1) == Some(&pid.as_str())
    };
    // One that has not ended yet will be a zombie.
    !std::fs::read_dir("/proc").unwrap().flatten().any(|entry| is_left(&entry))
}

async fn published_volume_is_known_after_a_restart(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    scene.world.kill();
    scene.csi = scene.world.restart().await;
    scene.unpublish().await.unwrap();
    scene.mounts_at(&scene.target) == 0
}

async fn killed_driver_starts_again(mut world: World) -> bool {
    drop(world.start(&[]).await);
    world.kill();
    world.starts_again().await
}

async fn devices_are_not_swapped(world: World) -> bool {
    let mut scene = Scene::block(world).await.staged().await;
    let own = scene.world.loops();
    let other = scene.csi.create("other", block(WRITER)).await.volume_id;
    let at = scene.world.directory("other-staging");
    scene.csi.stage(&other, &at, block(WRITER)).await.unwrap();
    scene.publish().await.unwrap();
    let device = std::fs::metadata(&scene.target).unwrap();
    let number = nix::sys::stat::minor(std::os::unix::fs::MetadataExt::rdev(&device));
    let backing = std::fs::read_to_string(format!("/sys/block/loop{number}/loop/backing_file")).unwrap();
    // Both have the end of a line.
    own.iter().any(|own| own.as_os_str() == backing.as_str())
}

async fn target_is_not_open(world: World) -> bool {
    let scene = Scene::mount(world).await.published().await;
    umount(&scene.target).unwrap();
    scene.target.metadata().unwrap().permissions().mode() & 0o002 == 0
}

async fn detach_without_a_node_is_from_all(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    let node_id = scene.csi.node.node_get_info(v1::NodeGetInfoRequest {}).await.unwrap().into_inner().node_id;
    let volume_capability = Some(scene.capability.clone());
    let request = v1::ControllerPublishVolumeRequest {
        volume_id: scene.id.clone(),
        node_id,
        volume_capability,
        ..Default::default()
    };
    scene.csi.controller.controller_publish_volume(request).await.unwrap();
    let request = v1::ControllerUnpublishVolumeRequest { volume_id: scene.id.clone(), ..Default::default() };
    scene.csi.controller.controller_unpublish_volume(request).await.unwrap();
    code(&scene.csi.delete(&scene.id).await) == Code::Ok
}
