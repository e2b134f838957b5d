//! The worker: one process that carries out one case, in a sandbox of its own.
//!
//! It reads its assignment from standard input and reports on descriptor 3. First it enters the sandbox, while it has one
//! thread; its mounts, processes and files there end with it.

mod aftermath;
mod disk;
mod first_event;
mod forbidden_growth;
mod own_limit;
mod pod_of_driver;
mod shared;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use harness::container::TERMINAL;
use harness::driver::{Exit, machine_options};
use harness::load;
use harness::masks::Masks;
use harness::sandbox::{Sandbox, SandboxOptions};
use harness::symbols::Symbols;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use testbed::bed::{self, Bed};
use testbed::case::{self, Case, CaseId};
use testbed::cx::{Claims, Cx, Doing, Shared};
use testbed::dead_end::UNDOES;
use testbed::failure::{Failure, What};
use testbed::message::{Abilities, Orders, Refusal};
use testbed::{ask, foreign};

use crate::clean::clean;
use crate::event::Status;
use crate::finding::{Finding, Party};
use crate::judge;
use crate::message::{Assignment, LIFELINE_FD, Outcome, Played, REPORT_FD, Said, Script, TURNS_FD, Task};
use crate::promises::Judged;
use crate::turn::Turns;
use aftermath::Aftermath;

/// Plays a script in a sandbox. The command line passes it in, because this crate does not depend on scripts.
pub type Player =
    for<'a> fn(&'a Orders, &'a Sandbox, &'a Script, &'a Voice) -> LocalBoxFuture<'a, Result<Played, Refusal>>;

/// Carries out the assignment on standard input. Must be called at the start of `main`, with one thread.
pub fn main(player: Player) -> ExitCode {
    // SAFETY: the run gave this process these two descriptors and nothing in it has touched them yet.
    let (report, lifeline) = unsafe { (File::from_raw_fd(REPORT_FD), OwnedFd::from_raw_fd(LIFELINE_FD)) };
    // A driver must not inherit the way to the run's ear: its tools complain of it, and what it wrote there would be read.
    if let Err(error) = close_on_exec(REPORT_FD) {
        eprintln!("error: cannot keep the report from other processes: {error}");
        return ExitCode::FAILURE;
    }
    let voice = Voice { out: Rc::new(RefCell::new(report)), masks: Rc::default() };
    match enter(lifeline, &voice) {
        Ok((assignment, sandbox)) => work(assignment, sandbox, player, &voice),
        Err(refusal) => voice.say(&Said::Refused(refusal)),
    }
    ExitCode::SUCCESS
}

fn enter(lifeline: OwnedFd, voice: &Voice) -> Result<(Assignment, Sandbox), Refusal> {
    let mut assignment = read_assignment().map_err(|error| Refusal::ours(error.as_ref()))?;
    // Before the sandbox is entered: these files may not be visible in it.
    voice.hide(Masks::of(&assignment.orders.manifest));
    let directory = held(&assignment.orders.directory);
    assignment.orders.directory = directory.map_err(|error| Refusal::ours(error.as_ref()))?;
    if let Task::Cases(cases, _) = &mut assignment.task {
        close_on_exec(TURNS_FD).map_err(|error| Refusal::ours(&error))?;
        for case in cases {
            case.directory = held(&case.directory).map_err(|error| Refusal::ours(error.as_ref()))?;
        }
    }
    let Assignment { task, orders } = &assignment;
    if task.needs_terminal() {
        TERMINAL
            .iter()
            .try_for_each(|number| close_on_exec(*number))
            .map_err(|error| Refusal::ours(&error))?;
    }
    let name = match task {
        Task::Ask => "asking the driver".to_owned(),
        Task::Case(id, _) => id.to_string(),
        Task::Cases(..) => "several cases on one driver".to_owned(),
        Task::Play(Script::Scenario(_)) => "playing a scenario".to_owned(),
        Task::Play(Script::Manifests(_)) => "playing manifests".to_owned(),
    };
    let ledger = Some(orders.ledger.clone());
    let user_namespace = orders.rootless;
    let lifeline = Some(lifeline);
    let shared = foreign::shared_node(orders);
    let disk = orders.disk.as_deref().map(|disk| disk::mounted(disk, orders.cuts == 0)).transpose();
    let disk = disk.map_err(|error| Refusal::ours(error.as_ref()))?;
    let machine = machine_options(&orders.manifest);
    let options = SandboxOptions {
        lifeline,
        ledger,
        name,
        user_namespace,
        shared,
        disk,
        machine,
        ..SandboxOptions::default()
    };
    // `enter` continues in a new process; the one that called it only waits for that.
    let sandbox = Sandbox::enter(options).map_err(|error| {
        let hint = error.hint().map(str::to_owned);
        Refusal { chain: testbed::failure::chain(&error), hint, log: vec![], driver_has_ended: false }
    })?;
    Ok((assignment, sandbox))
}

