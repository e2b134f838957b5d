//! Probes of the promises about repeated calls.

use super::{Chapter, probe};
use crate::scene::Scene;
use crate::world::World;

pub(super) const PROBES: Chapter = &[
    probe!("stage-forgets-idempotence", staging_again_is_ok),
    probe!("publish-forgets-idempotence", publishing_again_is_ok),
];

async fn staging_again_is_ok(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    scene.stage().await.is_ok()
}

async fn publishing_again_is_ok(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    scene.publish().await.is_ok()
}
