//! A guest with a prompt: its console is the terminal this program was started from.

use std::io;
use std::process::{Command, ExitStatus};

use super::{Boot, of_the_machine};

/// Boots a guest whose PID 1 gives a shell, and waits until its power is off.
///
/// The guest is a child in the terminal's own process group, and the emulator has the terminal: Ctrl-C goes to
/// the shell in the guest.
pub fn shell(boot: &Boot) -> io::Result<ExitStatus> {
    let mut command = Command::new(&boot.qemu);
    command.args(of_the_machine(boot, "loglevel=4"));
    command.args(["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"]);
    command.status()
}
