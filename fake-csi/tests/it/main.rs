//! The driver as a process, on a real kernel, in a mount namespace of the test's own.

mod lifecycle;
mod world;
