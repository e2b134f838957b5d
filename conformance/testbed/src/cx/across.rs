//! A pod keeps its volumes while the node and the driver restart: the same check after each restart.

use std::fmt;
use std::panic::Location;

use super::Cx;
use crate::bed::StepError;
use crate::failure::Result;

/// A way in which the node or the driver comes and goes while pods keep their volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifecycle {
    /// The node is killed and started again.
    Restart,
    /// The node is killed and started again, and once more while it recovers.
    Kill,
    /// The driver is killed, started again and registered anew. A driver that volproof did not start is only
    /// registered anew.
    DriverRestart,
}

impl fmt::Display for Lifecycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Cx {
    /// Does each of these in turn, and repeats the check after each. The check gets the last one.
    #[track_caller]
    pub fn across<'a>(
        &'a self,
        events: &'a [Lifecycle],
        mut check: impl AsyncFnMut(Lifecycle) -> Result + 'a,
    ) -> impl Future<Output = Result> + 'a {
        let caller = Location::caller();
        async move {
            for event in events {
                let doing = self.shared.begin(&format!("cx.across({event})"), caller);
                doing.done(self.happens(*event).await)?;
                check(*event).await?;
            }
            Ok(())
        }
    }

    async fn happens(&self, event: Lifecycle) -> std::result::Result<(), StepError> {
        let bed = &self.shared.bed;
        let started = |result: std::result::Result<(), _>| result.map_err(|error| StepError::ours(&error));
        match event {
            Lifecycle::Restart => started(bed.node.restart().await),
            Lifecycle::Kill => {
                started(bed.node.restart().await)?;
                // Nothing is waited for: the second death comes in the middle of the recovery from the first.
                started(bed.node.restart().await)
            }
            Lifecycle::DriverRestart => {
                bed.kill_driver().await;
                bed.start_driver().await.map_err(|error| StepError::of_testbed(&error))
            }
        }
    }
}
