//! State that all services share: options, books, operations in flight, and the layout on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use csi_proto::v1::VolumeUsage;
use tonic::Status;

use crate::ability::Ability;
use crate::books::{Backing, Snapshot, Volume};
use crate::fault::Fault;
use crate::in_flight::InFlight;
use crate::journal::{Entry, Journal, JournalError};
use crate::kernel::KernelError;
use crate::local_file::LocalFile;
use crate::sabotage::Sabotage;

/// Options of the command line.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) name: String,
    pub(crate) state: PathBuf,
    /// Names of the nodes that this process serves; at least one.
    pub(crate) nodes: Vec<String>,
    pub(crate) backing: Backing,
    pub(crate) fs_type: String,
    pub(crate) abilities: BTreeSet<Ability>,
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) max_volumes: i64,
    pub(crate) capacity: u64,
    /// Bytes that CreateVolume adds to the volume context that it answers.
    pub(crate) padding: usize,
    /// Ordered before the first call.
    pub(crate) faults: Vec<Fault>,
}

/// The driver behind all services.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) options: Options,
    pub(crate) journal: Journal,
    pub(crate) in_flight: Arc<InFlight>,
    /// Locked while a private staging is made for the first target or undone after the last.
    pub(crate) private_staging: Mutex<()>,
    /// Locked by a sabotage alone.
    pub(crate) all_volumes: Mutex<()>,
    counter: AtomicU64,
    /// A deleted snapshot that a sabotage alone remembers.
    pub(crate) grave: Mutex<Option<Snapshot>>,
    /// Volumes that are being made, counted by a sabotage alone.
    pub(crate) under_way: AtomicU64,
    seen: Mutex<BTreeSet<String>>,
    /// Bytes that a sabotage alone takes from the capacity for ever.
    lost: AtomicU64,
    /// Filled by a sabotage alone.
    measured: Mutex<BTreeMap<String, Vec<VolumeUsage>>>,
}

impl Driver {
    /// Opens the state directory, which must exist.
    pub(crate) fn open(options: Options) -> anyhow::Result<Self> {
        for part in ["volumes", "snapshots", "mounts"] {
            std::fs::create_dir_all(options.state.join(part))?;
        }
        let has_rebooted = options.sabotage == Some(Sabotage::ForgetsOnReboot)
            && !LocalFile::new(&options.state, "boot").exists();
        if has_rebooted || options.sabotage == Some(Sabotage::ForgetsOnRestart) {
            drop(std::fs::remove_file(options.state.join("journal")));
        }
        if has_rebooted {
            LocalFile::new(&options.state, "boot").create()?;
        }
        let journal = Journal::open(&options.state)?;
        let in_flight = Arc::new(InFlight::new(options.sabotage));
        let driver = Self {
            options,
            journal,
            in_flight,
            private_staging: Mutex::default(),
            all_volumes: Mutex::default(),
            counter: AtomicU64::default(),
            grave: Mutex::default(),
            under_way: AtomicU64::default(),
            seen: Mutex::default(),
            lost: AtomicU64::default(),
            measured: Mutex::default(),
        };
        driver.refuse_lock_of_the_dead()?;
        Ok(driver)
    }

    /// Creates a file in this container, if a sabotage relies on it.
    pub(crate) fn create_local_file(&self, name: &str) -> Result<(), Status> {
        if !self.breaks(Sabotage::UnstageNeedsLocalFile) {
            return Ok(());
        }
        let created = LocalFile::new(&self.options.state, name).create();
        created.map_err(|error| Status::internal(format!("cannot create `{name}` in the container: {error}")))
    }

    /// Whether the file exists, or no sabotage needs it.
    pub(crate) fn has_local_file(&self, name: &str) -> bool {
        !self.breaks(Sabotage::UnstageNeedsLocalFile) || LocalFile::new(&self.options.state, name).exists()
    }

