//! The calls that a case can hold, lose or make fail, and the codes they fail with.

/// The node calls that change something, and the call that attaches a volume to the node.
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
    /// `ControllerPublishVolume`.
    Attach,
}

impl Method {
    /// The name of the call in CSI.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stage => "NodeStageVolume",
            Self::Unstage => "NodeUnstageVolume",
            Self::Publish => "NodePublishVolume",
            Self::Unpublish => "NodeUnpublishVolume",
            Self::Attach => "ControllerPublishVolume",
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
    /// The node has its maximum of volumes.
    ResourceExhausted,
}

impl Code {
    /// The name as a trace spells it, which is Go's spelling.
    pub fn name(self) -> &'static str {
        match self {
            Self::Internal => "Internal",
            Self::DeadlineExceeded => "DeadlineExceeded",
            Self::Unavailable => "Unavailable",
            Self::Aborted => "Aborted",
            Self::ResourceExhausted => "ResourceExhausted",
        }
    }
}
