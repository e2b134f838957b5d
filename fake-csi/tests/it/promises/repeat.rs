//! Probes of the promises about repeated calls.

use csi_proto::v1;

use super::{Chapter, probe};
use crate::scene::{Scene, WRITER};
use crate::world::{World, mounted};

pub(super) const PROBES: Chapter = &[
    probe!("stage-forgets-idempotence", staging_again_is_ok),
    probe!("publish-forgets-idempotence", publishing_again_is_ok),
    probe!("attach-ignores-conflict", attaching_again_for_reading_is_refused),
];

async fn staging_again_is_ok(world: World) -> bool {
    let mut scene = Scene::mount(world).await.staged().await;
    scene.stage().await.is_ok()
}

async fn publishing_again_is_ok(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    scene.publish().await.is_ok()
}

async fn attaching_again_for_reading_is_refused(mut world: World) -> bool {
    let mut csi = world.start(&[]).await;
    let volume_id = csi.create("data", mounted("", WRITER)).await.volume_id;
    let mut answers = Vec::new();
    for readonly in [false, true] {
        let request = v1::ControllerPublishVolumeRequest {
            volume_id: volume_id.clone(),
            node_id: "node-1".to_owned(),
            volume_capability: Some(mounted("", WRITER)),
            readonly,
            ..Default::default()
        };
        answers.push(csi.controller.controller_publish_volume(request).await.is_ok());
    }
    answers == [true, false]
}
