//! The sandbox of one case: a process tree in its own mount and PID namespaces.
//!
//! Whatever a case mounts, starts or writes below the node's root dies with its first process, also after
//! `SIGKILL`: the kernel does the cleaning up. This file unshares, mounts inside the new namespace and makes
//! directories there; nothing is ever created on the machine's own file system.
//!
//! Three processes come out of [`Sandbox::enter`]: the caller becomes the *keeper*, which only waits and
//! passes the exit status on; below it PID 1 reaps orphans and watches the lifelines; below that the function
//! returns, in the *worker*. PID 1 is not the worker itself, because whoever reaps every orphan would also
//! take exit statuses that an async runtime in the same process is waiting for.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::Layout;
use crate::ledger::{Entry, Ledger, LedgerError, Life};
use crate::loop_device::table;

mod error;
mod furnish;
mod init;
mod machine;
mod shared;
pub mod visit;

pub use error::SandboxError;
pub use init::{LOST_LIFELINE, SIGNALLED};
pub use machine::{Bounds, Changed, MachineOptions, Written};
pub use shared::SharedNode;

/// How a sandbox is made.
#[derive(Debug)]
pub struct SandboxOptions {
    /// The read end of a pipe whose write end only the run holds. At its end everything in the sandbox dies.
    pub lifeline: Option<OwnedFd>,
    /// Whether to make a user namespace, too, and be root in there only.
    pub user_namespace: bool,
    /// Whether to leave the caller's process group, so that a terminal's Ctrl-C reaches the run alone.
    pub own_group: bool,
    /// Where the run keeps its ledger; what outlives a namespace is written down there first.
    pub ledger: Option<PathBuf>,
    /// What the ledger calls this sandbox: the id of the case.
    pub name: String,
    /// A directory on a disk that keeps the node's root and the state, in memory otherwise. What it holds already
    /// is what the node finds.
    pub disk: Option<PathBuf>,
    /// Most bytes the node's root directory can hold.
    pub node_bytes: u64,
    /// Most bytes the state directory can hold: volumes of a driver that keeps them in files lie there.
    pub state_bytes: u64,
    /// For a driver that runs already: where the node's root is to be, so that both see the same mounts.
    pub shared: Option<SharedNode>,
    /// What is found of the machine.
    pub machine: MachineOptions,
}

impl Default for SandboxOptions {
    fn default() -> Self {
        SandboxOptions {
            lifeline: None,
            user_namespace: !crate::standing::is_root(),
            own_group: true,
            ledger: None,
            name: String::new(),
            disk: None,
            node_bytes: 256 << 20,
            state_bytes: state_bytes(),
            shared: None,
            machine: MachineOptions::default(),
        }
    }
}

/// An eighth of the memory, since cases run beside each other; but room for one xfs, and never more than any case
/// needs.
fn state_bytes() -> u64 {
    let memory = rustix::system::sysinfo();
    let bytes = u64::from(memory.mem_unit) * memory.totalram as u64;
    (bytes / 8).clamp(768 << 20, 4 << 30)
}

/// The namespaces the calling process is in, as it made them.
#[derive(Debug)]
pub struct Sandbox {
    rootless: bool,
    is_shared: bool,
    layout: Layout,
    state_bytes: u64,
    devices: Vec<u64>,
    machine: machine::Machine,
    ledger: Option<Arc<Ledger>>,
    init: Life,
    took: Duration,
}

impl Sandbox {
    /// Moves the caller into a new sandbox.
    ///
    /// Returns in a *new process*; the calling one waits for it and exits with its status (128 and the
    /// signal's number, if a signal ended it). To be called first thing in `main`: with a second thread
    /// running it refuses, because a namespace belongs to a thread.
    pub fn enter(mut options: SandboxOptions) -> Result<Sandbox, SandboxError> {
        let begin = std::time::Instant::now();
        // Opened by its path out here; the descriptor goes along.
        let ledger = options.ledger.as_deref().map(Ledger::open).transpose()?;
        // Only now that the ledger waits for us: from here on the end of the run is the end of this, too.
        init::refuse_to_outlive(options.lifeline.as_ref());
        init::refuse_threads()?;
        let shared = options.shared.as_ref();
        let shared = shared.map(|shared| shared::prepare(shared, ledger.as_ref(), options.node_bytes));
        let shared = shared.transpose()?;
        let lives = init::become_init(&options, shared.as_ref(), ledger.as_ref())?;
        drop(options.lifeline.take());
        let is_shared = shared.is_some();
        let layout = shared.unwrap_or_else(Layout::standard);
        let (devices, machine) = match is_shared {
            true => {
                let because = "a driver that runs already works on the machine itself";
                (vec![furnish::device_of(layout.root())?], machine::Machine::open(because))
            }
            false => furnish::furnish(&layout, &options)?,
        };
        if let Some(ledger) = &ledger {
            // Before anybody can attach a file that lies on one of these.
            ledger.record(&Entry::Sandbox {
                name: options.name,
                keeper: lives.keeper,
                init: lives.init,
                mount_namespace: init::mount_namespace()?,
                devices: devices.clone(),
                since: table::latest_sequence(),
            })?;
        }
        let (rootless, state_bytes) = (options.user_namespace, options.state_bytes);
        let (init, took) = (lives.init, begin.elapsed());
        let ledger = ledger.map(Arc::new);
        Ok(Sandbox { rootless, is_shared, layout, state_bytes, devices, machine, ledger, init, took })
    }

    /// How far its processes are kept from the machine.
    pub fn bounds(&self) -> &Bounds {
        &self.machine.bounds
    }

    /// What was written over the machine's files since the sandbox was made. It is gone with the sandbox.
    pub fn written(&self) -> Vec<Written> {
        self.machine.written()
    }

    /// Whether there is no room left for what is written over the machine's files.
    pub fn is_machine_full(&self) -> bool {
        self.machine.is_full()
    }

    /// Tells those who look from outside that this sandbox stays as it is, until its run lets go.
    ///
    /// # Errors
    /// When the ledger cannot be written.
    pub fn stays(&self) -> Result<(), LedgerError> {
        self.ledger.iter().try_for_each(|ledger| ledger.record(&Entry::Stays { init: self.init }))
    }

    /// The run's ledger, which may be out of sight in here.
    pub fn ledger(&self) -> Option<Arc<Ledger>> {
        self.ledger.clone()
    }

    /// Whether being root ends at the sandbox's edge.
    pub fn rootless(&self) -> bool {
        self.rootless
    }

    /// Whether its mounts are the machine's: only what is below the node's root is of this sandbox.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Most bytes that its state directory can hold.
    pub fn state_bytes(&self) -> u64 {
        self.state_bytes
    }

    /// How long the set-up took.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// The devices (`st_dev`) of the file systems that live and die with this sandbox. A loop device whose
    /// backing file lies on one of them is this sandbox's, whoever attached it.
    pub fn devices(&self) -> &[u64] {
        &self.devices
    }

    /// Where everything lies in here.
    pub fn layout(&self) -> Layout {
        self.layout.clone()
    }
}
