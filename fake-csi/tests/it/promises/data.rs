//! Probes of what is in a volume, byte for byte, and of what can be done with it.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, symlink};
use std::time::{Duration, SystemTime};

use csi_proto::v1;

use super::{Chapter, probe};
use crate::scene::Scene;
use crate::world::{World, create};

pub(super) const PROBES: Chapter = &[
    probe!("unstage-loses-a-stripe", stripe_outlives_unstage),
    probe!("expand-loses-a-stripe", stripe_outlives_growth),
    probe!("copy-loses-a-stripe", stripe_is_copied),
    probe!("stage-touches-files", time_outlives_stage),
    probe!("publish-follows-no-links", link_of_a_volume_is_followed),
];

/// In a part of the device that is neither its start nor its middle nor its end.
const STRIPE: u64 = 1 << 20;

impl Scene {
    fn write_stripe(&self, at: u64) {
        let device = File::options().write(true).open(&self.target).unwrap();
        device.write_all_at(&[7; 4096], at).unwrap();
        device.sync_all().unwrap();
    }

    fn has_stripe(&self, at: u64) -> bool {
        let mut found = [0; 4096];
        File::open(&self.target).unwrap().read_exact_at(&mut found, at).unwrap();
        found == [7; 4096]
    }

    async fn comes_again(&mut self) {
        self.unpublish().await.unwrap();
        self.unstage().await.unwrap();
        self.stage().await.unwrap();
        self.publish().await.unwrap();
    }
}

async fn stripe_outlives_unstage(world: World) -> bool {
    let mut scene = Scene::block(world).await.published().await;
    scene.write_stripe(STRIPE);
    scene.comes_again().await;
    scene.has_stripe(STRIPE)
}

async fn stripe_outlives_growth(world: World) -> bool {
    let mut scene = Scene::block(world).await.published().await;
    scene.write_stripe(STRIPE);
    let request = v1::ControllerExpandVolumeRequest {
        volume_id: scene.id.clone(),
        capacity_range: Some(v1::CapacityRange { required_bytes: 384 << 20, limit_bytes: 0 }),
        ..Default::default()
    };
    scene.csi.controller.controller_expand_volume(request).await.unwrap();
    scene.comes_again().await;
    scene.has_stripe(STRIPE)
}

async fn stripe_is_copied(world: World) -> bool {
    let mut scene = Scene::block(world).await.published().await;
    scene.write_stripe(STRIPE);
    scene.unpublish().await.unwrap();
    scene.unstage().await.unwrap();
    let source = v1::volume_content_source::VolumeSource { volume_id: scene.id.clone() };
    let source = v1::volume_content_source::Type::Volume(source);
    let request = v1::CreateVolumeRequest {
        volume_content_source: Some(v1::VolumeContentSource { r#type: Some(source) }),
        ..create("copy", scene.capability.clone())
    };
    let made = scene.csi.controller.create_volume(request).await.unwrap().into_inner();
    scene.id = made.volume.unwrap().volume_id;
    scene.published().await.has_stripe(STRIPE)
}

async fn time_outlives_stage(world: World) -> bool {
    let mut scene = Scene::mount(world).await.published().await;
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::create(scene.target.join("file")).unwrap().set_modified(then).unwrap();
    scene.comes_again().await;
    fs::metadata(scene.target.join("file")).unwrap().modified().unwrap() == then
}

async fn link_of_a_volume_is_followed(world: World) -> bool {
    let scene = Scene::mount(world).await.published().await;
    fs::write(scene.target.join("end"), "end").unwrap();
    symlink("end", scene.target.join("link")).unwrap();
    fs::read_to_string(scene.target.join("link")).is_ok()
}
