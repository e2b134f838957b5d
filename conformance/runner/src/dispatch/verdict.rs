//! The verdict on a case, from its worker's outcome and its expected failures; exit code and hints of the whole run.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use harness::kernel_log::{KernelLog, Splat, splats};
use harness::manifest::{Day, Manifest};
use harness::masks::Masks;

use super::environment::{self, Machine};
use super::kept::Kept;
use super::lane::Ended;
use super::{Plan, death, known_failure};
use crate::event::{CaseReport, RunRecord, Status};
use crate::exit_code;
use crate::finding::{Finding, Party};
use crate::judge;
use crate::logs::{self, FILES, last_words};
use crate::message::{Outcome, Said};
use crate::program;
use crate::promises::Judged;
use crate::report::line::count;
use testbed::case::Case;
use testbed::failure::{Breakage, Place};
use testbed::message::{Orders, Refusal};

/// The state of one case, from the start of its worker to its report.
#[derive(Debug)]
pub(super) struct Verdict {
    directory: PathBuf,
    /// The id of the run.
    run: String,
    manifest: Manifest,
    timeout: f64,
    last_step: String,
    outcome: Option<Outcome>,
    refusal: Option<Refusal>,
    ended: Option<std::io::Result<Ended>>,
    /// Whether the sandbox is kept (`--keep`).
    is_kept: bool,
    /// Whether the case runs in a guest, whose sandbox nothing on this machine can enter.
    in_guest: bool,
}

impl Verdict {
    /// The verdict of a case that may take so long, which in a guest is longer than its orders say.
    pub(super) fn new(orders: &Orders, timeout: Duration, in_guest: bool) -> Self {
        Self {
            directory: orders.directory.clone(),
            run: harness::ledger::run_of(&orders.ledger),
            manifest: orders.manifest.clone(),
            timeout: timeout.as_secs_f64(),
            last_step: String::new(),
            outcome: None,
            refusal: None,
            ended: None,
            is_kept: false,
            in_guest,
        }
    }

    /// Its logs are elsewhere now.
    pub(super) fn set_directory(&mut self, directory: PathBuf) {
        self.directory = directory;
    }

    pub(super) fn step(&mut self, step: &str) {
        step.clone_into(&mut self.last_step);
    }

    pub(super) fn hear(&mut self, message: Said) {
        match message {
            Said::Outcome(outcome) => self.outcome = Some(*outcome),
            Said::Refused(refusal) => self.refusal = Some(refusal),
            Said::Progress(_)
            | Said::Abilities(_)
            | Said::Told(_)
            | Said::Ready
            | Said::Played(_)
            | Said::Found(_)
            | Said::Exited(_)
            | Said::Begun(_)
            | Said::DriverEnded(_)
            | Said::Kept => {}
        }
    }

    /// Records how the worker ended. Returns the worker if its sandbox is kept.
    pub(super) fn ended(&mut self, ended: std::io::Result<Ended>) -> Option<Kept> {
        match ended {
            Ok(Ended::Kept(kept)) => {
                self.is_kept = true;
                Some(kept)
            }
            ended => {
                if self.outcome.is_none() {
                    // A worker that reports an outcome has masked the secrets in its logs before.
                    logs::hide_secrets(&self.directory, &Masks::of(&self.manifest));
                }
                self.ended = Some(ended);
                None
            }
        }
    }

    /// The waits of the case that ran into their limit; later cases need not repeat them.
    pub(super) fn dead_ends(&self) -> impl Iterator<Item = &String> {
        self.outcome.iter().flat_map(|outcome| &outcome.dead_ends)
    }

    /// Whether its outcome is that it passed.
    pub(super) fn has_passed(&self) -> bool {
        self.outcome.as_ref().is_some_and(|outcome| outcome.status == Status::Passed)
    }

    pub(super) fn was_cancelled(&self) -> bool {
        matches!(self.ended, Some(Ok(Ended::Cancelled)))
    }

