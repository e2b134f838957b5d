//! The class of an error, and an error in one line.

use std::error::Error;

/// The effect of a failed step, as its error implies it. Set where the error arises, and never guessed from the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorClass {
    /// The step is over and certainly did nothing that lasts.
    Final,
    /// The step may have been done, or may still be under way.
    Uncertain,
    /// The step was not begun: something it needs is not there yet.
    Transient,
}

/// An error and all its causes in one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
