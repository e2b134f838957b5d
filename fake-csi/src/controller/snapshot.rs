//! Snapshots: copies of a volume at one moment, independent of it afterwards.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use csi_proto::v1;
use csi_proto::v1::list_snapshots_response::Entry as Listed;
use tonic::Status;

use super::list::Page;
use crate::books::{Access, Backing, Books, Snapshot, Volume};
use crate::driver::Driver;
use crate::journal::{Entry, JournalError};
use crate::kernel::filesystem::Frozen;
use crate::kernel::loop_device::LoopDevice;
use crate::kernel::{KernelError, copy};
use crate::sabotage::Sabotage;
use crate::size::signed;
use crate::validate;

impl Driver {
    pub(crate) fn create_snapshot(
        &self,
        request: &v1::CreateSnapshotRequest,
    ) -> Result<v1::CreateSnapshotResponse, Status> {
        validate::required("source_volume_id", &request.source_volume_id)?;
        validate::name("name", &request.name)?;
        if self.breaks(Sabotage::SnapshotRefusesLongNames) && request.name.len() > 64 {
            return Err(Status::invalid_argument("name is too long"));
        }
        validate::map("secrets", &request.secrets)?;
        validate::map("parameters", &request.parameters)?;

        let races = self.breaks(Sabotage::SnapshotRacesItself);
        let named = || self.in_flight.claim(&[&format!("snapshot named {}", request.name)]);
        let _named = (!races).then(named).transpose()?;
        let claimed = || self.in_flight.claim(&[&request.source_volume_id]);
        let _source = (!races).then(claimed).transpose()?;
        // The bug: the look-up and the creation are not one step.
        let is_new = races && {
            let finds = |books: &Books| books.snapshots.values().any(|one| one.name == request.name);
            let found = self.journal.read(finds)?;
            std::thread::sleep(std::time::Duration::from_millis(30));
            !found
        };
        let was_refused = || self.has_seen(&format!("refused: {}", request.name));
        if self.breaks(Sabotage::RefusedSnapshotKeepsClaim) && was_refused() {
            return Err(Status::aborted("a snapshot of this name is being taken"));
        }
        let (snapshot, volume) = self.journal.transact(|books| {
            if let Some(deleted) =
                self.grave_of(&request.name).filter(|one| one.source == request.source_volume_id)
            {
                return Ok((Vec::new(), (deleted, None)));
            }
            let folds_case = self.breaks(Sabotage::SnapshotFoldsCase);
            let is_same = |snapshot: &&Snapshot| {
                let is_named = snapshot.name == request.name
                    || folds_case && snapshot.name.eq_ignore_ascii_case(&request.name);
                is_named && !is_new && !self.breaks(Sabotage::SnapshotForgetsIdempotence)
            };
            let same_name = books.snapshots.values().find(is_same);
            if let Some(snapshot) = same_name {
                if snapshot.source != request.source_volume_id {
                    // The sabotage acts at the next call.
                    self.remember(&format!("refused: {}", request.name));
                    let secrets = match self.breaks(Sabotage::SecretsInNameErrors) {
                        true => format!(": {:?}", request.secrets),
                        false => String::new(),
                    };
                    let message = format!("a snapshot of this name is of another volume{secrets}");
                    return Err(Status::already_exists(message));
                }
                if snapshot.created && !self.breaks(Sabotage::SnapshotIsTakenAnew) {
                    let mut snapshot = snapshot.clone();
                    if self.breaks(Sabotage::SnapshotSizeFollowsVolume) {
                        let volume = books.volumes.get(&snapshot.source);
                        snapshot.size = volume.map_or(snapshot.size, |volume| volume.capacity);
                    }
                    return Ok((Vec::new(), (snapshot, None)));
                }
            }
            let found = find_volume(books, &request.source_volume_id);
            if found.is_err()
                && self.breaks(Sabotage::SnapshotOfNothingIsKept)
                && !self.is_first(&request.name)
            {
                return Ok((Vec::new(), (of_nothing(&request.name, &request.source_volume_id), None)));
            }
            let volume = found?;
            let mut snapshot =
                same_name.cloned().unwrap_or_else(|| design(books.next, &request.name, &volume));
            if self.breaks(Sabotage::SnapshotIdIsACount) && same_name.is_none() {
                snapshot.id = format!("snap-{:08x}", books.snapshots.len());
            }
            let entries = vec![Entry::Next(books.next + 1), Entry::Snapshot(Box::new(snapshot.clone()))];
            Ok::<_, Status>((entries, (snapshot, Some(volume))))
        })?;
        let is_old = volume.is_none();
        let snapshot = match volume {
            None => snapshot,
            Some(volume) => {
                let still = self.freeze(&volume)?;
                let snapshot = self.fill_snapshot(snapshot, &volume)?;
                drop(still);
                self.forget_targets(Sabotage::SnapshotForgetsTargets, &volume.id)?;
                self.leave_temporary_file(Sabotage::SnapshotLeavesTemporaryFile);
                snapshot
            }
        };
        let mut described = self.describe_snapshot(&snapshot);
        if self.breaks(Sabotage::SnapshotWithoutTime) {
            described.creation_time = None;
        }
        if snapshot.group.is_none() && self.breaks(Sabotage::SnapshotClaimsAGroup) {
            described.group_snapshot_id = format!("group-of-{}", snapshot.id);
        }
        if is_old && self.breaks(Sabotage::SnapshotUnreadyAgain) {
            described.ready_to_use = false;
        }
        Ok(v1::CreateSnapshotResponse { snapshot: Some(described) })
    }