    /// The report, with expectations applied.
    pub(super) fn report(
        mut self,
        case: &Case,
        blank: CaseReport,
        plan: &Plan,
        machine: &Machine,
    ) -> CaseReport {
        let (ended, in_guest) = (self.ended.take(), self.in_guest);
        let has_no_outcome = self.outcome.is_none() && self.refusal.is_none();
        let mut report = self.raw(blank, ended.as_ref());
        report.not_tried = not_tried(case, &report);
        if report.status.is_bad() {
            let stalled = || environment::stalled(&report.kernel).filter(|_| in_guest);
            if let Some(shortage) = machine.lacked(&report, ended.as_ref()).or_else(stalled) {
                report_machine_shortage(&mut report, &shortage);
            } else if let (Some(Ok(Ended::Exited(status))), Some(breakage), true) =
                (&ended, &mut report.breakage, has_no_outcome)
            {
                let suspects = death::suspects(*status).map(str::to_owned);
                suspects.into_iter().for_each(|who| breakage.cause.insert(1, who));
            }
        }
        match plan.manifest.expected_failures.get(report.id.as_str()) {
            Some(known) => known_failure::apply(&mut report, known, &Day::of(SystemTime::now())),
            None => case.xfail.iter().for_each(|reason| known_failure::expect(&mut report, reason)),
        }
        report
    }

    fn raw(self, blank: CaseReport, ended: Option<&std::io::Result<Ended>>) -> CaseReport {
        let logs = Some(self.directory.clone());
        let log_files = log_files(&self.directory);
        let is_complete = self.is_kept || matches!(ended, Some(Ok(Ended::Exited(_))));
        if let Some(outcome) = self.outcome.clone().filter(|_| is_complete) {
            let Outcome {
                status,
                seconds,
                breakage,
                findings,
                judged,
                left_behind,
                kernel,
                unchecked,
                samples,
                dead_ends: _,
            } = outcome;
            let look = self.look(status, &blank);
            return CaseReport {
                status,
                seconds,
                breakage,
                findings,
                judged,
                left_behind,
                kernel,
                unchecked,
                samples,
                logs,
                log_files,
                look,
                ..blank
            };
        }
        let seconds = if matches!(ended, Some(Ok(Ended::Hung(_)))) { self.timeout } else { 0.0 };
        let status = match &self.refusal {
            Some(refusal) if refusal.driver_has_ended => Status::DriverExited,
            _ => Status::Error,
        };
        let breakage = Some(self.no_outcome(&blank.at, ended));
        CaseReport { status, seconds, breakage, logs, log_files, ..blank }
    }

    /// The command that enters the sandbox of the case.
    fn look(&self, status: Status, case: &CaseReport) -> Option<String> {
        let enter = format!("{} enter {}", program::name(), case.id);
        match self.is_kept {
            true => Some(format!("{enter} --run {}", self.run)),
            false if self.in_guest || !status.is_bad() => None,
            false => Some(format!("the same with --keep, then: {enter}")),
        }
    }

    /// The breakage of a case whose worker reported no outcome.
    fn no_outcome(self, at: &Place, ended: Option<&std::io::Result<Ended>>) -> Breakage {
        let mut cause = match (self.refusal, ended) {
            (Some(refusal), _) => refusal.chain.into_iter().chain(refusal.log).collect(),
            (None, Some(Ok(Ended::Hung(stuck)))) => {
                let late = format!("the worker did not end within {} s and was killed", self.timeout);
                let slow = self
                    .in_guest
                    .then(|| "a guest may be slow: --timeout gives each case more time".to_owned());
                let stopped = death::stoppers(stuck).map(str::to_owned);
                let stuck = stuck.iter().map(|stuck| format!("still {stuck}"));
                std::iter::once(late).chain(slow).chain(stuck).chain(stopped).collect()
            }
            (None, Some(Ok(Ended::Exited(status)))) => {
                vec![death::describe(*status)]
            }
            (None, Some(Ok(Ended::Lost(why) | Ended::Late(why)))) => vec![why.clone()],
            (None, Some(Err(error))) => vec!["the worker could not be run".to_owned(), error.to_string()],
            (None, _) => vec!["the worker ended without an outcome".to_owned()],
        };
        cause.extend(last_words(&self.directory));
        Breakage { after: self.last_step, at: at.clone(), expected: None, actual: None, cause, event: None }
    }
}

