//! The binary of the driver.

use std::process::ExitCode;

fn main() -> ExitCode {
    fake_csi::main(std::env::args_os())
}
