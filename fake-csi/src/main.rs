//! The driver as a program of its own.

use std::process::ExitCode;

fn main() -> ExitCode {
    fake_csi::main(std::env::args_os())
}