/// The promises that a case judges and that it neither saw kept nor broken. One that did not come to its end has tried
/// what it has tried.
fn not_tried(case: &Case, report: &CaseReport) -> Vec<String> {
    let is_tried = |id: &str| {
        report.judged.kept.contains(id) || report.findings.iter().any(|finding| finding.contract == id)
    };
    let untried = case.judges.iter().filter(|id| report.status == Status::Passed && !is_tried(id));
    untried.map(|id| (*id).to_owned()).collect()
}

/// Turns a failure into an error of the machine: a case that lacked disk space, memory or processes accuses no driver.
fn report_machine_shortage(report: &mut CaseReport, shortage: &str) {
    report.status = Status::Error;
    // The shortage may have caused what the rules saw.
    report.judged = Judged::default();
    let shortage_found = judge::environment(shortage, &report.findings);
    judge::excuse(&mut report.findings);
    report.findings.insert(0, shortage_found);
    if let Some(breakage) = &mut report.breakage {
        breakage.cause.insert(0, format!("{shortage}."));
    }
}

/// The names of the logs that are not empty, most useful first.
fn log_files(directory: &std::path::Path) -> Vec<String> {
    let holds = |name: &&str| std::fs::metadata(directory.join(name)).is_ok_and(|file| file.len() > 0);
    FILES.iter().filter(|name| holds(name)).map(|name| (*name).to_owned()).collect()
}

/// The kernel's defects that name no device. A defect with a device belongs to the case of that device, or to another
/// program on this machine.
pub(super) fn unattributed(mut log: KernelLog) -> Vec<String> {
    let messages = log.read().unwrap_or_default();
    let names_no_device = |splat: &Splat| splat.devices.is_empty();
    splats(&messages).into_iter().filter(names_no_device).map(|splat| splat.to_string()).collect()
}

/// The exit code of the whole run.
pub(super) fn exit_code(run: &RunRecord) -> u8 {
    let ran = run.cases.iter().any(|case| !case.status.is_skip());
    if run.interrupted {
        exit_code::INTERRUPTED
    } else if ran && run.kernel.is_empty() && !run.cases.iter().any(has_verdict) {
        exit_code::ENVIRONMENT
    } else if !run.kernel.is_empty() || run.cases.iter().any(|case| case.status.is_bad()) {
        exit_code::CASES_FAILED
    } else if !ran {
        exit_code::NOTHING_RAN
    } else {
        exit_code::OK
    }
}

/// Whether a case says something about the driver or the manager. A case that could not be carried out says nothing.
fn has_verdict(case: &CaseReport) -> bool {
    let is_verdict = |finding: &Finding| {
        finding.party != Party::Environment && finding.consequence_of != judge::ENVIRONMENT
    };
    !case.status.is_skip() && (case.status != Status::Error || case.findings.iter().any(is_verdict))
}

