//! A volume that is the export, as the objects of the cluster describe it.

use api::names::Namespaced;
use api::storage::{ClaimReference, ClaimSpec};
use api::{AccessMode, ApiError, Bytes, Claim, ClaimPhase, Meta, PersistentSource, Volume, VolumeMode};

use super::NfsExport;
use crate::api_server::ApiServer;

/// Namespace of the claims.
const NAMESPACE: &str = "default";

/// The size in claims; an export has none.
const SIZE: Bytes = Bytes(64 << 20);

impl NfsExport {
    /// Makes a volume of `path` on this server, and a claim of that name which is bound to it.
    ///
    /// # Errors
    /// When the cluster takes an object not.
    pub fn bind(
        &self,
        api: &ApiServer,
        name: &str,
        path: &str,
        mount_options: Vec<String>,
    ) -> Result<(), ApiError> {
        let inner = format!("pv-{name}");
        api.journal().symbols().name_volume(name, &inner, &format!("nfs-{name}"));
        let spec = ClaimSpec {
            access_modes: vec![AccessMode::ReadWriteMany],
            request: SIZE,
            ..ClaimSpec::default()
        };
        let claim = Claim { meta: Meta::named(NAMESPACE, name), spec, ..Claim::default() };
        let claim = api.create(claim)?;
        let (server, path) = (self.address().to_owned(), path.to_owned());
        // First the volume's reference to its claim, then the claim's to its volume, as a provisioner does.
        api.create(Volume {
            meta: Meta::named("", &inner),
            capacity: SIZE,
            access_modes: vec![AccessMode::ReadWriteMany],
            claim: Some(ClaimReference {
                claim: Namespaced::new(NAMESPACE, name),
                uid: claim.meta.uid.clone(),
            }),
            mount_options,
            mode: Some(VolumeMode::Filesystem),
            source: PersistentSource::Nfs { server, path, read_only: false },
            reclaim: "Retain".to_owned(),
            phase: "Bound".to_owned(),
            ..Volume::default()
        })?;
        api.change(NAMESPACE, name, |claim: &mut Claim| {
            claim.spec.volume.clone_from(&inner);
            claim.status.phase = ClaimPhase::Bound;
            claim.status.capacity = SIZE;
        })?;
        Ok(())
    }
}
