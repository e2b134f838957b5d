//! The run's ledger and its janitor, as the dispatcher sees them.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use harness::janitor::{self, Janitor, Lifeline, Undone};
use harness::ledger::{self, Entry, Place, Run};
use harness::private;

/// A ledger, with a janitor that undoes its entries when this process has ended in any way.
#[derive(Debug)]
pub struct Ledger {
    janitor: Janitor,
    /// A pipe that only this process holds open: the janitor waits until it closes.
    lifeline: Lifeline,
    run: Run,
}

impl Ledger {
    /// Begins a ledger and starts its janitor. Call it before the run makes anything that outlives a process.
    pub fn open() -> anyhow::Result<Self> {
        let place = Place::choose();
        let lifeline = Lifeline::new().context("cannot make a pipe")?;
        let janitor = Janitor::start(&place, &lifeline)?;
        let run = Run::begin(place).context("cannot begin a ledger")?;
        Ok(Self { janitor, lifeline, run })
    }

    /// The ledger's file, to which workers add the resources that outlive their namespaces.
    pub fn path(&self) -> PathBuf {
        self.run.ledger().path().to_owned()
    }

    /// Makes a directory that the janitor removes at the end of the run, unless [`Ledger::keep`] is called.
    pub fn scratch(&self) -> anyhow::Result<PathBuf> {
        let path = self.directory(&ledger::scratch_name(self.run.id()))?;
        let mark = path.join(ledger::MARK);
        private::write(&mark, "volproof made this directory.\n").with_context(|| {
            format!("cannot write `{}`; TMPDIR names another directory for temporary files", mark.display())
        })?;
        Ok(path)
    }

    /// Makes a directory for the driver's unpacked image, which the janitor removes at the end of the run.
    pub fn image_directory(&self) -> anyhow::Result<PathBuf> {
        self.directory(&ledger::image_name(self.run.id()))
    }

    fn directory(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = std::env::temp_dir().join(name);
        // The entry comes before the directory: if this process dies in between, no directory is left behind.
        self.run.ledger().record(&Entry::Scratch { path: path.clone() })?;
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("cannot create `{}`", path.display()))?;
        Ok(path)
    }

    /// Whether this is the directory that [`Ledger::scratch`] has made.
    pub fn is_scratch(&self, path: &Path) -> bool {
        path.file_name() == Some(ledger::scratch_name(self.run.id()).as_ref())
    }

    /// Records a socket in the ledger before it is made.
    pub fn will_listen(&self, path: &Path) -> anyhow::Result<()> {
        Ok(self.run.ledger().record(&Entry::Socket { path: std::path::absolute(path)? })?)
    }

    /// Lets a directory outlive the run, because the report names it.
    pub fn keep(&self, path: &Path) -> anyhow::Result<()> {
        Ok(self.run.ledger().record(&Entry::Kept { path: path.to_owned() })?)
    }

    /// The resources that `sweep` would have to undo if this process and its janitor ended now.
    pub fn would_undo(&self) -> Vec<String> {
        // `sweep` reports a ledger that it cannot read.
        janitor::left_of(&ledger::read(&self.path()).unwrap_or_default())
    }

    /// Lets the janitor undo all entries. Returns the resources that it could not undo.
    pub async fn close(self) -> anyhow::Result<Vec<String>> {
        let Self { janitor, lifeline, run } = self;
        // `finish` waits for the janitor's process, which would block the runtime's only thread.
        let finished = tokio::task::spawn_blocking(move || janitor.finish(run, lifeline)).await?;
        let Undone { done: _, left } = finished?;
        Ok(left)
    }
}
