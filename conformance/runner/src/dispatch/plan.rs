//! The plan of a run, and the orders that it gives to the worker of a case.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use harness::manifest::Manifest;
use harness::nfs_export::Misbehaviour;
use harness::private;
use testbed::case::{Case, CaseId};
use testbed::message::{Abilities, Orders};

use super::guest::Guests;
use crate::event::{Header, RunRecord, Status};
use crate::message::{Assignment, Task};

/// Everything a run is to do, decided before anything is started.
#[derive(Debug)]
pub struct Plan {
    /// The head of the report: driver, machine, number of cases.
    pub header: Header,
    /// The cases that can run.
    pub cases: Vec<&'static Case>,
    /// The cases that cannot run, each with its status and the unmet needs.
    pub skipped: Vec<(&'static Case, Status, Vec<String>)>,
    pub manifest: Manifest,
    /// The driver's answers to the first questions.
    pub abilities: Abilities,
    /// The report directory, the parent of `cases/<id>/`.
    pub directory: PathBuf,
    /// Whether cases run in user namespaces.
    pub rootless: bool,
    /// The time limit of one case.
    pub timeout: Duration,
    /// The number of executions of each case.
    pub repeat: u32,
    /// Whether cases try each of the points that they otherwise choose a few of.
    pub thorough: bool,
    /// Whether the first bad case is the last one started.
    pub fail_fast: bool,
    /// No further case starts after a case has found this promise broken.
    pub until_broken: Option<String>,
    /// The command line that, with a case's id behind it, runs that case again.
    pub again: String,
    /// Whether the story that a case saw replaces the expected one in its source.
    pub update: bool,
    /// Whether the sandboxes of cases that do not pass stay until the user ends the run.
    pub keep: bool,
    /// Whether the user asked for a report, which has the logs of all cases.
    pub has_report: bool,
    /// An earlier run with which this one is compared, and its name.
    pub earlier: Option<(String, RunRecord)>,
    /// The misbehaviour of the suite's own NFS server, for tests that cases notice it.
    pub spoil: Option<Misbehaviour>,
    /// The cases that run in guests, if any do.
    pub away: Option<Away>,
}

/// The part of a run that happens in guests.
#[derive(Debug)]
pub struct Away {
    pub guests: Rc<Guests>,
    /// The cases that run in guests.
    pub cases: BTreeSet<CaseId>,
    /// The driver as a guest starts it.
    pub manifest: Manifest,
    /// The driver's answers to the first questions in a guest.
    pub abilities: Abilities,
}

/// One execution of a case.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    pub(super) case: &'static Case,
    /// From 1.
    pub(super) repetition: u32,
}

impl Job {
    pub(super) fn key(self) -> (CaseId, u32) {
        (self.case.id(), self.repetition)
    }

    pub(super) fn is(self, other: Self) -> bool {
        std::ptr::eq(self.case, other.case) && self.repetition == other.repetition
    }
}

impl Plan {
    /// The guests and the driver in them, if the case runs in a guest.
    pub(super) fn away(&self, id: &CaseId) -> Option<&Away> {
        self.away.as_ref().filter(|away| away.cases.contains(id))
    }

    /// The assignment of a worker that runs one case.
    pub(super) fn assignment(&self, orders: Orders, id: CaseId) -> Assignment {
        let abilities = self.away(&id).map_or(&self.abilities, |away| &away.abilities);
        Assignment { task: Task::Case(id, Box::new(abilities.clone())), orders }
    }

    /// The orders for one execution of a case, whose directory this makes.
    pub(super) fn orders(
        &self,
        job: Job,
        ledger: PathBuf,
        dead_ends: BTreeSet<String>,
    ) -> anyhow::Result<Orders> {
        let id = job.case.id();
        let name = if self.repeat > 1 { format!("{id}@{}", job.repetition) } else { id.to_string() };
        let directory = self.directory.join("cases").join(name);
        make_directory(&directory)?;
        let away = self.away(&id);
        let manifest = away.map_or(&self.manifest, |away| &away.manifest).clone();
        Ok(Orders {
            rootless: self.rootless,
            seed: self.header.seed.wrapping_add(u64::from(job.repetition - 1)),
            thorough: self.thorough,
            update: self.update,
            keep: self.keep && away.is_none(),
            keeps_all_logs: self.has_report,
            spoil: self.spoil,
            dead_ends,
            ..Orders::new(manifest, directory, ledger, self.timeout)
        })
    }
}

pub(super) fn make_directory(directory: &Path) -> anyhow::Result<()> {
    private::directory(directory).with_context(|| format!("cannot create `{}`", directory.display()))
}
