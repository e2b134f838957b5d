//! Probes of what a workload sees of a mount.

use std::os::unix::fs::PermissionsExt as _;

use csi_proto::v1::volume_capability::access_mode::Mode;

use super::{Chapter, probe};
use crate::scene::Scene;
use crate::world::World;

pub(super) const PROBES: Chapter = &[
    probe!("publish-adds-noexec", no_flag_is_added),
    probe!("publish-opens-root", mode_of_the_root_stays),
    probe!("read-only-everywhere", writable_target_stays_writable),
];

async fn no_flag_is_added(world: World) -> bool {
    let scene = Scene::mount(world).await.published().await;
    let mounts = scene.world.mounts(scene.target.parent().unwrap());
    mounts.iter().all(|(_, options)| !options.contains("noexec"))
}

async fn mode_of_the_root_stays(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    std::fs::set_permissions(&scene.staging, std::fs::Permissions::from_mode(0o2750)).unwrap();
    scene.publish().await.unwrap();
    scene.target.metadata().unwrap().permissions().mode() & 0o7777 == 0o2750
}

async fn writable_target_stays_writable(world: World) -> bool {
    let mut scene = Scene::mount(world).await;
    scene.capability.access_mode.as_mut().unwrap().mode = Mode::SingleNodeMultiWriter.into();
    let mut scene = scene.staged().await.published().await;
    let mut request = scene.publish_request();
    request.target_path = crate::world::text(&scene.world.path("reader"));
    request.readonly = true;
    scene.csi.node.node_publish_volume(request).await.unwrap();
    std::fs::write(scene.target.join("x"), "x").is_ok()
}
