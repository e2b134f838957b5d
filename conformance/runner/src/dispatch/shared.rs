//! Cases that share a driver: how they are put together, and what is made of how that ended.
//!
//! A case that passes on a shared driver has passed. One that does not says nothing yet: it runs again alone, with a
//! driver of its own, and only what it shows there is told. If it passes alone, its first verdict is told after all,
//! with the cases that came before it.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use testbed::case::{Case, CaseId};
use testbed::message::{Orders, Progress};

use super::lane::Ended;
use super::verdict::Verdict;
use super::{Job, Plan};
use crate::event::{CaseReport, Status};
use crate::message::{Outcome, Said, SharedCase};

/// How many cases share a driver at most: all of them wait for its end.
const MOST: usize = 40;

/// After this number of shared drivers with a failure, each case has one of its own: most of them would run twice.
const SETBACKS: usize = 3;

/// What a lane is given.
#[derive(Debug)]
pub(super) enum Work {
    /// A case with a driver of its own.
    Alone(Job),
    /// Cases that share one.
    Together(Vec<Job>),
}

impl Work {
    pub(super) fn first(&self) -> Job {
        match self {
            Self::Alone(job) => *job,
            Self::Together(jobs) => jobs[0],
        }
    }
}

/// The work of a plan: first what shares a driver, last the cases that want to be alone, so that they keep nobody
/// waiting in between.
pub(super) fn queue(plan: &Plan) -> VecDeque<Work> {
    let mut order = plan.cases.clone();
    // Where the first finding ends the run, cases with variants come later: they are the long ones.
    let is_long = |case: &Case| plan.until_broken.is_some() && case.variant.is_some();
    order.sort_by_key(|case| (case.serial.is_some(), is_long(case)));
    let mut queue = VecDeque::new();
    for repetition in 1..=plan.repeat.max(1) {
        let jobs = order.iter().map(|case| Job { case, repetition });
        let (together, alone): (Vec<Job>, Vec<Job>) = jobs.partition(|job| can_share(job, plan));
        queue.extend(parts(&together, plan.header.lanes));
        queue.extend(alone.into_iter().map(Work::Alone));
    }
    queue
}

/// Whether a case may have its driver together with others. One whose sandbox or story is wanted has its own. So has one
/// that is expected to fail, and each case of a run that ends where a promise is found broken: they would run twice.
fn can_share(job: &Job, plan: &Plan) -> bool {
    let id = job.case.id();
    let manifest = &plan.manifest;
    let is_away = plan.away.as_ref().is_some_and(|away| away.cases.contains(&id));
    let is_expected_to_fail =
        job.case.xfail.is_some() || manifest.expected_failures.contains_key(id.as_str());
    let is_ordinary = !plan.keep
        && !plan.update
        && plan.until_broken.is_none()
        && !manifest.is_running_already()
        && manifest.per_case.is_empty();
    job.case.shares_driver && job.case.serial.is_none() && is_ordinary && !is_away && !is_expected_to_fail
}

/// One part for each lane, or more where there are many.
fn parts(jobs: &[Job], lanes: usize) -> Vec<Work> {
    let parts = lanes.max(jobs.len().div_ceil(MOST)).min(jobs.len() / 2).max(1);
    let part = |jobs: &[Job]| match jobs {
        [job] => Work::Alone(*job),
        jobs => Work::Together(jobs.to_vec()),
    };
    jobs.chunks(jobs.len().div_ceil(parts).max(1)).map(part).collect()
}

/// Cases on one driver, while they run.
#[derive(Debug)]
pub(super) struct Company {
    /// Where the driver's logs are.
    directory: PathBuf,
    jobs: Vec<Job>,
    /// The orders of each.
    orders: Vec<Orders>,
    /// Of those that have begun.
    verdicts: Vec<Verdict>,
    /// What was found at the driver's end, once that has come.
    end: Option<Option<Box<Outcome>>>,
}

/// What became of them.
#[derive(Debug, Default)]
pub(super) struct Settled {
    pub(super) passed: Vec<(Job, Verdict)>,
    /// To be run again, alone.
    pub(super) again: Vec<Job>,
    /// Jobs that did not start.
    pub(super) rest: Vec<Job>,
    pub(super) suspicion: Option<Suspicion>,
    pub(super) is_cancelled: bool,
}

