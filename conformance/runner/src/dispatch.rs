//! The dispatcher: which case starts when, and what is made of how it ended.
//!
//! It runs on one thread and knows cases, lanes and reporters; each case runs in a worker process of its
//! own ([`lane`]). All that can happen to a run arrives here as one message, in one order, and everything
//! the user sees is emitted from here.

mod dead_ends;
mod death;
mod environment;
mod expectation;
pub mod guest;
mod kept;
pub mod lane;
mod ledger;
mod shared;
mod verdict;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::future::join_all;
use harness::kernel_log::KernelLog;
use harness::manifest::Manifest;
use harness::nfs_export::Misbehaviour;
use harness::private;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;

use crate::difference;
use crate::event::{CaseReport, Event, Header, RunRecord, Status};
use crate::exit_code;
use crate::first_questions;
use crate::gather::{self, gather};
use crate::message::{Assignment, Said, Task};
use crate::promises::Judged;
use crate::report::Reporter;
use testbed::case::{self, Case, CaseId};
use testbed::message::{Abilities, Expectation, Orders, Progress};

use dead_ends::DeadEnds;
use environment::Machine;
pub use guest::Guests;
use kept::Kept;
pub use ledger::Ledger;
use shared::{Company, Settled, Suspicions, Told, Work};
use verdict::Verdict;

/// Everything a run is to do, decided before anything is started.
#[derive(Debug)]
pub struct Plan {
    /// What the reporters are told first.
    pub header: Header,
    /// The cases that can run.
    pub cases: Vec<&'static Case>,
    /// The cases that cannot, and why.
    pub skipped: Vec<(&'static Case, Status, Vec<String>)>,
    pub manifest: Manifest,
    /// The driver's answers to the first questions.
    pub abilities: Abilities,
    /// The report directory, the parent of `cases/<id>/`.
    pub directory: PathBuf,
    /// Whether cases run in user namespaces.
    pub rootless: bool,
    /// How long one case may take.
    pub timeout: Duration,
    /// How often each case runs.
    pub repeat: u32,
    /// Whether the first bad case is the last one started.
    pub fail_fast: bool,
    /// The promise that ends the run where a case finds it broken: no further case starts.
    pub until_broken: Option<String>,
    /// The command line that, with a case's id behind it, runs that case again.
    pub again: String,
    /// Whether stories that differ are written into the source.
    pub update: bool,
    /// Whether the sandboxes of cases that do not pass stay until the reader lets go.
    pub keep: bool,
    /// An earlier run with which this one is compared, and its name.
    pub earlier: Option<(String, RunRecord)>,
    /// How the suite's own NFS server misbehaves.
    pub spoil: Option<Misbehaviour>,
    /// The cases that run in guests, if any do.
    pub away: Option<Away>,
}

/// The part of a run that happens in guests.
#[derive(Debug)]
pub struct Away {
    pub guests: Rc<Guests>,
    /// Which of the cases run there.
    pub cases: BTreeSet<CaseId>,
    /// The driver, as it is started there.
    pub manifest: Manifest,
    /// What it answered there.
    pub abilities: Abilities,
}

/// Runs the plan to its end, or to the user's.
pub async fn run(plan: Plan, ledger: Ledger, reporters: Vec<Box<dyn Reporter>>) -> anyhow::Result<RunRecord> {
    let interrupts = Interrupts::new()?;
    let dispatcher = Dispatcher::new(plan, ledger, reporters);
    LocalSet::new().run_until(dispatcher.run(interrupts)).await
}

/// A case that is to run, and for the how-manieth time.
#[derive(Debug, Clone, Copy)]
struct Job {
    case: &'static Case,
    repetition: u32,
}

impl Job {
    fn key(self) -> (CaseId, u32) {
        (self.case.id(), self.repetition)
    }

