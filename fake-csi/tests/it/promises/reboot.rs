//! Probes of a machine that starts anew, and of a container that is replaced.

use nix::mount::umount;

use super::{Chapter, probe};
use crate::scene::Scene;
use crate::world::World;

pub(super) const PROBES: Chapter = &[
    probe!("publish-trusts-its-record", lost_staging_is_not_published),
    probe!("unstage-needs-local-file", replaced_driver_unstages),
    probe!("forgets-on-reboot", reboot_keeps_the_volumes),
];

async fn lost_staging_is_not_published(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    umount(&scene.staging).unwrap();
    scene.publish().await.is_err()
}

impl Scene {
    async fn in_a_new_container(mut self) -> Self {
        self.world.kill();
        drop(std::fs::remove_dir_all(self.world.local()));
        self.csi = self.world.restart().await;
        self
    }
}

async fn replaced_driver_unstages(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await.in_a_new_container().await;
    scene.unstage().await.unwrap();
    scene.mounts_at(&scene.staging) == 0
}

async fn reboot_keeps_the_volumes(world: World) -> bool {
    let mut scene = Scene::mount(world).await.in_a_new_container().await;
    scene.stage().await.is_ok()
}
