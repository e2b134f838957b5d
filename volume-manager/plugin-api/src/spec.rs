//! Volumes as plugins are told of them.

use std::sync::Arc;

use api::names::SpecName;
use api::{AccessMode, PersistentSource, PodVolume, Volume, VolumeMode};
use serde::{Deserialize, Serialize};

/// What a plugin is told about a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Where it comes from.
    pub source: SpecSource,
    /// Whether the pod's reference to its claim says that it only reads. Nothing else sets this.
    pub read_only: bool,
}

/// Where a volume comes from: never both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SpecSource {
    /// Inline, from a pod.
    Inline(Arc<PodVolume>),
    /// A persistent volume.
    Persistent(Arc<Volume>),
}

impl Spec {
    /// A persistent volume as a pod refers to it.
    pub fn persistent(volume: Arc<Volume>, read_only: bool) -> Self {
        Self { source: SpecSource::Persistent(volume), read_only }
    }

    /// An inline volume.
    pub fn inline(volume: Arc<PodVolume>) -> Self {
        Self { source: SpecSource::Inline(volume), read_only: false }
    }

    /// The inner name: that of the persistent volume, or the volume's name in the pod.
    pub fn name(&self) -> SpecName {
        match &self.source {
            SpecSource::Inline(volume) => SpecName::new(volume.name.as_str()),
            SpecSource::Persistent(volume) => SpecName::new(&volume.meta.name),
        }
    }

    /// The persistent volume, unless it is inline.
    pub fn volume(&self) -> Option<&Arc<Volume>> {
        match &self.source {
            SpecSource::Inline(_) => None,
            SpecSource::Persistent(volume) => Some(volume),
        }
    }

    /// The inline volume, unless it is persistent.
    pub fn pod_volume(&self) -> Option<&Arc<PodVolume>> {
        match &self.source {
            SpecSource::Inline(volume) => Some(volume),
            SpecSource::Persistent(_) => None,
        }
    }

    /// The source of a persistent volume.
    pub fn persistent_source(&self) -> Option<&PersistentSource> {
        self.volume().map(|volume| &volume.source)
    }

    /// A directory or a device. Inline volumes are directories; the populator refuses persistent ones that
    /// do not say.
    pub fn mode(&self) -> VolumeMode {
        self.volume().and_then(|volume| volume.mode).unwrap_or_default()
    }

    /// Whether one pod at a time may have it.
    pub fn is_single_pod(&self) -> bool {
        self.volume().is_some_and(|volume| volume.access_modes == [AccessMode::ReadWriteOncePod])
    }

    /// Whether it may be attached to several nodes at once.
    pub fn may_attach_to_many(&self) -> bool {
        let many = |mode: &AccessMode| matches!(mode, AccessMode::ReadWriteMany | AccessMode::ReadOnlyMany);
        self.volume()
            .is_none_or(|volume| volume.access_modes.is_empty() || volume.access_modes.iter().any(many))
    }
}
