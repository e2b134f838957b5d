//! Reporters: consumers of a run's events. None of them can influence the run.

pub mod github;
pub mod html;
pub mod human;
pub mod json;
pub mod junit;
pub mod line;
mod skips;

use crate::event::Event;

/// Something that shows a run while it happens.
pub trait Reporter {
    /// Takes one event. An error ends the run: a report that cannot be written must not look like one
    /// that was.
    fn report(&mut self, event: &Event) -> anyhow::Result<()>;
}
