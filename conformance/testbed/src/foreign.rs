//! A driver that volproof has not started, and how its worker differs.
//!
//! Its mounts are the machine's, it outlives the case, and its processes are not visible in the sandbox. So the node's
//! root is on the machine, too, and each call that makes something is recorded in the ledger first.

use std::path::Path;
use std::sync::Arc;

use harness::journal::{LoopsBehind, Witness};
use harness::ledger::{Entry, Ledger};
use harness::observe::{self, MountWatch};
use harness::sandbox::{Sandbox, SharedNode};

use crate::message::{Orders, Refusal};

/// The paths and the ledger of a driver that volproof has not started.
#[derive(Debug)]
pub struct Foreign {
    ledger: Arc<Ledger>,
    loops: LoopsBehind,
}

/// The node's root for a driver that runs already.
pub fn shared_node(orders: &Orders) -> Option<SharedNode> {
    let socket = orders.manifest.socket.clone()?;
    let private = orders.ledger.parent().unwrap_or(Path::new("/")).to_owned();
    let below = orders.manifest.shared_dir.clone().unwrap_or_else(|| private.clone());
    Some(SharedNode { below, private, socket })
}

impl Foreign {
    /// Opens the ledger for a driver that runs already; nothing for one of our own.
    pub fn of(orders: &Orders) -> Result<Option<Self>, Refusal> {
        let Some(socket) = orders.manifest.socket.clone() else { return Ok(None) };
        let ledger = Ledger::open(&orders.ledger).map_err(|error| Refusal::ours(&error))?;
        let (controller, secrets) =
            (orders.manifest.controller_socket.clone(), orders.manifest.secrets.clone());
        let driver = Entry::Driver { socket, controller, secrets };
        ledger.record(&driver).map_err(|error| Refusal::ours(&error))?;
        Ok(Some(Self { ledger: Arc::new(ledger), loops: LoopsBehind::default() }))
    }

    /// The ledger for the driver's requests with lasting effects.
    pub fn ledger(&self) -> Arc<Ledger> {
        Arc::clone(&self.ledger)
    }

    /// The witness of mounts, which notes the loop devices behind them, too.
    pub fn witness(&self, watch: MountWatch, root: &Path) -> Box<dyn Witness> {
        Box::new(self.loops.watching(watch, root.to_owned(), self.ledger()))
    }

    /// The loop devices that were behind mounts of this case and are still attached.
    pub fn left_behind(&self) -> Vec<String> {
        let line = |bound: &harness::loop_device::table::BoundLoop| {
            format!("loop   {} is loop{}", bound.backing.display(), bound.number)
        };
        self.loops.left().iter().map(line).collect()
    }
}

/// The end of the names of this worker's volumes.
pub(super) fn tag(orders: &Orders, sandbox: &Sandbox) -> String {
    if !orders.manifest.is_running_already() {
        return orders.tag.clone();
    }
    let name = |path: Option<&Path>| {
        path.and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned()
    };
    // Each case has its own root of the node.
    format!("-{}-{}", name(orders.ledger.parent()), name(Some(sandbox.layout().root())))
}

/// Whether the kernel names the process of each mount. Where it does, one that cannot be seen from inside the
/// sandbox is the driver's.
pub fn names_processes(watch: &MountWatch) -> bool {
    watch.witness() == observe::Witness::Fanotify
}
