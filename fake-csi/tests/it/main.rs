//! The driver as a process, on a real kernel, in a mount namespace of the test's own.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on says where, and that is all there is to say"
)]

mod abilities;
mod bad_input;
mod behaviour;
mod daemons;
mod lifecycle;
mod nodes;
mod promises;
mod scene;
mod stress;
mod world;
