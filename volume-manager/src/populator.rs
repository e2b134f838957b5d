//! Pods and claims become desired state.

/// What looking up the volumes of a pod gave.
#[derive(Debug, Clone)]
pub struct Resolved {}