    fn is(self, other: Self) -> bool {
        std::ptr::eq(self.case, other.case) && self.repetition == other.repetition
    }
}

/// What lanes tell the dispatcher.
enum Message {
    Step(CaseId, String),
    Expectation(Expectation),
    /// A case, how it went, and its sandbox if that stays.
    Ended(Job, Box<Verdict>, Option<Kept>),
    /// The next of the cases that share a driver begins; the lane is known by the first of them.
    Begun(Job, Job),
    /// How those cases went.
    Settled(Job, Box<Settled>),
}

/// A lane that works.
struct Running {
    case: CaseId,
    /// Dropping it ends the worker.
    cancel: oneshot::Sender<()>,
}

struct Dispatcher {
    plan: Plan,
    /// Until the end, when its janitor is waited for.
    ledger: Option<Ledger>,
    reporters: Vec<Box<dyn Reporter>>,
    queue: VecDeque<Work>,
    /// What runs, by the id and the repetition of the first case that a lane was given.
    running: BTreeMap<(CaseId, u32), Running>,
    /// The cases of which the reporters know that they have begun.
    begun: BTreeSet<(CaseId, u32)>,
    suspicions: Suspicions,
    /// How many drivers were shared, and with how many of them that came to nothing.
    shared_drivers: usize,
    setbacks: usize,
    /// The running case that wants to be alone.
    alone: bool,
    done: Vec<CaseReport>,
    /// The sandboxes that stay, each with the case it is of.
    kept: Vec<(CaseId, Kept)>,
    messages: mpsc::UnboundedSender<Message>,
    inbox: mpsc::UnboundedReceiver<Message>,
    expectations: Vec<Expectation>,
    started: Instant,
    /// Whether no further case is to start.
    has_stopped: bool,
    interrupted: bool,
    /// From the run's beginning on, where it can be read.
    kernel_log: Option<KernelLog>,
    dead_ends: DeadEnds,
    machine: Machine,
}

impl Dispatcher {
    fn new(plan: Plan, ledger: Ledger, reporters: Vec<Box<dyn Reporter>>) -> Self {
        let (messages, inbox) = mpsc::unbounded_channel();
        let queue = shared::queue(&plan);
        let machine = Machine::look(&plan.directory, ledger.path().parent().unwrap_or(&plan.directory));
        Self {
            machine,
            plan,
            ledger: Some(ledger),
            reporters,
            queue,
            running: BTreeMap::new(),
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
        }
    }

