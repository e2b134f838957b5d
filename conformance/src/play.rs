//! Plays files instead of a case: a scenario in the recordings' format, or manifests.
//!
//! [`scenario`] reads a scenario, `world` puts the testbed up, `steps` plays the steps, `snapshot` records the state, and
//! `trace` writes the trace in the recordings' format, so that the two can be [compared](crate::compare). The clock of the
//! world skips while nothing is under way. [`files`] reads manifests; their pods get their volumes, the events are printed
//! live, and everything is taken down when the user ends the play.

mod apply;
mod claims;
mod containers;
pub(crate) mod files;
mod honoured;
mod live;
pub(crate) mod manifest;
mod names;
mod objects;
mod other_node;
mod presence;
pub(crate) mod scenario;
mod session;
mod shutdown;
mod snapshot;
mod steps;
mod time;
mod trace;
mod world;
mod yaml;

use std::path::Path;

use anyhow::Context;
use futures::future::LocalBoxFuture;
use harness::private;
use harness::sandbox::Sandbox;

use runner::message::{Played, Said, Script};
use runner::played::Findings;
use runner::worker::Voice;
use scenario::{Action, Scenario};
use testbed::message::{Orders, Refusal};
use world::World;

/// The file in a worker's directory that holds the trace.
pub(crate) const TRACE: &str = "trace.jsonl";

/// The file in a worker's directory whose appearance means that it has been seen enough.
pub(crate) const ENOUGH: &str = "enough";

/// The file there that holds changed manifests, until the player has taken them.
pub(crate) const CHANGED: &str = "changed.json";

/// Plays a script in this sandbox. The trace is in the worker's directory when this returns.
pub(crate) fn perform<'a>(
    orders: &'a Orders,
    sandbox: &'a Sandbox,
    script: &'a Script,
    voice: &'a Voice,
) -> LocalBoxFuture<'a, Result<Played, Refusal>> {
    let played = async move {
        match script {
            Script::Scenario(text) => play(orders, sandbox, text, voice).await,
            Script::Manifests(manifests) => session::play(orders, sandbox, manifests, voice).await,
        }
    };
    Box::pin(async move { played.await.map_err(|error| Refusal::ours(error.as_ref())) })
}

async fn play(orders: &Orders, sandbox: &Sandbox, text: &str, voice: &Voice) -> anyhow::Result<Played> {
    let scenario = Scenario::parse(text).map_err(|bad| anyhow::anyhow!("line {}: {bad}", bad.line))?;
    let print = |line: &str| voice.say(&Said::Told(line.to_owned()));
    let mut world = World::put_up(orders, sandbox, &scenario, None).await?;
    voice.hide(world.journal.masks().clone());
    let (mut failures, mut findings) = (Vec::new(), Findings::default());
    for (number, step) in scenario.steps.iter().enumerate() {
        print(&format!("{:>3}  {}", number + 1, steps::in_a_line(step)));
        if steps::takes_no_time(step) {
            world.stand_still();
        } else {
            world.go_on().await;
        }
        if let Some(failure) = world.perform(number, step).await {
            print(&format!("     ! {}", failure.lines().next().unwrap_or_default()));
            let place = format!("line {}, step {}", step.line, number + 1);
            failures.push(format!("{place}, {}: {failure}", steps::in_a_line(step)));
        }
        // The moment of a call is no end of anything.
        if !steps::takes_no_time(step) && step.action != Action::WaitRpc {
            world.settle().await;
            for line in world.story().await.lines() {
                print(&format!("       {line}"));
            }
        }
    }
    world.go_on().await;
    let trace = world.finish().await;
    for line in world.last_story().lines() {
        print(&format!("       {line}"));
    }
    write(&orders.directory.join(TRACE), &trace)?;
    let left = world.take_down().await;
    for finding in findings.since(&world.journal) {
        voice.say(&Said::Found(Box::new(finding)));
    }
    Ok(Played { failures, left })
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    private::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}
