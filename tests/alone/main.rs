//! Tests that compare the machine before and after, or leave something on it on purpose: one at a time, since two of them
//! would see each other's leftovers.
//!
//! Most of their time they wait, for a run to end or a janitor to wake. `cargo xtask test` runs all other tests beside
//! them: what those start goes with their runs.

mod contained;
mod environment;
mod hostile;
mod image;
mod interrupt;
mod keep;
mod leaks;
mod play;
mod preparation;
mod promises;
mod rooted;
mod watch;
