//! `volproof vm`: fetches kernels for guests, probes which guests this machine can run, and opens a shell in one.

mod prepare;
mod probe;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use harness::facts::Facts;
use vm_images::cache::Cache;
use vm_images::fetch;
use vm_images::images::{Images, Kernel};
use vm_images::qemu;

use super::Exit;
use crate::terminal::say;
use runner::exit_code;

pub(super) use prepare::{Chosen, Contents, at_hand, chosen, guests, packed, root_disk};
pub(super) use probe::does_not_boot;

/// Fetch kernels for guests, try what this machine can run, or look around in one.
#[derive(Debug, Args)]
pub(super) struct Flags {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Fetch the kernels of guests into the cache, so that nothing is fetched later
    Fetch {
        /// NAME, or `all`; without any, the one that --tier vm takes
        #[arg(value_name = "KERNEL")]
        kernels: Vec<String>,
    },
    /// Say what guests this machine can run, by booting one of each kernel that is here
    Probe {
        /// How long a guest may take to boot, such as 5m
        #[arg(long, value_name = "TIME", default_value = "120s", value_parser = super::run::span)]
        boot_timeout: Duration,
    },
    /// Boot a guest and give a shell in it
    Shell {
        /// NAME, or a FILE.deb
        #[arg(long)]
        kernel: Option<String>,
    },
}

pub(super) fn run(flags: &Flags) -> Result<u8, Exit> {
    match &flags.command {
        Command::Fetch { kernels } => fetch(kernels),
        Command::Probe { boot_timeout } => probe::run(*boot_timeout),
        Command::Shell { kernel } => shell(kernel.as_deref()),
    }
}

/// The part of this program that runs inside a guest.
pub(crate) fn guest(task: Option<&str>) -> ExitCode {
    match task {
        None => vm_images::guest::main(),
        Some("shell") => vm_images::guest::shell(),
        Some("facts") => {
            println!("{}", serde_json::to_string(Facts::get()).expect("facts are plain data"));
            ExitCode::SUCCESS
        }
        Some(other) => {
            eprintln!("a guest does not know `{other}`");
            ExitCode::from(exit_code::USAGE)
        }
    }
}

fn fetch(asked: &[String]) -> Result<u8, Exit> {
    let images = Images::built_in();
    let kernels: Vec<&Kernel> = match asked {
        [] => vec![images.default_kernel()],
        [all] if all == "all" => images.kernels().iter().collect(),
        names => names
            .iter()
            .map(|name| images.find(name).map_err(|error| Exit::usage(error.to_string())))
            .collect::<Result<_, _>>()?,
    };
    let cache = prepare::cache()?;
    let mut failed = Vec::new();
    for kernel in &kernels {
        match fetched(&cache, kernel) {
            Ok(how) => say!("{:>10} {kernel}", how),
            Err(error) => failed.push(format!("{kernel}: {}", testbed::failure::chain(&error).join(": "))),
        }
    }
    if failed.is_empty() {
        return Ok(exit_code::OK);
    }
    Err(Exit::environment("not every kernel could be fetched")
        .details(failed)
        .hint("a package that has left its suite can be given as a file: --kernel FILE.deb"))
}

fn fetched(cache: &Cache, kernel: &Kernel) -> Result<&'static str, fetch::FetchError> {
    if fetch::cached(cache, kernel)?.is_some() {
        return Ok("here");
    }
    fetch::fetch(cache, kernel)?;
    Ok("fetched")
}

fn shell(kernel: Option<&str>) -> Result<u8, Exit> {
    let asked: Vec<String> = kernel.iter().map(|name| (*name).to_owned()).collect();
    let kernel = chosen(&asked)?.remove(0);
    let kind = prepare::kind(kernel, Contents::empty(qemu::WITHIN), &["__guest", "shell"])?;
    let ended = qemu::shell(kind.machine.boot()).map_err(|error| anyhow::anyhow!(error))?;
    match ended.success() {
        true => Ok(exit_code::OK),
        false => Err(Exit::environment(format!("the guest ended with {ended}"))),
    }
}
