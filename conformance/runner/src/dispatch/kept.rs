//! A worker with its lifeline, while its case runs, and afterwards if `--keep` keeps its sandbox.

use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::time::Duration;

use harness::census;
use tokio::process::Child;

/// The time for a worker to end after its lifeline was closed.
const DYING: Duration = Duration::from_secs(10);

/// A worker and the write end of its lifeline.
#[derive(Debug)]
pub struct Kept {
    child: Child,
    lifeline: OwnedFd,
}

impl Kept {
    pub(super) fn new(child: Child, lifeline: OwnedFd) -> Self {
        Self { child, lifeline }
    }

    /// The processes of its sandbox that are stuck in the kernel.
    pub(super) fn stuck(&self) -> Vec<String> {
        let keeper = self.child.id().map(u32::cast_signed);
        let stuck = keeper.map(census::stuck_in_sandbox).unwrap_or_default();
        stuck.iter().map(ToString::to_string).collect()
    }

    /// Waits until the worker ends by itself.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Closes the lifeline, which kills the worker and its whole sandbox.
    pub(super) async fn let_go(self) -> io::Result<()> {
        let Self { mut child, lifeline } = self;
        drop(lifeline);
        match tokio::time::timeout(DYING, child.wait()).await {
            Ok(ended) => ended.map(drop),
            Err(_) => child.kill().await,
        }
    }
}