    pub(crate) fn delete_snapshot(
        &self,
        request: &v1::DeleteSnapshotRequest,
    ) -> Result<v1::DeleteSnapshotResponse, Status> {
        validate::required("snapshot_id", &request.snapshot_id)?;
        validate::map("secrets", &request.secrets)?;
        let _claim = self.in_flight.claim(&[&request.snapshot_id])?;
        let found = self.journal.read(|books| books.snapshots.get(&request.snapshot_id).cloned())?;
        let Some(snapshot) = found else {
            if self.breaks(Sabotage::DeleteSnapshotForgetsIdempotence) {
                return Err(Status::not_found("there is no such snapshot"));
            }
            return Ok(v1::DeleteSnapshotResponse {});
        };
        if self.breaks(Sabotage::DeleteSnapshotGlobs) && snapshot.name.contains('[') {
            // The bug: a pattern does not match itself.
            let snapshots = self.journal.read(|books| books.snapshots.clone())?;
            let matched = snapshot.name.replace(['[', ']'], "");
            let matched = snapshots.values().filter(|other| other.name == matched);
            matched.clone().try_for_each(|other| self.drop_snapshot(other))?;
        }
        if self.breaks(Sabotage::DeleteSnapshotTakesSiblings) {
            let snapshots = self.journal.read(|books| books.snapshots.clone())?;
            let siblings = snapshots.values().filter(|other| other.source == snapshot.source);
            siblings.clone().try_for_each(|sibling| self.drop_snapshot(sibling))?;
        }
        if let Some(group) = snapshot.group.as_ref().filter(|_| !self.breaks(Sabotage::DeleteMemberOfGroup)) {
            let message = format!("the snapshot is part of the group `{group}`, and is deleted with it");
            return Err(Status::invalid_argument(message));
        }
        self.drop_snapshot(&snapshot)?;
        if self.breaks(Sabotage::SnapshotRemembersNames) {
            *self.grave.lock().unwrap_or_else(PoisonError::into_inner) = Some(snapshot);
        }
        Ok(v1::DeleteSnapshotResponse {})
    }

    /// The bug: a deleted snapshot answers to its name.
    fn grave_of(&self, name: &str) -> Option<Snapshot> {
        let grave = self.grave.lock().unwrap_or_else(PoisonError::into_inner);
        grave.clone().filter(|deleted| deleted.name == name)
    }

    pub(crate) fn get_snapshot(
        &self,
        request: &v1::GetSnapshotRequest,
    ) -> Result<v1::GetSnapshotResponse, Status> {
        validate::required("snapshot_id", &request.snapshot_id)?;
        validate::map("secrets", &request.secrets)?;
        let mut snapshot = self.snapshot(&request.snapshot_id)?;
        if self.breaks(Sabotage::GetSnapshotAnswersFirst) {
            let first =
                self.journal.read(|books| books.snapshots.values().min_by_key(|one| one.number).cloned())?;
            snapshot = first.unwrap_or(snapshot);
        }
        let mut described = self.describe_snapshot(&snapshot);
        described.ready_to_use &= !self.breaks(Sabotage::GetSnapshotNotReady);
        if self.breaks(Sabotage::MemberForgetsGroup) {
            described.group_snapshot_id.clear();
        }
        Ok(v1::GetSnapshotResponse { snapshot: Some(described) })
    }

