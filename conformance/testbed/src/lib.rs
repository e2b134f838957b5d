//! The testbed of a case: a driver, a proxy, an API server and a node in a sandbox, and the verbs that act on them.
//!
//! A case is an async function with `#[case]` above it; its doc comment is the sentence it proves. It is given a
//! [`Cx`](cx::Cx), with which it asks for volumes and pods, spoils calls, kills the node or the driver, and compares
//! everything that was seen with a story. The attribute puts it into [`case::CASES`]. What it [needs](need::Need)
//! stands above its body: whether it can run is decided before anything is started.
//!
//! This crate knows no case, and nothing of runs and reports: it puts up what its [orders](message::Orders) say and
//! says what went [wrong](failure::Failure).

pub mod ask;
pub mod bed;
pub mod call;
pub mod case;
pub mod cx;
mod exercise;
pub mod failure;
pub mod foreign;
pub mod limits;
pub mod message;
pub mod need;
pub mod pages;
pub mod prelude;
