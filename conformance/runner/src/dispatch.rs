//! The dispatcher: starts cases as lanes become free, and reports how each ended.
//!
//! It runs on one thread and knows cases, lanes and reporters; each case runs in a worker process of its
//! own ([`lane`]). All that can happen to a run arrives here as one message, in one order, and everything
//! the user sees is emitted from here.

mod dead_ends;
mod death;
mod environment;
mod expectation;
pub mod guest;
mod interrupts;
mod kept;
mod known_failure;
pub mod lane;
mod ledger;
mod plan;
mod pool;
mod reporters;
mod shared;
mod verdict;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Instant;

use anyhow::Context;
use futures::future::join_all;
use harness::cgroup;
use harness::kernel_log::KernelLog;
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;

use crate::difference;
use crate::event::{CaseReport, Event, RunRecord, Status};
use crate::exit_code;
use crate::first_questions;
use crate::gather::{self, gather};
use crate::kept_logs;
use crate::message::{Assignment, Said, Task};
use crate::program;
use crate::promises::Judged;
use crate::report::Reporter;
use testbed::case::{self, Case, CaseId};
use testbed::message::{Abilities, Expectation, Orders, Progress};

use dead_ends::DeadEnds;
use environment::Machine;
pub use guest::Guests;
use interrupts::Interrupts;
use kept::Kept;
pub use ledger::Ledger;
pub use plan::{Away, Plan};
use plan::{Job, make_directory};
use pool::Pool;
use reporters::Reporters;
use shared::{Final, Group, SETBACKS, Settled, Suspicions, Work};
use verdict::Verdict;

/// Runs the plan to its end, or to the user's.
pub async fn run(plan: Plan, ledger: Ledger, reporters: Vec<Box<dyn Reporter>>) -> anyhow::Result<RunRecord> {
    // The drivers of all lanes are about to enter their groups.
    cgroup::warm_up();
    let interrupts = Interrupts::new()?;
    let dispatcher = Dispatcher::new(plan, ledger, reporters)?;
    LocalSet::new().run_until(dispatcher.run(interrupts)).await
}

/// A message of a lane to the dispatcher.
enum Message {
    Step(CaseId, String),
    Expectation(Expectation),
    /// A case has ended, with its verdict, and with its sandbox if that stays.
    Ended(u64, Job, Box<Verdict>, Option<Kept>),
    /// The next of the cases that share a driver begins in this lane.
    Begun(u64, Job),
    /// The cases in this lane that share a driver have ended. Their pool may have others.
    Settled(u64, Rc<Pool>, Box<Settled>),
}

/// A busy lane.
struct Running {
    /// `None` until the first of several cases begins.
    case: Option<CaseId>,
    /// The pool of several cases.
    pool: Option<Rc<Pool>>,
    /// Dropping it ends the worker.
    cancel: oneshot::Sender<()>,
}

struct Dispatcher {
    plan: Plan,
    /// `None` when the run has ended and its janitor undoes the entries.
    ledger: Option<Ledger>,
    reporters: Reporters,
    queue: VecDeque<Work>,
    /// Busy lanes, each with the number of its work.
    running: BTreeMap<u64, Running>,
    /// The number of the latest work.
    latest: u64,
    /// The cases whose start was reported.
    begun: BTreeSet<(CaseId, u32)>,
    suspicions: Suspicions,
    /// The number of shared drivers so far.
    shared_drivers: usize,
    /// The number of shared drivers after which cases had to run again alone.
    setbacks: usize,
    /// Whether the running case excludes all others.
    alone: bool,
    done: Vec<CaseReport>,
    /// The sandboxes that stay, each with its case.
    kept: Vec<(CaseId, Kept)>,
    messages: mpsc::UnboundedSender<Message>,
    inbox: mpsc::UnboundedReceiver<Message>,
    expectations: Vec<Expectation>,
    started: Instant,
    /// Whether no further case is to start.
    has_stopped: bool,
    interrupted: bool,
    /// The kernel's messages since the start of the run; `None` if they cannot be read.
    kernel_log: Option<KernelLog>,
    dead_ends: DeadEnds,
    machine: Machine,
}

