//! A run: selects cases, dispatches each to a worker, judges its trace, and reports the result.
//!
//! [`select`] chooses the cases of a command line. The [dispatcher](dispatch) knows cases, lanes and reporters. Each case
//! runs in a [worker], a process with its own namespaces; the run holds its lifeline. After each case the worker looks for
//! leftovers and judges the trace: broken promises become [findings](finding::Finding), each reported once in a run. The
//! dispatcher emits [events](event::Event) and [reporters](report) render them: the terminal, JSON, JUnit, HTML,
//! annotations. [Exit codes](exit_code) are an interface.

mod clean;
pub mod difference;
pub mod dispatch;
pub mod event;
pub mod exit_code;
pub mod finding;
pub mod first_questions;
mod gather;
mod judge;
pub mod kept_logs;
pub mod logs;
pub mod merge;
pub mod message;
pub mod played;
pub mod program;
pub mod promises;
pub mod registry;
pub mod report;
pub mod select;
pub mod since;
mod turn;
pub mod worker;
