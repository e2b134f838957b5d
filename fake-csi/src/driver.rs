//! What all services share: the options, the books, the operations in flight, and where things lie on disk.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tonic::Status;

use crate::ability::Ability;
use crate::books::{Backing, Volume};
use crate::in_flight::InFlight;
use crate::journal::{Entry, Journal, JournalError};
use crate::kernel::KernelError;
use crate::sabotage::Sabotage;

/// How the driver was started.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) name: String,
    pub(crate) state: PathBuf,
    /// The names of the nodes this process serves; at least one.
    pub(crate) nodes: Vec<String>,
    pub(crate) backing: Backing,
    pub(crate) fs_type: String,
    pub(crate) abilities: BTreeSet<Ability>,
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) max_volumes: i64,
    pub(crate) capacity: u64,
}

/// The driver, whichever service is asked.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) options: Options,
    pub(crate) journal: Journal,
    pub(crate) in_flight: Arc<InFlight>,
    /// Held while a private staging is made for the first target or undone after the last.
    pub(crate) private_staging: Mutex<()>,
    counter: AtomicU64,
    seen: Mutex<BTreeSet<String>>,
}

impl Driver {
    /// Opens the state directory, which must exist.
    pub(crate) fn open(options: Options) -> anyhow::Result<Self> {
        for part in ["volumes", "snapshots", "mounts"] {
            std::fs::create_dir_all(options.state.join(part))?;
        }
        if options.sabotage == Some(Sabotage::ForgetsOnRestart) {
            drop(std::fs::remove_file(options.state.join("journal")));
        }
        let journal = Journal::open(&options.state)?;
        let in_flight = Arc::new(InFlight::new(options.sabotage));
        Ok(Self {
            options,
            journal,
            in_flight,
            private_staging: Mutex::default(),
            counter: AtomicU64::default(),
            seen: Mutex::default(),
        })
    }

    /// Whether the driver says it can do this.
    pub(crate) fn can(&self, ability: Ability) -> bool {
        self.options.abilities.contains(&ability)
    }

    /// Refuses a call that the driver says it does not have.
    pub(crate) fn must_be_able(&self, ability: Ability) -> Result<(), Status> {
        if self.can(ability) {
            return Ok(());
        }
        Err(Status::unimplemented(format!("{ability:?} is switched off")))
    }

    /// Whether this promise is to be broken.
    pub(crate) fn breaks(&self, sabotage: Sabotage) -> bool {
        self.options.sabotage == Some(sabotage)
    }

    /// How often this was asked before.
    pub(crate) fn count(&self) -> u64 {
        self.counter.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether this is the first time for a thing.
    pub(crate) fn is_first(&self, thing: &str) -> bool {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(thing.to_owned())
    }

    /// Dies of a string that is not plain ASCII, if that is the sabotage.
    pub(crate) fn stumble_over(&self, text: &str) {
        if self.breaks(Sabotage::DiesOfUnicode) && !text.is_ascii() {
            crate::die();
        }
    }

    /// The file or directory that is a volume.
    pub(crate) fn contents_of(&self, volume: &Volume) -> PathBuf {
        self.options.state.join("volumes").join(format!("v{}", volume.number))
    }

    /// Where a volume is mounted on a node when the caller has no staging path for it.
    pub(crate) fn private_path(&self, node: &str, volume: &Volume) -> PathBuf {
        self.options.state.join("mounts").join(node).join(format!("v{}", volume.number))
    }

    /// A volume that was created.
    pub(crate) fn volume(&self, id: &str) -> Result<Volume, Status> {
        self.journal
            .read(|books| books.volumes.get(id).filter(|volume| volume.created).cloned())?
            .ok_or_else(|| Status::not_found(format!("there is no volume `{id}`")))
    }

    /// Changes the record of a volume and returns it.
    pub(crate) fn update_volume(&self, id: &str, change: impl FnOnce(&mut Volume)) -> Result<Volume, Status> {
        self.change_volume(id, false, change)
    }

    /// Writes down that a volume is about to be used; refused if it is just being deleted.
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

/// Whether a path is in use by somebody, told without following links.
pub(crate) fn exists(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
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

/// An error with its causes, for callers who see only a message.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        write!(text, ": {next}").expect("writing to a string cannot fail");
        cause = next.source();
    }
    text
}