/// Closes a descriptor in all processes that this one starts.
fn close_on_exec(number: RawFd) -> nix::Result<()> {
    // SAFETY: the run gave this process this descriptor, and nothing closes it before this returns.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).map(drop)
}

/// A path to a directory that works in a sandbox where the directory is not visible.
fn held(directory: &Path) -> anyhow::Result<PathBuf> {
    let opened = File::open(directory).with_context(|| format!("cannot open `{}`", directory.display()))?;
    // Never closed: the path is used until the process ends.
    Ok(PathBuf::from(format!("/proc/self/fd/{}", opened.into_raw_fd())))
}

fn read_assignment() -> anyhow::Result<Assignment> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("cannot read the orders")?;
    serde_json::from_str(&text).context("cannot understand the orders")
}

fn work(assignment: Assignment, sandbox: Sandbox, player: Player, voice: &Voice) {
    let Assignment { task, orders } = assignment;
    // One thread, so that the order of the journal is the order of the acts.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return voice.say(&Said::Refused(Refusal::ours(&error))),
    };
    let last = runtime.block_on(async {
        match task {
            Task::Ask => {
                ask::ask(&orders, &sandbox).await.map_or_else(Said::Refused, |a| Said::Abilities(Box::new(a)))
            }
            Task::Play(script) => {
                let played = tokio::time::timeout(orders.timeout, player(&orders, &sandbox, &script, voice));
                let played = played.await.unwrap_or_else(|_| Err(too_late(orders.timeout)));
                played.map_or_else(Said::Refused, Said::Played)
            }
            Task::Case(id, abilities) => run_case(&orders, &sandbox, &id, &abilities, voice).await,
            Task::Cases(cases, abilities) => {
                shared::run_cases(&orders, &sandbox, &cases, turns(), &abilities, voice).await
            }
        }
    });
    voice.say(&last);
    // Not dropped: that would wait for threads that may be waiting for a dead server.
    runtime.shutdown_background();
}

/// This worker's end of the pipe with the turns of cases.
fn turns() -> Turns {
    // SAFETY: the run gave this process this descriptor for its cases, and nothing else uses it.
    unsafe { OwnedFd::from_raw_fd(TURNS_FD) }.into()
}

/// The refusal of a script that had not ended at its deadline.
fn too_late(timeout: Duration) -> Refusal {
    let chain = vec![format!("It did not end within {} s.", timeout.as_secs_f64())];
    Refusal {
        chain,
        hint: Some("--timeout gives it more time".to_owned()),
        log: vec![],
        driver_has_ended: false,
    }
}

