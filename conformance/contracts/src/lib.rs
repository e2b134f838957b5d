//! Trace events, and the promises that are held against them.
//!
//! A [trace](event::TraceLine) is what happened, in one order. A [`rule`] reads it and says which promise was
//! broken, by which call, and where. What binds the volume manager is listed in [`manager::RULES`], what binds the
//! driver in [`driver::RULES`]; [`promise`] is the catalogue of all that a driver promises.
//!
//! This crate knows no kernel, no driver and no manager, so that the same rule judges a case, the simulation
//! and a recording of somebody else's node.

pub mod driver;
pub mod event;
pub mod manager;
pub mod promise;
pub mod recording;
pub mod rule;
