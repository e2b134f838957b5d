//! A scene as a run of its own, with a ledger and a janitor: killed at any moment, it leaves nothing.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Result, ensure};
use harness::janitor::{Janitor, Lifeline};
use harness::ledger::{self, Entry, Run, RunDirectory};
use harness::wait::Deadline;

use super::bed::LIMIT;

/// Plays the scene of this name, with its ledger below `base`. Whether it went well.
pub(crate) fn play(base: &Path, name: &str) -> Result<bool> {
    let place = RunDirectory::choose_in(base);
    let lifeline = Lifeline::new()?;
    let janitor = Janitor::start(&place, &lifeline)?;
    let run = Run::begin(place)?;
    let mut scene = Command::new("/proc/self/exe");
    scene.args(["__scene", name]).arg(run.ledger().path()).stdin(lifeline.reader()?);
    let ended = scene.status()?;
    let undone = janitor.finish(run, lifeline)?;
    ensure!(undone.left.is_empty(), "left: {:?}", undone.left);
    Ok(ended.success())
}

/// The process that plays the scene of this name.
pub(crate) fn process(base: &Path, name: &str) -> Command {
    let mut run = Command::new("/proc/self/exe");
    run.args(["__run", name]).arg(base);
    run
}

/// Kills the run of a scene while each of its containers has its control groups; they are removed all the same.
pub(crate) fn killed_leaves_no_groups(scene: &str, containers: usize) -> Result<()> {
    for container in 0..containers {
        let base = tempfile::tempdir()?;
        let mut run = process(base.path(), scene).spawn()?;
        let seen = Deadline::after(LIMIT)
            .until("a container has its control groups", || made(base.path(), container, &mut run));
        run.kill()?;
        run.wait()?;
        // The last run takes the directory with it.
        let gone = || {
            let is_empty = std::fs::read_dir(base.path()).map_or(true, |mut runs| runs.next().is_none());
            is_empty.then_some(())
        };
        Deadline::after(LIMIT).until("the janitor has done its work", gone)?;
        let groups = seen?;
        ensure!(!groups.is_empty(), "container {container} had no control groups");
        let left: Vec<_> = groups.iter().filter(|group| group.exists()).collect();
        ensure!(left.is_empty(), "left: {left:?}");
    }
    Ok(())
}

/// The control groups of a container, once it has any. `None` if the run ended before.
fn made(base: &Path, container: usize, run: &mut Child) -> Option<Vec<PathBuf>> {
    let ended = run.try_wait().is_ok_and(|ended| ended.is_some());
    let directory = std::fs::read_dir(base).into_iter().flatten().flatten().next();
    let entries = directory.and_then(|run| ledger::read(&run.path().join("ledger.jsonl")).ok());
    let mut groups = entries.unwrap_or_default().into_iter().filter_map(|entry| match entry {
        Entry::Cgroups { paths } => Some(paths),
        _ => None,
    });
    let groups = groups.nth(container);
    match groups.filter(|groups| groups.iter().any(|group| group.exists())) {
        None if ended => Some(Vec::new()),
        groups => groups,
    }
}