    async fn run(mut self, mut interrupts: Interrupts) -> anyhow::Result<RunRecord> {
        let header = self.plan.header.clone();
        self.emit(&Event::RunStarted(Box::new(header)))?;
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

    /// Starts as many cases as there is room for.
    fn fill_lanes(&mut self) -> anyhow::Result<()> {
        while let Some(work) = self.queue.front() {
            let alone = work.first().case.serial.is_some();
            let room =
                if alone { self.running.is_empty() } else { self.running.len() < self.plan.header.lanes };
            if !room || self.alone {
                break;
            }
            self.alone = alone;
            match self.queue.pop_front().expect("it was looked at above") {
                Work::Alone(job) => self.start(job)?,
                Work::Together(jobs) => self.start_together(jobs)?,
            }
        }
        Ok(())
    }

    /// Takes a lane for a case.
    fn occupy(&mut self, job: Job) -> oneshot::Receiver<()> {
        let (cancel, cancelled) = oneshot::channel();
        self.running.insert(job.key(), Running { case: job.case.id(), cancel });
        cancelled
    }

    /// Tells the reporters that a case has begun; one that runs again was told before.
    fn tell_begun(&mut self, job: Job) -> anyhow::Result<()> {
        if self.begun.insert(job.key()) {
            self.emit(&Event::CaseStarted { id: job.case.id() })?;
        }
        Ok(())
    }

    fn start_together(&mut self, jobs: Vec<Job>) -> anyhow::Result<()> {
        self.shared_drivers += 1;
        let directory = shared::directory(&self.plan.directory, self.shared_drivers);
        make_directory(&directory)?;
        let first = jobs[0];
        let orders = jobs.iter().map(|job| self.orders(*job)).collect::<anyhow::Result<Vec<Orders>>>()?;
        let orders_of_driver = Orders { directory: directory.clone(), ..orders[0].clone() };
        let mut company = Company::new(directory, jobs, orders);
        let task = Task::Cases(company.cases(), Box::new(self.plan.abilities.clone()));
        let assignment = Assignment { task, orders: orders_of_driver };
        let cancelled = self.occupy(first);
        let messages = self.messages.clone();
        tokio::task::spawn_local(async move {
            let hear = |said| {
                let step = match &said {
                    Said::Progress(Progress::Step(step)) => Some(step.clone()),
                    _ => None,
                };
                let begins = matches!(said, Said::Begun(_));
                company.hear(said);
                let Some(job) = company.current() else { return };
                if begins {
                    drop(messages.send(Message::Begun(first, job)));
                }
                step.into_iter().for_each(|step| drop(messages.send(Message::Step(job.case.id(), step))));
            };
            let ended = lane::run(&assignment, hear, cancelled).await;
            drop(messages.send(Message::Settled(first, Box::new(company.ended(ended)))));
        });
        Ok(())
    }

    fn start(&mut self, job: Job) -> anyhow::Result<()> {
        let id = job.case.id();
        let assignment = self.assignment(job)?;
        let cancelled = self.occupy(job);
        self.tell_begun(job)?;
        let messages = self.messages.clone();
        let guests = self.away(&id).map(|away| Rc::clone(&away.guests));
        tokio::task::spawn_local(async move {
            let mut verdict = Verdict::new(&assignment.orders, guests.is_some());
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
            drop(messages.send(Message::Ended(job, Box::new(verdict), kept)));
        });
        Ok(())
    }

    /// What there is to know about guests, if that case runs in one.
    fn away(&self, id: &CaseId) -> Option<&Away> {
        self.plan.away.as_ref().filter(|away| away.cases.contains(id))
    }

    fn assignment(&self, job: Job) -> anyhow::Result<Assignment> {
        let id = job.case.id();
        let orders = self.orders(job)?;
        let abilities = self.away(&id).map_or(&self.plan.abilities, |away| &away.abilities);
        Ok(Assignment { task: Task::Case(id, Box::new(abilities.clone())), orders })
    }

    fn orders(&self, job: Job) -> anyhow::Result<Orders> {
        let plan = &self.plan;
        let id = job.case.id();
        let name = if plan.repeat > 1 { format!("{id}@{}", job.repetition) } else { id.to_string() };
        let directory = plan.directory.join("cases").join(name);
        make_directory(&directory)?;
        let away = self.away(&id);
        Ok(Orders {
            manifest: away.map_or(&plan.manifest, |away| &away.manifest).clone(),
            directory,
            ledger: self.ledger.as_ref().expect("it is open while cases run").path(),
            rootless: plan.rootless,
            seed: plan.header.seed.wrapping_add(u64::from(job.repetition - 1)),
            timeout: plan.timeout,
            update: plan.update,
            keep: plan.keep && away.is_none(),
            disk: None,
            cuts: 0,
            spoil: plan.spoil,
            dead_ends: self.dead_ends.shown(),
        })
    }

    fn take(&mut self, message: Message) -> anyhow::Result<()> {
        match message {
            Message::Step(id, step) => self.emit(&Event::CaseStep { id, step }),
            Message::Expectation(expectation) => {
                // With --repeat a place is told of more than once, and can be rewritten only once.
                let place = |told: &Expectation| (told.file.clone(), told.line, told.column);
                if !self.expectations.iter().any(|told| place(told) == place(&expectation)) {
                    self.expectations.push(expectation);
                }
                Ok(())
            }
            Message::Ended(job, verdict, kept) => {
                self.running.remove(&job.key());
                self.alone = false;
                // A case that was cut short by the user says nothing about anybody.
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
                for told in self.suspicions.weigh(job, report) {
                    self.tell(told)?;
                }
                Ok(())
            }
            Message::Begun(first, job) => {
                if let Some(running) = self.running.get_mut(&first.key()) {
                    running.case = job.case.id();
                }
                self.tell_begun(job)
            }
            Message::Settled(first, settled) => {
                self.running.remove(&first.key());
                self.settle(*settled)
            }
        }
    }

    /// Files the cases that passed on a shared driver, and has the others run.
    fn settle(&mut self, settled: Settled) -> anyhow::Result<()> {
        let Settled { passed, again, rest, suspicion, is_cancelled } = settled;
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
        let soon = again.into_iter().map(Work::Alone).chain(shared::resumed(rest, self.setbacks));
        soon.rev().for_each(|work| self.queue.push_front(work));
        suspicion.into_iter().for_each(|suspicion| self.suspicions.add(suspicion));
        Ok(())
    }

    /// The report of a case that has run.
    fn report(&self, job: Job, verdict: Verdict) -> CaseReport {
        verdict.report(job.case, self.blank(job.case), &self.plan, &self.machine)
    }

    /// Starts no case any more.
    fn stop(&mut self) {
        self.has_stopped = true;
        self.queue.clear();
    }

    fn tell(&mut self, told: Told) -> anyhow::Result<()> {
        let report = match told {
            Told::Alone(report) => CaseReport { number: self.done.len() + 1, ..*report },
            Told::Company(verdict, job, after) => {
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
            // From here on somebody may be reading its logs.
            ledger.keep(&self.plan.directory)?;
        }
        let breaks = |promise: &String| report.findings.iter().any(|finding| finding.contract == *promise);
        if self.plan.until_broken.as_ref().is_some_and(breaks) {
            self.stop();
        }
        self.done.push(report.clone());
        self.emit(&Event::CaseFinished(Box::new(report)))
    }

    /// The report of a case of which nothing is known but that it is the next to end.
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
            logs: None,
            log_files: vec![],
            after: vec![],
            again: format!("{} {}", self.plan.again, case.id()),
            look: None,
        }
    }

