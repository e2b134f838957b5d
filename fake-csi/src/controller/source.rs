//! The content source of a new volume: a snapshot or another volume.

use std::fs::File;

use csi_proto::v1;
use csi_proto::v1::volume_content_source::{SnapshotSource, Type, VolumeSource};
use tonic::Status;

use crate::ability::Ability;
use crate::books::{Backing, Books, Format, Snapshot, Source, Volume};
use crate::driver::Driver;
use crate::kernel::{KernelError, copy};
use crate::sabotage::Sabotage;
use crate::validate;

/// The properties of a source that its copy must suit.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) size: u64,
    pub(super) backing: Backing,
    pub(super) format: Option<Format>,
}

impl Origin {
    pub(super) fn find(books: &Books, source: &Source) -> Result<Self, Status> {
        let missing = || Status::not_found(format!("there is no source `{}`", source.id()));
        let (size, backing, format) = match source {
            Source::Snapshot(id) => {
                let found =
                    books.snapshots.get(id).filter(|snapshot| snapshot.created).ok_or_else(missing)?;
                (found.size, found.backing, &found.format)
            }
            Source::Volume(id) => {
                let found = books.volumes.get(id).filter(|volume| volume.created).ok_or_else(missing)?;
                (found.capacity, found.backing, &found.format)
            }
        };
        let format = format.clone().map(|format| Format { twin: true, ..format });
        Ok(Self { size, backing, format })
    }

    /// INVALID_ARGUMENT if an image would be copied into a directory, or a directory into an image.
    pub(super) fn must_suit(&self, backing: Backing) -> Result<Backing, Status> {
        if (self.backing == Backing::Loop) == (backing == Backing::Loop) {
            return Ok(backing);
        }
        Err(Status::invalid_argument(
            "an image cannot be copied into a directory, nor a directory into an image",
        ))
    }
}

impl Source {
    pub(super) fn id(&self) -> &str {
        match self {
            Self::Snapshot(id) | Self::Volume(id) => id,
        }
    }

    /// The source as a message of CSI.
    pub(super) fn describe(&self) -> v1::VolumeContentSource {
        let kind = match self.clone() {
            Self::Snapshot(snapshot_id) => Type::Snapshot(SnapshotSource { snapshot_id }),
            Self::Volume(volume_id) => Type::Volume(VolumeSource { volume_id }),
        };
        v1::VolumeContentSource { r#type: Some(kind) }
    }
}

impl Driver {
    /// The source of a request; INVALID_ARGUMENT if the driver cannot copy it.
    pub(super) fn source_of(
        &self,
        source: Option<&v1::VolumeContentSource>,
    ) -> Result<Option<Source>, Status> {
        let Some(source) = source else { return Ok(None) };
        let (source, needed) = match &source.r#type {
            Some(Type::Snapshot(source)) => {
                (Source::Snapshot(source.snapshot_id.clone()), Ability::CreateDeleteSnapshot)
            }
            Some(Type::Volume(source)) => (Source::Volume(source.volume_id.clone()), Ability::Clone),
            None => return Err(Status::invalid_argument("volume_content_source.type is missing")),
        };
        validate::required("volume_content_source", source.id())?;
        if !self.can(needed) {
            return Err(Status::invalid_argument("this driver cannot fill a volume from such a source"));
        }
        Ok(Some(source))
    }

    /// The snapshot of this id; the bug: another one whose name begins with its name.
    fn snapshot_to_restore(&self, id: &str) -> Result<Snapshot, Status> {
        let asked = self.snapshot(id)?;
        if !self.breaks(Sabotage::RestoreFindsLongerNames) {
            return Ok(asked);
        }
        let snapshots = self.journal.read(|books| books.snapshots.clone())?;
        let alike = |other: &&Snapshot| other.created && other.name.starts_with(&asked.name);
        Ok(snapshots.values().filter(alike).min_by_key(|other| other.number).cloned().unwrap_or(asked))
    }

    /// Copies the source into a new volume, which is at least as large. The source is frozen meanwhile.
    pub(super) fn fill_from(&self, volume: &Volume, source: &Source) -> Result<(), Status> {
        let to = self.contents_of(volume);
        let (from, _freeze) = match source {
            Source::Snapshot(id) => (self.contents_of_snapshot(&self.snapshot_to_restore(id)?), None),
            Source::Volume(id) => {
                let original = self.volume(id)?;
                (self.contents_of(&original), self.freeze(&original)?)
            }
        };
        if volume.backing != Backing::Loop {
            return Ok(copy::tree(&from, &to)?);
        }
        let has_same_size = std::fs::metadata(&from).is_ok_and(|found| found.len() == volume.capacity);
        if has_same_size && matches!(source, Source::Volume(_)) && self.breaks(Sabotage::CloneSharesBlocks) {
            copy::remove(&to)?;
            let linked = std::fs::hard_link(&from, &to);
            return Ok(linked.map_err(|source| KernelError::path("link", &to, source))?);
        }
        if self.breaks(Sabotage::CloneCutOffStaysEmpty) {
            // Long enough to be given up.
            std::thread::sleep(std::time::Duration::from_millis(40));
        }
        match self.breaks(Sabotage::CloneCutOffStaysEmpty) && self.has_seen(&super::gave_up(&volume.name)) {
            true => self.empty_contents(volume)?,
            false => copy::image(&from, &to)?,
        }
        if self.breaks(Sabotage::RestoreUsesUpSnapshot) && matches!(source, Source::Snapshot(_)) {
            copy::remove(&from)?;
        }
        if volume.is_raw() && matches!(source, Source::Volume(_)) && self.breaks(Sabotage::CloneCutsTail) {
            copy::lose_tail(&to)?;
        }
        if self.breaks(Sabotage::CopyLosesAStripe) && volume.is_raw() {
            copy::lose_stripes(&to)?;
        }
        if self.breaks(Sabotage::CopyKeepsSmallDevice) {
            return Ok(());
        }
        let grown = File::options().write(true).open(&to).and_then(|file| file.set_len(volume.capacity));
        Ok(grown.map_err(|source| KernelError::path("grow", &to, source))?)
    }
}
