//! `cargo xtask ci <lane>`: one lane of CI, the same on a laptop as there.

use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::flags::{Ci, LaneName};
use crate::packages::{self, Wanted};
use crate::{lane, python, step};

pub(crate) fn run(flags: Ci) -> Result<ExitCode> {
    if flags.lane == LaneName::Gate {
        return gate();
    }
    let guests = (flags.lane == LaneName::Vm).then_some(Wanted::ForGuests);
    if let Err(code) = packages::prepare(flags.no_install, guests)? {
        return Ok(code);
    }
    if flags.lane == LaneName::Host {
        python::prepare(flags.no_install)?;
    }
    let name = format!("ci {}", flags.lane.name());
    let total = step::run_all(&name, lane::steps(flags.lane), false)?;
    println!("\n{total}");
    Ok(if total.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn gate() -> Result<ExitCode> {
    let needs = std::env::var("NEEDS").context("cannot read `NEEDS`: it holds GitHub's toJSON(needs)")?;
    let needs: Value = serde_json::from_str(&needs).context("cannot read `NEEDS` as JSON")?;
    let faults = faults(&needs);
    for fault in &faults {
        eprintln!("error: {fault}");
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Why the gate stays shut.
///
/// GitHub takes a skipped job for a good one, and an empty list of needs for a list of good ones:
/// both would let a change through that nothing has looked at.
fn faults(needs: &Value) -> Vec<String> {
    let Some(needs) = needs.as_object().filter(|needs| !needs.is_empty()) else {
        return vec!["the gate needs no lane: nothing was looked at".into()];
    };
    needs
        .iter()
        .filter(|(_, need)| need["result"] != "success")
        .map(|(lane, need)| format!("lane `{lane}` ended with {}", need["result"]))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_gate_opens_when_every_lane_succeeded() {
        assert!(faults(&json!({"check": {"result": "success"}, "host": {"result": "success"}})).is_empty());
    }

    #[test]
    fn the_gate_stays_shut_for_anything_else() {
        for result in ["failure", "cancelled", "skipped"] {
            let needs = json!({"check": {"result": "success"}, "host": {"result": result}});
            assert_eq!(faults(&needs), [format!("lane `host` ended with \"{result}\"")]);
        }
        assert_eq!(faults(&json!({})).len(), 1);
        assert_eq!(faults(&json!(null)).len(), 1);
    }
}