    /// Once: no more cases, and the running ones are ended. Twice: out, saying what is left.
    fn interrupt(&mut self) -> anyhow::Result<()> {
        let running: Vec<CaseId> = self.running.values().map(|running| running.case.clone()).collect();
        if self.interrupted {
            let sweep = self.ledger.as_ref().map(Ledger::would_undo).unwrap_or_default();
            self.emit(&Event::Interrupted { running, sweep: Some(sweep) })?;
            // The lifelines close with this process, so the sandboxes die and the janitor still does its work.
            std::process::exit(i32::from(exit_code::INTERRUPTED));
        }
        self.interrupted = true;
        self.stop();
        self.emit(&Event::Interrupted { running, sweep: None })?;
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

    /// Waits until the reader has seen enough of what was kept, or nothing of it is there any more.
    async fn let_go(&mut self, interrupts: &mut Interrupts) -> anyhow::Result<()> {
        let (mut cases, mut kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.kept).into_iter().unzip();
        cases.dedup();
        if !cases.is_empty() && !self.interrupted {
            self.emit(&Event::Kept { cases })?;
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
        // Guests go before anything is said of the end.
        self.plan.away = None;
        let is_scratch = self.ledger.as_ref().is_some_and(|ledger| ledger.is_scratch(&self.plan.directory));
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
            record
                .hints
                .push(format!("the janitor could not undo everything ({error:#}): run `volproof sweep`"));
        }
        record.exit_code = verdict::exit_code(&record);
        record.hints.extend(verdict::hints(&record));
        if is_scratch && record.cases.iter().any(|case| case.status.is_bad()) {
            let directory = self.plan.directory.display();
            record
                .hints
                .push(format!("the logs stay in {directory} until `volproof sweep --reports` removes them"));
        }
        record.since =
            self.plan.earlier.take().map(|(run, earlier)| difference::between(run, &earlier, &record));
        let event = Event::RunFinished(Box::new(record));
        self.emit(&event)?;
        let Event::RunFinished(record) = event else { unreachable!("it was made three lines above") };
        Ok(*record)
    }

    fn emit(&mut self, event: &Event) -> anyhow::Result<()> {
        let mut failed = None;
        self.reporters.retain_mut(|reporter| match reporter.report(event) {
            Ok(()) => true,
            // Who closes the pipe has seen enough; the run goes on, and its exit code still counts.
            Err(error) if is_closed_pipe(&error) => false,
            Err(error) => {
                failed = Some(error);
                false
            }
        });
        failed.map_or(Ok(()), Err)
    }
}

fn make_directory(directory: &Path) -> anyhow::Result<()> {
    private::directory(directory).with_context(|| format!("cannot create `{}`", directory.display()))
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let kind = |cause: &(dyn std::error::Error + 'static)| match cause.downcast_ref::<serde_json::Error>() {
        Some(json) => json.io_error_kind(),
        None => cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind),
    };
    error.chain().any(|cause| kind(cause) == Some(std::io::ErrorKind::BrokenPipe))
}

/// Ctrl-C and a polite kill, which mean the same.
struct Interrupts {
    keyboard: Signal,
    polite: Signal,
}

impl Interrupts {
    fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self { keyboard: listen(SignalKind::interrupt())?, polite: listen(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.keyboard.recv() => {}
            _ = self.polite.recv() => {}
        }
    }
}
