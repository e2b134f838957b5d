//! The reports of a run: on the terminal while it happens, and in a directory afterwards.

use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::super::Exit;
use super::{Flags, Format};
use crate::terminal;
use harness::ledger::MARK;
use harness::lines::Changed;
use harness::printable::NoCommands;
use harness::private;
use runner::dispatch::Ledger;
use runner::report::human::Human;
use runner::report::line::Palette;
use runner::report::{Reporter, github, html, json, junit};

/// The report directory.
#[derive(Debug)]
pub(super) struct Reports {
    pub(super) directory: PathBuf,
    /// Whether the user named it.
    pub(super) asked: bool,
}

impl Reports {
    /// The directory that the user named, if any. It is not changed before [`Reports::begin`].
    pub(super) fn asked(directory: Option<&Path>) -> Result<Option<Self>, Exit> {
        let Some(directory) = directory else { return Ok(None) };
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        if directory.starts_with("/var/lib") {
            return Err(Exit::usage(format!("cannot write reports to `{}`", directory.display()))
                .hint("a sandbox covers /var/lib, and what its drivers log there would be lost"));
        }
        let failed = |error: io::Error| {
            Exit::environment(format!("cannot write reports to `{}`", directory.display()))
                .details([error.to_string()])
        };
        if let Some(owner) =
            foreign_owner(&directory, nix::unistd::geteuid().as_raw(), sudo_user()).map_err(failed)?
        {
            let message = format!(
                "cannot write reports to `{}`: it belongs to user {owner}, who could put links in their place",
                directory.display()
            );
            return Err(
                Exit::usage(message).hint("name a directory of your own, or one that is not there yet")
            );
        }
        let cases = directory.join("cases");
        if directory.starts_with(harness::ledger::base()) {
            return Err(Exit::usage(format!("cannot write reports to `{}`", directory.display()))
                .hint("runs keep their ledgers there, and `volproof sweep` removes what is none"));
        }
        if has_foreign_entries(&cases).map_err(failed)? {
            return Err(Exit::usage(format!(
                "cannot write reports to `{}`: volproof has not made the `cases` in it",
                directory.display()
            ))
            .hint("name another directory: what is in `cases` would be replaced"));
        }
        private::directory(&directory).map_err(failed)?;
        Ok(Some(Self { directory, asked: true }))
    }

    /// Removes the files of an earlier run from the directory when a run starts.
    pub(super) fn begin(&self) -> anyhow::Result<()> {
        let cases = self.directory.join("cases");
        if self.asked && cases.exists() {
            std::fs::remove_dir_all(&cases)?;
        }
        private::directory(&cases)?;
        private::write(&cases.join(MARK), "volproof made this directory, and replaces it with each run.\n")?;
        Ok(())
    }

    /// A directory that the janitor removes, unless a case fails.
    pub(super) fn unasked(ledger: &Ledger) -> anyhow::Result<Self> {
        Ok(Self { directory: ledger.logs()?, asked: false })
    }

    /// Writes the report files.
    pub(super) fn write(&self, record: &runner::event::RunRecord) -> anyhow::Result<()> {
        if self.asked {
            json::write_results(record, &self.directory)?;
            junit::write(record, &self.directory)?;
            html::write(record, &self.directory)?;
        }
        Ok(())
    }
}

