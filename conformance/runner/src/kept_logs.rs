//! The logs of failed runs without `--report`: where they are, and for how long.

use std::path::PathBuf;

use harness::janitor;
use harness::ledger::LOGS;
use vm_images::cache::Cache;

/// The number of failed runs whose logs are kept.
pub const RUNS: usize = 10;

/// The directory for logs below the user's cache, made if it is missing. `None` if there can be none.
pub(crate) fn place() -> Option<PathBuf> {
    Cache::of_user().ok()?.dir(LOGS).ok()
}

/// The directories in which ended runs may have left logs.
pub fn places() -> Vec<PathBuf> {
    let cache = Cache::of_user().ok().map(|cache| cache.path(LOGS));
    cache.into_iter().chain([std::env::temp_dir()]).collect()
}

/// Removes the oldest logs, so that with those of the run that just failed there are not more than [`RUNS`].
pub fn thin_out() {
    let Ok(cache) = Cache::of_user() else { return };
    let ended = janitor::reports(&[cache.path(LOGS)]);
    // The next failed run tries again.
    surplus(&ended).iter().for_each(|report| _ = report.remove());
}

/// The logs of earlier runs that have to go, of all from the oldest to the newest.
fn surplus<T>(earlier: &[T]) -> &[T] {
    &earlier[..(earlier.len() + 1).saturating_sub(RUNS)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_logs_go_when_there_are_too_many() {
        let earlier: Vec<usize> = (1..=RUNS + 2).collect();
        assert_eq!(surplus(&earlier[..RUNS - 1]), [] as [usize; 0]);
        assert_eq!(surplus(&earlier[..RUNS]), [1]);
        assert_eq!(surplus(&earlier), [1, 2, 3]);
    }
}