async fn run_case(
    orders: &Orders,
    sandbox: &Sandbox,
    id: &CaseId,
    abilities: &Abilities,
    voice: &Voice,
) -> Said {
    let case = match find(id) {
        Ok(case) => case,
        Err(refusal) => return Said::Refused(refusal),
    };
    let bed = match Bed::put_up(orders, sandbox, abilities).await {
        Ok(bed) => bed,
        Err(refusal) => return Said::Refused(refusal),
    };
    voice.hide(bed.journal.masks().clone());
    let begin = Instant::now();
    let before = aftermath::Before::take(sandbox);
    let mut cx = voice.context(bed, case, orders);
    let failure = body(case, &mut cx, orders).await.err();
    let seconds = begin.elapsed().as_secs_f64();
    let after = Aftermath::see(&cx.shared().bed, orders, sandbox, before, failure.is_some()).await;
    let outcome = outcome(case, failure, after, &cx, seconds);
    let stays = orders.keep && outcome.status.is_bad();
    let outcome = Said::Outcome(Box::new(outcome));
    if stays {
        voice.say(&outcome);
        // An error is ignored: only `volproof enter` needs the record.
        drop(sandbox.record_kept());
        voice.say(&Said::Kept);
        // The testbed stays up meanwhile and answers the calls of its processes.
        return std::future::pending().await;
    }
    outcome
}

fn find(id: &CaseId) -> Result<&'static Case, Refusal> {
    case::find(id).ok_or_else(|| {
        let chain = vec![format!("there is no case `{id}` in this binary")];
        Refusal { chain, hint: None, log: vec![], driver_has_ended: false }
    })
}

/// The outcome of a case, with the claims and waits of its testbed.
fn outcome(case: &Case, failure: Option<Failure>, after: Aftermath, cx: &Cx, seconds: f64) -> Outcome {
    let shared = cx.shared();
    let journal = &shared.bed.journal;
    let failure = failure.map(|failure| forbidden_growth::blame(failure, journal));
    // A driver that has ended answers no call, and waits for nothing.
    let failure = failure.map(|failure| match after.driver_exited {
        None => pod_of_driver::blame(failure, journal),
        Some(_) => failure,
    });
    let mut outcome = status_and_findings(case, failure, after, shared.claimed(), journal.symbols(), seconds);
    if let Some(breakage) = &mut outcome.breakage {
        breakage.event = first_event::first_event(&journal.trace(), journal.symbols());
        breakage.cause.extend(journal.in_the_way().iter().map(|line| journal.symbols().text(line)));
    }
    outcome.dead_ends = shared.bed.dead_ends();
    outcome.samples = shared.bed.samples();
    outcome
}

/// Runs the body to its end, its panic or its deadline.
async fn body(case: &Case, cx: &mut Cx, orders: &Orders) -> Result<(), Failure> {
    let shared = cx.shared();
    let meter = load::Meter::start();
    let panicked = catch_panics();
    let run = load::within(orders.timeout, AssertUnwindSafe((case.run)(cx)).catch_unwind());
    let ended = tokio::select! {
        biased;
        // No wait of a case can succeed after the driver has ended.
        exit = shared.bed.driver_crashes() => {
            return Err(lost_driver(&shared, exit).await);
        }
        ended = run => ended,
    };
    let last = shared.last();
    match ended {
        Ok(Ok(Ok(()))) => Ok(()),
        Ok(Ok(Err(failure))) => {
            // A broken connection is seen before the end of the driver that caused it.
            if let Some(exit) = shared.bed.exit_under_way().await {
                return Err(lost_driver(&shared, exit).await);
            }
            let failure = failure.after_step(&last.step).with_story(|| shared.bed.look().to_string());
            let failure = own_limit::blame(failure, &shared.bed.journal, &meter);
            Err(failure.with_under_way(shared.bed.under_way().await))
        }
        Ok(Err(_)) => {
            let message = panicked.borrow().clone().unwrap_or_else(|| "the case panicked".to_owned());
            Err(Failure { after: last.step, at: last.at, what: What::Ours(vec![message]).into() })
        }
        Err(late) => {
            let late_end = format!("The case did not end within {} s.", orders.timeout.as_secs_f64());
            if !late.is_cut_short {
                shared.bed.note_unanswered(&shared.bed.journal);
            }
            let what = match late.is_cut_short {
                true => What::Environment(vec![late.to_string(), late_end]),
                false => What::Broken { chain: vec![late_end], seen: None },
            };
            let failure = Failure { after: last.step, at: last.at, what: what.into() };
            Err(failure.with_under_way(shared.bed.under_way().await))
        }
    }
}

