//! Operations on CSI volumes on a bench: the order of calls and marks, and the files that are left.

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
