//! Crash points: every edge of a healthy life is a place to die at.

use std::panic::Location;

use super::Cx;
pub use crate::bed::Victim;
use crate::failure::Result;

/// How many crash points are tried in a run of a case.
const TRIED: usize = 5;

/// A moment from which edges are counted.
#[derive(Debug, Clone, Copy)]
pub struct Beginning(usize);

impl Cx {
    pub fn beginning(&self) -> Beginning {
        Beginning(self.shared.bed.journal.length())
    }

    /// How many calls, answers, mounts and effects there were since then.
    pub fn edges_since(&self, beginning: Beginning) -> usize {
        self.shared.bed.edges_since(beginning.0)
    }

    /// Some of `edges` edges, spread over all of them. The seed says where the first one is: as many runs with one seed
    /// after the other (`--repeat`) as there are edges from one point to the next try each edge there is.
    pub fn crash_points(&self, edges: usize) -> Vec<usize> {
        let stride = edges.div_ceil(TRIED).max(1);
        let first = usize::try_from(self.seed() % stride as u64).unwrap_or(0);
        (first..edges).step_by(stride).collect()
    }

    /// Waits for an edge, kills, and starts again what was killed. A life that has fewer edges this time ends first.
    #[track_caller]
    pub fn dies_at(&self, victim: Victim, since: Beginning, edge: usize) -> impl Future<Output = Result> {
        let doing = self.shared.begin(&format!("cx.dies_at({victim}, edge {edge})"), Location::caller());
        async move {
            self.shared.bed.edge_is_reached(since.0, edge).await;
            doing.done(self.shared.bed.crash(victim).await)
        }
    }
}
