//! Tests of the host's calls, each on the real kernel and on the simulated one.
//!
//! Real mounts are made in a mount namespace of the test's own, which needs root; without it a test prints why
//! it did not run on the real kernel.

#![expect(clippy::unwrap_used, reason = "in a test this is an assertion")]

#[path = "kernel/beneath.rs"]
mod beneath;
#[path = "kernel/cleanup.rs"]
mod cleanup;
#[path = "kernel/disks.rs"]
mod disks;
#[path = "kernel/effects.rs"]
mod effects;
#[path = "kernel/exec.rs"]
mod exec;
#[path = "kernel/faults.rs"]
mod faults;
#[path = "kernel/files.rs"]
mod files;
#[path = "kernel/ground.rs"]
mod ground;
#[path = "kernel/lookup.rs"]
mod lookup;
#[path = "kernel/machine.rs"]
mod machine;
#[path = "kernel/mounts.rs"]
mod mounts;
#[path = "kernel/namespace.rs"]
mod namespace;
#[path = "kernel/race.rs"]
mod race;
#[path = "kernel/trees.rs"]
mod trees;
