//! Crash points: a case counts the edges of a volume's life without a kill, and then kills at each of some edges.

use std::panic::Location;

use super::Cx;
pub use crate::bed::Victim;
use crate::failure::Result;

/// The number of crash points that a case tries, unless the run is thorough.
const TRIED: usize = 5;

/// A moment from which edges are counted.
#[derive(Debug, Clone, Copy)]
pub struct Beginning(usize);

impl Cx {
    pub fn beginning(&self) -> Beginning {
        Beginning(self.shared.bed.journal.length())
    }

    /// The number of calls, answers, mounts and effects since `beginning`.
    pub fn edges_since(&self, beginning: Beginning) -> usize {
        self.shared.bed.edges_since(beginning.0)
    }

    /// Every n-th of `edges` edges. Seed and victim choose the first, so the cases of one run try different edges, and n
    /// runs with consecutive seeds (`--repeat`) try all of them. A thorough run tries each edge.
    pub fn crash_points(&self, victim: Victim, edges: usize) -> Vec<usize> {
        match self.is_thorough() {
            true => (0..edges).collect(),
            false => points(self.seed(), victim, edges),
        }
    }

    /// Waits for an edge, kills the victim, and starts it again. If there are fewer edges this time, it kills when the node has
    /// nothing more to do.
    #[track_caller]
    pub fn kills_at_edge(
        &self,
        victim: Victim,
        since: Beginning,
        edge: usize,
    ) -> impl Future<Output = Result> {
        let doing =
            self.shared.begin(&format!("cx.kills_at_edge({victim}, edge {edge})"), Location::caller());
        async move {
            self.shared.bed.edge_is_reached(since.0, edge).await;
            doing.done(self.shared.bed.crash(victim).await)
        }
    }
}

fn points(seed: u64, victim: Victim, edges: usize) -> Vec<usize> {
    let stride = edges.div_ceil(TRIED).max(1);
    let first = seed.wrapping_add(victim as u64) % stride as u64;
    (usize::try_from(first).unwrap_or(0)..edges).step_by(stride).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn victims_of_one_run_die_at_different_edges_and_repeats_reach_each() {
        const EDGES: usize = 22;
        let victims = [Victim::Driver, Victim::Node, Victim::Both, Victim::Machine];
        let tried: Vec<usize> = victims.iter().flat_map(|victim| points(0, *victim, EDGES)).collect();
        assert_eq!(tried.iter().collect::<BTreeSet<_>>().len(), tried.len(), "{tried:?}");
        let stride = EDGES.div_ceil(TRIED) as u64;
        let repeated: BTreeSet<usize> =
            (7..7 + stride).flat_map(|seed| points(seed, Victim::Node, EDGES)).collect();
        assert_eq!(repeated, (0..EDGES).collect());
    }
}
