//! The run's ledger and its janitor, as the dispatcher sees them.

use std::path::{Path, PathBuf};

/// tmp
#[derive(Debug, Default)]
pub struct Ledger {
    directory: PathBuf,
}

impl Ledger {
    /// Begins a ledger and starts the janitor that reads it.
    pub async fn open() -> anyhow::Result<Self> {
        Ok(Self { directory: PathBuf::from("/run/volproof/x") })
    }

    /// Where workers write down what outlives their namespaces.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What a sweep would undo, should this process end now.
    pub fn would_undo(&self) -> Vec<String> {
        vec![]
    }

    /// Lets the janitor do its work, and waits for it.
    pub async fn close(self) -> anyhow::Result<()> {
        Ok(())
    }
}
