//! What a node says of itself, in its own order. Touches nothing; the source of it is an [`Announcements`].

use std::fmt;

use contracts::event::Event;

use super::Announcement;

/// A source of what one node announces.
pub trait Announcements: fmt::Debug + Send {
    /// All since the last time, in order. What the node has said before it did something else is in it. Never waits.
    fn drain(&mut self) -> Vec<Announced>;

    /// Lets the node go on after its effect, which is recorded. False for one that is to die at this point: it gets no
    /// answer.
    fn let_go_on(&mut self) -> bool;

    /// Whether the node may still say something.
    fn is_open(&self) -> bool;
}

/// One announcement.
#[derive(Debug, Clone, PartialEq)]
pub enum Announced {
    /// A change, after which the node waits.
    Effect(Announcement),
    /// A line about what it believes or does.
    Notice(Event),
}
