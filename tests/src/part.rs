//! What takes long is tested in parts: one on each push, all with `cargo xtask test --thorough`.

use std::process::Command;

use crate::{is_thorough, root};

/// Chooses the part by its number; `all` chooses all.
const CHOICE: &str = "VOLPROOF_PART";

/// The things that a test tries now, of all that it has.
#[derive(Debug, Clone, Copy)]
pub enum Part {
    All,
    One { number: usize, of: usize },
}

impl Part {
    /// The part that is tried now. The commit chooses it, so that each comes in its turn.
    pub fn now(of: usize, things: &str) -> Self {
        let choice = std::env::var(CHOICE).unwrap_or_default();
        if choice == "all" {
            return Self::All;
        }
        let number = choice.parse().unwrap_or_else(|_| commit()) % of;
        let instead = format!("part {number} of {of} of {things} ({CHOICE}={number} chooses it again)");
        if is_thorough(&instead) { Self::All } else { Self::One { number, of } }
    }

    /// Whether the thing at a place of the list is tried.
    pub fn holds(self, at: usize) -> bool {
        match self {
            Self::All => true,
            Self::One { number, of } => at % of == number,
        }
    }
}

/// A number that each commit has another of. Also a clone without history has it.
fn commit() -> usize {
    let git = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root()).output();
    let hash = git.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    hash.and_then(|hash| usize::from_str_radix(hash.get(..8)?, 16).ok()).unwrap_or_default()
}
