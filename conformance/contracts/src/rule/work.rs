//! The number of entries that rules and books have visited, for the test of the cost of judging.

#[cfg(test)]
use std::cell::Cell;

#[cfg(test)]
thread_local! {
    pub(super) static LOOKED_AT: Cell<usize> = const { Cell::new(0) };
}

/// An entry was visited.
pub(crate) fn add() {
    #[cfg(test)]
    LOOKED_AT.set(LOOKED_AT.get() + 1);
}
