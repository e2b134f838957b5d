//! The speed of what judges without a kernel: the simulation, and `check` on long recordings. `cargo xtask bench sim`

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use measure::{Aim, Program, Row};
use mimalloc::MiMalloc;
use sim::script::Scenario;
use sim::{Outcome, simulate};

/// As `volproof` has it.
#[global_allocator]
static MEMORY: MiMalloc = MiMalloc;

const VOLPROOF: &str = env!("CARGO_BIN_EXE_volproof");
const SUBJECT: &str = "sim";

/// The steps of a seed, as of `volproof sim`.
const STEPS: usize = 40;

/// A recording of one pod's life, which is repeated.
const RECORDING: &str = "tests/golden/traces/01-single-fs.jsonl";

fn main() -> ExitCode {
    let program = Program::start();
    simulation(&program);
    measure::ended(check(&program))
}

/// Events a minute, on one core.
fn simulation(program: &Program) {
    let duration = if program.is_short() { Duration::from_millis(200) } else { Duration::from_secs(4) };
    let (mut rates, mut times, mut seed) = (Vec::new(), Vec::new(), 0_u64);
    for _ in 0..program.rounds(5) {
        let (mut events, mut simulated) = (0, 0);
        let began = Instant::now();
        while began.elapsed() < duration {
            let scenario = Scenario::of(seed);
            match simulate(&scenario, &scenario.script(STEPS)) {
                Outcome::Clean(statistics) => {
                    events += statistics.events;
                    simulated += statistics.simulated_ms;
                }
                Outcome::Violated(violated) => panic!("{violated}"),
            }
            seed += 1;
        }
        let took = began.elapsed().as_secs_f64();
        rates.push(events as f64 / took * 60.0);
        times.push(simulated as f64 / 1e3 / took);
    }
    program.row(&Row::new(SUBJECT, "simulation, a core", "events/min", &rates).aim(Aim::AtLeast(6e6)));
    program.row(&Row::new(SUBJECT, "simulation, times real time", "s/s", &times));
}

/// Lines a second of `volproof check`, and its largest memory, by the length of the recording.
fn check(program: &Program) -> Result<()> {
    let place = tempfile::tempdir()?;
    let sizes: &[usize] = if program.is_short() { &[1000, 10_000] } else { &[10_000, 100_000, 1_000_000] };
    let (mut rates, mut memory) = (Vec::new(), Vec::new());
    for size in sizes {
        let recording = recording(place.path(), *size)?;
        let (mut times, mut largest) = (Vec::new(), Vec::new());
        for _ in 0..program.rounds(3) {
            let (took, kib) = checked(&recording)?;
            times.push(*size as f64 / took.as_secs_f64());
            largest.push(kib / 1024.0);
        }
        rates.push((*size, times));
        memory.push((*size, largest));
        fs::remove_file(recording)?;
    }
    program.row(&Row::growing(SUBJECT, "check", "lines/s", &rates).aim(Aim::AtLeast(200_000.0)));
    program.row(&Row::growing(SUBJECT, "check: memory", "MiB", &memory).aim(Aim::Ratio(1.5)));
    Ok(())
}

/// A recording of so many lines: the life of one pod after the other.
fn recording(place: &Path, lines: usize) -> Result<PathBuf> {
    let text = fs::read_to_string(RECORDING).with_context(|| format!("cannot read `{RECORDING}`"))?;
    let mut long = String::with_capacity(lines * 400);
    for line in text.lines().cycle().take(lines) {
        writeln!(long, "{line}")?;
    }
    let path = place.join(format!("{lines}.jsonl"));
    fs::write(&path, long)?;
    Ok(path)
}

/// The time of a check, and the largest memory that it had, in KiB.
fn checked(recording: &Path) -> Result<(Duration, f64)> {
    let began = Instant::now();
    let mut check = Command::new(VOLPROOF).arg("check").arg(recording).stdout(Stdio::null()).spawn()?;
    let mut largest = 0.0;
    loop {
        // The kernel keeps the largest value, so that only what comes after the last look is missed.
        largest = largest_memory(check.id()).unwrap_or(largest);
        if let Some(status) = check.try_wait()? {
            anyhow::ensure!(status.code().is_some_and(|code| code < 2), "check ended with {status}");
            return Ok((began.elapsed(), largest));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn largest_memory(pid: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