async fn lost_driver(shared: &Shared, exit: Exit) -> Failure {
    let (Doing { step, at }, mut chain) = (shared.last(), vec![bed::ended_by_itself(exit)]);
    chain.extend(shared.bed.last_words().await.map(|words| format!("its last words: {words}")));
    Failure {
        after: step,
        at,
        what: What::Broken { chain, seen: Some(shared.bed.look().to_string()) }.into(),
    }
}

/// Keeps the message and the line of a panic; the backtrace goes to the worker's log.
fn catch_panics() -> Rc<RefCell<Option<String>>> {
    thread_local! {
        static SAID: Rc<RefCell<Option<String>>> = Rc::default();
    }
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        SAID.with(|said| said.replace(Some(info.to_string())));
        before(info);
    }));
    SAID.with(Rc::clone)
}

/// The status of a case, from the end of its body and everything that was seen after it.
fn status_and_findings(
    case: &Case,
    failure: Option<Failure>,
    after: Aftermath,
    claims: Claims,
    symbols: &Symbols,
    seconds: f64,
) -> Outcome {
    let Aftermath {
        mut findings,
        mut judged,
        left_behind,
        kernel,
        mut unchecked,
        driver_exited,
        ended_during,
        crash,
        ..
    } = after;
    unchecked.extend(claims.not_tried);
    judged.kept.extend(claims.kept.iter().map(|id| (*id).to_owned()));
    findings.extend(claims.ignored.iter().map(|ignored| judge::ignored(ignored, symbols)));
    findings.dedup_by(|a, b| a.key() == b.key());
    let broken = failure.as_ref().and_then(|failure| broken_promise(&failure.what, symbols));
    let said = broken.as_ref().map(|broken| broken.sentence.clone());
    // One that has ended the body is refused at the end as well.
    let ended_by = broken.as_ref().filter(|broken| broken.contract == UNDOES);
    let refused = claims.not_undone.as_ref().filter(|_| ended_by.is_none());
    let method = ended_by.map(|broken| &broken.method).or_else(|| refused.map(|refused| &refused.method));
    if let Some(method) = method {
        judge::unite_not_undone(&mut findings, method);
    }
    findings.extend(
        refused.map(|refused| judge::promise_broken(UNDOES, &refused.method, &symbols.text(&refused.cause))),
    );
    match (&driver_exited, broken) {
        // The broken promise is a consequence of the driver's end.
        (Some(end), broken) => {
            findings.extend(broken.map(|broken| judge::after_the_end(&broken)));
            findings.extend(judge::driver_ended(end, ended_during.as_deref(), crash.as_deref(), &findings));
        }
        (None, Some(mut broken)) => {
            judge::blame(&mut findings, &broken.contract);
            judge::excuse_answer(&mut findings, &broken);
            judge::explain_by_missing_call(&findings, &mut broken);
            findings.push(broken);
        }
        (None, None) => {}
    }
    if let Some(What::Environment(chain)) = failure.as_ref().map(|failure| &*failure.what) {
        let is_the_drivers = judge::excuse_slowness(&mut findings);
        judged = Judged::default();
        findings.extend(chain.first().filter(|_| !is_the_drivers).map(|lack| judge::environment(lack, &[])));
    }
    judge::sort(&mut findings);
    let seen = Seen {
        driver_exited: driver_exited.is_some(),
        body: failure.as_ref().map(|failure| &*failure.what),
        findings: &findings,
        kernel: &kernel,
        left_behind: !left_behind.is_empty(),
    };
    let status = seen.status();
    let mut breakage = failure.map(|failure| failure.breakage());
    if let Some(breakage) = &mut breakage {
        breakage.cause.iter_mut().for_each(|line| *line = symbols.text(line));
        // A fragment in the words of a rule is a sentence in its finding.
        breakage.cause = said.map_or_else(|| breakage.cause.clone(), |said| vec![said]);
    }
    // No numbered promise explains the failure, so the finding is that the case did not see its story.
    if let (Status::Failed, Some(breakage)) = (status, &breakage)
        && !findings.iter().any(Finding::is_fault)
    {
        let (id, sentence) = (case.id(), case.sentence());
        let own = breakage.cause.first().map(|cause| judge::story_broken(id.as_str(), cause, &sentence));
        findings.splice(..0, own);
    }
    if let Some(end) = driver_exited {
        match &mut breakage {
            // The body may have ended because of the driver's end.
            Some(breakage) if breakage.cause.contains(&end) => {}
            Some(breakage) => breakage.cause.insert(0, end),
            None => breakage = Some(aftermath::at_the_end(end, case.place())),
        }
    }
    Outcome {
        status,
        seconds,
        breakage,
        findings,
        judged,
        left_behind,
        kernel,
        unchecked,
        dead_ends: BTreeSet::new(),
        samples: vec![],
    }
}

