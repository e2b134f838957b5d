//! The description of a volume for plugins.

use std::sync::Arc;

use api::names::SpecName;
use api::{AccessMode, PersistentSource, PodVolume, Volume, VolumeMode};
use serde::{Deserialize, Serialize};

/// The description of a volume for plugins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// The PersistentVolume or the pod's volume.
    pub source: SpecSource,
    /// Whether the pod mounts its claim read-only. Nothing else sets this.
    pub read_only: bool,
}

/// The source of a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SpecSource {
    /// A volume that a pod describes itself.
    Inline(Arc<PodVolume>),
    Persistent(Arc<Volume>),
}

impl Spec {
    /// A PersistentVolume, as a pod refers to it.
    pub fn persistent(volume: Arc<Volume>, read_only: bool) -> Self {
        Self { source: SpecSource::Persistent(volume), read_only }
    }

    pub fn inline(volume: Arc<PodVolume>) -> Self {
        Self { source: SpecSource::Inline(volume), read_only: false }
    }

    /// The name of the PersistentVolume, or the volume's name in the pod.
    pub fn name(&self) -> SpecName {
        match &self.source {
            SpecSource::Inline(volume) => SpecName::new(volume.name.as_str()),
            SpecSource::Persistent(volume) => SpecName::new(&volume.meta.name),
        }
    }

    /// The PersistentVolume; `None` for an inline volume.
    pub fn volume(&self) -> Option<&Arc<Volume>> {
        match &self.source {
            SpecSource::Inline(_) => None,
            SpecSource::Persistent(volume) => Some(volume),
        }
    }

    /// The inline volume; `None` for a PersistentVolume.
    pub fn pod_volume(&self) -> Option<&Arc<PodVolume>> {
        match &self.source {
            SpecSource::Inline(volume) => Some(volume),
            SpecSource::Persistent(_) => None,
        }
    }

    /// The source of a PersistentVolume.
    pub fn persistent_source(&self) -> Option<&PersistentSource> {
        self.volume().map(|volume| &volume.source)
    }

    /// Filesystem or block. Inline volumes are filesystems; the populator refuses PersistentVolumes without a
    /// mode.
    pub fn mode(&self) -> VolumeMode {
        self.volume().and_then(|volume| volume.mode).unwrap_or_default()
    }

    /// Whether only one pod at a time may use the volume.
    pub fn is_single_pod(&self) -> bool {
        self.volume().is_some_and(|volume| volume.access_modes == [AccessMode::ReadWriteOncePod])
    }

    /// Whether the volume may be attached to several nodes at once.
    pub fn may_attach_to_many(&self) -> bool {
        let many = |mode: &AccessMode| matches!(mode, AccessMode::ReadWriteMany | AccessMode::ReadOnlyMany);
        self.volume()
            .is_none_or(|volume| volume.access_modes.is_empty() || volume.access_modes.iter().any(many))
    }
}
