//! Tests of the host's calls, each on the real kernel and on the simulated one.
//!
//! Real mounts are made in a mount namespace of the test's own, which needs root; without it a test prints why
//! it did not run on the real kernel.

mod beneath;
mod cleanup;
mod disks;
mod effects;
mod exec;
mod faults;
mod fence;
mod files;
mod ground;
mod lookup;
mod machine;
mod mounts;
mod race;
mod trees;
