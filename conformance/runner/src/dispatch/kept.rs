//! A worker that is held by its lifeline: the one that runs, and the one whose sandbox stays when it has ended.

use std::io;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::time::Duration;

use harness::census;
use tokio::process::Child;

/// How long a worker may take to die once its lifeline is cut.
const DYING: Duration = Duration::from_secs(10);

/// A worker and what it lives by.
#[derive(Debug)]
pub struct Kept {
    child: Child,
    lifeline: OwnedFd,
}

impl Kept {
    pub(super) fn new(child: Child, lifeline: OwnedFd) -> Self {
        Self { child, lifeline }
    }

    /// Those of its processes that get nowhere.
    pub(super) fn stuck(&self) -> Vec<String> {
        let keeper = self.child.id().map(u32::cast_signed);
        let stuck = keeper.map(census::stuck_in_sandbox).unwrap_or_default();
        stuck.iter().map(ToString::to_string).collect()
    }

    /// Waits until it ends by itself.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Ends it, and with it the whole sandbox. There is nothing to wait for politely.
    pub(super) async fn let_go(self) -> io::Result<()> {
        let Self { mut child, lifeline } = self;
        drop(lifeline);
        match tokio::time::timeout(DYING, child.wait()).await {
            Ok(ended) => ended.map(drop),
            Err(_) => child.kill().await,
        }
    }
}
