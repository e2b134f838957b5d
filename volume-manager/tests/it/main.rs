//! The volume manager as its caller sees it: pods and objects go in, and calls of a plugin come out. Each test has a
//! world of its own in memory, where time passes only when nothing else happens.

#![expect(clippy::disallowed_methods, reason = "a test may prepare files and let time pass")]

mod attach_detach;
mod notices;
mod one_more;
mod pending;
mod plan;
mod populate;
mod restart;
mod seen;
mod teardown;
mod waits;
mod world;
