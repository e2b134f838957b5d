//! The testbed of a case: a driver, a proxy, an API server and a node in a sandbox, and the verbs that act on them.
//!
//! A case is an async function with `#[case]` above it; its doc comment is the sentence that it proves. With its
//! [`Cx`](cx::Cx) it creates volumes and pods, spoils calls, kills the node or the driver, and compares all events with a
//! story. The attribute puts it into [`case::CASES`] and has its [needs](need::Need): whether a case can run is decided
//! before anything is started.
//!
//! This crate knows no case, no run and no report: it puts up a testbed by its [orders](message::Orders), and returns a
//! [failure](failure::Failure) if a case fails.

pub mod ask;
pub mod bed;
pub mod call;
pub mod case;
pub mod cx;
pub mod dead_end;
mod exercise;
pub mod failure;
pub mod foreign;
pub mod limits;
pub mod message;
pub mod need;
pub mod pages;
pub mod prelude;
