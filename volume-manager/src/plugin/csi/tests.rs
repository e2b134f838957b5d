//! Operations on CSI volumes, tried on a bench: what is sent and marked in which order, and what is left.

mod block;
mod failures;
mod filesystem;
mod grow;
mod lean;
mod records;
mod registration;
mod requests;
mod tidy;
