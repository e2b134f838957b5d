//! Preparation before a driver starts, undone after it has ended: the files and the commands of its manifest.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{DriverError, DriverOptions};
use crate::chore::{Chore, ChoreError};
use crate::guard::CloseError;
use crate::ledger::{Entry, Ledger, LedgerError};
use crate::manifest::{Manifest, Placeholders};

/// Why something cannot be prepared or cleaned up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PreparationError {
    #[error(transparent)]
    Chore(#[from] ChoreError),
    #[error("cannot note that {key} of the manifest has to be undone")]
    Ledger {
        key: String,
        #[source]
        source: LedgerError,
    },
    #[error("cannot take down the disks, the targets and the export of the manifest")]
    Fixtures(#[from] CloseError),
}

impl PreparationError {
    /// The last lines that the command printed.
    pub fn tail(&self) -> &[String] {
        match self {
            Self::Chore(error) => error.tail(),
            Self::Ledger { .. } | Self::Fixtures(_) => &[],
        }
    }

    /// A hint for the user, in one line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Chore(error) => error.hint(),
            Self::Ledger { .. } => "make room for the ledger of the run",
            Self::Fixtures(_) => "look for a process of the driver that still uses them",
        }
    }
}

/// A preparation until it is undone. It is in the ledger too: if this process is killed, the janitor cleans up.
#[derive(Debug)]
pub struct Preparation {
    cleanup: Option<Chore>,
    /// Names it in the ledger.
    id: String,
    ledger: Option<Arc<Ledger>>,
}

impl Preparation {
    /// Prepares a case: makes the driver's directory and runs the manifest's commands in it.
    ///
    /// # Errors
    /// When it fails; what it has done by then is undone.
    pub async fn of_case(
        options: &DriverOptions,
        ledger: Option<Arc<Ledger>>,
    ) -> Result<Self, PreparationError> {
        let DriverOptions { manifest, layout, node, log, .. } = options;
        let placeholders = Placeholders::new(layout, node, false).beside(manifest.root.as_deref());
        let directory = layout.driver_state();
        let chore = |key: &str, command: &[String]| Chore {
            key: format!("per_case.{key}"),
            command: placeholders.fill_command(command),
            env: placeholders.fill_values(&manifest.env),
            directory: directory.clone(),
            log: log.with_file_name(format!("{key}.log")),
            within: manifest.prepare_timeout(),
        };
        let commands = &manifest.per_case;
        let prepare = chore("prepare", &commands.prepare);
        Self::begin(prepare, chore("cleanup", &commands.cleanup), ledger).await
    }

    /// Prepares a run: runs the manifest's commands once before all cases, in `directory`.
    ///
    /// # Errors
    /// When it fails; what it has done by then is undone.
    pub async fn of_run(
        manifest: &Manifest,
        directory: &Path,
        ledger: Option<Arc<Ledger>>,
    ) -> Result<Self, PreparationError> {
        let chore = |key: &str, command: &[String]| Chore {
            key: format!("per_run.{key}"),
            command: command.to_vec(),
            env: manifest.per_run_env(),
            directory: directory.to_owned(),
            log: directory.join(format!("{key}.log")),
            within: manifest.prepare_timeout(),
        };
        let commands = &manifest.per_run;
        Self::begin(chore("prepare", &commands.prepare), chore("cleanup", &commands.cleanup), ledger).await
    }

    async fn begin(
        prepare: Chore,
        cleanup: Chore,
        ledger: Option<Arc<Ledger>>,
    ) -> Result<Self, PreparationError> {
        let cleanup = Some(cleanup).filter(|cleanup| !cleanup.command.is_empty());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // The number of a process in a sandbox is also one of another.
        let id = format!("{}-{}", std::process::id(), now.as_nanos());
        let mut preparation = Self { cleanup, id, ledger };
        // Before the first effect, which the process may not survive.
        preparation.note(|id, chore| Entry::Prepared { id, cleanup: chore.clone() })?;
        if prepare.command.is_empty() {
            return Ok(preparation);
        }
        match on_a_thread(prepare).await {
            Ok(()) => Ok(preparation),
            Err(error) => {
                // The first failure is the one to report.
                let _ = preparation.close().await;
                Err(error.into())
            }
        }
    }

    /// Undoes it, once.
    ///
    /// # Errors
    /// When the command fails. Nothing tries again.
    pub async fn close(&mut self) -> Result<(), PreparationError> {
        let Some(cleanup) = self.cleanup.take() else { return Ok(()) };
        let done = on_a_thread(cleanup.clone()).await;
        self.cleanup = Some(cleanup);
        let noted = self.note(|id, _| Entry::CleanedUp { id });
        self.cleanup = None;
        done?;
        noted
    }

    fn note(&self, entry: impl FnOnce(String, &Chore) -> Entry) -> Result<(), PreparationError> {
        let (Some(cleanup), Some(ledger)) = (&self.cleanup, &self.ledger) else { return Ok(()) };
        let noted = ledger.record(&entry(self.id.clone(), cleanup));
        noted.map_err(|source| PreparationError::Ledger { key: cleanup.key.clone(), source })
    }
}

impl Drop for Preparation {
    fn drop(&mut self) {
        // With a ledger the janitor does it, with more time than a caller has that gives up.
        if let (Some(cleanup), None) = (&self.cleanup, &self.ledger) {
            let _ = cleanup.run();
        }
    }
}

async fn on_a_thread(chore: Chore) -> Result<(), ChoreError> {
    let (key, command) = (chore.key.clone(), chore.line());
    let ended = tokio::task::spawn_blocking(move || chore.run()).await;
    ended.unwrap_or_else(|error| Err(ChoreError::Start { key, command, source: io::Error::other(error) }))
}

/// Writes the files that the manifest holds into the driver's directory, which it makes.
pub(super) fn write_files(options: &DriverOptions) -> Result<(), DriverError> {
    let DriverOptions { manifest, layout, node, .. } = options;
    let placeholders = Placeholders::new(layout, node, false);
    let make = |path: &Path| {
        fs::create_dir_all(path).map_err(|source| DriverError::Prepare { path: path.to_owned(), source })
    };
    make(&layout.driver_state())?;
    for (path, text) in &manifest.files {
        let path = PathBuf::from(placeholders.fill(path));
        path.parent().map_or(Ok(()), make)?;
        fs::write(&path, placeholders.fill(text)).map_err(|source| DriverError::Prepare { path, source })?;
    }
    Ok(())
}
