//! One pod in and out, measured beside a bare loop that does only its calls and its changes to the tree.
//!
//! The bare loop is made from the trace of one pod: the same requests to the same driver, and the same
//! directories and files made and removed, with nothing in between that decides, records or waits. What the
//! pod costs more is the price of deciding and of keeping the record. Ratios travel between machines, times do
//! not. Needs root. `cargo xtask bench [ROUNDS]`

#[path = "pod/bare.rs"]
mod bare;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use api::pod::VolumeMount;
use api::{Container, Meta, Pod, PodVolume, VolumeSource};
use harness::api_server::VolumeRequest;
use harness::journal::Journal;
use harness::manifest::Manifest;
use harness::node::Node;
use harness::observe::MountWatch;
use harness::sandbox::{Sandbox, SandboxOptions};
use harness::symbols::Symbols;
use harness::testbed::Testbed;

use bare::Bare;

const LIMIT: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    if let Some(code) = harness::main() {
        return code;
    }
    // `cargo bench` adds `--bench`: the number is the only word that counts.
    let rounds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(30);
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: needs root, to mount and to attach loop devices");
        return ExitCode::SUCCESS;
    }
    match measure(rounds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure(rounds: usize) -> Result<()> {
    let sandbox = Sandbox::enter(SandboxOptions { name: "bench".to_owned(), ..Default::default() })?;
    let logs = tempfile::tempdir().context("cannot make a directory for logs")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(compare(&sandbox, logs.path(), rounds))
}

/// The times of a pod's start and end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    pub(crate) way_in: Duration,
    pub(crate) way_out: Duration,
}

async fn compare(sandbox: &Sandbox, logs: &Path, rounds: usize) -> Result<()> {
    let layout = sandbox.layout();
    let journal = Journal::new(Symbols::new(layout.clone()), Some(Box::new(MountWatch::start()?)));
    let bed = Testbed::builder(journal, layout, Manifest::fake_csi(&[]), logs.to_owned()).put_up().await?;
    let (node, journal) = (&bed.node, &bed.journal);
    bed.provisioner.provision(&VolumeRequest::new("data", bed.manifest())).await?;

    // The first pod has its volume formatted, and fills caches on all sides.
    pod_round_trip(node, 0).await?;
    let seen = journal.trace().len();
    pod_round_trip(node, 1).await?;
    let socket = bed.driver().lock().await.socket().to_owned();
    let mut bare = Bare::of(&journal.trace()[seen..], &socket).await?;
    let mut pods = Vec::new();
    let mut loops = Vec::new();
    // Taken in turns: what slows the machine down for a while slows both.
    for round in 0..rounds {
        pods.push(pod_round_trip(node, round + 2).await?);
        loops.push(bare.round().await?);
    }
    print(&pods, &loops, bare.describe());
    bed.provisioner.delete("data").await?;
    bed.end(LIMIT).await;
    Ok(())
}

async fn pod_round_trip(node: &Node, number: usize) -> Result<Round> {
    // A pod that is gone does not come back: each is another one.
    let name = format!("web-{number}");
    let begin = Instant::now();
    node.add_pod(pod(&name))?;
    node.wait_mounted(&name, LIMIT).await?;
    let way_in = begin.elapsed();
    node.wait_idle(LIMIT).await?;
    let begin = Instant::now();
    node.remove_pod(&name, false).await?;
    node.wait_gone(&name, LIMIT).await?;
    node.wait_idle(LIMIT).await?;
    Ok(Round { way_in, way_out: begin.elapsed() })
}

fn pod(name: &str) -> Pod {
    let mount = VolumeMount { volume: "data".to_owned(), path: "/data".to_owned(), ..VolumeMount::default() };
    let container = Container { name: "c".to_owned(), mounts: vec![mount], ..Container::default() };
    let source = VolumeSource::Claim { claim: "data".to_owned(), read_only: false };
    Pod {
        meta: Meta::named("default", name),
        volumes: vec![PodVolume { name: "data".into(), source }],
        containers: vec![container],
        ..Pod::default()
    }
}

fn print(pods: &[Round], loops: &[Round], what: String) {
    println!("one pod, one ext4 volume of fake-csi; {} rounds, medians", pods.len());
    println!("bare loop: {what}");
    println!("{:>6} {:>12} {:>12} {:>8}", "", "pod", "bare loop", "ratio");
    for (name, of) in
        [("in", (|round| round.way_in) as fn(&Round) -> Duration), ("out", |round| round.way_out)]
    {
        let (pod, bare) = (median(pods, of), median(loops, of));
        println!("{name:>6} {:>9.2} ms {:>9.2} ms {:>8.2}", ms(pod), ms(bare), ms(pod) / ms(bare));
    }
}

fn median(rounds: &[Round], of: fn(&Round) -> Duration) -> Duration {
    let mut times: Vec<Duration> = rounds.iter().map(of).collect();
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
