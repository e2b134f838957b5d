//! Which volumes there are and who uses them, in one file that is replaced whole.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{fs, io};

use serde::{Deserialize, Serialize};
use tonic::Status;

/// The books, and where everything lies.
#[derive(Debug)]
pub(super) struct Books {
    state: PathBuf,
    pages: Mutex<Pages>,
}

/// What is written down.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Pages {
    /// The number of the volume that was made last.
    pub(super) last: u64,
    /// The volumes by id.
    pub(super) volumes: BTreeMap<String, Volume>,
}

/// A volume.
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
    /// Opens what an earlier driver has left in a state directory.
    pub(super) fn open(state: &Path) -> io::Result<Self> {
        fs::create_dir_all(state.join("data"))?;
        let pages = match fs::read(state.join(FILE)) {
            Ok(text) => serde_json::from_slice(&text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Pages::default(),
            Err(error) => return Err(error),
        };
        Ok(Self { state: state.to_owned(), pages: Mutex::new(pages) })
    }

    /// The directory or file that is a volume.
    pub(super) fn contents(&self, id: &str) -> PathBuf {
        self.state.join("data").join(id)
    }

    /// Does something while nobody else does anything, and writes down what has changed if it succeeds.
    pub(super) fn alone<T>(&self, work: impl FnOnce(&mut Pages) -> Result<T, Status>) -> Result<T, Status> {
        // What a panic has left half changed was a copy.
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
    /// A volume.
    pub(super) fn volume(&mut self, id: &str) -> Result<&mut Volume, Status> {
        self.volumes.get_mut(id).ok_or_else(|| Status::not_found(format!("there is no volume `{id}`")))
    }
}

const FILE: &str = "books.json";
