//! Runs the clean-up commands of manifests that a dead run still owes. They were begun by its user, and run as that
//! user, on the machine itself: the sandbox that one was prepared in is gone.

use std::path::Path;

use super::{Undone, chain};
use crate::chore::Chore;
use crate::ledger::Entry;

/// Commands that clean up a preparation and did not run.
pub(super) fn owed(entries: &[Entry]) -> Vec<&Chore> {
    let done =
        |wanted: &str| entries.iter().any(|entry| matches!(entry, Entry::CleanedUp { id } if id == wanted));
    let owed = entries.iter().filter_map(|entry| match entry {
        Entry::Prepared { id, cleanup } if !done(id) => Some(cleanup),
        _ => None,
    });
    owed.collect()
}

/// The last that was prepared is undone first.
pub(super) fn clean_up(dir: &Path, entries: &[Entry], undone: &mut Undone) {
    for cleanup in owed(entries).into_iter().rev() {
        let mut cleanup = cleanup.clone();
        // Its own directory, and the one of its log, may have been a sandbox's.
        if !cleanup.directory.is_dir() {
            cleanup.directory = dir.to_owned();
        }
        cleanup.log = dir.join("cleanup.log");
        match cleanup.run() {
            Ok(()) => undone.done.push(format!("{}: {}", cleanup.key, cleanup.command.join(" "))),
            Err(error) => {
                let words = error.tail().last().map(|line| format!(" (it said: {line})"));
                undone.left.push(format!("{}{}", chain(&error), words.unwrap_or_default()));
            }
        }
    }
}
