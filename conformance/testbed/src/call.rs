//! The calls of a node that a case can spoil, and the errors it spoils them with.

/// The calls a case can spoil.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// `NodeStageVolume`.
    Stage,
    /// `NodeUnstageVolume`.
    Unstage,
    /// `NodePublishVolume`.
    Publish,
    /// `NodeUnpublishVolume`.
    Unpublish,
}

impl Method {
    /// The name in the specification.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stage => "NodeStageVolume",
            Self::Unstage => "NodeUnstageVolume",
            Self::Publish => "NodePublishVolume",
            Self::Unpublish => "NodeUnpublishVolume",
        }
    }
}

/// The code of a failing call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The driver has failed: final, it certainly did nothing.
    Internal,
    /// The driver may still be at work on the call.
    DeadlineExceeded,
    /// The driver cannot be reached.
    Unavailable,
    /// Another operation is under way.
    Aborted,
}

impl Code {
    /// Go's spelling, as traces have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Internal => "Internal",
            Self::DeadlineExceeded => "DeadlineExceeded",
            Self::Unavailable => "Unavailable",
            Self::Aborted => "Aborted",
        }
    }
}
