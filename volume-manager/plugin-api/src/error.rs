//! Errors of operations, and the class that decides what is assumed about the volume afterwards.
//!
//! The class is set where an error arises, since only that code knows the call and its progress: each boundary's error
//! enum implements [`Classified`], and `?` turns it into a [`Failure`]. No class is derived from a text later.

use std::error::Error;
use std::fmt;

use api::ApiError;
use api::error::{ErrorClass, chain};
use host::HostError;
use host::format::FormatError;

/// A meaning of an error beyond its class, for code that reacts to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sign {
    /// The volume is in use in a way that prevents its expansion.
    InUse,
    /// The request can never succeed (InvalidArgument, OutOfRange, NotFound).
    Infeasible,
    /// The driver does not support the call.
    NotSupported,
    /// The device has another filesystem than the volume names.
    FilesystemMismatch,
    /// The volume is no longer wanted: no failure, no event, no back-off.
    Withdrawn,
}

/// An error with a class.
pub trait Classified: Error + Send + Sync + 'static {
    /// The possible effect of the failed step.
    fn class(&self) -> ErrorClass;

    /// A meaning beyond the class.
    fn sign(&self) -> Option<Sign> {
        None
    }
}

/// An error of any boundary with its class.
pub struct Failure {
    class: ErrorClass,
    sign: Option<Sign>,
    error: Box<dyn Error + Send + Sync>,
}

impl Failure {
    /// The possible effect of the failed step.
    pub fn class(&self) -> ErrorClass {
        self.class
    }

    /// A meaning beyond the class.
    pub fn sign(&self) -> Option<Sign> {
        self.sign
    }

    /// Changes the class, for a caller that knows more: an error before any risky call is transient, whatever its cause.
    #[must_use]
    pub fn with_class(self, class: ErrorClass) -> Self {
        Self { class, ..self }
    }

    /// The error and all its causes in one line, for the log.
    pub fn chain(&self) -> String {
        chain(&*self.error)
    }

    /// The message for users, without paths of the node.
    pub fn user_message(&self) -> String {
        user_message(&*self.error)
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

/// An error and its causes for users. The host's errors name paths, and each has a text without them.
fn user_message(error: &(dyn Error + 'static)) -> String {
    let without_paths = error
        .downcast_ref::<HostError>()
        .map(HostError::reason)
        .or_else(|| error.downcast_ref::<FormatError>().map(FormatError::reason));
    match (without_paths, error.source()) {
        (Some(reason), _) => reason,
        (None, Some(cause)) => format!("{error}: {}", user_message(cause)),
        (None, None) => error.to_string(),
    }
}

impl Classified for HostError {
    /// A failed system call had no effect. A plugin that cannot be sure, as after a mount command that was
    /// interrupted, uses [`Failure::with_class`].
    fn class(&self) -> ErrorClass {
        ErrorClass::Final
    }
}

impl Classified for ApiError {
    /// A failed API call says nothing about the volume.
    fn class(&self) -> ErrorClass {
        ErrorClass::Transient
    }
}

/// The pod no longer wants the volume, or is gone: the operation must not go on.
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

/// Why a plugin or operation refuses a volume, before any risky call.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// No plugin has this name.
    #[error("no volume plugin matched name: {plugin}")]
    NoPlugin {
        /// The missing plugin's name.
        plugin: String,
    },
    /// The plugin lacks an ability that the volume needs.
    #[error("plugin {plugin} cannot {ability}")]
    NoAbility { plugin: String, ability: &'static str },
    /// The volume's node affinity does not match this node.
    #[error("no matching NodeSelectorTerms")]
    Affinity,
    /// The plugin's mounts take no options.
    #[error("mount options are not supported for this volume type")]
    MountOptions,
    /// Another pod on this node uses a single-pod volume.
    #[error("volume uses the ReadWriteOncePod access mode and is already in use by another pod")]
    UsedByAnotherPod,
    /// The volume belongs to another plugin.
    #[error("volume `{volume}` does not belong to plugin {plugin}")]
    WrongSource {
        plugin: String,
        /// The name of the PersistentVolume or pod volume.
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
    fn message_for_users_has_the_cause_and_no_path_of_the_node() {
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
        for (failure, expected) in [
            (Failure::from(write()), "No space left on device (os error 28)"),
            (Outer(write()).into(), "cannot save the record: No space left on device (os error 28)"),
            (
                HostError::pair(Action::Bind, "/root/a", "/root/b", full()).into(),
                "No space left on device (os error 28)",
            ),
            (HostError::StillMounted { path: "/root/a".into() }.into(), "the node's log says why"),
            (tool.into(), "mount failed: exit status 32: mount.nfs: server:/x on <path>: denied: for <path>"),
        ] {
            assert_eq!(failure.user_message(), expected);
            assert!(failure.chain().contains("/root"), "the log names the path: {}", failure.chain());
            assert_eq!(chain(&failure), failure.chain(), "the chain of a `Failure` is that of its error");
        }
    }
}
