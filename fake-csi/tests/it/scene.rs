//! A scene: a driver with one volume, a staging path and a target.

use std::path::{Path, PathBuf};

use csi_proto::v1;
use csi_proto::v1::VolumeCapability;
use csi_proto::v1::volume_capability::access_mode::Mode;
use tonic::{Code, Status};

use crate::world::{Csi, World, block, mounted, publish};

pub(crate) const WRITER: Mode = Mode::SingleNodeWriter;

pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) csi: Csi,
    pub(crate) id: String,
    pub(crate) staging: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) capability: VolumeCapability,
}

impl Scene {
    /// With a file system.
    pub(crate) async fn mount(world: World) -> Self {
        Self::with(world, &[], mounted("", WRITER)).await
    }

    /// With a block volume.
    pub(crate) async fn block(world: World) -> Self {
        Self::with(world, &[], block(WRITER)).await
    }

    pub(crate) async fn with(mut world: World, arguments: &[&str], capability: VolumeCapability) -> Self {
        let mut csi = world.start(arguments).await;
        let id = csi.create("data", capability.clone()).await.volume_id;
        let (staging, target) = (world.directory("staging"), world.path("pod/target"));
        Self { world, csi, id, staging, target, capability }
    }

    pub(crate) async fn staged(mut self) -> Self {
        self.stage().await.unwrap();
        self
    }

    /// Stages and publishes the volume.
    pub(crate) async fn published(self) -> Self {
        let mut scene = self.staged().await;
        scene.publish().await.unwrap();
        scene
    }

    pub(crate) async fn stage(&mut self) -> Result<(), Status> {
        self.csi.stage(&self.id, &self.staging, self.capability.clone()).await
    }

    pub(crate) async fn unstage(&mut self) -> Result<(), Status> {
        self.csi.unstage(&self.id, &self.staging).await
    }

    pub(crate) async fn publish(&mut self) -> Result<(), Status> {
        let request = self.publish_request();
        self.csi.node.node_publish_volume(request).await.map(drop)
    }

    pub(crate) async fn publish_at(&mut self, target: &Path) -> Result<(), Status> {
        let request = publish(&self.id, &self.staging, target, self.capability.clone());
        self.csi.node.node_publish_volume(request).await.map(drop)
    }

    pub(crate) fn publish_request(&self) -> v1::NodePublishVolumeRequest {
        publish(&self.id, &self.staging, &self.target, self.capability.clone())
    }

    pub(crate) async fn unpublish(&mut self) -> Result<(), Status> {
        self.csi.unpublish(&self.id, &self.target).await
    }

    /// Number of mounts at a path.
    pub(crate) fn mounts_at(&self, path: &Path) -> usize {
        let mounts = self.world.mounts(&self.world.root);
        mounts.iter().filter(|(mounted, _)| mounted == path).count()
    }

    /// Adds mount flags to the capability.
    pub(crate) fn with_flags(mut self, flags: &[&str]) -> Self {
        if let Some(v1::volume_capability::AccessType::Mount(mount)) = &mut self.capability.access_type {
            mount.mount_flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        }
        self
    }
}

/// `Ok` for an answer without an error.
pub(crate) fn code<T>(answer: &Result<T, Status>) -> Code {
    answer.as_ref().err().map_or(Code::Ok, Status::code)
}