/// Advice for the user's next run.
pub(super) fn hints(run: &RunRecord) -> Vec<String> {
    let mut hints = Vec::new();
    let host = run.count(Status::SkippedHost);
    if host > 0 {
        hints.push(format!(
            "{} could not run on this machine; with --require host such a run does not start (exit 4)",
            count(host, "case")
        ));
    }
    if run.exit_code == exit_code::ENVIRONMENT {
        hints.push(
            "no case could be carried out on this machine, so the run says nothing about the driver (exit 4)"
                .to_owned(),
        );
    }
    if run.exit_code == exit_code::NOTHING_RAN {
        let proof = match run.promises.iter().any(|promise| promise.judged_in > 0) {
            true => "the promises above are judged by the driver's first answers alone",
            false => "the run proves nothing",
        };
        hints.push(format!("no case ran, so {proof} (exit 3)"));
    }
    hints
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Header;

    #[track_caller]
    fn check(statuses: &[Status], interrupted: bool, expected: u8) {
        assert_eq!(super::exit_code(&run(statuses, interrupted)), expected, "{statuses:?}");
    }

    fn run(statuses: &[Status], interrupted: bool) -> RunRecord {
        RunRecord {
            version: RunRecord::VERSION,
            header: Header::default(),
            cases: statuses.iter().map(|status| CaseReport::sample("a", *status)).collect(),
            findings: vec![],
            promises: vec![],
            kernel: vec![],
            seconds: 0.0,
            interrupted,
            exit_code: 0,
            hints: vec![],
            since: None,
        }
    }

    #[test]
    fn a_defect_of_the_kernel_fails_a_run_in_which_all_cases_passed() {
        let kernel = vec!["kernel bug: BUG: kernel NULL pointer dereference".to_owned()];
        let run = RunRecord { kernel, ..run(&[Status::Passed], false) };
        assert_eq!(super::exit_code(&run), exit_code::CASES_FAILED);
    }

    #[test]
    fn run_of_skipped_cases_is_no_success() {
        check(&[], false, exit_code::NOTHING_RAN);
        check(&[Status::SkippedDriver, Status::SkippedHost], false, exit_code::NOTHING_RAN);
        check(&[Status::SkippedDriver, Status::Passed], false, exit_code::OK);
        check(&[Status::Xfail], false, exit_code::OK);
    }

    #[test]
    fn cases_skipped_for_the_machine_come_with_the_option_that_forbids_it() {
        let hint = |statuses: &[Status]| {
            hints(&run(statuses, false)).into_iter().find(|hint| hint.contains("--require"))
        };
        assert_eq!(hint(&[Status::Passed, Status::SkippedDriver]), None);
        let text = hint(&[Status::Passed, Status::SkippedHost, Status::SkippedHost]).expect("a hint");
        assert!(text.starts_with("2 cases could not run on this machine; with --require host"), "{text}");
    }

    #[test]
    fn each_bad_status_fails_the_run() {
        for status in Status::ALL.into_iter().filter(|status| status.is_bad()) {
            check(&[Status::Passed, status], false, exit_code::CASES_FAILED);
        }
        check(&[Status::Failed], true, exit_code::INTERRUPTED);
    }

    #[test]
    fn case_on_a_full_disk_accuses_no_driver() {
        let mut full = run(&[Status::Failed], false);
        full.cases[0].findings.push(crate::judge::promise_broken("DRV-055", "NodePublishVolume", "x"));
        assert_eq!(super::exit_code(&full), exit_code::CASES_FAILED);
        report_machine_shortage(&mut full.cases[0], "the disk is full: make room");
        assert_eq!(full.cases[0].status, Status::Error);
        let faults: Vec<_> = full.cases[0].findings.iter().filter(|finding| finding.is_fault()).collect();
        let [fault] = faults[..] else { panic!("{faults:?}") };
        assert_eq!(fault.party, Party::Environment);
        assert!(fault.sentence.starts_with("Who is at fault is not known: the disk is full"), "{fault:?}");
        assert_eq!(super::exit_code(&full), exit_code::ENVIRONMENT);
    }

    #[test]
    fn run_without_a_verdict_exits_with_environment() {
        check(&[Status::Error, Status::Error], false, exit_code::ENVIRONMENT);
        check(&[Status::Error, Status::SkippedDriver], false, exit_code::ENVIRONMENT);
        check(&[Status::Error, Status::Passed], false, exit_code::CASES_FAILED);
        // A broken invariant is a verdict on the volume manager.
        let mut found = run(&[Status::Error], false);
        found.cases[0].findings.push(crate::judge::promise_broken("INV-001", "", "x"));
        assert_eq!(super::exit_code(&found), exit_code::CASES_FAILED);
    }
}