    pub(crate) fn list_snapshots(
        &self,
        request: &v1::ListSnapshotsRequest,
    ) -> Result<v1::ListSnapshotsResponse, Status> {
        validate::map("secrets", &request.secrets)?;
        let most = if self.breaks(Sabotage::ListSnapshotsIgnoresLimit) { 0 } else { request.max_entries };
        if most < 0 && self.breaks(Sabotage::ListTrustsCounts) {
            std::process::abort();
        }
        let page = Page::of(most, &request.starting_token)?;
        let is_wanted = |snapshot: &&Snapshot| {
            if self.breaks(Sabotage::ListSnapshotsIgnoresFilter) {
                return snapshot.created;
            }
            snapshot.created
                && (request.snapshot_id.is_empty() || snapshot.id == request.snapshot_id)
                && (request.source_volume_id.is_empty() || snapshot.source == request.source_volume_id)
        };
        let is_whole = request.snapshot_id.is_empty() && request.source_volume_id.is_empty();
        let needs_source =
            !request.source_volume_id.is_empty() && self.breaks(Sabotage::ListSnapshotsNeedsSource);
        let drops_orphans = needs_source || is_whole && self.breaks(Sabotage::ListDropsOrphans);
        let (mut snapshots, next) = self.journal.read(|books| {
            let is_kept =
                |snapshot: &&Snapshot| !drops_orphans || books.volumes.contains_key(&snapshot.source);
            let listed = books.snapshots.values().filter(is_wanted).filter(is_kept);
            (listed.cloned().collect::<Vec<_>>(), books.next)
        })?;
        snapshots.sort_by_key(|snapshot| snapshot.number);
        let (snapshots, next_token) = page.cut(snapshots, next, |snapshot| snapshot.number)?;
        let listed = |snapshot: &Snapshot| {
            let mut described = self.describe_snapshot(snapshot);
            if self.breaks(Sabotage::ListSnapshotsForgetsSource) {
                described.source_volume_id.clone_from(&described.snapshot_id);
            }
            described
        };
        let entries = snapshots.iter().map(|snapshot| Listed { snapshot: Some(listed(snapshot)) });
        Ok(v1::ListSnapshotsResponse { entries: entries.collect(), next_token })
    }

    fn describe_snapshot(&self, snapshot: &Snapshot) -> v1::Snapshot {
        let mut described = describe(snapshot);
        if let Some(time) =
            described.creation_time.as_mut().filter(|_| self.breaks(Sabotage::SnapshotOfTomorrow))
        {
            time.seconds += 24 * 60 * 60;
        }
        if let Some(time) =
            described.creation_time.as_mut().filter(|_| self.breaks(Sabotage::SnapshotTimeInMilliseconds))
        {
            time.seconds *= 1000;
        }
        v1::Snapshot { ready_to_use: !self.breaks(Sabotage::SnapshotNeverReady), ..described }
    }

    pub(crate) fn snapshot(&self, id: &str) -> Result<Snapshot, Status> {
        self.journal
            .read(|books| books.snapshots.get(id).filter(|snapshot| snapshot.created).cloned())?
            .ok_or_else(|| Status::not_found(format!("there is no snapshot `{id}`")))
    }

    /// The file or directory with a snapshot's data.
    pub(crate) fn contents_of_snapshot(&self, snapshot: &Snapshot) -> PathBuf {
        self.options.state.join("snapshots").join(format!("s{}", snapshot.number))
    }

    /// Writes all data of a volume to its image, and freezes a mounted file system until the guard is dropped.
    ///
    /// A driver that dies meanwhile thaws it when it starts again.
    pub(crate) fn freeze(&self, volume: &Volume) -> Result<Option<RecordedFreeze<'_>>, Status> {
        if volume.backing != Backing::Loop || self.breaks(Sabotage::SnapshotLosesUnsyncedWrite) {
            return Ok(None);
        }
        let mounted = volume.staged.values().find(|staging| staging.capability.access != Access::Block);
        let frozen = match mounted {
            // Without a mount there is nothing to freeze.
            Some(staging) if crate::kernel::mount::is_mount_point(&staging.path)? => {
                Some(RecordedFreeze::new(self, &staging.path)?)
            }
            _ => None,
        };
        if let Some(device) = LoopDevice::find(&self.contents_of(volume), false)? {
            device.sync()?;
        }
        Ok(frozen)
    }

    /// Copies a frozen volume.
    pub(crate) fn fill_snapshot(&self, snapshot: Snapshot, volume: &Volume) -> Result<Snapshot, Status> {
        let (from, to) = (self.contents_of(volume), self.contents_of_snapshot(&snapshot));
        if snapshot.backing == Backing::Loop && self.breaks(Sabotage::SnapshotCutOffCounts) {
            let empty = fs::File::create(&to).and_then(|file| file.set_len(snapshot.size));
            empty.map_err(|source| KernelError::path("create", &to, source))?;
            let early = vec![Entry::Snapshot(Box::new(Snapshot { created: true, ..snapshot.clone() }))];
            self.journal.transact(|_| Ok::<_, Status>((early, ())))?;
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        match snapshot.backing {
            Backing::Loop if self.breaks(Sabotage::SnapshotSharesBlocks) => {
                fs::hard_link(&from, &to).map_err(|source| KernelError::path("link", &to, source))?;
            }
            Backing::Loop => {
                copy::image(&from, &to)?;
                if volume.is_raw() && self.breaks(Sabotage::SnapshotCutsTail) {
                    copy::lose_tail(&to)?;
                }
            }
            _ => {
                copy::remove(&to)?;
                fs::create_dir(&to).map_err(|source| KernelError::path("create", &to, source))?;
                copy::tree(&from, &to)?;
            }
        }
        let snapshot = Snapshot { created: true, ..snapshot };
        let entries = vec![Entry::Snapshot(Box::new(snapshot.clone()))];
        self.journal.transact(|_| Ok::<_, Status>((entries, ())))?;
        Ok(snapshot)
    }

    /// Hides a snapshot and then deletes it: a half deleted snapshot must not be found.
    pub(crate) fn drop_snapshot(&self, snapshot: &Snapshot) -> Result<(), Status> {
        let hidden = Snapshot { created: false, name: String::new(), ..snapshot.clone() };
        let entries = vec![Entry::Snapshot(Box::new(hidden))];
        self.journal.transact(|_| Ok::<_, Status>((entries, ())))?;
        let is_left = match snapshot.group {
            Some(_) => self.breaks(Sabotage::GroupDeleteLeavesImages),
            None => self.breaks(Sabotage::DeleteSnapshotLeavesImage),
        };
        if !is_left {
            copy::remove(&self.contents_of_snapshot(snapshot))?;
        }
        let entries = vec![Entry::SnapshotGone(snapshot.id.clone())];
        self.journal.transact(|_| Ok::<_, Status>((entries, ())))
    }
}

