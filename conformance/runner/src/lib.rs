//! A run: which cases, in which order, in which worker, and what is made of how each ended.
//!
//! [`select`] knows what a command line means. The [dispatcher](dispatch) knows cases, lanes and reporters. Each case
//! runs in a [worker], a process of its own that is the root of its own namespaces; the run holds its lifeline. What
//! the worker sees after the case, unasked, is judged and becomes [findings](finding::Finding), each told once
//! in a run. The dispatcher emits [events](event::Event) and [reporters](report) render them: the terminal, JSON,
//! JUnit, HTML, annotations. [Exit codes](exit_code) are an interface.

mod clean;
pub mod difference;
pub mod dispatch;
pub mod event;
pub mod exit_code;
pub mod finding;
pub mod first_questions;
mod gather;
mod judge;
pub mod logs;
pub mod merge;
pub mod message;
pub mod played;
pub mod promises;
pub mod registry;
pub mod report;
pub mod select;
pub mod since;
pub mod worker;
