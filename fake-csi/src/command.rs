//! The command line of the driver.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, ValueEnum as _};

use crate::ability::Ability;
use crate::books::{Backing, Node};
use crate::driver::Options;
use crate::fault::Fault;
use crate::hostpath;
use crate::sabotage::Sabotage;
use crate::server;

/// A CSI driver for tests: complete, and honest unless a fault or a sabotage is ordered.
#[derive(Debug, Parser)]
#[command(name = "fake-csi", version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    order: Option<Order>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Debug, clap::Subcommand)]
enum Order {
    /// List the sabotages with the promise each breaks.
    Sabotages,
    /// Print the books of a running driver.
    Books {
        /// Its state directory.
        #[arg(long)]
        state_dir: PathBuf,
    },
    /// Kill a running driver without a chance to tidy up.
    Crash {
        /// Its state directory.
        #[arg(long)]
        state_dir: PathBuf,
    },
    /// Order a fault of a running driver, as JSON: `{"method":"NodeStageVolume","times":1,"code":14}`.
    Fault {
        /// Its state directory.
        #[arg(long)]
        state_dir: PathBuf,
        /// Fields of the fault: method, skip, times, delay_ms, after, code, message, hang, crash, run, garbage.
        fault: String,
    },
    /// Serve a FUSE volume, for the driver that starts it.
    #[command(hide = true)]
    ServeFuse {
        /// The directory with the volume's files.
        directory: PathBuf,
        /// The path to mount them at.
        at: PathBuf,
        /// Stay when the volume is unmounted.
        #[arg(long)]
        lingers: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Serve {
    /// The socket to listen at, such as `unix:///csi/csi.sock`; once for each node.
    #[arg(long)]
    endpoint: Vec<String>,
    /// The name of a node, and after `@` its zone.
    #[arg(long, default_value = "node-1")]
    node: Vec<String>,
    /// The directory for volumes and books. Several processes may share it, each with nodes of its own.
    #[arg(long)]
    state_dir: Option<PathBuf>,
    /// The driver's name; default `fake.csi.volproof.dev`.
    #[arg(long)]
    driver_name: Option<String>,
    /// Behave like the driver of the recordings instead, with its name and abilities.
    #[arg(long, conflicts_with_all = ["backing", "default_fs", "sabotage", "without", "max_volumes", "capacity", "padding", "fault"])]
    hostpath: bool,
    /// The backing of volumes without the parameter `backing`.
    #[arg(long, value_enum, default_value = "loop")]
    backing: Backing,
    /// The file system of volumes whose capability names none.
    #[arg(long, default_value = "ext4", value_parser = ["ext4", "xfs", "btrfs"])]
    default_fs: String,
    /// Break one promise; `fake-csi sabotages` lists them.
    #[arg(long)]
    sabotage: Option<Sabotage>,
    /// Switch an ability off; may be repeated.
    #[arg(long, value_enum)]
    without: Vec<Ability>,
    /// The limit of attached volumes of a node; 0 for none.
    #[arg(long, default_value_t = 0)]
    max_volumes: i64,
    /// The limit of bytes of all volumes together. Images are sparse: a large limit takes no space.
    #[arg(long, default_value_t = 1 << 44)]
    capacity: u64,
    /// This number of bytes more in each answer of `CreateVolume`, which a CO need not take.
    #[arg(long, default_value_t = 0)]
    padding: usize,
    /// A fault from the first call on, as JSON: see the order `fault`; may be repeated.
    #[arg(long, value_name = "JSON", value_parser = read_fault)]
    fault: Vec<Fault>,
}

/// Runs the driver with these arguments; the first is the program's name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => {
            drop(error.print());
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    // One thread answers, so that a call does not wait for another processor to wake up. Blocking work runs on
    // threads of its own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match arguments.order {
        None => runtime.block_on(serve(arguments.serve)),
        Some(Order::Sabotages) => {
            let mut out = std::io::stdout().lock();
            for sabotage in Sabotage::ALL {
                writeln!(out, "{:<36} {}  {}", sabotage.name(), sabotage.promise(), sabotage.bug())?;
            }
            Ok(())
        }
        Some(Order::Books { state_dir }) => {
            let books = runtime.block_on(crate::control::Client::new(&state_dir).books())?;
            println!("{}", serde_json::to_string_pretty(&books)?);
            Ok(())
        }
        Some(Order::Crash { state_dir }) => {
            Ok(runtime.block_on(crate::control::Client::new(&state_dir).crash())?)
        }
        Some(Order::Fault { state_dir, fault }) => {
            let fault = serde_json::from_str(&fault).context("cannot read the fault")?;
            Ok(runtime.block_on(crate::control::Client::new(&state_dir).fault(fault))?)
        }
        Some(Order::ServeFuse { directory, at, lingers }) => {
            crate::daemon::serve(&directory, &at, lingers).context("cannot serve the volume")
        }
    }
}