impl Dispatcher {
    fn new(plan: Plan, ledger: Ledger, reporters: Vec<Box<dyn Reporter>>) -> anyhow::Result<Self> {
        let (messages, inbox) = mpsc::unbounded_channel();
        let queue = shared::queue(&plan).context("cannot make a pipe")?;
        let machine = Machine::look(&plan.directory, ledger.path().parent().unwrap_or(&plan.directory));
        Ok(Self {
            machine,
            plan,
            ledger: Some(ledger),
            reporters: Reporters::new(reporters),
            queue,
            running: BTreeMap::new(),
            latest: 0,
            begun: BTreeSet::new(),
            suspicions: Suspicions::default(),
            shared_drivers: 0,
            setbacks: 0,
            alone: false,
            done: Vec::new(),
            kept: Vec::new(),
            messages,
            inbox,
            expectations: Vec::new(),
            started: Instant::now(),
            has_stopped: false,
            interrupted: false,
            kernel_log: KernelLog::start().ok(),
            dead_ends: DeadEnds::default(),
        })
    }

    async fn run(mut self, mut interrupts: Interrupts) -> anyhow::Result<RunRecord> {
        let header = self.plan.header.clone();
        self.reporters.emit(&Event::RunStarted(Box::new(header)))?;
        self.report_first_questions()?;
        self.report_skipped()?;
        loop {
            self.fill_lanes()?;
            if self.running.is_empty() {
                break;
            }
            tokio::select! {
                biased;
                () = interrupts.next() => self.interrupt()?,
                message = self.inbox.recv() => self.take(message.expect("this struct holds a sender"))?,
            }
        }
        self.write_expectations()?;
        let seconds = self.started.elapsed().as_secs_f64();
        self.let_go(&mut interrupts).await?;
        self.finish(seconds).await
    }

    /// Starts cases until no lane is free.
    fn fill_lanes(&mut self) -> anyhow::Result<()> {
        while let Some(work) = self.queue.front() {
            let alone = work.is_serial();
            let room =
                if alone { self.running.is_empty() } else { self.running.len() < self.plan.header.lanes };
            if !room || self.alone {
                break;
            }
            self.alone = alone;
            match self.queue.pop_front().expect("it was looked at above") {
                Work::Alone(job) => self.start(job)?,
                Work::Together(pool) if pool.is_empty() => {}
                Work::Together(pool) => self.start_together(pool)?,
            }
        }
        Ok(())
    }

    /// Takes a lane for a case, or for those of a pool. Returns its number.
    fn occupy(&mut self, case: Option<CaseId>, pool: Option<Rc<Pool>>) -> (u64, oneshot::Receiver<()>) {
        let (cancel, cancelled) = oneshot::channel();
        self.latest += 1;
        self.running.insert(self.latest, Running { case, pool, cancel });
        (self.latest, cancelled)
    }

    /// Reports the start of a case, once even if the case runs again.
    fn report_begun(&mut self, job: Job) -> anyhow::Result<()> {
        if self.begun.insert(job.key()) {
            self.reporters.emit(&Event::CaseStarted { id: job.case.id() })?;
        }
        Ok(())
    }

    fn start_together(&mut self, pool: Rc<Pool>) -> anyhow::Result<()> {
        self.shared_drivers += 1;
        let directory = shared::directory(&self.plan.directory, self.shared_drivers);
        make_directory(&directory)?;
        let orders = pool.orders(|job| self.orders(job))?[0].clone();
        let orders = Orders { directory: directory.clone(), dead_ends: self.dead_ends.shown(), ..orders };
        let task = Task::Cases(pool.cases(), Box::new(self.plan.abilities.clone()));
        let assignment = Assignment { task, orders };
        pool.workers.set(pool.workers.get() + 1);
        let mut group = Group::new(directory, Rc::clone(&pool));
        let (lane, cancelled) = self.occupy(None, Some(Rc::clone(&pool)));
        let messages = self.messages.clone();
        tokio::task::spawn_local(async move {
            let hear = |said| {
                let step = match &said {
                    Said::Progress(Progress::Step(step)) => Some(step.clone()),
                    _ => None,
                };
                let begins = matches!(said, Said::Begun(_));
                group.hear(said);
                let Some(job) = group.current() else { return };
                if begins {
                    drop(messages.send(Message::Begun(lane, job)));
                }
                step.into_iter().for_each(|step| drop(messages.send(Message::Step(job.case.id(), step))));
            };
            let ended = lane::run_in_turn(&assignment, Some(pool.turns()), hear, cancelled).await;
            drop(messages.send(Message::Settled(lane, pool, Box::new(group.ended(ended)))));
        });
        Ok(())
    }

