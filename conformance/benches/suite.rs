//! The suite with fake-csi: whole with its own number of lanes and with one, by kind of case, and beside csi-sanity. Needs root.
//! `cargo xtask bench suite`

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use measure::{Aim, Program, Row, quartiles};
use serde_json::Value;

const VOLPROOF: &str = env!("CARGO_BIN_EXE_volproof");
const SUBJECT: &str = "suite";

/// The table of csi-sanity's specs, each with the cases that judge the same.
const SPECS: &str = include_str!("../../docs/csi-sanity.md");

/// Cases for a run that only shows that all of this works.
const FEW: &[&str] = &["csi::identity", "csi::lifecycle"];

/// Kinds of cases to print: those that take the most time together.
const KINDS: usize = 15;

fn main() -> ExitCode {
    let program = Program::start();
    if !nix::unistd::geteuid().is_root() {
        program.skipped(SUBJECT, "needs root, to mount and to attach loop devices");
        return ExitCode::SUCCESS;
    }
    measure::ended(measure(&program))
}

fn measure(program: &Program) -> Result<()> {
    without_a_volume(program)?;
    match program.is_short() {
        true => whole(program, Some(2), FEW)?,
        false => [None, Some(1)].into_iter().try_for_each(|lanes| whole(program, lanes, &[]))?,
    }
    sanity(program)
}

/// Cases that make no volume, again and again on one driver.
fn without_a_volume(program: &Program) -> Result<()> {
    let repeat = program.rounds(20).to_string();
    let ran = run(&["csi::identity", "--jobs", "1", "--repeat", &repeat])?;
    let times: Vec<f64> = ran.cases.values().flatten().map(|seconds| seconds * 1e3).collect();
    let row = Row::new(SUBJECT, "a case without a volume, shared driver", "ms", &times);
    program.row(&row.aim(Aim::AtMost(5.0)));
    program.row(&Row::new(SUBJECT, "until the first verdict", "s", &[ran.first]));
    Ok(())
}

/// The suite with so many lanes, or with as many as it chooses.
fn whole(program: &Program, lanes: Option<u16>, filters: &[&str]) -> Result<()> {
    let jobs = lanes.map(|lanes| lanes.to_string());
    let ran = run(&[filters, &jobs.iter().flat_map(|jobs| ["--jobs", jobs]).collect::<Vec<_>>()].concat())?;
    let count = ran.cases.values().map(Vec::len).sum::<usize>();
    let lanes = match lanes {
        None => String::new(),
        Some(1) => " in one lane".to_owned(),
        Some(lanes) => format!(" in {lanes} lanes"),
    };
    let row = Row::new(SUBJECT, format!("{count} cases{lanes}"), "s", &[ran.seconds]);
    let busy =
        Row::new(SUBJECT, format!("{count} cases{lanes}: the machine is busy"), "%", &[ran.busy * 100.0]);
    match filters.is_empty() && lanes.is_empty() {
        true => {
            program.row(&row.aim(Aim::AtMost(100.0)));
            program.row(&busy.aim(Aim::AtLeast(80.0)));
            kinds(program, &ran);
        }
        false => {
            program.row(&row);
            program.row(&busy);
        }
    }
    Ok(())
}

fn kinds(program: &Program, ran: &Ran) {
    let mut kinds: Vec<(&String, &Vec<f64>)> = ran.cases.iter().collect();
    let all = |times: &[f64]| times.iter().sum::<f64>();
    kinds.sort_by(|one, other| all(other.1).total_cmp(&all(one.1)));
    for (kind, seconds) in kinds.into_iter().take(KINDS) {
        let times: Vec<f64> = seconds.iter().map(|seconds| seconds * 1e3).collect();
        let name = format!("{kind}: {} cases, {:.0} s in all", times.len(), all(seconds));
        program.row(&Row::new(SUBJECT, name, "ms", &times));
    }
}

/// A run of the suite.
struct Ran {
    seconds: f64,
    /// Until the first verdict.
    first: f64,
    /// The share of the machine's processors that was busy, with all else that it did.
    busy: f64,
    /// The seconds of each case that ran, by the kind in its id.
    cases: BTreeMap<String, Vec<f64>>,
}

fn run(arguments: &[&str]) -> Result<Ran> {
    let report = tempfile::tempdir()?;
    let (began, before) = (Instant::now(), Processors::read()?);
    let mut child = Command::new(VOLPROOF)
        .args(["run", "--tier", "host", "--format", "human", "--report"])
        .arg(report.path())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the suite")?;
    let output = BufReader::new(child.stdout.take().context("its output is read")?);
    let mut first = None;
    for line in output.lines() {
        let line = line?;
        let is_verdict = ["PASS", "FAIL", "SKIP"].iter().any(|word| line.trim_start().starts_with(word));
        first = first.or_else(|| is_verdict.then(|| began.elapsed().as_secs_f64()));
    }
    let status = child.wait()?;
    let seconds = began.elapsed().as_secs_f64();
    let busy = Processors::read()?.busy_since(&before);
    anyhow::ensure!(status.success(), "the suite ended with {status}");
    let cases = cases(report.path())?;
    Ok(Ran { seconds, first: first.context("the suite has printed no verdict")?, busy, cases })
}