/// The owner of a directory, or of a link to one, if it is neither this user nor the user who called sudo.
fn foreign_owner(directory: &Path, user: u32, sudo: Option<u32>) -> io::Result<Option<u32>> {
    let is_ours = |owner: u32| owner == user || sudo == Some(owner);
    let found = [std::fs::symlink_metadata(directory), std::fs::metadata(directory)];
    for found in found {
        match found {
            Ok(found) if !is_ours(found.uid()) => return Ok(Some(found.uid())),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(None)
}

/// The user who called sudo: root may write to their directories.
fn sudo_user() -> Option<u32> {
    std::env::var("SUDO_UID").ok()?.parse().ok()
}

/// Whether the directory `cases` has entries that no run made.
fn has_foreign_entries(cases: &Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(cases) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
        Ok(found) if !found.is_dir() => Ok(true),
        Ok(_) if cases.join(MARK).is_file() => Ok(false),
        Ok(_) => Ok(std::fs::read_dir(cases)?.next().is_some()),
    }
}

/// The reporters of a run.
pub(super) fn reporters(flags: &Flags, colour: bool) -> Vec<Box<dyn Reporter>> {
    let palette = if colour { Palette::coloured() } else { Palette::plain() };
    let human = || -> Box<dyn Reporter> {
        // Annotations are commands for the runner, and nothing beside them is.
        if flags.format == Format::Github {
            let human = Human::new(Changed::new(io::stdout(), NoCommands), palette, flags.verbose);
            return Box::new(human.with_report(flags.report.clone()));
        }
        let human = Human::new(terminal::out(), palette, flags.verbose).with_report(flags.report.clone());
        let live = io::stdout().is_terminal() && io::stderr().is_terminal();
        Box::new(if live { human.with_live_line() } else { human })
    };
    match flags.format {
        Format::Human => vec![human()],
        Format::Json => vec![Box::new(json::Lines(io::stdout()))],
        Format::Github => vec![human(), Box::new(annotations(flags))],
    }
}

/// Annotations belong to the manifest, since that is the file in the driver's own repository.
fn annotations(flags: &Flags) -> github::Annotations<io::Stdout> {
    let driver = &flags.driver;
    let manifest = driver.driver.clone().or_else(|| driver.testdriver.clone());
    let stands = match manifest {
        Some(manifest) => github::Stands::Manifest(manifest),
        None if driver.is_ours() => github::Stands::Case,
        None => github::Stands::Nowhere,
    };
    let summary = std::env::var_os("GITHUB_STEP_SUMMARY").filter(|path| !path.is_empty());
    github::Annotations::new(io::stdout(), stands, summary.map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_with_foreign_entries_is_refused_and_kept() {
        let project = tempfile::tempdir().unwrap();
        let mine = project.path().join("cases/mine.rs");
        std::fs::create_dir(project.path().join("cases")).unwrap();
        std::fs::write(&mine, "mine").unwrap();
        assert!(Reports::asked(Some(project.path())).is_err());
        assert!(mine.exists());
    }

    #[test]
    fn directory_of_the_ledgers_is_refused_and_not_made() {
        let run = harness::ledger::base().join("reports-of-a-test");
        let refused = Reports::asked(Some(&run));
        let is_made = run.exists();
        if is_made {
            std::fs::remove_dir(&run).unwrap();
        }
        assert!(refused.is_err_and(|exit| format!("{exit:?}").contains("ledgers")));
        assert!(!is_made, "`sweep` takes what is there for a run");
    }

    #[test]
    fn directory_and_link_of_another_user_are_refused() {
        let out = tempfile::tempdir().unwrap();
        let link = out.path().join("link");
        std::os::unix::fs::symlink(out.path(), &link).unwrap();
        let own = std::fs::metadata(out.path()).unwrap().uid();
        for path in [out.path(), &link] {
            assert_eq!(foreign_owner(path, own, None).unwrap(), None);
            assert_eq!(foreign_owner(path, own + 1, None).unwrap(), Some(own));
            assert_eq!(foreign_owner(path, own + 1, Some(own)).unwrap(), None);
        }
        assert_eq!(foreign_owner(&out.path().join("new"), own + 1, None).unwrap(), None);
    }

    #[test]
    fn report_of_an_earlier_run_goes_when_the_next_one_starts() {
        let out = tempfile::tempdir().unwrap();
        let earlier = out.path().join("cases/csi::publish::read_only_claim_cannot_be_written");
        let first = Reports::asked(Some(out.path())).unwrap().unwrap();
        first.begin().unwrap();
        std::fs::create_dir(&earlier).unwrap();
        let second = Reports::asked(Some(out.path())).unwrap().unwrap();
        assert!(earlier.exists(), "nothing is removed before the run starts");
        second.begin().unwrap();
        assert!(!earlier.exists());
    }
}
