//! The run's ledger and its janitor, as the dispatcher sees them.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use harness::janitor::{self, Janitor, Lifeline, Undone};
use harness::ledger::{self, Entry, Place, Run};
use harness::private;

/// A ledger with a janitor that reads it once this process is gone, however it goes.
#[derive(Debug)]
pub struct Ledger {
    janitor: Janitor,
    /// Held by this process alone: its end is what the janitor waits for.
    lifeline: Lifeline,
    run: Run,
}

impl Ledger {
    /// Begins a ledger and starts its janitor. To be done before anything else is made.
    pub fn open() -> anyhow::Result<Self> {
        let place = Place::choose();
        let lifeline = Lifeline::new().context("cannot make a pipe")?;
        let janitor = Janitor::start(&place, &lifeline)?;
        let run = Run::begin(place).context("cannot begin a ledger")?;
        Ok(Self { janitor, lifeline, run })
    }

    /// Where workers write down what outlives their namespaces.
    pub fn path(&self) -> PathBuf {
        self.run.ledger().path().to_owned()
    }

    /// Makes a directory that goes with the run, however that ends, unless [`Ledger::keep`] is called.
    pub fn scratch(&self) -> anyhow::Result<PathBuf> {
        let path = std::env::temp_dir().join(ledger::scratch_name(self.run.id()));
        // In this order: what is not in the ledger yet cannot be left behind.
        self.run.ledger().record(&Entry::Scratch { path: path.clone() })?;
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("cannot create `{}`", path.display()))?;
        private::write(&path.join(ledger::MARK), "volproof made this directory.\n")?;
        Ok(path)
    }

    /// Whether this is the directory that [`Ledger::scratch`] has made.
    pub fn is_scratch(&self, path: &Path) -> bool {
        path.file_name() == Some(ledger::scratch_name(self.run.id()).as_ref())
    }

    /// Writes down that there is about to be a socket at a path.
    pub fn will_listen(&self, path: &Path) -> anyhow::Result<()> {
        Ok(self.run.ledger().record(&Entry::Socket { path: std::path::absolute(path)? })?)
    }

    /// Lets a directory outlive the run: somebody is about to be told to read in it.
    pub fn keep(&self, path: &Path) -> anyhow::Result<()> {
        Ok(self.run.ledger().record(&Entry::Kept { path: path.to_owned() })?)
    }

    /// What a sweep would undo, should this process end now and its janitor with it.
    pub fn would_undo(&self) -> Vec<String> {
        // A ledger that cannot be read now is told of by the sweep itself.
        janitor::left_of(&ledger::read(&self.path()).unwrap_or_default())
    }

    /// Lets the janitor do its work, and says what could not be undone.
    pub async fn close(self) -> anyhow::Result<Vec<String>> {
        let Self { janitor, lifeline, run } = self;
        // It waits for a process, and there is one thread.
        let finished = tokio::task::spawn_blocking(move || janitor.finish(run, lifeline)).await?;
        let Undone { done: _, left } = finished?;
        Ok(left)
    }
}
