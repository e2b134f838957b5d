//! Operations on CSI volumes, tried on a bench: what is sent and marked in which order, and what is left.

mod abilities;
mod attachment;
mod block;
mod bridges;
mod classes;
mod devices;
mod failures;
mod filesystem;
mod grow;
mod impossible;
mod inline;
mod lean;
mod leavings;
mod places;
mod records;
mod refusals;
mod registration;
mod requests;
mod tidy;
mod unseen;
