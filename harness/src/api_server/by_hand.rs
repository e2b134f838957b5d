//! Persistent volumes that no driver provisions: an administrator creates them, each with a bound claim.

use api::names::Namespaced;
use api::storage::{ClaimReference, ClaimSpec, ClaimStatus};
use api::{AccessMode, ApiError, Bytes, Claim, ClaimPhase, Meta, PersistentSource, Volume, VolumeMode};

use super::{ApiServer, NAMESPACE};

impl ApiServer {
    /// Creates the persistent volume `pv-<name>`, and the claim `name` that is bound to it.
    ///
    /// # Errors
    /// When a volume or claim of that name exists.
    pub fn add_volume(
        &self,
        name: &str,
        source: PersistentSource,
        mode: VolumeMode,
        capacity: Bytes,
    ) -> Result<(), ApiError> {
        let volume = format!("pv-{name}");
        let access_modes = vec![AccessMode::ReadWriteOnce];
        let claim = self.create(Claim {
            meta: Meta::named(NAMESPACE, name),
            spec: ClaimSpec {
                access_modes: access_modes.clone(),
                request: capacity,
                mode,
                volume: volume.clone(),
                ..ClaimSpec::default()
            },
            status: ClaimStatus { phase: ClaimPhase::Bound, capacity, ..ClaimStatus::default() },
        })?;
        let claim = ClaimReference { claim: Namespaced::new(NAMESPACE, name), uid: claim.meta.uid.clone() };
        self.journal().symbols().name_volume(name, &volume, &volume);
        self.create(Volume {
            meta: Meta::named("", volume),
            capacity,
            access_modes,
            claim: Some(claim),
            mode: Some(mode),
            source,
            reclaim: "Retain".to_owned(),
            phase: "Bound".to_owned(),
            ..Volume::default()
        })?;
        Ok(())
    }
}
