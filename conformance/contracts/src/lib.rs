//! Trace events, and the promises that are held against them.
//!
//! A [trace](event::TraceLine) is what happened, in one order. A rule reads it and says which promise was
//! broken, by whom, and where. This crate knows no kernel, no driver and no manager, so that the same rule
//! judges a case, the simulation and a recording.

pub mod event;