/// Abilities, each with one that goes with it: CSI couples the two, or nothing else could do the work.
const COUPLED: &[(Ability, Ability)] = &[
    (Ability::PublishUnpublish, Ability::PublishedNodes),
    (Ability::VolumeStats, Ability::Condition),
    (Ability::NodeExpand, Ability::OnlineExpansion),
];

async fn serve(serve: Serve) -> anyhow::Result<()> {
    let state = serve.state_dir.context("--state-dir is missing")?;
    std::fs::create_dir_all(&state).with_context(|| format!("cannot create `{}`", state.display()))?;
    // sysfs shows the real path of a loop device's file.
    let state = state.canonicalize().with_context(|| format!("cannot resolve `{}`", state.display()))?;
    anyhow::ensure!(!serve.endpoint.is_empty(), "--endpoint is missing");
    anyhow::ensure!(serve.endpoint.len() == serve.node.len(), "there must be one --endpoint for each --node");
    let mut without: BTreeSet<Ability> = serve.without.into_iter().collect();
    for (lacking, also) in COUPLED {
        if without.contains(lacking) {
            without.insert(*also);
        }
    }
    let abilities = Ability::value_variants().iter().copied().filter(|ability| !without.contains(ability));
    let nodes = serve.node.iter().map(|node| read_node(node)).collect::<anyhow::Result<Vec<_>>>()?;
    if serve.hostpath {
        anyhow::ensure!(nodes.len() == 1, "the driver of the recordings serves one node");
        let (node, endpoint) = (&nodes[0].name, read_endpoint(&serve.endpoint[0]));
        let name = serve.driver_name.unwrap_or_else(|| hostpath::NAME.to_owned());
        return hostpath::serve(name, &state, node, &endpoint).await;
    }
    let options = Options {
        name: serve.driver_name.unwrap_or_else(|| "fake.csi.volproof.dev".to_owned()),
        state,
        nodes: nodes.iter().map(|node| node.name.clone()).collect(),
        backing: serve.backing,
        fs_type: serve.default_fs,
        abilities: abilities.collect(),
        sabotage: serve.sabotage,
        max_volumes: serve.max_volumes,
        capacity: serve.capacity,
        padding: serve.padding,
        faults: serve.fault,
    };
    let endpoints = serve.endpoint.iter().map(|endpoint| read_endpoint(endpoint));
    server::serve(options, nodes.into_iter().zip(endpoints).collect()).await
}

fn read_fault(text: &str) -> Result<Fault, serde_json::Error> {
    serde_json::from_str(text)
}

fn read_node(text: &str) -> anyhow::Result<Node> {
    let (name, zone) = text.split_once('@').unwrap_or((text, "zone-1"));
    let is_plain = |name: &str| {
        let mut letters = name.chars();
        letters.next().is_some_and(|first| first.is_ascii_alphanumeric())
            && letters.all(|letter| letter.is_ascii_alphanumeric() || "-._".contains(letter))
    };
    anyhow::ensure!(is_plain(name) && name.len() <= 192, "the node name `{name}` is not plain");
    anyhow::ensure!(is_plain(zone) && zone.len() <= 63, "the zone `{zone}` is not plain");
    Ok(Node { name: name.to_owned(), zone: zone.to_owned() })
}

fn read_endpoint(text: &str) -> PathBuf {
    let path = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:")).unwrap_or(text);
    Path::new(path).to_owned()
}
