//! `volproof`: everything is in the library, so that a driver's own tests can be the same program.

use std::process::ExitCode;

fn main() -> ExitCode {
    conformance::main()
}
