//! Workers in guests: each guest carries out one case at a time, and a new one takes the place of a guest that
//! died, or whose case did not pass.
//!
//! Every guest has a thread of its own, its keeper, which boots it, gives it work and ends it: the emulator is
//! killed by the kernel when the thread that started it ends, so that no guest outlives the run.

mod keeper;

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use harness::facts::Facts;
use harness::private;
use tokio::sync::{Notify, mpsc, oneshot};
use vm_images::outfit::BuiltGuest;
use vm_images::protocol::Run;
use vm_images::qemu::{Accelerator, Boot, Disk, Machine, Verdict};
use vm_images::root_disk::RootDisk;

use super::lane::{Ended, GRACE};
use crate::event::Status;
use crate::logs;
use crate::message::{Assignment, LIFELINE_FD, REPORT_FD, Said, Task};
use keeper::{Heard, Keeper, Work};
use testbed::case;
use testbed::message::{Orders, Progress};
use testbed::need::Need;

/// The program in a guest: PID 1's own.
const PROGRAM: &str = "/init";

/// The directory of the run in a guest.
const PLACE: &str = "/run/volproof";

/// The factor by which a case may be slower under emulation.
const SLOWER: u32 = 3;

/// The disk of a guest whose power is cut: how large, and where the guest finds it.
const DISK: u64 = 1 << 30;
const DISK_THERE: &str = "/dev/vda";

/// The most power cuts of a case, so that it ends.
const CUTS: u32 = 3;

/// What the kernel says of a panic that a case asked for. Its own word is the only one that is sure to arrive: what
/// the worker said last may go down with it.
const ASKED_PANIC: &str = "Kernel panic - not syncing: sysrq triggered crash";

/// The time limit for a guest to report its abilities.
const LOOKING: Duration = Duration::from_secs(60);

/// The kernel, the files and the emulator of all guests of a run.
#[derive(Debug)]
pub struct Kind {
    /// The machine that QEMU emulates.
    pub machine: Machine,
    /// Their files; held so that no other run removes them.
    pub fitted: Arc<BuiltGuest>,
    /// The disk with the driver's root, held likewise.
    pub root: Option<Arc<RootDisk>>,
    /// The accelerator, with the reason.
    pub verdict: Verdict,
}

/// The guests of a run.
#[derive(Debug)]
pub struct Guests {
    kind: Arc<Kind>,
    idle: RefCell<Vec<Keeper>>,
    /// The number of assignments so far: each has its own directory in its guest.
    given: Cell<u64>,
}

impl Guests {
    /// Guests of this kind. None is booted before there is work for it.
    pub fn new(kind: Kind) -> Self {
        Self { kind: Arc::new(kind), idle: RefCell::default(), given: Cell::new(0) }
    }

    /// The kernel, the files and the emulator of the guests.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The time limit in a guest for something with this limit on the machine.
    pub fn patience(&self, here: Duration) -> Duration {
        match self.kind.verdict.accelerator {
            Accelerator::Kvm => here,
            Accelerator::Tcg => here * SLOWER,
        }
    }

    /// The abilities of a guest. The error of one that does not come up in time is [`io::ErrorKind::TimedOut`].
    pub async fn look(&self) -> io::Result<Facts> {
        let run = Run {
            argv: [PROGRAM, "__guest", "facts"].map(str::to_owned).into(),
            timeout_ms: millis(self.patience(LOOKING)),
            ..Run::default()
        };
        let mut said = String::new();
        let hear = |fd, data: &str| {
            if fd == 1 {
                said.push_str(data);
            }
        };
        let keeper = self.keeper();
        let (ended, keeper) = work(keeper, run, None, hear, std::future::pending::<()>()).await;
        self.idle.borrow_mut().push(keeper);
        match ended {
            Finished::Exited(Some(0)) => serde_json::from_str(&said).map_err(io::Error::other),
            Finished::Exited(code) => {
                Err(io::Error::other(format!("looking at the guest ended with {code:?}")))
            }
            Finished::Lost(why) => Err(io::Error::other(why)),
            Finished::Late(why) => Err(io::Error::new(io::ErrorKind::TimedOut, why)),
            Finished::Hung | Finished::Unwanted => Err(io::Error::other("the guest does not answer")),
        }
    }

    /// Runs one worker in a guest, as [`lane::run`](super::lane::run) does here. One that cuts the power or has the
    /// kernel panic is run again, in a guest that boots with the disk the first one had.
    pub async fn run(
        &self,
        assignment: &Assignment,
        mut hear: impl FnMut(Said),
        cancel: impl Future,
    ) -> io::Result<Ended> {
        tokio::pin!(cancel);
        if !cuts_power(&assignment.task) {
            let (ended, keeper) = self.once(self.keeper(), assignment, &mut hear, cancel).await?;
            self.idle.borrow_mut().extend(keeper);
            return Ok(ended);
        }
        let disk = Disk::new(DISK)?;
        for cuts in 0.. {
            let keeper = Keeper::start(Arc::new(self.kind.with_disk(&disk)));
            let mut assignment = assignment.clone();
            assignment.orders.disk = Some(DISK_THERE.into());
            assignment.orders.cuts = cuts;
            let cut = Notify::new();
            let mut was_cut = false;
            let hear = |said| match said {
                Said::Progress(Progress::CutPower) if cuts < CUTS => {
                    was_cut = true;
                    cut.notify_one();
                }
                said => hear(said),
            };
            let either = futures::future::select(Box::pin(cut.notified()), &mut cancel);
            // The guest ends with its keeper, at once and without a word: that is the cut.
            let (ended, _) = self.once(keeper, &assignment, hear, either).await?;
            let panicked = matches!(&ended, Ended::Lost(why) if why.contains(ASKED_PANIC)) && cuts < CUTS;
            // A worker that comes to its end has a kernel that did not.
            if !(was_cut || panicked) || matches!(ended, Ended::Exited(_) | Ended::Hung(_)) {
                return Ok(ended);
            }
        }
        unreachable!("the last guest's power is not cut")
    }

