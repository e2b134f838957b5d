//! Measurements as rows: what each program of `cargo xtask bench` reports, and how a row is made of many rounds.
//!
//! A program takes its [`Program`] from the command line, measures in interleaved rounds after a warm-up, and hands
//! [`Row`]s to it: medians with their quartiles, beside a floor where there is one, with the aim. Touches nothing but the
//! file that rows are written to.

mod program;
mod row;
mod statistics;

pub use cpu_time::ProcessTime;
pub use program::{Program, ended};
pub use row::{Aim, Row, Size, Verdict};
pub use statistics::{Quartiles, growth, quartiles};
