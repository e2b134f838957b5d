//! `volproof`: everything is in the library, so that a driver's own tests can be the same program.

use std::process::ExitCode;

use mimalloc::MiMalloc;

#[global_allocator]
static MEMORY: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    conformance::main()
}
