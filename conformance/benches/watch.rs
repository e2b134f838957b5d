//! What `volproof watch` costs a node: time added to a call, calls a second, and memory after many calls.
//!
//! The driver is fake-csi, and the call is `NodeGetCapabilities`, for which it does nothing. Needs root. `cargo xtask bench
//! watch`

use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use csi_proto::v1::NodeGetCapabilitiesRequest;
use csi_proto::v1::node_client::NodeClient;
use measure::{Aim, Program, Row};
use tonic::transport::{Channel, Endpoint};

const PROGRAM: &str = env!("CARGO_BIN_EXE_volproof");
const SUBJECT: &str = "watch";
/// Calls of a round whose times are compared, one by one.
const TIMED: usize = 200;
/// Calls of a round of which the rate is taken.
const CALLS: usize = 20_000;
/// Calls under way at once.
const AT_ONCE: usize = 32;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A process that ends with this value.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(arguments: &[String]) -> Result<Started> {
    Ok(Started(Command::new(PROGRAM).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
}

fn main() -> ExitCode {
    let program = Program::start();
    if !nix::unistd::geteuid().is_root() {
        program.skipped(SUBJECT, "needs root, to see mounts");
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    measure::ended(runtime.block_on(measure(&program)))
}

async fn measure(program: &Program) -> Result<()> {
    let place = tempfile::tempdir()?;
    let path = |name: &str| place.path().join(name).display().to_string();
    let (driver, watched) = (path("csi.sock"), path("watched.sock"));
    std::fs::create_dir(place.path().join("state"))?;
    std::fs::create_dir(place.path().join("kubelet"))?;
    let state = format!("--state-dir={}", path("state"));
    let _driver =
        start(&["__fake-csi".into(), format!("--endpoint=unix://{driver}"), "--node=node-1".into(), state])?;
    let direct = connect(&driver).await?;
    let flags = ["watch", "--quiet", "--socket", &driver, "--listen", &watched, "--root", &path("kubelet")];
    let watch = start(&flags.map(str::to_owned))?;
    let through = connect(&watched).await?;

    // Before what is measured, so that what is kept once does not count as kept for each call.
    at_once(&through, CALLS).await?;
    let before = resident(watch.0.id())?;
    let rounds = program.rounds(10);
    let (mut without, mut with, mut added, mut rates) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        for _ in 0..TIMED {
            // In turns, so that what else the machine does meets both.
            without.push(call(&direct).await?);
            with.push(call(&through).await?);
        }
        let round = |times: &[f64]| measure::quartiles(&times[times.len() - TIMED..]).median;
        added.push(round(&with) - round(&without));
        let began = Instant::now();
        at_once(&through, CALLS).await?;
        rates.push(CALLS as f64 / began.elapsed().as_secs_f64());
    }
    let kept = (resident(watch.0.id())?.saturating_sub(before) * 1024) as f64;
    program.row(&Row::new(SUBJECT, "one call", "ms", &with).floor(&without));
    program.row(&Row::new(SUBJECT, "one call: added", "ms", &added).aim(Aim::AtMost(0.2)));
    let rate = Row::new(SUBJECT, format!("calls, {AT_ONCE} at once"), "/s", &rates);
    program.row(&rate.aim(Aim::AtLeast(4000.0)));
    let kept = kept / (rounds * (CALLS + TIMED)) as f64;
    program.row(&Row::new(SUBJECT, "memory kept for a call", "bytes", &[kept]).aim(Aim::AtMost(1.0)));
    Ok(())
}

/// A connection to a socket, as soon as a server answers there.
async fn connect(socket: &str) -> Result<NodeClient<Channel>> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        if Path::new(socket).exists() {
            match Endpoint::try_from(format!("unix://{socket}"))?.connect().await {
                Ok(channel) => return Ok(NodeClient::new(channel)),
                Err(error) if Instant::now() > until => return Err(error.into()),
                Err(_) => {}
            }
        }
        if Instant::now() > until {
            return Err(format!("no server listens at `{socket}`").into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The time of one call, in milliseconds.
async fn call(client: &NodeClient<Channel>) -> Result<f64> {
    let began = Instant::now();
    client.clone().node_get_capabilities(NodeGetCapabilitiesRequest {}).await?;
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

async fn at_once(client: &NodeClient<Channel>, calls: usize) -> Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..AT_ONCE {
        let client = client.clone();
        tasks.spawn(async move {
            for _ in 0..calls / AT_ONCE {
                call(&client).await?;
            }
            Result::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// The memory of a process, in KiB.
fn resident(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no memory in its status")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
