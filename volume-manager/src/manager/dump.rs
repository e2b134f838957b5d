//! Everything the manager believes, written down for people, traces and tests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The books at one moment. Texts of states are those of the recordings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Dump {
    /// The actual state: `volume <unique name>` and `pod <uid> <unique name>`.
    pub actual: BTreeMap<String, String>,
    /// The desired state: `pod <uid> <unique name>`.
    pub desired: BTreeMap<String, String>,
    /// Operations that run: `<name> <volume> [<pod>]`.
    pub running: Vec<String>,
    /// Operations that failed and wait, with how often they failed and how long they still wait.
    pub waiting: Vec<Waiting>,
    /// Pods with something wrong, and what.
    pub errors: BTreeMap<String, Vec<String>>,
    /// Volumes and pods learned from disk and not confirmed since.
    pub reconstructed: Vec<String>,
    /// Volumes whose growing failed for good.
    pub expansion_failed: Vec<String>,
    /// Directories nobody can explain, and why.
    pub unexplained: BTreeMap<String, String>,
    /// Whether all pods are known.
    pub sources_ready: bool,
    /// Whether what was reconstructed has been compared with the node's object.
    pub states_synced: bool,
    /// Counts since the start.
    pub counters: BTreeMap<String, u64>,
}

/// A failed operation that waits for its next attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// `<name> <volume> [<pod>]`.
    pub operation: String,
    /// How often it failed in a row.
    pub failures: u32,
    /// Milliseconds until it may be tried again.
    pub due_in_ms: u64,
}
