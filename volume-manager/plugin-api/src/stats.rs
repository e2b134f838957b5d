//! The usage and the condition of a volume.

/// A report about the volume of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VolumeStats {
    pub bytes: Option<Usage>,
    pub inodes: Option<Usage>,
    /// The driver's message, if it reports an abnormal condition.
    pub abnormal: Option<String>,
}

/// The amounts of bytes or inodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub total: i64,
    pub available: i64,
    pub used: i64,
}
