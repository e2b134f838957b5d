//! The sandbox of one case: a process tree in its own mount and PID namespaces.
//!
//! When PID 1 of the sandbox dies, even by `SIGKILL`, the kernel ends every process of the case and removes its mounts
//! and the files below the node's root. This file unshares, mounts inside the new namespace and makes directories
//! there; it creates nothing on the machine's own file system.
//!
//! [`Sandbox::enter`] leaves three processes. The caller becomes the *keeper*: it only waits and passes the exit status
//! on. Its child is PID 1, which reaps orphans and watches the lifelines. The child of PID 1 is the *worker*, in which
//! the function returns. PID 1 is not the worker, because a process that reaps every orphan also takes the exit
//! statuses that an async runtime in the same process waits for.

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

/// The source of each mount that a sandbox makes for itself.
pub(crate) const SOURCE: &str = "volproof";

pub use error::SandboxError;
pub use init::{LOST_LIFELINE, SIGNALLED};
pub use machine::{Bounds, Changed, MachineOptions, Written};
pub use shared::SharedNode;

/// The settings of a sandbox.
#[derive(Debug)]
pub struct SandboxOptions {
    /// The read end of a pipe whose write end only the run holds. When the pipe ends, everything in the sandbox dies.
    pub lifeline: Option<OwnedFd>,
    /// Whether to make a user namespace too, and be root only inside of it.
    pub user_namespace: bool,
    /// Whether to leave the caller's process group, so that a terminal's Ctrl-C reaches the run alone.
    pub own_group: bool,
    /// The path of the run's ledger, which records what outlives a namespace before it can be lost.
    pub ledger: Option<PathBuf>,
    /// The name of this sandbox in the ledger: the id of the case.
    pub name: String,
    /// A directory on a disk for the node's root and the driver's state; without it both are in memory. The node finds
    /// the files that are there already.
    pub disk: Option<PathBuf>,
    /// The bytes that the node's root directory may need. For a driver that runs already they are its limit.
    pub node_bytes: u64,
    /// The bytes that the state directory may need. Drivers that keep volumes in files keep them there.
    pub state_bytes: u64,
    /// For a driver that runs already: the place of the node's root on the machine, so that driver and node see
    /// the same mounts.
    pub shared: Option<SharedNode>,
    /// The machine's files inside of the sandbox.
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

impl SandboxOptions {
    /// The size limit of the file system for the node's root and the state.
    fn bytes(&self) -> u64 {
        self.node_bytes + self.state_bytes
    }
}

/// The default number of bytes for the state directory.
fn state_bytes() -> u64 {
    // An eighth of the memory, because cases run side by side: at least enough for one xfs, at most what the largest
    // case needs.
    let memory = rustix::system::sysinfo();
    let bytes = u64::from(memory.mem_unit) * memory.totalram as u64;
    (bytes / 8).clamp(768 << 20, 4 << 30)
}

/// The claim of a sandbox to the file systems that live and die with it.
#[derive(Debug, Clone)]
pub struct Ownership {
    ledger: Option<Arc<Ledger>>,
    entry: Entry,
}

impl Ownership {
    /// Claims another file system, by its device. Before a process can attach a file that lies on it: the janitor finds
    /// its loop device by that.
    ///
    /// # Errors
    /// When the ledger cannot be written.
    pub fn also(&self, device: u64) -> Result<(), LedgerError> {
        let mut entry = self.entry.clone();
        if let Entry::Sandbox { devices, .. } = &mut entry {
            *devices = vec![device];
        }
        self.ledger.iter().try_for_each(|ledger| ledger.record(&entry))
    }

    /// Whether the sandbox had this file system from its beginning.
    pub fn has(&self, device: u64) -> bool {
        matches!(&self.entry, Entry::Sandbox { devices, .. } if devices.contains(&device))
    }
}

/// The sandbox that the calling process has made and entered.
#[derive(Debug)]
pub struct Sandbox {
    rootless: bool,
    is_shared: bool,
    layout: Layout,
    bytes: u64,
    devices: Vec<u64>,
    machine: machine::Machine,
    ledger: Option<Arc<Ledger>>,
    ownership: Ownership,
    init: Life,
    took: Duration,
}

impl Sandbox {
    /// Moves the caller into a new sandbox.
    ///
    /// Returns in a *new process*. The calling process waits for it and exits with its status: 128 plus the signal's
    /// number, if a signal ended it. Call it first in `main`: it fails beside a second thread, because a namespace
    /// belongs to a thread.
    pub fn enter(mut options: SandboxOptions) -> Result<Sandbox, SandboxError> {
        let begin = std::time::Instant::now();
        let (rootless, bytes) = (options.user_namespace, options.bytes());
        // Opened outside, where the path resolves; the sandbox inherits the descriptor.
        let ledger = options.ledger.as_deref().map(Ledger::open).transpose()?;
        // After the ledger is open, since clean-up waits until it is closed. From here on this process dies with
        // the run.
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
        let entry = Entry::Sandbox {
            name: options.name,
            keeper: lives.keeper,
            init: lives.init,
            mount_namespace: init::mount_namespace()?,
            devices: devices.clone(),
            since: table::latest_sequence(),
        };
        // Before a process can attach a file on one of these devices: the janitor finds its loop device by them.
        ledger.iter().try_for_each(|ledger| ledger.record(&entry))?;
        let (init, took) = (lives.init, begin.elapsed());
        let ledger = ledger.map(Arc::new);
        let ownership = Ownership { ledger: ledger.clone(), entry };
        Ok(Sandbox { rootless, is_shared, layout, bytes, devices, machine, ledger, ownership, init, took })
    }

    /// The machine's paths that the sandbox's processes can write to, only read, or not see.
    pub fn bounds(&self) -> &Bounds {
        &self.machine.bounds
    }

    /// Changes to the machine's files since the sandbox was made. They vanish with the sandbox.
    pub fn written(&self) -> Vec<Written> {
        self.machine.written()
    }

    /// Whether the layer that takes changes to the machine's files is full.
    pub fn is_machine_full(&self) -> bool {
        self.machine.is_full()
    }

    /// Records in the ledger that this sandbox is kept until its run closes the lifeline: `volproof enter` finds it.
    ///
    /// # Errors
    /// When the ledger cannot be written.
    pub fn record_kept(&self) -> Result<(), LedgerError> {
        self.ledger.iter().try_for_each(|ledger| ledger.record(&Entry::KeptSandbox { init: self.init }))
    }

    /// The run's ledger; its path may not resolve inside of the sandbox.
    pub fn ledger(&self) -> Option<Arc<Ledger>> {
        self.ledger.clone()
    }

    /// Whether the sandbox has a user namespace, and its processes are root only inside of it.
    pub fn rootless(&self) -> bool {
        self.rootless
    }

    /// Whether the sandbox uses the machine's mount namespace: then only the mounts below the node's root are its own.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// The size limit of the file system with the node's root and the state.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The duration of the set-up.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// The devices (`st_dev`) of the file systems that live and die with this sandbox. A loop device whose
    /// backing file lies on one of them is this sandbox's, no matter which process attached it.
    pub fn devices(&self) -> &[u64] {
        &self.devices
    }

    /// To claim further file systems for this sandbox.
    pub fn ownership(&self) -> Ownership {
        self.ownership.clone()
    }

    /// The paths inside of the sandbox.
    pub fn layout(&self) -> Layout {
        self.layout.clone()
    }
}
