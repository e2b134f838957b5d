//! Deaths at a chosen edge of a life: after a number of its calls, answers, mounts and effects.

use std::fmt;
use std::time::Duration;

use contracts::event::{Event, TraceLine};

use super::{Bed, Result, StepError};
use crate::need::Need;

/// The part that is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    Driver,
    Node,
    /// The node and its driver, at once.
    Both,
    /// The machine, with both of them, its mounts and its loop devices.
    Machine,
}

impl Victim {
    /// The needs of a case with this value, beside its own.
    pub const fn needs(self) -> &'static [Need] {
        &[]
    }
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The pause between two looks whether the node has become idle before the edge.
const GLANCE: Duration = Duration::from_millis(30);

/// Longer than the first waits of a node whose call has failed. It passes at once.
const BACK_OFF: Duration = Duration::from_secs(2);

impl Bed {
    /// The number of edges since the journal had `lines` lines.
    pub(crate) fn edges_since(&self, lines: usize) -> usize {
        self.journal.since(lines).iter().filter(|line| is_edge(line)).count()
    }

    /// Waits until there were `edges` edges, or the node has nothing more to do.
    pub(crate) async fn edge_is_reached(&self, lines: usize, edges: usize) {
        while !self.journal.wait(GLANCE, |_| self.edges_since(lines) >= edges).await {
            if self.node.wait_idle(Duration::ZERO).await.is_ok() {
                return;
            }
        }
    }

    /// Kills the victim and starts it again at once.
    pub(crate) async fn crash(&self, victim: Victim) -> Result {
        match victim {
            Victim::Node => {
                self.node.kill().await;
                self.node.restart().await.map_err(|error| StepError::ours(&error))?;
            }
            Victim::Driver => {
                self.kill_driver().await;
                self.start_driver().await.map_err(|error| StepError::of_testbed(&error))?;
            }
            Victim::Both => {
                self.node.kill().await;
                self.kill_driver().await;
                self.start_all().await?;
            }
            Victim::Machine => self.reboot().await?,
        }
        // Operations that failed meanwhile are tried again at once.
        self.time_passes(BACK_OFF).await
    }
}

fn is_edge(line: &TraceLine) -> bool {
    matches!(
        line.event,
        Event::RpcStart(_) | Event::RpcEnd(_) | Event::MountAdd(_) | Event::MountDel(_) | Event::Effect(_)
    )
}
