//! What can go wrong in an operation, and the class that decides what is believed afterwards.
//!
//! The class is decided where an error is born, by the one who knows what was asked and how far it got:
//! each boundary's error enum implements [`Classified`], and `?` turns it into a [`Failure`]. Nothing guesses
//! a class later from a text.

use std::error::Error;
use std::fmt;

use crate::api::ApiError;

/// What an error says about the step it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorClass {
    /// The step is over and certainly did nothing that lasts.
    Final,
    /// The step may have been done, or may still be under way.
    Uncertain,
    /// The step was not begun: something it needs is not there yet.
    Transient,
}

/// Something an error means beyond its class, for the few places that act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sign {
    /// The volume is in use in a way that forbids growing it.
    InUse,
    /// What was asked for can never be done (InvalidArgument, OutOfRange, NotFound).
    Infeasible,
    /// The driver does not do this at all.
    NotSupported,
    /// The device holds another file system than the one asked for.
    FilesystemMismatch,
    /// Nobody wants the result any more: no failure, no event, no back-off.
    Withdrawn,
}

/// An error that knows its class.
pub trait Classified: Error + Send + Sync + 'static {
    /// What the error says about the step it ended.
    fn class(&self) -> ErrorClass;

    /// What it means beyond that.
    fn sign(&self) -> Option<Sign> {
        None
    }
}

/// An error of any boundary with the class it was born with.
pub struct Failure {
    class: ErrorClass,
    sign: Option<Sign>,
    error: Box<dyn Error + Send + Sync>,
}

impl Failure {
    /// What the error says about the step it ended.
    pub fn class(&self) -> ErrorClass {
        self.class
    }

    /// What it means beyond that.
    pub fn sign(&self) -> Option<Sign> {
        self.sign
    }

    /// The same error with another class, for a caller that knows more than the one it came from: what
    /// failed before anything was risked is transient, whatever the reason.
    #[must_use]
    pub fn with_class(self, class: ErrorClass) -> Self {
        Self { class, ..self }
    }

    /// The error and all its causes in one line, as an event shows them.
    pub fn chain(&self) -> String {
        chain(&*self.error)
    }
}

impl<E: Classified> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { class: error.class(), sign: error.sign(), error: Box::new(error) }
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.class, self.chain())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
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

impl Classified for host::HostError {
    /// What fails in our own hands has failed: the kernel said so. A plugin that cannot know, as after a
    /// mount that was cut short, says [`Failure::with_class`].
    fn class(&self) -> ErrorClass {
        ErrorClass::Final
    }
}

impl Classified for ApiError {
    /// An object that could not be read says nothing about the volume.
    fn class(&self) -> ErrorClass {
        ErrorClass::Transient
    }
}

/// The pod has gone, or no longer wants the volume: the operation must not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the volume is no longer wanted")]
pub struct Withdrawn;

impl Classified for Withdrawn {
    fn class(&self) -> ErrorClass {
        ErrorClass::Transient
    }

    fn sign(&self) -> Option<Sign> {
        Some(Sign::Withdrawn)
    }
}

/// What a plugin or an operation could not find or will not do, before anything was risked.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// No plugin takes the volume.
    #[error("no volume plugin matched name: {plugin}")]
    NoPlugin {
        /// The plugin that was looked for.
        plugin: String,
    },
    /// The plugin has no such ability.
    #[error("plugin {plugin} cannot {ability}")]
    NoAbility {
        /// The plugin.
        plugin: String,
        /// What was asked of it.
        ability: &'static str,
    },
    /// The volume cannot be reached from this node.
    #[error("no matching NodeSelectorTerms")]
    Affinity,
    /// The plugin's mounts take no options.
    #[error("mount options are not supported for this volume type")]
    MountOptions,
    /// A pod of this node has the volume to itself.
    #[error("volume uses the ReadWriteOncePod access mode and is already in use by another pod")]
    UsedByAnotherPod,
    /// The source is not one this plugin takes.
    #[error("volume `{volume}` is not one of plugin {plugin}")]
    WrongSource {
        /// The plugin.
        plugin: String,
        /// The inner name of the volume.
        volume: String,
    },
}

impl Classified for Unfit {
    fn class(&self) -> ErrorClass {
        ErrorClass::Transient
    }
}
