//! A snapshot of the manager's state, as text for people, traces and tests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The manager's state at one moment. Each state has the text that recordings use for it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Dump {
    /// The actual state: `volume <unique name>` and `pod <uid> <unique name>`.
    pub actual: BTreeMap<String, String>,
    /// The desired state: `pod <uid> <unique name>`.
    pub desired: BTreeMap<String, String>,
    /// Operations under way: `<name> <volume> [<pod>]`.
    pub running: Vec<String>,
    /// Failed operations in back-off.
    pub waiting: Vec<Waiting>,
    /// By pod UID: the errors of its volumes, which explain why a wait for them failed.
    pub errors: BTreeMap<String, Vec<String>>,
    /// Volumes and pods that were reconstructed from disk and not confirmed by an operation since.
    pub reconstructed: Vec<String>,
    /// Volumes whose last expansion on this node ended with a final error.
    pub expansion_failed: Vec<String>,
    /// Unidentified directories and stages, by path, with the reason.
    pub unexplained: BTreeMap<String, String>,
    /// Whether all pods that were bound at the start have been added.
    pub sources_ready: bool,
    /// Whether the reconstructed volumes have been compared with the node's object.
    pub states_synced: bool,
    /// Counters since the start.
    pub counters: BTreeMap<String, u64>,
}

/// A failed operation in back-off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// `<name> <volume> [<pod>]`.
    pub operation: String,
    /// Failures in a row.
    pub failures: u32,
    /// Milliseconds until the next attempt.
    pub due_in_ms: u64,
}
