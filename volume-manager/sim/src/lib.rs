//! The real volume manager on a simulated kernel, driver and API, from a seed.
//!
//! A seed makes a [`Scenario`](script::Scenario) (how many pods and volumes, what the driver can do) and a
//! script of [`Step`](script::Step)s: pods come and go, volumes are attached, grown and detached, a second node
//! wants the same ones, the first is lost and comes back, the manager crashes before or after any step of the
//! kernel, any call to the driver and any request to the API, its controller between any two steps of its own.
//! While the manager is away one of its records is lost or says something else, or a mount dies. The driver fails
//! with every code, hangs, dies, and does what it was asked long after nobody waits for it any more; the API is
//! slow, and goes away. [`simulate`] plays it on a paused clock in one thread, writes the [trace](trace) and holds
//! every event against the contracts. When the script is done the faults stop; within the bound everything wanted
//! must be there, and after the last pod nothing may be left, but for what lost the only record that said what it
//! was: that stays, and is told of.
//!
//! A violation is [minimised](minimise) to the steps it takes, and replays from them: two runs of a seed give
//! the same trace, byte for byte, in one process and in two. What a step did to the kernel is in the trace also
//! where the manager was told that it failed, or crashed before it was told.

mod api;
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
