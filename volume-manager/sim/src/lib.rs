//! The real volume manager on a simulated kernel, driver and API, from a seed.
//!
//! A seed makes a [`Scenario`](script::Scenario) (how many pods and volumes, what the driver can do) and a
//! script of [`Step`](script::Step)s: pods come and go, volumes are attached, expanded and detached, a second
//! node wants the same volumes, the first node is lost and comes back, the manager crashes before or after any
//! step of the kernel, any call to the driver and any request to the API, and the attach controller between any
//! two of its steps. While the manager is down a record may be lost or damaged, or a mount may die. The driver
//! fails with every code, hangs, dies, and completes calls long after their callers have gone; the API is slow,
//! and becomes unreachable. [`simulate`] plays the script on a paused clock in one thread, writes the
//! [trace] and checks every event against the contracts. When the script is done the faults stop; within
//! a bound everything wanted must be mounted, and after the last pod nothing may be left, except for volumes
//! whose only record is lost: they stay and are reported.
//!
//! A violation is [minimised](mod@minimise) to the steps it needs, and replays from them: two runs of a seed give
//! the same trace, byte for byte, in one process and in two. The trace has what a step did to the kernel even
//! if the manager got an error for the step, or crashed before the answer.

mod api;
mod claims;
mod controllers;
mod crash;
mod damage;
mod driver;
mod faults;
mod growth;
mod minimise;
mod neighbour;
mod objects;
mod run;
pub mod script;
mod status;
pub mod trace;
mod views;
mod world;

pub use minimise::minimise;
pub use run::{Outcome, Statistics, Violated, simulate, trace_of};
