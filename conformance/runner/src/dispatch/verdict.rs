//! What is made of how a worker ended, of what was expected, and of a whole run.

use std::path::PathBuf;

use harness::kernel_log::{KernelLog, Splat, splats};
use harness::manifest::Manifest;
use harness::masks::Masks;
use harness::printable::printable;

use super::Plan;
use super::environment::{self, Machine};
use super::kept::Kept;
use super::lane::Ended;
use crate::event::{CaseReport, RunRecord, Status};
use crate::exit_code;
use crate::finding::{Finding, Party};
use crate::judge;
use crate::logs::{self, FILES, last_words};
use crate::message::{Outcome, Said};
use crate::promises::Judged;
use crate::report::line::count;
use testbed::case::Case;
use testbed::failure::{Breakage, Place};
use testbed::message::{Orders, Refusal};

/// What is known of one case while its worker runs, and at its end.
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
    /// Whether its sandbox is still there.
    stays: bool,
    /// Whether it ran in a guest, where nobody can look.
    is_away: bool,
}

impl Verdict {
    pub(super) fn new(orders: &Orders, is_away: bool) -> Self {
        Self {
            directory: orders.directory.clone(),
            run: harness::ledger::run_of(&orders.ledger),
            manifest: orders.manifest.clone(),
            timeout: orders.timeout.as_secs_f64(),
            last_step: String::new(),
            outcome: None,
            refusal: None,
            ended: None,
            stays: false,
            is_away,
        }
    }

    pub(super) fn step(&mut self, step: &str) {
        step.clone_into(&mut self.last_step);
    }

    pub(super) fn hear(&mut self, said: Said) {
        match said {
            Said::Outcome(outcome) => self.outcome = Some(*outcome),
            Said::Refused(refusal) => self.refusal = Some(refusal),
            Said::Progress(_)
            | Said::Abilities(_)
            | Said::Told(_)
            | Said::Ready
            | Said::Played(_)
            | Said::Kept => {}
        }
    }

    /// Takes note of the end; answers with the sandbox, if that stays.
    pub(super) fn ended(&mut self, ended: std::io::Result<Ended>) -> Option<Kept> {
        match ended {
            Ok(Ended::Kept(kept)) => {
                self.stays = true;
                Some(kept)
            }
            ended => {
                if self.outcome.is_none() {
                    // A worker that says how a case went has cleaned up before.
                    logs::hide_secrets(&self.directory, &Masks::of(&self.manifest));
                }
                self.ended = Some(ended);
                None
            }
        }
    }

    /// What the case has waited for in vain.
    pub(super) fn dead_ends(&self) -> impl Iterator<Item = &String> {
        self.outcome.iter().flat_map(|outcome| &outcome.dead_ends)
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
        let (ended, is_away) = (self.ended.take(), self.is_away);
        let mut report = self.raw(blank, ended.as_ref());
        if report.status.is_bad() {
            let stalled = || environment::stalled(&report.kernel).filter(|_| is_away);
            if let Some(said) = machine.lacked(&report, ended.as_ref()).or_else(stalled) {
                blame_the_machine(&mut report, &said);
            }
        }
        let expected =
            plan.manifest.expected_failures.get(report.id.as_str()).map(String::as_str).or(case.xfail);
        if let Some(reason) = expected {
            report.status = match report.status {
                Status::Passed => Status::Xpass,
                // Where nothing could begin, or the fault is ours, nothing was learned about the driver.
                Status::Error => Status::Error,
                _ => Status::Xfail,
            };
            report.reasons = vec![printable(reason).into_owned()];
        }
        report
    }

    fn raw(self, blank: CaseReport, ended: Option<&std::io::Result<Ended>>) -> CaseReport {
        let logs = Some(self.directory.clone());
        let log_files = log_files(&self.directory);
        let said_all = self.stays || matches!(ended, Some(Ok(Ended::Exited(_))));
        if let Some(outcome) = self.outcome.clone().filter(|_| said_all) {
            let Outcome {
                status, seconds, breakage, findings, judged, left_behind, kernel, unchecked, ..
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
                logs,
                log_files,
                look,
                ..blank
            };
        }
        let seconds = if matches!(ended, Some(Ok(Ended::Hung(_)))) { self.timeout } else { 0.0 };
        let status = match &self.refusal {
            Some(refusal) if refusal.driver => Status::DriverExited,
            _ => Status::Error,
        };
        let breakage = Some(self.no_outcome(&blank.at, ended));
        CaseReport { status, seconds, breakage, logs, log_files, ..blank }
    }

    /// How somebody gets to see for himself what the case left.
    fn look(&self, status: Status, of: &CaseReport) -> Option<String> {
        let enter = format!("volproof enter {}", of.id);
        match self.stays {
            true => Some(format!("{enter} --run {}", self.run)),
            false if self.is_away || !status.is_bad() => None,
            false => Some(format!("the same with --keep, then: {enter}")),
        }
    }

    /// The breakage of a case whose worker never said how it went.
    fn no_outcome(self, at: &Place, ended: Option<&std::io::Result<Ended>>) -> Breakage {
        let mut cause = match (self.refusal, ended) {
            (Some(refusal), _) => refusal.chain.into_iter().chain(refusal.log).collect(),
            (None, Some(Ok(Ended::Hung(stuck)))) => {
                let late = format!("the worker did not end within {} s and was killed", self.timeout);
                std::iter::once(late).chain(stuck.iter().map(|stuck| format!("still {stuck}"))).collect()
            }
            (None, Some(Ok(Ended::Exited(status)))) => {
                vec![format!("the worker ended without an outcome: {status}")]
            }
            (None, Some(Ok(Ended::Lost(why)))) => vec![why.clone()],
            (None, Some(Err(error))) => vec!["the worker could not be run".to_owned(), error.to_string()],
            (None, _) => vec!["the worker ended without an outcome".to_owned()],
        };
        cause.extend(last_words(&self.directory));
        Breakage { after: self.last_step, at: at.clone(), expected: None, actual: None, cause, event: None }
    }
}

