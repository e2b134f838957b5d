//! The books of the hostpath driver, in one file that is replaced whole.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{fs, io};

use serde::{Deserialize, Serialize};
use tonic::Status;

/// The books and the state directory.
#[derive(Debug)]
pub(super) struct Books {
    state: PathBuf,
    pages: Mutex<Pages>,
}

/// The records, as the state file keeps them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Pages {
    /// The number of the newest volume.
    pub(super) last: u64,
    pub(super) volumes: BTreeMap<String, Volume>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Volume {
    pub(super) name: String,
    pub(super) block: bool,
    pub(super) ephemeral: bool,
    pub(super) capacity: u64,
    pub(super) staged: BTreeSet<PathBuf>,
    pub(super) published: BTreeSet<PathBuf>,
}

impl Books {
    /// Reads the books in a state directory, if there are any.
    pub(super) fn open(state: &Path) -> io::Result<Self> {
        fs::create_dir_all(state.join("data"))?;
        let pages = match fs::read(state.join(FILE)) {
            Ok(text) => serde_json::from_slice(&text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Pages::default(),
            Err(error) => return Err(error),
        };
        Ok(Self { state: state.to_owned(), pages: Mutex::new(pages) })
    }

    /// The directory or file with a volume's data.
    pub(super) fn contents(&self, id: &str) -> PathBuf {
        self.state.join("data").join(id)
    }

    /// Runs `work` on a copy of the records under the lock, and keeps the copy if it succeeds.
    pub(super) fn transact<T>(
        &self,
        work: impl FnOnce(&mut Pages) -> Result<T, Status>,
    ) -> Result<T, Status> {
        // A poisoned lock is ignored: a panic can only have changed the copy.
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = pages.clone();
        let done = work(&mut changed)?;
        if changed != *pages {
            self.write(&changed).map_err(|error| Status::internal(format!("cannot write books: {error}")))?;
            *pages = changed;
        }
        Ok(done)
    }

    fn write(&self, pages: &Pages) -> io::Result<()> {
        let fresh = self.state.join(format!(".{FILE}"));
        fs::write(&fresh, serde_json::to_vec(pages)?)?;
        fs::rename(fresh, self.state.join(FILE))
    }
}

impl Pages {
    pub(super) fn volume(&mut self, id: &str) -> Result<&mut Volume, Status> {
        self.volumes.get_mut(id).ok_or_else(|| Status::not_found(format!("there is no volume `{id}`")))
    }
}

const FILE: &str = "books.json";
