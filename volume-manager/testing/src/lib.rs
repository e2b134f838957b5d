//! Doubles for the volume manager's tests: an API server in memory, a driver with scripted answers, and a toy plugin
//! that only lists the operations on its volumes. The simulation keeps its objects in the same [`Store`].

mod memory_api;
mod objects;
pub mod pipe;
mod scripted_driver;
mod store;
pub mod toy;

pub use memory_api::MemoryApi;
pub use scripted_driver::{Answer, ScriptedDriver, Story};
pub use store::{Deletion, Store};
pub use toy::Toy;
