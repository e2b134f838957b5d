//! The run's ledger and its janitor, as the dispatcher sees them.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use harness::facts;
use harness::janitor::{self, Janitor, Lifeline, Undone};
use harness::ledger::{self, Entry, Run, RunDirectory};
use harness::private;

use crate::kept_logs;

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
        let place = RunDirectory::choose();
        let lifeline = Lifeline::new().context("cannot make a pipe")?;
        let janitor = Janitor::start(&place, &lifeline)?;
        let run = Run::begin(place).context("cannot begin a ledger")?;
        Ok(Self { janitor, lifeline, run })
    }

    /// The ledger's file, to which workers add the resources that outlive their namespaces.
    pub fn path(&self) -> PathBuf {
        self.run.ledger().path().to_owned()
    }

    /// Makes a directory that the janitor removes at the end of the run.
    pub fn scratch(&self) -> anyhow::Result<PathBuf> {
        self.directory(&std::env::temp_dir(), &ledger::scratch_name(self.run.id()))
    }

    /// Makes a directory for logs that the janitor removes at the end of the run, unless [`Ledger::keep`] is called.
    pub fn logs(&self) -> anyhow::Result<PathBuf> {
        let name = ledger::scratch_name(self.run.id());
        // A cache may be read-only, and another run may remove the empty directory of logs at any moment.
        kept_logs::place()
            .and_then(|place| self.directory(&place, &name).ok())
            .map_or_else(|| self.directory(&std::env::temp_dir(), &name), Ok)
    }

    /// Makes a directory for the driver's unpacked image, which the janitor removes at the end of the run.
    pub fn image_directory(&self) -> anyhow::Result<PathBuf> {
        inner(&self.directory(&std::env::temp_dir(), &ledger::image_name(self.run.id()))?)
    }

    fn directory(&self, place: &Path, name: &str) -> anyhow::Result<PathBuf> {
        let path = place.join(name);
        // The entry comes before the directory: if this process dies in between, no directory is left behind.
        self.run.ledger().record(&Entry::Scratch { path: path.clone() })?;
        make_marked(&path)?;
        Ok(path)
    }

    /// Whether this is the directory that [`Ledger::logs`] has made.
    pub fn is_own(&self, path: &Path) -> bool {
        ledger::is_own(path, self.run.id())
    }

    /// Records the groups of the look at the machine's abilities before they are made.
    pub fn will_look(&self) -> anyhow::Result<()> {
        Ok(self.run.ledger().record(&Entry::Cgroups { paths: facts::probed_groups() })?)
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

/// Makes a directory that only this user may use, and that `sweep` knows as ours.
fn make_marked(path: &Path) -> anyhow::Result<()> {
    DirBuilder::new()
        .mode(0o700)
        .create(path)
        .with_context(|| format!("cannot create `{}`", path.display()))?;
    let mark = path.join(ledger::MARK);
    private::write(&mark, "volproof made this directory.\n").with_context(|| {
        format!("cannot write `{}`; TMPDIR names another directory for temporary files", mark.display())
    })
}

/// Makes a directory in a private one for files that set their own modes, such as an image's: its `./` may be open to
/// all, and programs with the set-user-id bit are then still out of reach for other users.
fn inner(private: &Path) -> anyhow::Result<PathBuf> {
    let path = private.join("root");
    fs::create_dir(&path).with_context(|| format!("cannot create `{}`", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn directory_around_an_image_is_marked_and_stays_private() {
        let ground = tempfile::tempdir().unwrap();
        let outer = ground.path().join("volproof-1-image");
        make_marked(&outer).unwrap();
        let root = inner(&outer).unwrap();
        // As an image with an entry `./` does.
        fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(fs::metadata(&outer).unwrap().permissions().mode() & 0o7777, 0o700);
        assert!(outer.join(ledger::MARK).is_file() && root != outer);
    }
}
