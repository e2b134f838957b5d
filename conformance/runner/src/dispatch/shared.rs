//! Cases that share a driver: their groups, and the verdicts at the end of a group.
//!
//! A case that passes on a shared driver has passed. A case that fails there is not reported yet: it runs again alone, with a
//! driver of its own, and only that verdict is reported. If it passes alone, its first verdict is reported after all,
//! with the cases that came before it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::{fs, io};

use testbed::case::{Case, CaseId};
use testbed::message::{Orders, Progress};

use super::lane::Ended;
use super::pool::{self, Pool};
use super::verdict::Verdict;
use super::{Job, Plan};
use crate::event::{CaseReport, Status};
use crate::message::{MOST, Outcome, Said};

/// After this number of shared drivers with a failure, each case has its own driver: most cases would run twice otherwise.
pub(super) const SETBACKS: usize = 3;

/// The work of one lane.
#[derive(Debug)]
pub(super) enum Work {
    /// A case with a driver of its own.
    Alone(Job),
    /// Cases of a pool, as many as there is time for.
    Together(Rc<Pool>),
}

impl Work {
    pub(super) fn is_serial(&self) -> bool {
        matches!(self, Self::Alone(job) if job.case.serial.is_some())
    }
}

/// The work of a plan: first the cases that share a driver, then the others in their order.
pub(super) fn queue(plan: &Plan) -> io::Result<VecDeque<Work>> {
    let order = in_order(plan.cases.clone(), plan.until_broken.is_some());
    let mut queue = VecDeque::new();
    for repetition in 1..=plan.repeat.max(1) {
        let jobs = order.iter().map(|case| Job { case, repetition });
        let (together, alone): (Vec<Job>, Vec<Job>) = jobs.partition(|job| can_share(job, plan));
        for jobs in together.chunks(pool::LARGEST) {
            match jobs {
                [job] => queue.push_back(Work::Alone(*job)),
                jobs => {
                    let pool = Rc::new(Pool::new(jobs.to_vec())?);
                    let workers = workers(jobs.len(), plan.header.lanes);
                    queue.extend((0..workers).map(|_| Work::Together(Rc::clone(&pool))));
                }
            }
        }
        queue.extend(alone.into_iter().map(Work::Alone));
    }
    Ok(queue)
}

