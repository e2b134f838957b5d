//! What the tests of this plugin share.

use std::sync::Arc;

use crate::api::storage::CsiSource;
use crate::api::{AccessMode, Meta, PersistentSource, Volume, VolumeMode};
use crate::plugin::Spec;

/// A volume of a claim, as plain as they come.
pub(crate) fn persistent_spec(name: &str, driver: &str, handle: &str) -> Spec {
    let csi = CsiSource { driver: driver.into(), handle: handle.into(), ..CsiSource::default() };
    let volume = Volume {
        meta: Meta::named("", name),
        mode: Some(VolumeMode::Filesystem),
        access_modes: vec![AccessMode::ReadWriteOnce],
        source: PersistentSource::Csi(Box::new(csi)),
        ..Volume::default()
    };
    Spec::persistent(Arc::new(volume), false)
}
