//! Directories on disk become an uncertain actual state.

/// What the last incarnation left.
#[derive(Debug, Clone)]
pub struct Reconstruction {}