/// The cases that take seconds first, and last those that run while no other case runs, so that no lane is idle before the
/// end. If the first finding ends the run, cases with variants come last, since they take longest.
fn in_order(mut cases: Vec<&'static Case>, is_until_broken: bool) -> Vec<&'static Case> {
    let is_early = |case: &Case| !is_until_broken && case.waits.is_some();
    let is_late = |case: &Case| is_until_broken && case.variant.is_some();
    cases.sort_by_key(|case| (case.serial.is_some(), is_late(case), !is_early(case)));
    cases
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

/// The number of workers for so many cases of a pool: one for every third lane, or more where there are many cases. They
/// wait less than other cases, and each starts a driver.
fn workers(cases: usize, lanes: usize) -> usize {
    lanes.div_ceil(3).max(lanes.min(2)).max(cases.div_ceil(MOST)).min(cases / 2).max(1)
}

/// The cases of one driver, while they run.
#[derive(Debug)]
pub(super) struct Group {
    /// The directory of the driver's logs.
    directory: PathBuf,
    pool: Rc<Pool>,
    /// The cases that have begun, with their orders.
    begun: Vec<(Job, Orders)>,
    /// In the order of these cases.
    verdicts: Vec<Verdict>,
    /// The finding at the driver's end; `None` until it has ended.
    end: Option<Option<Box<Outcome>>>,
}

/// The verdicts of a group that has ended.
#[derive(Debug, Default)]
pub(super) struct Settled {
    pub(super) passed: Vec<(Job, Verdict)>,
    /// Jobs that run again alone.
    pub(super) again: Vec<Job>,
    pub(super) suspicion: Option<Suspicion>,
    pub(super) is_cancelled: bool,
}

impl Group {
    pub(super) fn new(directory: PathBuf, pool: Rc<Pool>) -> Self {
        Self { directory, pool, begun: Vec::new(), verdicts: Vec::new(), end: None }
    }

    /// The case that runs.
    pub(super) fn current(&self) -> Option<Job> {
        self.begun.last().map(|(job, _)| *job)
    }

    pub(super) fn hear(&mut self, said: Said) {
        match said {
            Said::Begun(id) => {
                if let Some((job, orders)) = self.pool.begun(&id) {
                    self.verdicts.push(Verdict::new(&orders, orders.timeout, false));
                    self.begun.push((job, orders));
                }
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

    /// Divides the group into cases that passed and cases that run again, when the worker has ended.
    pub(super) fn ended(self, ended: io::Result<Ended>) -> Settled {
        let Self { directory, begun, mut verdicts, end, .. } = self;
        let jobs: Vec<Job> = begun.iter().map(|(job, _)| *job).collect();
        let (status, end) = match (ended, end) {
            (Ok(Ended::Cancelled), _) => return Settled { is_cancelled: true, ..Settled::default() },
            (Ok(Ended::Exited(status)), Some(end)) => (status, end),
            // The driver did not come up, or the worker did not live to see its end.
            _ => return Settled { again: jobs, ..Settled::default() },
        };
        verdicts.iter_mut().for_each(|verdict| drop(verdict.ended(Ok(Ended::Exited(status)))));
        // Without a case there was no turn left, and no driver was started.
        let has_passed = verdicts.last().is_none_or(Verdict::has_passed);
        let mut ended: Vec<(Job, Verdict)> = jobs.iter().copied().zip(verdicts).collect();
        let (passed, again) = match (&end, has_passed) {
            (None, true) => return Settled { passed: ended, ..Settled::default() },
            (None, false) => (jobs.len() - 1, vec![jobs[jobs.len() - 1]]),
            // Any of the cases may be the cause.
            (Some(_), _) => (0, jobs.clone()),
        };
        let last = ended.pop();
        ended.truncate(passed);
        let suspicion = last.map(|(job, mut verdict)| {
            let own = &begun[begun.len() - 1].1.directory;
            verdict.set_directory(set_aside(own, &directory, job.case.id().as_str()));
            end.filter(|_| has_passed).into_iter().for_each(|found| verdict.hear(Said::Outcome(found)));
            let before = jobs[..jobs.len() - 1].iter().map(|job| job.case.id()).collect();
            Suspicion { job, verdict, before, waiting: again.clone(), is_explained: false, alone: None }
        });
        Settled { passed: ended, again, suspicion, is_cancelled: false }
    }
}

/// A case that did not pass on a shared driver.
#[derive(Debug)]
pub(super) struct Suspicion {
    job: Job,
    verdict: Verdict,
    /// The cases that the driver had before it.
    before: Vec<CaseId>,
    /// Jobs of the group that still have to run alone.
    waiting: Vec<Job>,
    /// Whether a case has failed alone, which explains the failure.
    is_explained: bool,
    /// The report of its run alone.
    alone: Option<Box<CaseReport>>,
}

/// A result that can be reported: of a run alone, or of a shared driver with the cases before it.
#[derive(Debug)]
pub(super) enum Final {
    Alone(Box<CaseReport>),
    AfterOthers(Box<Verdict>, Job, Vec<CaseId>),
}

impl Suspicion {
    fn takes(&self, job: Job) -> bool {
        self.waiting.iter().any(|waiting| waiting.is(job))
    }

    /// Takes the report of a case that ran alone. Returns it, unless it waits for the others.
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

    /// Takes the report of a case that ran alone. Returns the results that can be reported now: none if the case passes alone
    /// and cases that were before it have still to run.
    pub(super) fn weigh(&mut self, job: Job, report: CaseReport) -> Vec<Final> {
        let Some(at) = self.0.iter().position(|suspicion| suspicion.takes(job)) else {
            return vec![Final::Alone(Box::new(report))];
        };
        let mut results: Vec<Final> =
            self.0[at].weigh(job, report).map(|report| Final::Alone(Box::new(report))).into_iter().collect();
        if self.0[at].waiting.is_empty() {
            let Suspicion { job, verdict, before, is_explained, alone, .. } = self.0.remove(at);
            results.extend(alone.map(|alone| match is_explained {
                true => Final::Alone(alone),
                false => Final::AfterOthers(Box::new(verdict), job, before),
            }));
        }
        results
    }
}

/// Moves the logs of a case out of the way of its run alone, and puts its driver's logs beside them. Returns the new
/// directory.
fn set_aside(own: &Path, driver: &Path, name: &str) -> PathBuf {
    let aside = driver.join(name);
    // A missing log does not change the verdict.
    if fs::rename(own, &aside).is_err() {
        return own.to_owned();
    }
    for log in ["driver.log", "manager.log"] {
        let _ = fs::hard_link(driver.join(log), aside.join(log));
    }
    aside
}

/// The directory of the worker whose driver a group shares.
pub(super) fn directory(run: &Path, number: usize) -> PathBuf {
    run.join("cases").join(format!("shared-driver-{number}"))
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::time::Duration;

    use harness::manifest::Manifest;
    use testbed::case::{self, Case};

    use super::*;
    use crate::promises::Judged;
    use crate::select::sample;

    static CASES: [Case; 3] = [sample("a"), sample("b"), sample("c")];

    pub(in crate::dispatch) fn jobs() -> Vec<Job> {
        CASES.iter().map(|case| Job { case, repetition: 1 }).collect()
    }

    pub(in crate::dispatch) fn names(jobs: &[Job]) -> String {
        jobs.iter().map(|job| job.case.name).collect()
    }

    /// The end of a group of three cases with these results, and with this finding at the end of the driver.
    fn settled(statuses: &[Status], end: Option<Option<Status>>) -> Settled {
        let orders =
            || Orders::new(Manifest::fake_csi(&[]), "/nowhere".into(), "/nowhere".into(), Duration::ZERO);
        let pool = Rc::new(Pool::new(jobs()).unwrap());
        pool.orders(|_| Ok(orders())).unwrap();
        let mut group = Group::new("/nowhere".into(), pool);
        for (job, status) in jobs().iter().zip(statuses) {
            group.hear(Said::Begun(job.case.id()));
            group.hear(Said::Outcome(Box::new(outcome(*status))));
        }
        if let Some(end) = end {
            group.hear(Said::DriverEnded(end.map(|status| Box::new(outcome(status)))));
        }
        group.ended(Ok(Ended::Exited(ExitStatus::from_raw(0))))
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
            samples: vec![],
        }
    }

    #[test]
    fn cases_that_take_seconds_begin_first_unless_the_first_finding_ends_the_run() {
        static CASES: [Case; 4] = [
            Case { serial: Some("of the machine's clock"), ..sample("s") },
            sample("a"),
            Case { variant: Some("v"), ..sample("v") },
            Case { waits: Some("for a back-off"), ..sample("w") },
        ];
        let order = |is_until_broken| -> String {
            in_order(CASES.iter().collect(), is_until_broken).iter().map(|case| case.name).collect()
        };
        assert_eq!((order(false).as_str(), order(true).as_str()), ("wavs", "awvs"));
    }

    #[track_caller]
    fn check(settled: &Settled, passed: &str, again: &str, is_suspicious: bool) {
        let those: Vec<Job> = settled.passed.iter().map(|(job, _)| *job).collect();
        let found = (names(&those), names(&settled.again), settled.suspicion.is_some());
        assert_eq!(found, (passed.to_owned(), again.to_owned(), is_suspicious));
    }

    #[test]
    fn passed_cases_are_filed_and_the_others_run_again() {
        use Status::{Failed, Leaked, Passed};
        check(&settled(&[Passed; 3], Some(None)), "abc", "", false);
        // The others were taken by other workers.
        check(&settled(&[Passed; 2], Some(None)), "ab", "", false);
        check(&settled(&[], Some(None)), "", "", false);
        check(&settled(&[Passed, Failed], Some(None)), "a", "b", true);
        // Any of the cases may have caused the finding at the driver's end.
        check(&settled(&[Passed, Passed], Some(Some(Leaked))), "", "ab", true);
        check(&settled(&[Passed, Failed], Some(Some(Leaked))), "", "ab", true);
        // The worker died, or the driver did not come up.
        check(&settled(&[Passed, Passed], None), "", "ab", false);
        check(&settled(&[], None), "", "", false);
    }

    /// Runs the other cases alone, with these results. Returns the reported cases: `A` is a run alone, `C1` a shared driver
    /// with one case before.
    fn reported(settled: Settled, alone: &[Status]) -> String {
        let mut suspicions = Suspicions::default();
        suspicions.add(settled.suspicion.expect("something did not pass"));
        let mut all = String::new();
        for (job, status) in settled.again.iter().zip(alone) {
            for result in suspicions.weigh(*job, CaseReport::sample(job.case.name, *status)) {
                all += &match result {
                    Final::Alone(report) => format!("{}:A ", report.id),
                    Final::AfterOthers(_, job, before) => format!("{}:C{} ", job.case.name, before.len()),
                };
            }
        }
        assert!(suspicions.0.is_empty(), "{suspicions:?}");
        all
    }

    #[test]
    fn failure_that_no_case_shows_alone_is_reported_with_the_cases_before() {
        use Status::{Failed, Leaked, Passed};
        let failed = || settled(&[Passed, Failed], Some(None));
        assert_eq!(reported(failed(), &[Failed]), "b:A ");
        assert_eq!(reported(failed(), &[Passed]), "b:C1 ");
        let leaked = || settled(&[Passed, Passed], Some(Some(Leaked)));
        assert_eq!(reported(leaked(), &[Failed, Passed]), "a:A b:A ");
        assert_eq!(reported(leaked(), &[Passed, Failed]), "a:A b:A ");
        assert_eq!(reported(leaked(), &[Passed, Passed]), "a:A b:C1 ");
    }

    #[test]
    fn every_third_lane_has_a_shared_driver_or_more_have_one_for_at_most_forty_cases() {
        let found = [(1, 2), (3, 2), (10, 2), (10, 5), (100, 2), (200, 12)]
            .map(|(cases, lanes)| workers(cases, lanes));
        assert_eq!(found, [1, 1, 2, 2, 3, 5]);
        assert_eq!(names(&jobs()), "abc");
        assert!(case::all().is_empty(), "the cases of this test are in no list");
    }
}