    fn start(&mut self, job: Job) -> anyhow::Result<()> {
        let id = job.case.id();
        let assignment = self.plan.assignment(self.orders(job)?, id.clone());
        let (lane, cancelled) = self.occupy(Some(id.clone()), None);
        self.report_begun(job)?;
        let messages = self.messages.clone();
        let guests = self.plan.away(&id).map(|away| Rc::clone(&away.guests));
        tokio::task::spawn_local(async move {
            let timeout = assignment.orders.timeout;
            let timeout = guests.as_ref().map_or(timeout, |guests| guests.patience(timeout));
            let mut verdict = Verdict::new(&assignment.orders, timeout, guests.is_some());
            let hear = |said| match said {
                Said::Progress(Progress::Step(step)) => {
                    verdict.step(&step);
                    drop(messages.send(Message::Step(id.clone(), step)));
                }
                Said::Progress(Progress::Expectation(expectation)) => {
                    drop(messages.send(Message::Expectation(expectation)))
                }
                said => verdict.hear(said),
            };
            let ended = match guests {
                Some(guests) => guests.run(&assignment, hear, cancelled).await,
                None => lane::run(&assignment, hear, cancelled).await,
            };
            let kept = verdict.ended(ended);
            drop(messages.send(Message::Ended(lane, job, Box::new(verdict), kept)));
        });
        Ok(())
    }

    fn orders(&self, job: Job) -> anyhow::Result<Orders> {
        let ledger = self.ledger.as_ref().expect("it is open while cases run").path();
        self.plan.orders(job, ledger, self.dead_ends.shown())
    }

    fn take(&mut self, message: Message) -> anyhow::Result<()> {
        match message {
            Message::Step(id, step) => self.reporters.emit(&Event::CaseStep { id, step }),
            Message::Expectation(expectation) => {
                // With --repeat the same snapshot may differ in each repetition, and can be rewritten only once.
                let place = |of: &Expectation| (of.file.clone(), of.line, of.column);
                if !self.expectations.iter().any(|earlier| place(earlier) == place(&expectation)) {
                    self.expectations.push(expectation);
                }
                Ok(())
            }
            Message::Ended(lane, job, verdict, kept) => {
                self.running.remove(&lane);
                self.alone = false;
                // A case that the user interrupted has no verdict.
                if verdict.was_cancelled() {
                    return Ok(());
                }
                self.dead_ends.note(verdict.dead_ends());
                let report = self.report(job, *verdict);
                if self.plan.fail_fast && report.status.is_bad() {
                    self.stop();
                }
                match kept {
                    Some(kept) if report.status.is_bad() => self.kept.push((report.id.clone(), kept)),
                    // It failed as was expected: there is nothing to look at.
                    Some(kept) => drop(tokio::task::spawn_local(kept.let_go())),
                    None => {}
                }
                for result in self.suspicions.weigh(job, report) {
                    self.report_final(result)?;
                }
                Ok(())
            }
            Message::Begun(lane, job) => {
                if let Some(running) = self.running.get_mut(&lane) {
                    running.case = Some(job.case.id());
                }
                self.report_begun(job)
            }
            Message::Settled(lane, pool, settled) => {
                self.running.remove(&lane);
                pool.workers.set(pool.workers.get() - 1);
                self.settle(pool, *settled)
            }
        }
    }

