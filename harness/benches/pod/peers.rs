//! What `--peers` has for pods: recordings of Kubernetes' own volume manager, and another driver.

use std::fs;

use anyhow::{Context, Result};
use measure::{Aim, Program, Row, quartiles};
use serde_json::Value;
use volume_manager::ClientStyle;

use super::arm::{Driver, Times};
use super::{ONE, SUBJECT, alone, in_and_out};

/// The times in a recording of one pod, in milliseconds, and the CPU time of the process.
#[derive(Debug, Default)]
struct Recorded {
    way_in: Vec<f64>,
    way_out: Vec<f64>,
    cpu: Vec<f64>,
}

/// `kubernetes.jsonl`: recordings in the form of `tests/golden`, one after the other.
pub(crate) fn kubernetes(program: &Program, ours: Times) -> Result<()> {
    let Some(path) = program.peer("kubernetes.jsonl") else { return Ok(()) };
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let recorded = recorded(&text)?;
    let rows = [("in", &recorded.way_in, ours.way_in), ("out", &recorded.way_out, ours.way_out)];
    for (way, rounds, ours) in rows {
        if !rounds.is_empty() {
            let row = Row::new(SUBJECT, format!("Kubernetes' manager: {way}"), "ms", rounds);
            let faster = row.median / quartiles(&ours).median;
            program.row(&row.ratio(faster).aim(Aim::RatioAtLeast(30.0)));
        }
    }
    if !recorded.cpu.is_empty() {
        program.row(&Row::new(SUBJECT, "Kubernetes' manager: CPU of its process", "ms", &recorded.cpu));
    }
    Ok(())
}

fn recorded(text: &str) -> Result<Recorded> {
    let mut recorded = Recorded::default();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).context("cannot read a line of the recording")?;
        let number = |field: &str| line[field].as_f64();
        match line["ev"].as_str().unwrap_or_default() {
            "wait_mount_returned" => recorded.way_in.extend(number("since_added_ms")),
            "pod_volumes_gone" => recorded.way_out.extend(number("since_removed_ms")),
            "done" => {
                let both = number("cpu_user_ms").zip(number("cpu_sys_ms"));
                recorded.cpu.extend(both.map(|(user, system)| user + system));
            }
            _ => {}
        }
    }
    Ok(recorded)
}

/// `driver.toml`: the manifest of a driver, whose volumes go in and out as fake-csi's do.
pub(crate) fn driver(program: &Program) -> Result<()> {
    let Some(manifest) = program.peer("driver.toml") else { return Ok(()) };
    let driver = Driver::Peer(manifest.display().to_string());
    let times = alone(&driver, ClientStyle::Kubelet, ONE).run(program.rounds(30))?;
    in_and_out(program, "1 volume, the peers' driver", &times, Some(1.5));
    Ok(())
}
