//! The toy world of tests: an API in memory, a scripted driver, and a plugin whose volumes exist only in a list of their
//! operations. The simulation keeps its objects in the same [`Store`].

mod memory_api;
pub mod pipe;
mod scripted_driver;
mod store;
pub mod toy;

pub use memory_api::MemoryApi;
pub use scripted_driver::{Answer, ScriptedDriver, Story};
pub use store::{Deletion, Store};
pub use toy::Toy;
