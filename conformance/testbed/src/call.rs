//! The node calls that a case can hold, lose or make fail, and the codes they fail with.

/// The node calls that change something.
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
    /// The name of the call in CSI.
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
    /// A final error: the driver certainly did nothing.
    Internal,
    /// The driver may still be at work on the call.
    DeadlineExceeded,
    /// The driver cannot be reached.
    Unavailable,
    /// Another operation is under way.
    Aborted,
}

impl Code {
    /// The name as a trace spells it, which is Go's spelling.
    pub fn name(self) -> &'static str {
        match self {
            Self::Internal => "Internal",
            Self::DeadlineExceeded => "DeadlineExceeded",
            Self::Unavailable => "Unavailable",
            Self::Aborted => "Aborted",
        }
    }
}
