//! Probes of a machine that starts anew, and of a container that is replaced.

use std::time::Duration;

use nix::mount::umount;

use super::{Chapter, probe};
use crate::scene::Scene;
use crate::world::World;

pub(super) const PROBES: Chapter = &[
    probe!("publish-trusts-its-record", lost_staging_is_not_published),
    probe!("unstage-needs-local-file", replaced_driver_unstages),
    probe!("forgets-on-reboot", reboot_keeps_the_volumes),
    probe!("unstage-forgets-first", unstage_cut_by_death_is_repeated),
    probe!("publish-keeps-memory", memory_stays_as_it_is),
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

async fn unstage_cut_by_death_is_repeated(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    let cut = tokio::time::timeout(Duration::from_millis(10), scene.unstage()).await;
    scene.world.kill();
    drop(cut);
    scene.csi = scene.world.restart().await;
    scene.unstage().await.unwrap();
    scene.mounts_at(&scene.staging) == 0
}

async fn memory_stays_as_it_is(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    let resident = |pid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
        text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    let before = resident(scene.world.pid());
    for _ in 0..64 {
        scene.publish().await.unwrap();
        scene.unpublish().await.unwrap();
    }
    resident(scene.world.pid()) < before + (8 << 20)
}