/// The cases of `results.json` that came to a verdict.
fn cases(report: &Path) -> Result<BTreeMap<String, Vec<f64>>> {
    let results: Value = serde_json::from_str(&fs::read_to_string(report.join("results.json"))?)?;
    let mut cases: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for case in results["cases"].as_array().context("results.json has no cases")? {
        let skipped = case["status"].as_str().is_some_and(|status| status.starts_with("skipped"));
        if let (Some(id), Some(seconds), false) = (case["id"].as_str(), case["seconds"].as_f64(), skipped) {
            let kind = id.rsplit_once("::").map_or(id, |(kind, _)| kind);
            cases.entry(kind.to_owned()).or_default().push(seconds);
        }
    }
    Ok(cases)
}

/// Ticks of the machine's processors since its start.
struct Processors {
    all: u64,
    idle: u64,
}

impl Processors {
    fn read() -> Result<Self> {
        let text = fs::read_to_string("/proc/stat")?;
        let first = text.lines().next().context("/proc/stat is empty")?;
        let ticks: Vec<u64> = first.split_whitespace().filter_map(|tick| tick.parse().ok()).collect();
        // User, nice, system, idle, waiting for a disk, interrupts, stolen. What comes after is counted in these.
        let idle = ticks.get(3..5).context("/proc/stat has too few columns")?.iter().sum();
        Ok(Self { all: ticks.iter().take(8).sum(), idle })
    }

    fn busy_since(&self, before: &Self) -> f64 {
        1.0 - (self.idle - before.idle) as f64 / (self.all - before.all).max(1) as f64
    }
}

/// `csi-sanity`, on a fake-csi of its own in a mount namespace of its own, and the cases of the same ground. Both begin with
/// nothing: the suite starts its drivers by itself.
fn sanity(program: &Program) -> Result<()> {
    let Some(sanity) = program.peer("csi-sanity") else { return Ok(()) };
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    let cases = cases_of_specs();
    for _ in 0..program.rounds(5) {
        theirs.push(sanity_once(&sanity)?);
        ours.push(without_a_report(&cases)?);
    }
    let row = Row::new(SUBJECT, format!("csi-sanity's ground, {} cases", cases.len()), "s", &ours);
    let ratio = row.median / quartiles(&theirs).median;
    program.row(&row.ratio(ratio).aim(Aim::Ratio(1.0)));
    program.row(&Row::new(SUBJECT, "csi-sanity, with the start of its driver", "s", &theirs));
    Ok(())
}

/// The time of a run that writes no report, as csi-sanity writes none.
fn without_a_report(cases: &[&str]) -> Result<f64> {
    let began = Instant::now();
    let mut command = Command::new(VOLPROOF);
    command.args(["run", "--tier", "host"]).args(cases);
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    anyhow::ensure!(status.context("cannot start the suite")?.success(), "the suite has found something");
    Ok(began.elapsed().as_secs_f64())
}

/// The cases in the table of csi-sanity's specs, each once.
fn cases_of_specs() -> Vec<&'static str> {
    let quoted = SPECS.split('`').skip(1).step_by(2);
    quoted.filter(|word| word.starts_with("csi::")).collect::<BTreeSet<_>>().into_iter().collect()
}

fn sanity_once(sanity: &Path) -> Result<f64> {
    let place = tempfile::tempdir()?;
    let path = |name: &str| place.path().join(name).display().to_string();
    fs::create_dir(path("state"))?;
    fs::write(path("mutable"), "tier: gold\n")?;
    let socket = path("csi.sock");
    let began = Instant::now();
    let mut driver = Command::new("unshare")
        .args(["--mount", "--propagation", "slave", VOLPROOF, "__fake-csi", "--node=node-1"])
        .arg(format!("--endpoint=unix://{socket}"))
        .arg(format!("--state-dir={}", path("state")))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start fake-csi")?;
    while !Path::new(&socket).exists() {
        anyhow::ensure!(began.elapsed() < Duration::from_secs(10), "fake-csi does not listen");
        std::thread::sleep(Duration::from_millis(1));
    }
    // In the driver's mount namespace, where it looks at the mounts.
    let status = Command::new("nsenter")
        .args(["--mount", "--target", &driver.id().to_string()])
        .arg(sanity)
        .arg(format!("--csi.endpoint=unix://{socket}"))
        .arg(format!("--csi.mountdir={}", path("target")))
        .arg(format!("--csi.stagingdir={}", path("staging")))
        .arg(format!("--csi.testvolumemutableparameters={}", path("mutable")))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let took = began.elapsed().as_secs_f64();
    driver.kill()?;
    driver.wait()?;
    // What it finds is not asked here.
    status.context("cannot run csi-sanity")?;
    Ok(took)
}