    /// Files the cases that passed on a shared driver, and queues the others again.
    fn settle(&mut self, pool: Rc<Pool>, settled: Settled) -> anyhow::Result<()> {
        let Settled { passed, mut again, suspicion, is_cancelled } = settled;
        if is_cancelled {
            return Ok(());
        }
        self.setbacks += usize::from(!again.is_empty());
        for (job, verdict) in passed {
            self.dead_ends.note(verdict.dead_ends());
            let report = self.report(job, verdict);
            self.file(report)?;
        }
        if self.has_stopped {
            return Ok(());
        }
        if self.setbacks >= SETBACKS {
            again.extend(pool.drain());
        }
        again.extend(pool.lost());
        let others = (!pool.is_empty()).then_some(Work::Together(pool));
        let soon: Vec<Work> = again.into_iter().map(Work::Alone).chain(others).collect();
        soon.into_iter().rev().for_each(|work| self.queue.push_front(work));
        suspicion.into_iter().for_each(|suspicion| self.suspicions.add(suspicion));
        Ok(())
    }

    /// The report of a case that has run.
    fn report(&self, job: Job, verdict: Verdict) -> CaseReport {
        verdict.report(job.case, self.blank(job.case), &self.plan, &self.machine)
    }

    /// Empties the queue, so that no further case starts.
    fn stop(&mut self) {
        self.has_stopped = true;
        self.queue.clear();
        // A worker ends after its case.
        self.running.values().filter_map(|running| running.pool.as_ref()).for_each(|pool| drop(pool.drain()));
    }

    fn report_final(&mut self, result: Final) -> anyhow::Result<()> {
        let report = match result {
            Final::Alone(report) => CaseReport { number: self.done.len() + 1, ..*report },
            Final::AfterOthers(verdict, job, after) => {
                let report = self.report(job, *verdict);
                if self.plan.fail_fast && report.status.is_bad() {
                    self.stop();
                }
                // In one lane they share a driver again, in the same order.
                let ids = after.iter().map(|id| format!("{id} ")).collect::<String>();
                let again = format!("{} --jobs 1 {ids}{}", self.plan.again, report.id);
                CaseReport { after, again, ..report }
            }
        };
        self.file(report)
    }

    fn report_first_questions(&mut self) -> anyhow::Result<()> {
        let Abilities { wrong, last_words, .. } = &self.plan.abilities;
        let of = self.plan.header.cases;
        match first_questions::report(wrong, last_words, of, &self.plan.again) {
            Some(report) => self.file(report),
            None => Ok(()),
        }
    }

    fn report_skipped(&mut self) -> anyhow::Result<()> {
        for (case, status, reasons) in std::mem::take(&mut self.plan.skipped) {
            let report = CaseReport { status, reasons, ..self.blank(case) };
            self.file(report)?;
        }
        Ok(())
    }

    fn file(&mut self, report: CaseReport) -> anyhow::Result<()> {
        if report.status.is_bad()
            && !self.done.iter().any(|earlier| earlier.status.is_bad())
            && let Some(ledger) = &self.ledger
        {
            // The user may read its logs from now on.
            ledger.keep(&self.plan.directory)?;
        }
        let breaks = |promise: &String| report.findings.iter().any(|finding| finding.contract == *promise);
        if self.plan.until_broken.as_ref().is_some_and(breaks) {
            self.stop();
        }
        self.done.push(report.clone());
        self.reporters.emit(&Event::CaseFinished(Box::new(report)))
    }

    /// The report of the next case to end, without its result.
    fn blank(&self, case: &Case) -> CaseReport {
        CaseReport {
            id: case.id(),
            status: Status::Passed,
            seconds: 0.0,
            number: self.done.len() + 1,
            of: self.plan.header.cases,
            proves: case.proves.to_owned(),
            at: case.place(),
            reasons: vec![],
            breakage: None,
            findings: vec![],
            judged: Judged::default(),
            not_tried: vec![],
            left_behind: vec![],
            kernel: vec![],
            unchecked: vec![],
            samples: vec![],
            logs: None,
            log_files: vec![],
            after: vec![],
            again: format!("{} {}", self.plan.again, case.id()),
            look: None,
        }
    }

