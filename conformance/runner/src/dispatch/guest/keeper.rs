//! The thread that keeps one guest: boots it when there is work, watches it while it works.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc as async_mpsc, oneshot};
use vm_images::protocol::{Exit, Order, Run, Told};
use vm_images::qemu::{Guest, GuestError};

use super::{Finished, Kind, keep_log};

/// The pause between two checks whether the guest is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// The time for a guest past its deadline to report that.
const SILENCE: Duration = Duration::from_secs(20);

/// Something that a program in the guest said.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) fd: i32,
    pub(super) data: String,
}

/// Something to do in a guest.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) run: Run,
    /// A directory of the guest, and where its content goes when the work is done.
    pub(super) fetch: Option<(String, PathBuf)>,
    /// Whether a guest that is there may not be used.
    pub(super) renew: bool,
    pub(super) heard: async_mpsc::UnboundedSender<Heard>,
    pub(super) finished: oneshot::Sender<Finished>,
}

/// The handle of a keeper. Its guest ends with it.
#[derive(Debug)]
pub(super) struct Keeper {
    works: Option<mpsc::Sender<Work>>,
    pub(super) unwanted: Arc<AtomicBool>,
    /// Whether the next work wants a new guest.
    pub(super) renew: bool,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub(super) fn start(kind: Arc<Kind>) -> Self {
        let (works, todo) = mpsc::channel::<Work>();
        let unwanted = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&unwanted);
        let thread = thread::spawn(move || {
            let mut keeping = Keeping { kind, unwanted: flag, guest: None, works: 0 };
            while let Ok(work) = todo.recv() {
                keeping.work(work);
            }
        });
        Self { works: Some(works), unwanted, renew: false, thread: Some(thread) }
    }

    pub(super) fn give(&self, work: Work) {
        // If the keeper has ended, the work is dropped, and its channels close.
        let _ = self.works.as_ref().expect("it is there until the end").send(work);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // No one reads its messages any more.
        self.unwanted.store(true, Ordering::Relaxed);
        self.works = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state of the keeper's thread.
struct Keeping {
    kind: Arc<Kind>,
    unwanted: Arc<AtomicBool>,
    guest: Option<Guest>,
    works: u64,
}

impl Keeping {
    fn work(&mut self, work: Work) {
        let Work { run, fetch, renew, heard, finished } = work;
        if renew {
            self.guest = None;
        }
        self.works += 1;
        let run = Run { id: self.works, ..run };
        let finish = match self.in_guest(run, fetch.as_ref(), &heard) {
            Ok(exit) if exit.timed_out || exit.stuck => Finished::Hung,
            Ok(exit) => match exit.error {
                Some(error) => Finished::Lost(format!("the guest cannot start the worker: {error}")),
                // A signal becomes an exit code as in a shell.
                None => Finished::Exited(exit.code.or(exit.signal.map(|signal| 128 + signal))),
            },
            Err(GuestError::Unwanted) => Finished::Unwanted,
            Err(error) => lost(&error),
        };
        if !matches!(finish, Finished::Exited(Some(0))) {
            self.guest = None;
        }
        // Without a receiver the run is ending.
        let _ = finished.send(finish);
    }

    fn in_guest(
        &mut self,
        run: Run,
        fetch: Option<&(String, PathBuf)>,
        heard: &async_mpsc::UnboundedSender<Heard>,
    ) -> Result<Exit, GuestError> {
        let flag = Arc::clone(&self.unwanted);
        let unwanted = move || flag.load(Ordering::Relaxed);
        let guest = match &mut self.guest {
            Some(guest) => guest,
            none => none.insert(self.kind.machine.start(&unwanted)?.0),
        };
        let said_before = guest.kernel_log().len();
        let ended = until_exit(guest, run, heard, &unwanted);
        if let Some((from, into)) = fetch {
            let alive = match &ended {
                // A worker that hangs has left logs that say where.
                Ok(_) => guest.fetch(from, into).is_ok(),
                Err(_) => false,
            };
            if !alive {
                keep_log(into, guest.kernel_log().get(said_before..).unwrap_or_default());
            }
        }
        ended
    }
}

/// What became of the work of a guest that failed.
fn lost(error: &GuestError) -> Finished {
    let why = testbed::failure::chain(error).join(": ");
    match error {
        GuestError::NoHello { .. } => Finished::Late(why),
        _ => Finished::Lost(why),
    }
}

/// Gives the order and passes on the guest's messages until the program has ended.
fn until_exit(
    guest: &mut Guest,
    run: Run,
    heard: &async_mpsc::UnboundedSender<Heard>,
    unwanted: &dyn Fn() -> bool,
) -> Result<Exit, GuestError> {
    let within = Duration::from_millis(run.timeout_ms) + SILENCE;
    let (deadline, starved) = (Instant::now() + within, guest.starved());
    let id = run.id;
    guest.order(&Order::Run(run))?;
    loop {
        match guest.next(LOOK)? {
            // A caller without a receiver has cancelled, which is checked below.
            Some(Told::Output { fd, data, .. }) => drop(heard.send(Heard { fd, data })),
            Some(Told::Exit(exit)) if exit.id == id => return Ok(exit),
            Some(other) => return Err(GuestError::OutOfTurn { said: format!("{other:?}") }),
            // A guest whose emulator gets no processor is not silent.
            None if Instant::now() > deadline + guest.starved().saturating_sub(starved) => {
                return Err(GuestError::Silent { within });
            }
            None => {}
        }
        if unwanted() {
            return Err(GuestError::Unwanted);
        }
    }
}
