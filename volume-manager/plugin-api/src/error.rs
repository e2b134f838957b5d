//! What can go wrong in an operation, and the class that decides what is believed afterwards.
//!
//! The class is decided where an error is born, by the one who knows what was asked and how far it got:
//! each boundary's error enum implements [`Classified`], and `?` turns it into a [`Failure`]. Nothing guesses
//! a class later from a text.

use std::error::Error;
use std::fmt;

use api::ApiError;
use api::error::{ErrorClass, chain};
use host::HostError;
use host::format::FormatError;

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

    /// The error and all its causes in one line, for the log.
    pub fn chain(&self) -> String {
        chain(&*self.error)
    }

    /// The same as users are told it: what the node answered, and none of its paths.
    pub fn told(&self) -> String {
        told(&*self.error)
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

/// An error and its causes as users are told them. The host's own errors name paths, and each has words without.
fn told(error: &(dyn Error + 'static)) -> String {
    let without_paths = error
        .downcast_ref::<HostError>()
        .map(HostError::reason)
        .or_else(|| error.downcast_ref::<FormatError>().map(FormatError::reason));
    match (without_paths, error.source()) {
        (Some(reason), _) => reason,
        (None, Some(cause)) => format!("{error}: {}", told(cause)),
        (None, None) => error.to_string(),
    }
}

impl Classified for HostError {
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

#[cfg(test)]
mod tests {
    use std::io;

    use host::{Action, ToolError};

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot save the record")]
    struct Outer(#[source] HostError);

    impl Classified for Outer {
        fn class(&self) -> ErrorClass {
            ErrorClass::Final
        }
    }

    #[test]
    fn users_are_told_why_and_no_path_of_the_node() {
        let full = || io::Error::from_raw_os_error(28);
        let write = || HostError::os(Action::Write, "/root/file", full());
        let tool = HostError::from(ToolError {
            what: "mount".to_owned(),
            status: "exit status 32".to_owned(),
            code: Some(32),
            program: "mount".to_owned(),
            arguments: "-t nfs server:/x /root /root/pods".to_owned(),
            output: "mount.nfs: server:/x on /root/pods: denied\n  for /root\n".to_owned(),
        });
        for (failure, told) in [
            (Failure::from(write()), "No space left on device (os error 28)"),
            (Outer(write()).into(), "cannot save the record: No space left on device (os error 28)"),
            (
                HostError::pair(Action::Bind, "/root/a", "/root/b", full()).into(),
                "No space left on device (os error 28)",
            ),
            (HostError::StillMounted { path: "/root/a".into() }.into(), "the node's log says why"),
            (tool.into(), "mount failed: exit status 32: mount.nfs: server:/x on <path>: denied: for <path>"),
        ] {
            assert_eq!(failure.told(), told);
            assert!(failure.chain().contains("/root"), "the log has it all: {}", failure.chain());
            assert_eq!(chain(&failure), failure.chain(), "also of a failure that is somebody's cause");
        }
    }
}