    /// The first interrupt ends the running cases, and no others start. The second ends this process, and reports what `sweep` would undo.
    fn interrupt(&mut self) -> anyhow::Result<()> {
        let running: Vec<CaseId> = self.running.values().filter_map(|running| running.case.clone()).collect();
        if self.interrupted {
            let sweep = self.ledger.as_ref().map(Ledger::would_undo).unwrap_or_default();
            self.reporters.emit(&Event::Interrupted { running, sweep: Some(sweep) })?;
            // The lifelines close with this process, so the sandboxes die and the janitor still does its work.
            std::process::exit(i32::from(exit_code::INTERRUPTED));
        }
        self.interrupted = true;
        self.stop();
        self.reporters.emit(&Event::Interrupted { running, sweep: None })?;
        // Dropping the handle cancels.
        for running in self.running.values_mut() {
            let (gone, _) = oneshot::channel();
            drop(std::mem::replace(&mut running.cancel, gone));
        }
        Ok(())
    }

    fn write_expectations(&mut self) -> anyhow::Result<()> {
        // All patches of a run go through this process: two workers would overwrite each other's.
        for expectation in std::mem::take(&mut self.expectations) {
            expectation::write(expectation)?;
        }
        Ok(())
    }

    /// Ends the kept sandboxes when the user interrupts the run. Returns earlier if all of them have ended.
    async fn let_go(&mut self, interrupts: &mut Interrupts) -> anyhow::Result<()> {
        let (mut cases, mut kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.kept).into_iter().unzip();
        cases.dedup();
        if !cases.is_empty() && !self.interrupted {
            let run = self.ledger.as_ref().map(|ledger| harness::ledger::run_of(&ledger.path()));
            self.reporters.emit(&Event::Kept { run: run.unwrap_or_default(), cases })?;
            tokio::select! {
                () = interrupts.next() => {}
                _ = join_all(kept.iter_mut().map(Kept::ended)) => {}
            }
        }
        let gone = join_all(kept.into_iter().map(Kept::let_go));
        tokio::select! {
            biased;
            () = interrupts.next() => {
                self.interrupted = true;
                self.interrupt()
            }
            gone = gone => gone.into_iter().collect::<std::io::Result<()>>().context("cannot let go of a sandbox"),
        }
    }

    async fn finish(mut self, seconds: f64) -> anyhow::Result<RunRecord> {
        // Guests end before the end of the run is reported.
        self.plan.away = None;
        let has_own_logs = self.ledger.as_ref().is_some_and(|ledger| ledger.is_own(&self.plan.directory));
        let left = match self.ledger.take() {
            Some(ledger) => ledger.close().await,
            None => Ok(vec![]),
        };
        let mut record = RunRecord {
            version: RunRecord::VERSION,
            header: self.plan.header.clone(),
            findings: gather(&self.done),
            promises: gather::of_run(&first_questions::kept(&self.plan.abilities), &self.done, &case::all()),
            cases: std::mem::take(&mut self.done),
            kernel: self.kernel_log.take().map(verdict::unattributed).unwrap_or_default(),
            seconds,
            interrupted: self.interrupted,
            exit_code: exit_code::OK,
            hints: vec![],
            since: None,
        };
        if let Err(error) = left {
            let name = program::name();
            record
                .hints
                .push(format!("the janitor could not undo everything ({error:#}): run `{name} sweep`"));
        }
        record.exit_code = verdict::exit_code(&record);
        record.hints.extend(verdict::hints(&record));
        if has_own_logs && record.cases.iter().any(|case| case.status.is_bad()) {
            kept_logs::thin_out();
            let (directory, name, runs) = (self.plan.directory.display(), program::name(), kept_logs::RUNS);
            record.hints.push(format!(
                "the logs stay in {directory} until {runs} later runs have failed, or `{name} sweep --reports` removes them"
            ));
        }
        record.since =
            self.plan.earlier.take().map(|(run, earlier)| difference::between(run, &earlier, &record));
        let event = Event::RunFinished(Box::new(record));
        self.reporters.emit(&event)?;
        let Event::RunFinished(record) = event else { unreachable!("it was made three lines above") };
        Ok(*record)
    }
}