/// Makes of a case that broke for want of something one that says nothing of the driver.
fn blame_the_machine(report: &mut CaseReport, said: &str) {
    report.status = Status::Error;
    // What it says it saw may have been the machine's doing.
    report.judged = Judged::default();
    judge::excuse(&mut report.findings);
    report.findings.insert(0, judge::environment(said));
    if let Some(breakage) = &mut report.breakage {
        breakage.cause.insert(0, format!("{said}."));
    }
}

/// The names of the logs that hold something, in the order they are worth reading.
fn log_files(directory: &std::path::Path) -> Vec<String> {
    let holds = |name: &&str| std::fs::metadata(directory.join(name)).is_ok_and(|file| file.len() > 0);
    FILES.iter().filter(|name| holds(name)).map(|name| (*name).to_owned()).collect()
}

/// The defects of the kernel that name no device. One that names a device is for the case whose device it is,
/// or for somebody else on this machine.
pub(super) fn unattributed(mut log: KernelLog) -> Vec<String> {
    let messages = log.read().unwrap_or_default();
    let nobodys = |splat: &Splat| splat.devices.is_empty();
    splats(&messages).into_iter().filter(nobodys).map(|splat| splat.to_string()).collect()
}

/// What the run exits with.
pub(super) fn exit_code(run: &RunRecord) -> u8 {
    let ran = run.cases.iter().any(|case| !case.status.is_skip());
    if run.interrupted {
        exit_code::INTERRUPTED
    } else if ran && run.kernel.is_empty() && !run.cases.iter().any(got_a_verdict) {
        exit_code::ENVIRONMENT
    } else if !run.kernel.is_empty() || run.cases.iter().any(|case| case.status.is_bad()) {
        exit_code::CASES_FAILED
    } else if !ran {
        exit_code::NOTHING_RAN
    } else {
        exit_code::OK
    }
}

/// Whether anything was learned from a case: not from one that could not be carried out.
fn got_a_verdict(case: &CaseReport) -> bool {
    let learned = |finding: &Finding| {
        finding.party != Party::Environment && finding.consequence_of != judge::ENVIRONMENT
    };
    !case.status.is_skip() && (case.status != Status::Error || case.findings.iter().any(learned))
}

/// What a reader may want to do next.
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
        hints
            .push("no case could be carried out here, so nothing is known of the driver (exit 4)".to_owned());
    }
    if run.exit_code == exit_code::NOTHING_RAN {
        hints.push("nothing ran, so nothing is proven (exit 3)".to_owned());
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
        }
    }

    #[test]
    fn a_defect_of_the_kernel_fails_a_run_in_which_all_cases_passed() {
        let kernel = vec!["kernel bug: BUG: kernel NULL pointer dereference".to_owned()];
        let run = RunRecord { kernel, ..run(&[Status::Passed], false) };
        assert_eq!(super::exit_code(&run), exit_code::CASES_FAILED);
    }

    #[test]
    fn nothing_that_ran_is_no_success() {
        check(&[], false, exit_code::NOTHING_RAN);
        check(&[Status::SkippedDriver, Status::SkippedHost], false, exit_code::NOTHING_RAN);
        check(&[Status::SkippedDriver, Status::Passed], false, exit_code::OK);
        check(&[Status::Xfail], false, exit_code::OK);
    }

    #[test]
    fn each_bad_status_fails_the_run() {
        for status in Status::ALL.into_iter().filter(|status| status.is_bad()) {
            check(&[Status::Passed, status], false, exit_code::CASES_FAILED);
        }
        check(&[Status::Failed], true, exit_code::INTERRUPTED);
    }

    #[test]
    fn case_that_the_machine_had_no_room_for_accuses_nobody() {
        let mut lacking = run(&[Status::Failed], false);
        lacking.cases[0].findings.push(crate::judge::promise_broken("DRV-055", "NodePublishVolume", "x"));
        assert_eq!(super::exit_code(&lacking), exit_code::CASES_FAILED);
        blame_the_machine(&mut lacking.cases[0], "the disk is full: make room");
        assert_eq!(lacking.cases[0].status, Status::Error);
        let faults = lacking.cases[0].findings.iter().filter(|finding| finding.is_fault());
        assert!(faults.eq([&crate::judge::environment("the disk is full: make room")]));
        assert_eq!(super::exit_code(&lacking), exit_code::ENVIRONMENT);
    }

    #[test]
    fn run_without_a_verdict_is_the_environments() {
        check(&[Status::Error, Status::Error], false, exit_code::ENVIRONMENT);
        check(&[Status::Error, Status::SkippedDriver], false, exit_code::ENVIRONMENT);
        check(&[Status::Error, Status::Passed], false, exit_code::CASES_FAILED);
        // A rule of the volume manager that was broken is a verdict.
        let mut found = run(&[Status::Error], false);
        found.cases[0].findings.push(crate::judge::promise_broken("INV-001", "", "x"));
        assert_eq!(super::exit_code(&found), exit_code::CASES_FAILED);
    }
}
