//! A node in memory: a simulated kernel, and a host on it that fails, waits or hangs on order. Touches nothing
//! real.
//!
//! [`FakeKernel`] is the machine: mount table with peer groups, binds and moves, file trees, disks, loop
//! devices. A simulated driver calls it directly. [`FakeHost`] is the manager's door to the same machine:
//! each of its steps asks [`Faults`] first, and announces its effects as the real host does.
//!
//! It is deterministic: numbers are given in order, listings are sorted, the only clock is tokio's.

use std::path::Path;
use std::sync::Arc;

use self::kernel::State;
use crate::door::Host;
use crate::errno::Errno;

mod calls;
mod device;
mod directory;
mod fault;
mod file;
mod hold;
mod host;
mod kernel;
mod mount;
mod propagation;
mod table;
mod tree;
mod walk;

pub use fault::{Decide, Faults, Order, Rule, Step};
pub use hold::Hold;
pub use kernel::FakeKernel;

/// The manager's door to a simulated machine.
#[derive(Debug, Clone, Default)]
pub struct FakeHost {
    kernel: FakeKernel,
    faults: Faults,
}

impl FakeHost {
    /// With no faults ordered.
    pub fn new(kernel: FakeKernel) -> Self {
        Self { kernel, faults: Faults::new() }
    }

    /// This host in the form that the manager takes.
    pub fn shared(&self) -> Arc<dyn Host> {
        Arc::new(self.clone())
    }

    pub fn kernel(&self) -> &FakeKernel {
        &self.kernel
    }

    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Takes a step that changes nothing, as ordered. The lock is not held across an await.
    async fn step<T>(
        &self,
        method: &'static str,
        path: &Path,
        act: impl FnOnce(&mut State) -> Result<T, Errno> + Send,
    ) -> Result<T, Errno> {
        self.change(method, path, act, |_| {}).await
    }

    /// Takes a step as ordered. A step that was taken is announced, also if its caller gets an error or no
    /// answer.
    async fn change<T>(
        &self,
        method: &'static str,
        path: &Path,
        act: impl FnOnce(&mut State) -> Result<T, Errno> + Send,
        announce: impl FnOnce(&T) + Send,
    ) -> Result<T, Errno> {
        let act = || self.take(act).inspect(announce);
        match self.faults.order(&Step { method, path }) {
            Order::Go => {}
            Order::Yield => tokio::task::yield_now().await,
            Order::Delay(time) => tokio::time::sleep(time).await,
            Order::Fail(number) => return Err(Errno(number)),
            Order::FailAfter(number) => {
                drop(act());
                return Err(Errno(number));
            }
            Order::Hang => return std::future::pending().await,
            Order::HangAfter => {
                drop(act());
                return std::future::pending().await;
            }
        }
        act()
    }

    /// Takes a step. The lock ends before the result is dropped: a [`Hold`] in it locks again.
    fn take<T>(&self, act: impl FnOnce(&mut State) -> Result<T, Errno>) -> Result<T, Errno> {
        let mut state = self.kernel.lock();
        act(&mut state)
    }
}
