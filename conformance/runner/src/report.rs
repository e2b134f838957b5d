//! Reporters: consumers of a run's events. None of them can influence the run.

pub mod github;
pub mod html;
pub mod human;
pub mod json;
pub mod junit;
pub mod line;
mod skips;
pub mod wrap;

use crate::event::Event;

/// Shows a run while it happens.
pub trait Reporter {
    /// Takes one event. An error ends the run: a report that could not be written must not go unnoticed.
    fn report(&mut self, event: &Event) -> anyhow::Result<()>;
}
