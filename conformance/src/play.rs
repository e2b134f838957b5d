//! Playing what is written in a file instead of in a case: a scenario of the recordings' format, or manifests.
//!
//! [`scenario`] reads it, `world` puts the testbed up, `steps` goes through it, `snapshot` looks
//! at everything, and `trace` writes it all down in the words of the recordings, so that the two can be
//! [compared](crate::compare). Time is the world's: where nothing is under way it skips. [`files`] reads manifests;
//! their pods are given what they want, it is told live, and taken down again when whoever looks on has seen enough.

mod claims;
pub(crate) mod files;
mod live;
pub(crate) mod manifest;
mod names;
mod objects;
pub(crate) mod scenario;
mod snapshot;
mod steps;
mod time;
mod trace;
mod world;
mod yaml;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::future::LocalBoxFuture;
use harness::private;
use harness::sandbox::Sandbox;

use files::Files;
use runner::message::{Played, Said, Script};
use runner::worker::Voice;
use scenario::{Action, Scenario};
use testbed::message::{Orders, Refusal};
use world::World;

/// The file in a worker's directory that holds the trace.
pub(crate) const TRACE: &str = "trace.jsonl";

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
            Script::Manifests { files, once } => play_files(orders, sandbox, files, *once, voice).await,
        }
    };
    Box::pin(async move { played.await.map_err(|error| Refusal::ours(error.as_ref())) })
}

async fn play(orders: &Orders, sandbox: &Sandbox, text: &str, voice: &Voice) -> anyhow::Result<Played> {
    let scenario = Scenario::parse(text).map_err(|bad| anyhow::anyhow!("line {}: {bad}", bad.line))?;
    let tell = |line: &str| voice.say(&Said::Told(line.to_owned()));
    let mut world = World::put_up(orders, sandbox, &scenario, None).await?;
    voice.hide(world.journal.masks().clone());
    let mut failures = Vec::new();
    for (number, step) in scenario.steps.iter().enumerate() {
        tell(&format!("{:>3}  {}", number + 1, steps::told(step)));
        if steps::takes_no_time(step) {
            world.stand_still();
        } else {
            world.go_on().await;
        }
        if let Some(failure) = world.perform(number, step).await {
            tell(&format!("     ! {}", failure.lines().next().unwrap_or_default()));
            let place = format!("line {}, step {}", step.line, number + 1);
            failures.push(format!("{place}, {}: {failure}", steps::told(step)));
        }
        // The moment of a call is no end of anything.
        if !steps::takes_no_time(step) && step.action != Action::WaitRpc {
            world.settle().await;
            for line in world.story().await.lines() {
                tell(&format!("       {line}"));
            }
        }
    }
    world.go_on().await;
    let trace = world.finish().await;
    for line in world.last_story().lines() {
        tell(&format!("       {line}"));
    }
    write(&orders.directory.join(TRACE), &trace)?;
    let left = world.take_down().await;
    Ok(Played { failures, left })
}

/// The file in a worker's directory whose appearance means that it has been seen enough.
pub(crate) const ENOUGH: &str = "enough";

/// Gives the pods of manifests what they want, tells what happens, and takes it down when that is asked for.
async fn play_files(
    orders: &Orders,
    sandbox: &Sandbox,
    texts: &[(String, String)],
    once: bool,
    voice: &Voice,
) -> anyhow::Result<Played> {
    let files = Files::parse(texts).map_err(|(name, bad)| anyhow::anyhow!("{name}: {bad}"))?;
    let mut world = World::put_up(orders, sandbox, &files.scenario, Some(&files)).await?;
    voice.hide(world.journal.masks().clone());
    let tell = |line: &str| voice.say(&Said::Told(line.to_owned()));
    world.claims_are_bound().await;
    world.add_all().map_err(|chain| anyhow::anyhow!(chain.join(": ")))?;
    let (enough, begun) = (orders.directory.join(ENOUGH), Instant::now());
    // Whoever looks on decides himself how long he waits; the other half is for taking everything down.
    let limit = once.then(|| PATIENCE.min(orders.timeout / 2));
    let mut played = Played::default();
    let mut ready = false;
    while !enough.exists() {
        tokio::time::sleep(LOOK).await;
        world.news().await.iter().for_each(|line| tell(line));
        if !ready && world.all_mounted().await {
            ready = true;
            // How they came by them is told before, whatever has happened since the last look.
            world.news().await.iter().for_each(|line| tell(line));
            tell("all pods have their volumes");
            world.places().await.iter().for_each(|line| tell(line));
            voice.say(&Said::Ready);
        }
        if !ready && limit.is_some_and(|limit| begun.elapsed() >= limit) {
            played.failures.push(world.not_ready(begun.elapsed()).await);
            break;
        }
    }
    played.left = world.take_down_pods().await;
    world.news().await.iter().for_each(|line| tell(line));
    write(&orders.directory.join(TRACE), &world.finish().await)?;
    played.left.extend(world.take_down().await);
    Ok(played)
}

/// How long pods may take to get their volumes if nobody looks on: as long as the kubelet waits for them at once.
const PATIENCE: Duration = Duration::from_secs(123);

/// How often it is looked for news.
const LOOK: Duration = Duration::from_millis(100);

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    private::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}
