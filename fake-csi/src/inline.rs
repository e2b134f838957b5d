//! Inline volumes: created by NodePublishVolume, deleted by NodeUnpublishVolume. The caller chooses the id.

use csi_proto::v1;
use tonic::Status;

use crate::books::{Backing, Capability, Volume};
use crate::driver::Driver;
use crate::journal::Entry;

/// Bytes of an inline volume without the attribute `size`.
const DEFAULT_CAPACITY: u64 = 16 << 20;
/// The attribute with the size of an inline volume, in bytes.
const SIZE_KEY: &str = "size";

impl Driver {
    /// The inline volume of this request, created if it does not exist.
    pub(crate) fn inline_volume(
        &self,
        request: &v1::NodePublishVolumeRequest,
        capability: &Capability,
        zone: &str,
    ) -> Result<Volume, Status> {
        let capacity = match request.volume_context.get(SIZE_KEY) {
            Some(size) => size
                .parse()
                .map_err(|_| Status::invalid_argument(format!("size = `{size}` is no number of bytes")))?,
            None => DEFAULT_CAPACITY,
        };
        self.supports(self.options.backing, capability).map_err(Status::invalid_argument)?;
        let volume = self.journal.transact(|books| {
            if let Some(volume) = books.volumes.get(&request.volume_id) {
                return if volume.ephemeral {
                    Ok((Vec::new(), volume.clone()))
                } else {
                    Err(Status::already_exists("a volume of this id exists, and is no inline volume"))
                };
            }
            let volume = design(books.next, request, capability, (self.options.backing, capacity, zone));
            let entries = vec![Entry::Next(books.next + 1), Entry::Volume(Box::new(volume.clone()))];
            Ok((entries, volume))
        })?;
        if volume.created { Ok(volume) } else { self.make_contents(&volume) }
    }

    /// Deletes an inline volume after its last target.
    pub(crate) fn forget_inline(&self, volume: &Volume) -> Result<(), Status> {
        self.remove_contents(volume)?;
        self.journal.transact(|_| {
            let entries = vec![Entry::VolumeGone(volume.id.clone()), Entry::Departed(volume.id.clone())];
            Ok::<_, Status>((entries, ()))
        })
    }
}

fn design(
    number: u64,
    request: &v1::NodePublishVolumeRequest,
    capability: &Capability,
    (backing, capacity, zone): (Backing, u64, &str),
) -> Volume {
    Volume {
        number,
        id: request.volume_id.clone(),
        name: String::new(),
        capacity: u64::max(capacity, crate::controller::create::SMALLEST).next_multiple_of(4096),
        backing,
        capabilities: vec![capability.clone()],
        parameters: Default::default(),
        mutable_parameters: Default::default(),
        source: None,
        zone: zone.to_owned(),
        created: false,
        ephemeral: true,
        format: None,
        attached: Default::default(),
        staged: Default::default(),
        targets: Default::default(),
    }
}
