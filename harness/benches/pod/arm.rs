//! One measurement, in a process and a sandbox of its own: pods of one load, with one driver in one style, in turns with
//! the bare loop of the same calls.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::future::try_join_all;
use harness::api_server::VolumeRequest;
use harness::driver::machine_options;
use harness::journal::Journal;
use harness::manifest::Manifest;
use harness::node::Node;
use harness::observe::MountWatch;
use harness::sandbox::{Sandbox, SandboxOptions};
use harness::symbols::Symbols;
use harness::testbed::Testbed;
use serde::{Deserialize, Serialize};
use volume_manager::ClientStyle;

use super::alone::Alone;
use super::bare::Bare;
use super::load::Load;
use super::{calls, null};

pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The times of the start and the end of pods, and the CPU time of this process for both.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    pub(crate) way_in: Duration,
    pub(crate) way_out: Duration,
    pub(crate) cpu: Duration,
}

/// What is around the manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Around {
    /// Nothing: it is in this process, and calls the driver itself.
    Nothing,
    /// The recorder and the proxy, all in this process.
    Recorder,
    /// All that a case has: it is in a process of its own, beside the controllers.
    Case,
}

/// What is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arm {
    pub(crate) around: Around,
    /// Whether system calls are counted, and not times measured.
    pub(crate) counted: bool,
    pub(crate) driver: Driver,
    pub(crate) style: ClientStyle,
    pub(crate) load: Load,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Driver {
    Null,
    FakeCsi,
    /// The driver of a manifest.
    Peer(String),
}

/// Milliseconds of each round; with `counted`, numbers of system calls of all pods and of the bare loop.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Times {
    pub(crate) way_in: Vec<f64>,
    pub(crate) way_out: Vec<f64>,
    pub(crate) cpu: Vec<f64>,
    pub(crate) floor_in: Vec<f64>,
    pub(crate) floor_out: Vec<f64>,
    pub(crate) floor_cpu: Vec<f64>,
    pub(crate) calls: Option<(f64, f64)>,
}

impl Around {
    const ALL: [Self; 3] = [Self::Nothing, Self::Recorder, Self::Case];

    fn word(self) -> &'static str {
        match self {
            Self::Nothing => "alone",
            Self::Recorder => "recorder",
            Self::Case => "case",
        }
    }

    fn is_recorded(self) -> bool {
        self != Self::Nothing
    }
}

impl Arm {
    /// Measures in a process of its own, with so many rounds.
    pub(crate) fn run(&self, rounds: usize) -> Result<Times> {
        let driver = match &self.driver {
            Driver::Null => "null".to_owned(),
            Driver::FakeCsi => "fake-csi".to_owned(),
            Driver::Peer(manifest) => manifest.clone(),
        };
        let words = [
            self.around.word().to_owned(),
            if self.counted { "counted" } else { "timed" }.to_owned(),
            if self.style == ClientStyle::Lean { "lean" } else { "kubelet" }.to_owned(),
            self.load.pods.to_string(),
            self.load.volumes.to_string(),
            if self.load.block { "block" } else { "files" }.to_owned(),
            rounds.to_string(),
            driver,
        ];
        let mut command = std::process::Command::new("/proc/self/exe");
        let output =
            command.arg("--inside").args(words).stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
        anyhow::ensure!(output.status.success(), "the measuring process ended with {}", output.status);
        serde_json::from_slice(&output.stdout).context("cannot read the times")
    }

    /// The measurement that the words of this process name, with its number of rounds.
    pub(crate) fn of(words: &[&str]) -> Option<(Self, usize)> {
        let [around, what, style, pods, volumes, kind, rounds, driver] = words else { return None };
        let load = Load { pods: pods.parse().ok()?, volumes: volumes.parse().ok()?, block: *kind == "block" };
        let driver = match *driver {
            "null" => Driver::Null,
            "fake-csi" => Driver::FakeCsi,
            manifest => Driver::Peer(manifest.to_owned()),
        };
        let style = if *style == "lean" { ClientStyle::Lean } else { ClientStyle::Kubelet };
        let around = Around::ALL.into_iter().find(|one| one.word() == *around)?;
        Some((Self { around, counted: *what == "counted", driver, style, load }, rounds.parse().ok()?))
    }

    /// Measures in this process, and prints the times.
    pub(crate) fn measure(&self, rounds: usize) -> Result<()> {
        let manifest = match &self.driver {
            Driver::Null => null::manifest(self.load.pods * self.load.volumes),
            Driver::FakeCsi => Manifest::fake_csi(&[]),
            Driver::Peer(manifest) => Manifest::read(Path::new(manifest))?,
        };
        let machine = machine_options(&manifest);
        let name = "bench".to_owned();
        let sandbox = Sandbox::enter(SandboxOptions { name, machine, ..Default::default() })?;
        let logs = tempfile::tempdir().context("cannot make a directory for logs")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let times = runtime.block_on(self.compare(&sandbox, manifest, logs.path(), rounds))?;
        println!("{}", serde_json::to_string(&times)?);
        Ok(())
    }

