//! The controllers on an API in memory, as their users start them.

mod counting;
mod obedient;
mod others;
mod work;