/// The observations that decide the status of a case.
struct Seen<'a> {
    driver_exited: bool,
    /// The failure that ended the body of the case early.
    body: Option<&'a What>,
    findings: &'a [Finding],
    kernel: &'a [String],
    left_behind: bool,
}

impl Seen<'_> {
    /// `Failed` and `Leaked` are the driver's fault or a failed assertion of the case; `Error` is ours.
    fn status(&self) -> Status {
        let at_fault =
            |party: Party| self.findings.iter().any(|finding| finding.is_fault() && finding.party == party);
        let body_is_ours = matches!(self.body, Some(What::Ours(_) | What::Environment(_)));
        let body_failed = self.body.is_some() && !body_is_ours;
        if self.driver_exited {
            Status::DriverExited
        } else if at_fault(Party::Driver) {
            Status::Failed
        } else if body_is_ours || at_fault(Party::Environment) || at_fault(Party::Manager) {
            Status::Error
        } else if body_failed || !self.kernel.is_empty() {
            Status::Failed
        } else if at_fault(Party::Unknown) {
            Status::Error
        } else if self.left_behind {
            Status::Leaked
        } else {
            Status::Passed
        }
    }
}

/// The finding of the promise whose violation ended the body of the case.
fn broken_promise(what: &What, symbols: &Symbols) -> Option<Finding> {
    let What::Promise { contract, method, cause } = what else { return None };
    // With symbols, because a message of the driver may contain the id of a volume, which differs in each run.
    Some(judge::promise_broken_in_body(contract, method, &symbols.text(cause)))
}

/// Writes messages to the run, on descriptor 3, without secrets.
#[derive(Debug, Clone)]
pub struct Voice {
    out: Rc<RefCell<File>>,
    masks: Rc<RefCell<Vec<Masks>>>,
}

impl Voice {
    /// The context of a case whose steps are reported through this voice.
    fn context(&self, bed: Bed, case: &Case, orders: &Orders) -> Cx {
        let speak = self.clone();
        Cx::new(bed, case.place(), orders, Box::new(move |progress| speak.say(&Said::Progress(progress))))
    }

    /// Masks these secrets in all later messages, and those that are added to `masks` later.
    pub fn hide(&self, masks: Masks) {
        self.masks.borrow_mut().push(masks);
    }

    pub fn say(&self, message: &Said) {
        let mut message = message.clone();
        clean(&mut message, &self.masks.borrow());
        let line = serde_json::to_string(&message).expect("a message has text keys only") + "\n";
        // An error means that the run is gone; this process ends with it.
        drop(self.out.borrow_mut().write_all(line.as_bytes()));
    }
}