impl Company {
    pub(super) fn new(directory: PathBuf, jobs: Vec<Job>, orders: Vec<Orders>) -> Self {
        Self { directory, jobs, orders, verdicts: Vec::new(), end: None }
    }

    /// The cases as a worker is told them.
    pub(super) fn cases(&self) -> Vec<SharedCase> {
        let case = |(job, orders): (&Job, &Orders)| SharedCase {
            id: job.case.id(),
            directory: orders.directory.clone(),
            seed: orders.seed,
        };
        self.jobs.iter().zip(&self.orders).map(case).collect()
    }

    /// The case that runs.
    pub(super) fn current(&self) -> Option<Job> {
        self.jobs.get(self.verdicts.len().checked_sub(1)?).copied()
    }

    pub(super) fn hear(&mut self, said: Said) {
        match said {
            Said::Begun(_) => {
                let orders = self.orders.get(self.verdicts.len());
                self.verdicts.extend(orders.map(|orders| Verdict::new(orders, false)));
            }
            Said::Progress(Progress::Step(step)) => {
                if let Some(verdict) = self.verdicts.last_mut() {
                    verdict.step(&step);
                }
            }
            Said::DriverEnded(found) => self.end = Some(found),
            said => {
                if let Some(verdict) = self.verdicts.last_mut() {
                    verdict.hear(said);
                }
            }
        }
    }

    /// Settles what is known when the worker has ended.
    pub(super) fn ended(self, ended: std::io::Result<Ended>) -> Settled {
        let Self { directory, jobs, orders, mut verdicts, end } = self;
        let rest = jobs[verdicts.len()..].to_vec();
        let begun: Vec<Job> = jobs[..verdicts.len()].to_vec();
        let (status, end) = match (ended, end) {
            (Ok(Ended::Cancelled), _) => return Settled { is_cancelled: true, ..Settled::default() },
            (Ok(Ended::Exited(status)), Some(end)) => (status, end),
            // The driver did not come up, or the worker did not live to see its end.
            _ if begun.is_empty() => return Settled { again: rest, ..Settled::default() },
            _ => return Settled { again: begun, rest, ..Settled::default() },
        };
        verdicts.iter_mut().for_each(|verdict| drop(verdict.ended(Ok(Ended::Exited(status)))));
        let has_passed = verdicts.last().is_some_and(Verdict::has_passed);
        let mut ended: Vec<(Job, Verdict)> = begun.iter().copied().zip(verdicts).collect();
        let (passed, again) = match (&end, has_passed) {
            (None, true) => return Settled { passed: ended, rest, ..Settled::default() },
            (None, false) => (begun.len() - 1, vec![begun[begun.len() - 1]]),
            // It may be any of theirs.
            (Some(_), _) => (0, begun.clone()),
        };
        let last = ended.pop();
        ended.truncate(passed);
        let suspicion = last.map(|(job, mut verdict)| {
            let own = &orders[begun.len() - 1].directory;
            verdict.set_directory(set_aside(own, &directory, job.case.id().as_str()));
            end.filter(|_| has_passed).into_iter().for_each(|found| verdict.hear(Said::Outcome(found)));
            let before = begun[..begun.len() - 1].iter().map(|job| job.case.id()).collect();
            Suspicion { job, verdict, before, waiting: again.clone(), is_explained: false, alone: None }
        });
        Settled { passed: ended, again, rest, suspicion, is_cancelled: false }
    }
}

/// Work for what was not begun.
pub(super) fn resumed(rest: Vec<Job>, setbacks: usize) -> Vec<Work> {
    match rest.as_slice() {
        [] => vec![],
        [job] => vec![Work::Alone(*job)],
        _ if setbacks >= SETBACKS => rest.into_iter().map(Work::Alone).collect(),
        _ => vec![Work::Together(rest)],
    }
}

