//! The host's calls on the real kernel, on the simulated one, and both compared.
//!
//! Real mounts are made in a mount namespace of the test's own, which needs root; without it a test prints why
//! it did not run on the real kernel.

#![expect(clippy::unwrap_used, reason = "in a test this is an assertion")]

mod agreement;
mod differential;
mod kernel;
mod namespace;
mod random;
