//! Scripts of the simulation: a scenario and its steps, both from a seed.

mod groups;
mod scenario;
mod step;
mod writer;

pub use crate::damage::Damage;
pub use scenario::{Scenario, Tokens};
pub use step::{Attributes, CrashPoint, Origin, Step};