/// A case that did not pass on a shared driver.
#[derive(Debug)]
pub(super) struct Suspicion {
    job: Job,
    verdict: Verdict,
    /// The cases that the driver had before it.
    before: Vec<CaseId>,
    /// What still has to run alone.
    waiting: Vec<Job>,
    /// Whether a case that runs alone shows what is wrong.
    is_explained: bool,
    /// Its report from when it ran alone.
    alone: Option<Box<CaseReport>>,
}

/// A case whose report is to be told: the one of its run alone, or another verdict with the cases before it.
#[derive(Debug)]
pub(super) enum Told {
    Alone(Box<CaseReport>),
    Company(Box<Verdict>, Job, Vec<CaseId>),
}

impl Suspicion {
    fn takes(&self, job: Job) -> bool {
        self.waiting.iter().any(|waiting| waiting.is(job))
    }

    /// Takes the report of a case that ran alone. Returns what is to be told now.
    fn weigh(&mut self, job: Job, report: CaseReport) -> Option<CaseReport> {
        self.waiting.retain(|waiting| !waiting.is(job));
        self.is_explained |= report.status.is_bad();
        if job.is(self.job) && report.status == Status::Passed {
            self.alone = Some(Box::new(report));
            return None;
        }
        Some(report)
    }
}

/// Suspicions that are not settled.
#[derive(Debug, Default)]
pub(super) struct Suspicions(Vec<Suspicion>);

impl Suspicions {
    pub(super) fn add(&mut self, suspicion: Suspicion) {
        self.0.push(suspicion);
    }

    /// Takes the report of a case that ran alone. Returns what is to be told now: nothing yet where a case passes alone
    /// and others that were before it have still to run.
    pub(super) fn weigh(&mut self, job: Job, report: CaseReport) -> Vec<Told> {
        let Some(at) = self.0.iter().position(|suspicion| suspicion.takes(job)) else {
            return vec![Told::Alone(Box::new(report))];
        };
        let mut told: Vec<Told> =
            self.0[at].weigh(job, report).map(|report| Told::Alone(Box::new(report))).into_iter().collect();
        if self.0[at].waiting.is_empty() {
            let Suspicion { job, verdict, before, is_explained, alone, .. } = self.0.remove(at);
            told.extend(alone.map(|alone| match is_explained {
                true => Told::Alone(alone),
                false => Told::Company(Box::new(verdict), job, before),
            }));
        }
        told
    }
}

/// Takes what a case has written out of the way of its run alone, and puts its driver's logs beside it. Returns where it
/// is now.
fn set_aside(own: &Path, driver: &Path, name: &str) -> PathBuf {
    let aside = driver.join(name);
    // A log that is missing is missed by the reader alone, and the verdict stands without it.
    if fs::rename(own, &aside).is_err() {
        return own.to_owned();
    }
    for log in ["driver.log", "manager.log"] {
        let _ = fs::hard_link(driver.join(log), aside.join(log));
    }
    aside
}

