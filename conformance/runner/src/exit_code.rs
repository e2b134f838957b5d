//! The exit codes of `volproof`. They are an interface for scripts: change them only with a version.

/// All selected cases passed or were skipped, and at least one ran.
pub const OK: u8 = 0;
/// A case failed, leaked, errored, lost its driver or passed unexpectedly.
pub const CASES_FAILED: u8 = 1;
/// The command line or the manifest is wrong.
pub const USAGE: u8 = 2;
/// No case was selected, or none of the selected could run.
pub const NOTHING_RAN: u8 = 3;
/// The environment could not be prepared: the driver did not start, a guest did not boot, or
/// `--require host` was given and something would be skipped for the machine's sake.
pub const ENVIRONMENT: u8 = 4;
/// The user interrupted the run, and everything was undone.
pub const INTERRUPTED: u8 = 130;