    async fn compare(
        &self,
        sandbox: &Sandbox,
        manifest: Manifest,
        logs: &Path,
        rounds: usize,
    ) -> Result<Times> {
        let bed = self.put_up(sandbox, manifest, logs).await?;
        for claim in self.load.claims() {
            let request = VolumeRequest::new(&claim, bed.manifest());
            bed.provisioner.provision(&VolumeRequest { block: self.load.block, ..request }).await?;
        }
        // The first pods have their volumes formatted, and fill caches on all sides.
        node_round(&bed.node, self.load, 0).await?;
        let seen = bed.journal.trace().len();
        node_round(&bed.node, self.load, 1).await?;
        let socket = bed.driver().lock().await.socket().to_owned();
        let bare = match self.load.block {
            // What the manager itself does for a device is no part of a bare loop.
            true => None,
            false => Some(Bare::of(&bed.journal.trace()[seen..], &socket, self.style)?),
        };
        let alone = match self.around {
            Around::Nothing => Some(Alone::in_place_of_node(&bed, self.style, &socket).await?),
            Around::Recorder => Some(Alone::in_place_of_node(&bed, self.style, bed.proxy().socket()).await?),
            Around::Case => None,
        };
        let round = async |number: usize| match &alone {
            Some(alone) => alone.round(&self.load, number).await,
            None => node_round(&bed.node, self.load, number).await,
        };
        let pods = sandbox.layout().root().join("pods");
        // The first round of each is not counted.
        if let Err(error) = round(2).await {
            let log = bed.driver().lock().await.log_tail(20).join("\n");
            return Err(error.context(format!("the driver's log ends with:\n{log}")));
        }
        tidied(&pods)?;
        if let Some(bare) = &bare {
            bare.round().await?;
            tidied(&pods)?;
        }
        let mut times = Times::default();
        if self.counted {
            let bare = bare.context("a block volume has no bare loop")?;
            times.calls = Some(self.count(&round, &bare, rounds, logs).await?);
            return Ok(times);
        }
        // Taken in turns: what slows the machine down for a while slows both.
        for number in 0..rounds {
            times.add(round(number + 3).await?);
            tidied(&pods)?;
            if let Some(bare) = &bare {
                times.add_floor(bare.round().await?);
                tidied(&pods)?;
            }
        }
        bed.end(LIMIT).await;
        Ok(times)
    }

    async fn put_up(&self, sandbox: &Sandbox, manifest: Manifest, logs: &Path) -> Result<Testbed> {
        let layout = sandbox.layout();
        // Without the recorder the kernel sends no notifications, which cost time by themselves.
        let witness = match self.around.is_recorded() {
            true => Some(Box::new(MountWatch::start()?) as Box<dyn harness::journal::Witness>),
            false => None,
        };
        let journal = Journal::new(Symbols::new(layout.clone()), witness);
        let builder = Testbed::builder(journal, layout, manifest, logs.to_owned());
        if self.around == Around::Case {
            return Ok(builder.put_up().await?);
        }
        let surroundings = builder.surround().await?;
        let driver = harness::api_server::driver_object(surroundings.capabilities());
        surroundings.api_server.add_driver(api::CsiDriver { attach_required: false, ..driver })?;
        // To remove a pod's directory is not the manager's work.
        let options = harness::node::NodeOptions { sweep: false, ..surroundings.node_options() };
        let bed = Testbed::start(surroundings, options).await?;
        bed.announce().await?;
        Ok(bed)
    }

    /// The system calls of one round of pods, and of one of the bare loop.
    async fn count(
        &self,
        round: &impl AsyncFn(usize) -> Result<Round>,
        bare: &Bare,
        rounds: usize,
        logs: &Path,
    ) -> Result<(f64, f64)> {
        let counting = calls::Counting::start(logs)?;
        for number in 0..rounds {
            round(number + 3).await?;
        }
        let ours = counting.stop()?;
        let counting = calls::Counting::start(logs)?;
        for _ in 0..rounds {
            bare.round().await?;
        }
        let each = |calls: u64| calls as f64 / rounds as f64;
        Ok((each(ours), each(counting.stop()?)))
    }
}

impl Times {
    fn add(&mut self, round: Round) {
        self.way_in.push(ms(round.way_in));
        self.way_out.push(ms(round.way_out));
        self.cpu.push(ms(round.cpu));
    }

    fn add_floor(&mut self, round: Round) {
        self.floor_in.push(ms(round.way_in));
        self.floor_out.push(ms(round.way_out));
        self.floor_cpu.push(ms(round.cpu));
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Pods in and out on the node of a testbed, with everything around it. Its CPU time is that of another process.
async fn node_round(node: &Node, load: Load, number: usize) -> Result<Round> {
    let pods = load.pods(number);
    let names: Vec<String> = pods.iter().map(|pod| pod.meta.name.clone()).collect();
    let begin = Instant::now();
    pods.into_iter().try_for_each(|pod| node.add_pod(pod).map(drop))?;
    try_join_all(names.iter().map(|name| node.wait_mounted(name, LIMIT))).await?;
    let way_in = begin.elapsed();
    node.wait_idle(LIMIT).await?;
    let begin = Instant::now();
    try_join_all(names.iter().map(|name| node.remove_pod(name, false))).await?;
    try_join_all(names.iter().map(|name| node.wait_gone(name, LIMIT))).await?;
    node.wait_idle(LIMIT).await?;
    Ok(Round { way_in, way_out: begin.elapsed(), cpu: Duration::ZERO })
}

/// Removes the directories of pods that are gone: each round makes its own anew.
fn tidied(pods: &Path) -> Result<()> {
    for pod in fs::read_dir(pods)? {
        let pod = pod?.path();
        fs::remove_dir_all(&pod).with_context(|| format!("cannot remove `{}`", pod.display()))?;
    }
    Ok(())
}