    /// Runs one worker in the guest of a keeper, who is given back if there may be more work for it.
    async fn once(
        &self,
        keeper: Keeper,
        assignment: &Assignment,
        mut hear: impl FnMut(Said),
        cancel: impl Future,
    ) -> io::Result<(Ended, Option<Keeper>)> {
        let number = self.given.replace(self.given.get() + 1);
        let place = format!("{PLACE}/{number}");
        let Assignment { task, orders } = assignment;
        let timeout = self.patience(orders.timeout);
        let there = Orders {
            directory: place.clone().into(),
            ledger: format!("{PLACE}/ledger").into(),
            rootless: false,
            timeout,
            ..orders.clone()
        };
        let there = Assignment { task: task.clone(), orders: there };
        let run = Run {
            argv: [PROGRAM, "__worker"].map(str::to_owned).into(),
            stdin: serde_json::to_string(&there).map_err(io::Error::other)?,
            makes: vec![place.clone()],
            also: vec![REPORT_FD],
            lifeline: Some(LIFELINE_FD),
            timeout_ms: millis(timeout + GRACE),
            ..Run::default()
        };
        let mut log = private::append(&orders.directory.join("worker.log"))?;
        let (mut report, mut good) = (String::new(), false);
        let hear_all = |fd, data: &str| {
            if fd != REPORT_FD {
                // A failed write is ignored: the run goes on without its log.
                drop(log.write_all(data.as_bytes()));
                return;
            }
            report.push_str(data);
            while let Some(end) = report.find('\n') {
                let line: String = report.drain(..=end).collect();
                // A line that is no message is a bug in the worker; the case then lacks its outcome.
                let Ok(said) = serde_json::from_str(&line) else { continue };
                good |= match &said {
                    Said::Outcome(outcome) => outcome.status == Status::Passed,
                    Said::Abilities(_) => true,
                    _ => false,
                };
                hear(said);
            }
        };
        let fetch = Some((place, orders.directory.clone()));
        let (ended, mut keeper) = work(keeper, run, fetch, hear_all, cancel).await;
        // The next case gets a new guest: a failed one may have left something.
        keeper.renew = !good;
        let keeper = (!matches!(ended, Finished::Unwanted)).then_some(keeper);
        let ended = match ended {
            Finished::Exited(Some(code)) => Ended::Exited(exit_status(code)),
            Finished::Exited(None) => Ended::Lost("the guest could not run the worker".to_owned()),
            Finished::Hung => Ended::Hung(vec![]),
            Finished::Lost(why) => Ended::Lost(why),
            Finished::Late(why) => Ended::Late(why),
            Finished::Unwanted => Ended::Cancelled,
        };
        Ok((ended, keeper))
    }

    fn keeper(&self) -> Keeper {
        let idle = self.idle.borrow_mut().pop();
        idle.unwrap_or_else(|| Keeper::start(Arc::clone(&self.kind)))
    }
}

impl Kind {
    /// The same, with a disk. Such a guest always boots.
    fn with_disk(&self, disk: &Disk) -> Self {
        let boot = Boot { disks: vec![disk.path()], ..self.machine.boot().clone() };
        let machine = Machine::new(boot, &self.fitted.dir);
        let (fitted, root) = (Arc::clone(&self.fitted), self.root.clone());
        Self { machine, fitted, root, verdict: self.verdict.clone() }
    }
}

/// Whether it is a case that cuts the power.
fn cuts_power(task: &Task) -> bool {
    let Task::Case(id, _) = task else { return false };
    case::find(id).is_some_and(|case| case.needs().contains(&Need::PowerCut))
}

/// The end of an assignment.
#[derive(Debug)]
enum Finished {
    Exited(Option<i32>),
    /// It ran into its deadline.
    Hung,
    /// The guest did not come up, or died.
    Lost(String),
    /// The guest had not come up when its time was over.
    Late(String),
    Unwanted,
}

/// Gives a keeper a piece of work, and passes its messages on until it ends or the receiver is dropped.
async fn work(
    keeper: Keeper,
    run: Run,
    fetch: Option<(String, std::path::PathBuf)>,
    mut hear: impl FnMut(i32, &str),
    cancel: impl Future,
) -> (Finished, Keeper) {
    let (heard, mut hearing) = mpsc::unbounded_channel();
    let (finished, mut end) = oneshot::channel();
    keeper.give(Work { run, fetch, renew: keeper.renew, heard, finished });
    tokio::pin!(cancel);
    let ended = loop {
        tokio::select! {
            biased;
            Some(Heard { fd, data }) = hearing.recv() => hear(fd, &data),
            ended = &mut end => break ended,
            _ = &mut cancel => {
                keeper.unwanted.store(true, Ordering::Relaxed);
                // The keeper sees it at its next look, and its guest is gone when this is over.
                drop(end.await);
                return (Finished::Unwanted, keeper);
            }
        }
    };
    let ended = ended.unwrap_or_else(|_| Finished::Lost("the guest's keeper is gone".to_owned()));
    (ended, keeper)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn exit_status(code: i32) -> std::process::ExitStatus {
    use std::os::unix::process::ExitStatusExt;
    std::process::ExitStatus::from_raw(code << 8)
}

/// Keeps what a dead guest's kernel said last.
fn keep_log(directory: &Path, log: &str) {
    // Without the log, too, the case is reported as lost.
    drop(logs::keep(directory, "kernel.log", log));
}
