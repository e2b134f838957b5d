//! `volproof vm probe`: checks the emulator and the kernels, and boots a guest of each kernel in the cache.

use std::time::Instant;

use harness::facts::Fact;
use vm_images::fetch;
use vm_images::images::{Images, Kernel};

use super::super::{Exit, runtime};
use super::prepare::{self, Chosen};
use crate::terminal::say;
use runner::dispatch::Guests;
use runner::exit_code;

pub(super) fn run() -> Result<u8, Exit> {
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
                boot(prepare::chosen(std::slice::from_ref(&kernel.name))?.remove(0))?;
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

fn boot(kernel: Chosen) -> Result<(), Exit> {
    let kind = prepare::kind(kernel, vec![], &["__guest"])?;
    say!("{:>10} runs by {}", "", kind.verdict);
    let guests = Guests::new(kind);
    let runtime = runtime()?;
    let began = Instant::now();
    let facts = runtime
        .block_on(guests.look())
        .map_err(|error| Exit::environment("a guest does not boot").details([error.to_string()]))?;
    say!("{:>10} answered after {:.1} s: {facts}", "", began.elapsed().as_secs_f64());
    for fact in [Fact::MountEvents, Fact::Statmount].into_iter().filter(|fact| !facts.has(*fact)) {
        say!("{:>10} no {fact}", "");
    }
    Ok(())
}