    /// Whether the driver reports this ability.
    pub(crate) fn can(&self, ability: Ability) -> bool {
        self.options.abilities.contains(&ability)
    }

    /// UNIMPLEMENTED for a call whose ability is switched off.
    pub(crate) fn must_be_able(&self, ability: Ability) -> Result<(), Status> {
        if self.can(ability) {
            return Ok(());
        }
        Err(Status::unimplemented(format!("{ability:?} is switched off")))
    }

    /// Whether this sabotage is on.
    pub(crate) fn breaks(&self, sabotage: Sabotage) -> bool {
        self.options.sabotage == Some(sabotage)
    }

    /// Number of earlier calls of this function.
    pub(crate) fn count(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether this is the first call with `thing`.
    pub(crate) fn is_first(&self, thing: &str) -> bool {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(thing.to_owned())
    }

    /// Notes `thing` for [`Self::has_seen`].
    pub(crate) fn remember(&self, thing: &str) {
        self.is_first(thing);
    }

    /// Whether `thing` was remembered, or [`Self::is_first`] was asked of it.
    pub(crate) fn has_seen(&self, thing: &str) -> bool {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).contains(thing)
    }

    /// The rests of what was remembered with this beginning.
    pub(crate) fn remembered_after(&self, beginning: &str) -> Vec<String> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().filter_map(|thing| thing.strip_prefix(beginning)).map(str::to_owned).collect()
    }

    /// Whether a volume was detached since the driver started.
    pub(crate) fn has_detached(&self) -> bool {
        self.has_seen("a detached volume")
    }

    /// The bug: bytes are taken from the capacity, and never given back.
    pub(crate) fn lose(&self, sabotage: Sabotage, bytes: u64) {
        if self.breaks(sabotage) {
            self.lost.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// The bug: the record of a volume is written anew without its targets.
    pub(crate) fn forget_targets(&self, sabotage: Sabotage, id: &str) -> Result<(), Status> {
        if self.breaks(sabotage) {
            self.use_volume(id, |volume| volume.targets.clear())?;
        }
        Ok(())
    }

    /// The bug: a call leaves a file in the directory for temporary files.
    pub(crate) fn leave_temporary_file(&self, sabotage: Sabotage) {
        if self.breaks(sabotage) {
            drop(std::fs::write(format!("/tmp/fake-csi-{}-{}", std::process::id(), self.count()), ""));
        }
    }

    /// The bug: a volume has the statistics for ever that it had first.
    pub(crate) fn remembered(&self, id: &str, usage: Vec<VolumeUsage>) -> Vec<VolumeUsage> {
        if !self.breaks(Sabotage::StatsRemember) {
            return usage;
        }
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        measured.entry(id.to_owned()).or_insert(usage).clone()
    }

    /// The bug: a volume belongs to the path where it was first staged.
    pub(crate) fn refuse_other_path(&self, id: &str, path: &Path) -> Result<(), Status> {
        if !self.breaks(Sabotage::UnstageKeepsRecord) {
            return Ok(());
        }
        let staged = format!("{id} staged at {}", path.display());
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.iter().any(|other| other.starts_with(&format!("{id} staged at ")) && *other != staged) {
            return Err(Status::failed_precondition("the volume is staged at another path"));
        }
        seen.insert(staged);
        Ok(())
    }

    /// The bug: the first call with secrets fails, and its error contains them.
    pub(crate) fn leak_secrets(&self, secrets: &BTreeMap<String, String>) -> Result<(), Status> {
        if self.breaks(Sabotage::SecretsInErrors) && !secrets.is_empty() && self.is_first("secrets") {
            return Err(Status::internal(format!("cannot log in with {secrets:?}")));
        }
        Ok(())
    }

    /// Refuses a volume context that is too large; the bug: the driver makes such.
    pub(crate) fn check_context(&self, context: &BTreeMap<String, String>) -> Result<(), Status> {
        if self.breaks(Sabotage::ContextTooLarge) {
            return Ok(());
        }
        crate::validate::map("volume_context", context)
    }

    /// The bug: a program that has ended is never asked how.
    pub(crate) fn leave_zombie(&self) {
        if self.breaks(Sabotage::PublishLeavesZombie) {
            drop(std::process::Command::new("true").spawn());
        }
    }

    /// The bug: the lock of a driver that was killed is taken for that of one that runs.
    fn refuse_lock_of_the_dead(&self) -> anyhow::Result<()> {
        let lock = self.lock_file();
        if !self.breaks(Sabotage::RestartNeedsCleanEnd) {
            return Ok(());
        }
        anyhow::ensure!(!exists(&lock), "`{}` is there: another driver runs", lock.display());
        Ok(std::fs::write(lock, std::process::id().to_string())?)
    }

    fn lock_file(&self) -> PathBuf {
        self.options.state.join("lock-of-the-driver")
    }

    /// Lets go of what keeps another driver from starting.
    pub(crate) fn leave_in_order(&self) {
        if self.breaks(Sabotage::RestartNeedsCleanEnd) {
            drop(std::fs::remove_file(self.lock_file()));
        }
    }

    /// Dies if the text is not ASCII and that is the sabotage.
    pub(crate) fn stumble_over(&self, text: &str) {
        if self.breaks(Sabotage::DiesOfUnicode) && !text.is_ascii() {
            crate::die();
        }
    }

    /// The file or directory with a volume's data.
    pub(crate) fn contents_of(&self, volume: &Volume) -> PathBuf {
        self.options.state.join("volumes").join(format!("v{}", volume.number))
    }

    /// The driver's own staging path for a volume, used if the caller does not stage.
    pub(crate) fn private_path(&self, node: &str, volume: &Volume) -> PathBuf {
        self.options.state.join("mounts").join(node).join(format!("v{}", volume.number))
    }

    /// NOT_FOUND unless the volume exists and is completely created.
    pub(crate) fn volume(&self, id: &str) -> Result<Volume, Status> {
        self.journal
            .read(|books| books.volumes.get(id).filter(|volume| volume.created).cloned())?
            .ok_or_else(|| Status::not_found(format!("there is no volume `{id}`")))
    }

    /// Changes the record of a volume and returns it.
    pub(crate) fn update_volume(&self, id: &str, change: impl FnOnce(&mut Volume)) -> Result<Volume, Status> {
        self.change_volume(id, false, change)
    }

    /// Changes the record of a volume that is about to be used. NOT_FOUND if it is being deleted.
    pub(crate) fn use_volume(&self, id: &str, change: impl FnOnce(&mut Volume)) -> Result<Volume, Status> {
        self.change_volume(id, true, change)
    }

    fn change_volume(
        &self,
        id: &str,
        must_be_created: bool,
        change: impl FnOnce(&mut Volume),
    ) -> Result<Volume, Status> {
        self.journal.transact(|books| {
            let volume = books.volumes.get(id).filter(|volume| volume.created || !must_be_created);
            let mut volume =
                volume.cloned().ok_or_else(|| Status::not_found(format!("there is no volume `{id}`")))?;
            change(&mut volume);
            Ok((vec![Entry::Volume(Box::new(volume.clone()))], volume))
        })
    }
}

/// Whether a path exists, without following a final link.
pub(crate) fn exists(path: &Path) -> bool {
    crate::kernel::mount::look_at(path).is_ok()
}

impl From<JournalError> for Status {
    fn from(error: JournalError) -> Self {
        Status::internal(chain(&error))
    }
}

impl From<KernelError> for Status {
    fn from(error: KernelError) -> Self {
        Status::internal(chain(&error))
    }
}

/// The text of an error with its causes, for a gRPC message.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        write!(text, ": {next}").expect("writing to a string cannot fail");
        cause = next.source();
    }
    text
}