/// The directory of the worker whose driver they share.
pub(super) fn directory(run: &Path, number: usize) -> PathBuf {
    run.join("cases").join(format!("shared-driver-{number}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::time::Duration;

    use harness::manifest::Manifest;
    use testbed::case::{self, Case};

    use super::*;
    use crate::promises::Judged;
    use crate::select::sample;

    static CASES: [Case; 3] = [sample("a"), sample("b"), sample("c")];

    fn jobs() -> Vec<Job> {
        CASES.iter().map(|case| Job { case, repetition: 1 }).collect()
    }

    fn names(jobs: &[Job]) -> String {
        jobs.iter().map(|job| job.case.name).collect()
    }

    /// What becomes of three cases that end so, and of their driver.
    fn settled(statuses: &[Status], end: Option<Option<Status>>) -> Settled {
        let orders =
            || Orders::new(Manifest::fake_csi(&[]), "/nowhere".into(), "/nowhere".into(), Duration::ZERO);
        let mut company = Company::new("/nowhere".into(), jobs(), vec![orders(), orders(), orders()]);
        for status in statuses {
            company.hear(Said::Begun(CaseId::new("")));
            company.hear(Said::Outcome(Box::new(outcome(*status))));
        }
        if let Some(end) = end {
            company.hear(Said::DriverEnded(end.map(|status| Box::new(outcome(status)))));
        }
        company.ended(Ok(Ended::Exited(ExitStatus::from_raw(0))))
    }

    fn outcome(status: Status) -> Outcome {
        Outcome {
            status,
            seconds: 0.0,
            breakage: None,
            findings: vec![],
            judged: Judged::default(),
            left_behind: vec![],
            kernel: vec![],
            unchecked: vec![],
            dead_ends: std::collections::BTreeSet::new(),
        }
    }

    #[track_caller]
    fn check(settled: &Settled, passed: &str, again: &str, rest: &str, is_suspicious: bool) {
        let those: Vec<Job> = settled.passed.iter().map(|(job, _)| *job).collect();
        let found = (names(&those), names(&settled.again), names(&settled.rest), settled.suspicion.is_some());
        assert_eq!(found, (passed.to_owned(), again.to_owned(), rest.to_owned(), is_suspicious));
    }

    #[test]
    fn case_that_passes_has_passed_and_the_others_run_again() {
        use Status::{Failed, Leaked, Passed};
        check(&settled(&[Passed; 3], Some(None)), "abc", "", "", false);
        // The shift was over.
        check(&settled(&[Passed; 2], Some(None)), "ab", "", "c", false);
        check(&settled(&[Passed, Failed], Some(None)), "a", "b", "c", true);
        // What the driver's end shows may be of any of them.
        check(&settled(&[Passed, Passed], Some(Some(Leaked))), "", "ab", "c", true);
        check(&settled(&[Passed, Failed], Some(Some(Leaked))), "", "ab", "c", true);
        // The worker died, or the driver did not come up.
        check(&settled(&[Passed, Passed], None), "", "ab", "c", false);
        check(&settled(&[], None), "", "abc", "", false);
    }

    /// Runs what is to run again alone, with these endings, and says what is told: `A` for a case alone, `C` for a case
    /// in company.
    fn told(settled: Settled, alone: &[Status]) -> String {
        let mut suspicions = Suspicions::default();
        suspicions.add(settled.suspicion.expect("something did not pass"));
        let mut all = String::new();
        for (job, status) in settled.again.iter().zip(alone) {
            for told in suspicions.weigh(*job, CaseReport::sample(job.case.name, *status)) {
                all += &match told {
                    Told::Alone(report) => format!("{}:A ", report.id),
                    Told::Company(_, job, before) => format!("{}:C{} ", job.case.name, before.len()),
                };
            }
        }
        assert!(suspicions.0.is_empty(), "{suspicions:?}");
        all
    }

    #[test]
    fn failure_that_no_case_shows_alone_is_told_in_company() {
        use Status::{Failed, Leaked, Passed};
        let failed = || settled(&[Passed, Failed], Some(None));
        assert_eq!(told(failed(), &[Failed]), "b:A ");
        assert_eq!(told(failed(), &[Passed]), "b:C1 ");
        let leaked = || settled(&[Passed, Passed], Some(Some(Leaked)));
        assert_eq!(told(leaked(), &[Failed, Passed]), "a:A b:A ");
        assert_eq!(told(leaked(), &[Passed, Failed]), "a:A b:A ");
        assert_eq!(told(leaked(), &[Passed, Passed]), "a:A b:C1 ");
    }

    #[test]
    fn each_lane_gets_a_part_and_none_is_too_large() {
        let sizes = |count: usize, lanes| -> Vec<usize> {
            let jobs: Vec<Job> = jobs().into_iter().cycle().take(count).collect();
            let size = |work: Work| match work {
                Work::Alone(_) => 1,
                Work::Together(jobs) => jobs.len(),
            };
            parts(&jobs, lanes).into_iter().map(size).collect()
        };
        assert_eq!(sizes(0, 2), Vec::<usize>::new());
        assert_eq!(sizes(1, 2), [1]);
        assert_eq!(sizes(3, 2), [3]);
        assert_eq!(sizes(10, 2), [5, 5]);
        assert_eq!(sizes(100, 2), [34, 34, 32]);
        assert_eq!(names(&jobs()), "abc");
        assert!(case::all().is_empty(), "the cases of this test are in no list");
    }
}
