//! Tests of the host's calls, each on the real kernel and on the simulated one.
//!
//! Tests on the real kernel have a mount namespace of their own, which needs root. Without root a test prints
//! why it ran on the simulated kernel only.

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
