//! Where a run is told of: on the terminal while it happens, and in a directory afterwards.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use super::super::Exit;
use super::{Flags, Format};
use runner::dispatch::Ledger;
use runner::report::human::Human;
use runner::report::line::Palette;
use runner::report::{Reporter, github, html, json, junit};

/// Where everything that outlives the run is written.
#[derive(Debug)]
pub(super) struct Reports {
    pub(super) directory: PathBuf,
    /// Whether the user named it.
    asked: bool,
}

impl Reports {
    /// The directory that the user named, if one was, without what an earlier run wrote about its cases.
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
        // What an earlier run wrote about cases must not be taken for this run's.
        let cases = directory.join("cases");
        if cases.exists() {
            std::fs::remove_dir_all(&cases).map_err(failed)?;
        }
        std::fs::create_dir_all(&cases).map_err(failed)?;
        Ok(Some(Self { directory, asked: true }))
    }

    /// A directory that the janitor removes, unless a case fails and its logs are worth reading.
    pub(super) fn scratch(ledger: &Ledger) -> anyhow::Result<Self> {
        Ok(Self { directory: ledger.scratch()?, asked: false })
    }

    /// Writes everything that was asked for.
    pub(super) fn write(&self, record: &runner::event::RunRecord) -> anyhow::Result<()> {
        if self.asked {
            json::write_results(record, &self.directory)?;
            junit::write(record, &self.directory)?;
            html::write(record, &self.directory)?;
        }
        Ok(())
    }
}

/// Who shows the run while it happens.
pub(super) fn reporters(flags: &Flags, colour: bool) -> Vec<Box<dyn Reporter>> {
    let palette = if colour { Palette::coloured() } else { Palette::plain() };
    let human = || {
        let human = Human::new(io::stdout(), palette, flags.verbose);
        let live = io::stdout().is_terminal() && io::stderr().is_terminal();
        if live { human.with_live_line() } else { human }
    };
    match flags.format {
        Format::Human => vec![Box::new(human())],
        Format::Json => vec![Box::new(json::Lines(io::stdout()))],
        Format::Github => vec![Box::new(human()), Box::new(github::Annotations(io::stdout()))],
    }
}