/// A frozen file system that is recorded in the books: a driver that dies meanwhile must know what to thaw.
#[derive(Debug)]
pub(crate) struct RecordedFreeze<'a> {
    driver: &'a Driver,
    path: PathBuf,
    frozen: Option<Frozen>,
}

impl<'a> RecordedFreeze<'a> {
    fn new(driver: &'a Driver, path: &Path) -> Result<Self, Status> {
        // Recorded before it is frozen.
        let held = vec![Entry::Held(path.to_owned(), driver.options.nodes[0].clone())];
        driver.journal.transact(|_| Ok::<_, Status>((held, ())))?;
        let mut freeze = Self { driver, path: path.to_owned(), frozen: None };
        freeze.frozen = Some(Frozen::new(path)?);
        Ok(freeze)
    }
}

impl Drop for RecordedFreeze<'_> {
    fn drop(&mut self) {
        // Thawed before the record is removed.
        drop(self.frozen.take());
        let released = vec![Entry::Released(self.path.clone())];
        if let Err(error) = self.driver.journal.transact(|_| Ok::<_, JournalError>((released, ()))) {
            tracing::error!(%error, "cannot record that a file system was thawed; the next start thaws it again");
        }
    }
}

/// NOT_FOUND unless the volume exists and is completely created.
pub(crate) fn find_volume(books: &Books, id: &str) -> Result<Volume, Status> {
    let found = books.volumes.get(id).filter(|volume| volume.created);
    found.cloned().ok_or_else(|| Status::not_found(format!("there is no volume `{id}`")))
}

/// The record of a snapshot to take.
pub(crate) fn design(number: u64, name: &str, volume: &Volume) -> Snapshot {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Snapshot {
        number,
        id: format!("snap-{number:08x}"),
        name: name.to_owned(),
        source: volume.id.clone(),
        size: volume.capacity,
        backing: if volume.backing == Backing::Tmpfs { Backing::Directory } else { volume.backing },
        format: volume.format.clone(),
        seconds: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(now.subsec_nanos()).unwrap_or_default(),
        group: None,
        created: false,
    }
}

/// The bug: a snapshot of a volume that does not exist.
fn of_nothing(name: &str, source: &str) -> Snapshot {
    Snapshot {
        number: 0,
        id: format!("snap-of-{name}"),
        name: name.to_owned(),
        source: source.to_owned(),
        size: 0,
        backing: Backing::Directory,
        format: None,
        seconds: 0,
        nanos: 0,
        group: None,
        created: true,
    }
}

/// A snapshot as a message of CSI.
pub(crate) fn describe(snapshot: &Snapshot) -> v1::Snapshot {
    v1::Snapshot {
        size_bytes: signed(snapshot.size),
        snapshot_id: snapshot.id.clone(),
        source_volume_id: snapshot.source.clone(),
        creation_time: Some(prost_types::Timestamp { seconds: snapshot.seconds, nanos: snapshot.nanos }),
        ready_to_use: true,
        group_snapshot_id: snapshot.group.clone().unwrap_or_default(),
    }
}
