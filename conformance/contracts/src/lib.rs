//! Trace events, and the rules that judge a trace.
//!
//! A [trace](event::TraceLine) records all events of a case in one order. A [`rule`] reads it and reports each broken
//! promise or invariant with its call and its line. [`manager::RULES`] judge invariants of the volume manager,
//! [`driver::RULES`] promises of the driver; [`promise`] is the catalogue of all promises.
//!
//! This crate depends on no kernel, driver or manager, so that the same rule judges a case, the simulation and a
//! recording of any node.

pub mod csi;
pub mod driver;
pub mod event;
mod json;
pub mod manager;
pub mod object;
pub mod promise;
pub mod recording;
pub mod rule;
pub mod witnessed;
