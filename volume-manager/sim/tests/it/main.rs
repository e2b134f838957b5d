//! The simulation as its user sees it: seeds break no promise, and each seed is a trace of its own.

mod replay;
mod seeds;
