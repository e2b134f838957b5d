//! `volproof vm probe`: checks the emulator and the kernels, and boots a guest of each kernel in the cache.

use std::io;
use std::time::{Duration, Instant};

use harness::facts::Fact;
use vm_images::fetch;
use vm_images::images::{Images, Kernel};
use vm_images::qemu::Accelerator;

use super::super::{Exit, runtime};
use super::prepare::{self, Chosen, Contents};
use crate::terminal::say;
use runner::dispatch::Guests;
use runner::exit_code;

pub(super) fn run(within: Duration) -> Result<u8, Exit> {
    let qemu = prepare::emulator()?;
    say!("{:>10} {}", "QEMU", qemu.display());
    let cache = prepare::cache()?;
    let images = Images::built_in();
    let mut booted = 0;
    for kernel in images.kernels() {
        let cached = fetch::cached(&cache, kernel).map_err(anyhow::Error::from)?;
        match cached {
            Some(_) => {
                say!("{:>10} {kernel}", "Kernel");
                boot(prepare::chosen(std::slice::from_ref(&kernel.name))?.remove(0), within)?;
                booted += 1;
            }
            None => say!("{:>10} {}", "Kernel", absent(kernel)),
        }
    }
    match booted {
        0 => Err(Exit::environment("no guest was tried: no kernel is here")
            .hint("`volproof vm fetch` fetches one")),
        _ => Ok(exit_code::OK),
    }
}

fn absent(kernel: &Kernel) -> String {
    format!("{kernel} is not here: `volproof vm fetch {}`", kernel.name)
}

/// The error of a guest that does not boot: how guests run here, and what would help.
pub(in crate::command) fn does_not_boot(error: &io::Error, guests: &Guests) -> Exit {
    let kind = guests.kind();
    let is_late = error.kind() == io::ErrorKind::TimedOut;
    Exit::environment("cannot boot a guest")
        .details([error.to_string(), format!("it runs by {}", kind.verdict)])
        .maybe_hint(is_late.then(|| more_time(kind.machine.boot().within, kind.verdict.accelerator)))
}

/// The hint for a guest that did not boot within this time.
fn more_time(within: Duration, accelerator: Accelerator) -> String {
    let more = format!("--boot-timeout {:?} gives it more time", 2 * within);
    match accelerator {
        Accelerator::Tcg => more + "; where KVM works, a guest boots in seconds",
        Accelerator::Kvm => more,
    }
}

fn boot(kernel: Chosen, within: Duration) -> Result<(), Exit> {
    let kind = prepare::kind(kernel, Contents::empty(within), &["__guest"])?;
    say!("{:>10} runs by {}", "", kind.verdict);
    let guests = Guests::new(kind);
    let runtime = runtime()?;
    let began = Instant::now();
    let facts = runtime.block_on(guests.look()).map_err(|error| does_not_boot(&error, &guests))?;
    say!("{:>10} answered after {:.1} s: {facts}", "", began.elapsed().as_secs_f64());
    for fact in [Fact::MountEvents, Fact::Statmount].into_iter().filter(|fact| !facts.has(*fact)) {
        say!("{:>10} no {fact}", "");
    }
    Ok(())
}
