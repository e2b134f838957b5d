//! How the manager's own costs grow with the volumes it has: `cargo xtask bench manager [MANY]` (default 10000).
//!
//! Ratios within one run, since they travel between machines and times do not. Kernel, driver and API are simulated in
//! memory; what they cost counts as the manager's cost.
//!
//! - one more pod, from the event to the first operation, among many volumes, a tenth of them and 100;
//! - what a manager that has nothing to do does;
//! - the memory it has for each volume: what becomes free when it ends;
//! - coming, being read back, being taken over and going, for each of many volumes beside each of a tenth of them;
//! - events of the simulation a minute, on one core.

#![expect(clippy::disallowed_methods, reason = "what is measured here is real time")]

#[path = "manager/driver.rs"]
mod driver;
#[expect(dead_code, reason = "how often is not asked here")]
#[path = "manager/memory.rs"]
mod memory;
#[path = "manager/node.rs"]
mod node;

use std::time::{Duration, Instant};

use node::{Life, Node};
use sim::script::Scenario;
use sim::{Outcome, simulate};
use tokio::runtime::{Builder, Handle};

const FEW: usize = 100;

fn main() {
    // `cargo bench` adds `--bench`: numbers are the only words that count.
    let many = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(10_000);
    // One thread for the manager and all it works with, and this one to look at the clock.
    let runtime = || Builder::new_multi_thread().worker_threads(1).enable_time().build();
    let alone = runtime().expect("a thread can be had").block_on(idle());
    runtime().expect("a thread can be had").block_on(async {
        another_pod(many, alone).await;
        growth(many).await;
    });
    simulation();
}

/// One more pod, and nothing at all, on a node that has many volumes.
async fn another_pod(many: usize, alone: Idle) {
    const ROUNDS: usize = 301;
    let sizes = [FEW, many / 10, many];
    let nodes = [filled(sizes[0]).await, filled(sizes[1]).await, filled(sizes[2]).await];
    let (mut first, mut last) = (Vec::new(), Vec::new());
    // Not in turns: what the one throws away at its end would be in the way of the other.
    for (node, size) in nodes.iter().zip(sizes) {
        let mut lives = Vec::with_capacity(ROUNDS);
        for round in 0..ROUNDS {
            lives.push(node.pod_life(size + round).await);
        }
        let of = |part: fn(&Life) -> Duration| median(lives.iter().map(part).collect());
        first.push(of(|life| life.first));
        last.push(of(|life| life.last));
    }
    head("among so many volumes", &sizes);
    row("one more pod: to its first operation (aim 1.5)", &first);
    row("one pod less: to the first operation", &last);
    let [few, tenth, large] = nodes;
    drop((few, tenth));
    let (woken, busy) = idle().await;
    println!("{many} volumes, idle for {WHILE:?}: {woken} wake-ups, busy {:.3} %", busy * 100.0);
    println!("  beside nothing at all: {} wake-ups, busy {:.3} %", alone.0, alone.1 * 100.0);
    memory(&large, many).await;
}

async fn filled(volumes: usize) -> Node {
    let node = Node::start().await;
    node.provide(0..volumes);
    node.come(0..volumes).await;
    node
}

/// The duration of the idle time.
const WHILE: Duration = Duration::from_secs(5);

/// The wake-ups of the manager's thread, and the share of the time in which it was busy.
type Idle = (u64, f64);

/// Wake-ups and CPU time of an idle manager. The timer of this wait adds a few wake-ups.
async fn idle() -> Idle {
    let metrics = Handle::current().metrics();
    let now = || (metrics.worker_park_count(0), metrics.worker_total_busy_duration(0));
    // The last operations end first.
    tokio::time::sleep(WHILE / 10).await;
    let before = now();
    tokio::time::sleep(WHILE).await;
    let after = now();
    (after.0 - before.0, (after.1 - before.1).as_secs_f64() / WHILE.as_secs_f64())
}

/// The memory that is freed when the manager ends, which then has the only copy of the objects.
async fn memory(node: &Node, many: usize) {
    node.forget(0..many);
    node.idle().await;
    let before = memory::held();
    node.manager.shutdown().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let freed = before - memory::held();
    println!("{many} volumes: {:.1} KiB each, pod and objects included", freed as f64 / many as f64 / 1024.0);
}

/// Whole lives of many volumes at once, and of a tenth of them.
async fn growth(many: usize) {
    let sizes = [(many / 10).max(1), many];
    let (few, more) = (lives(sizes[0]).await, lives(sizes[1]).await);
    head("each, of so many at once", &sizes);
    for ((what, few), (_, more)) in few.into_iter().zip(more) {
        row(what, &[few, more]);
    }
}

/// The time for each of a number of volumes.
async fn lives(volumes: usize) -> [(&'static str, Duration); 4] {
    let each = |began: Instant| began.elapsed() / u32::try_from(volumes).expect("a node is not that large");
    let mut node = Node::start().await;
    node.provide(0..volumes);
    let began = Instant::now();
    node.come(0..volumes).await;
    let come = each(began);
    node.restart().await;
    let began = Instant::now();
    node.idle().await;
    let read_back = each(began);
    let began = Instant::now();
    node.come(0..volumes).await;
    let taken_over = each(began);
    let began = Instant::now();
    node.go(0..volumes).await;
    let gone = each(began);
    [("come", come), ("read back after a restart", read_back), ("taken over", taken_over), ("gone", gone)]
}

/// The speed of the simulation.
fn simulation() {
    const WHILE: Duration = Duration::from_secs(10);
    const STEPS: usize = 40;
    let (mut events, mut simulated, mut seeds) = (0, 0, 0_u64);
    let began = Instant::now();
    while began.elapsed() < WHILE {
        let scenario = Scenario::of(seeds);
        match simulate(&scenario, &scenario.script(STEPS)) {
            Outcome::Clean(statistics) => {
                events += statistics.events;
                simulated += statistics.simulated_ms;
            }
            Outcome::Violated(violated) => panic!("{violated}"),
        }
        seeds += 1;
    }
    let took = began.elapsed().as_secs_f64();
    println!(
        "simulation: {:.2} million events a minute (aim 1); {seeds} seeds, {:.0} times real time",
        events as f64 / took * 60.0 / 1e6,
        simulated as f64 / 1e3 / took
    );
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn head(what: &str, sizes: &[usize]) {
    let sizes: String = sizes.iter().map(|size| format!(" {size:>12}")).collect();
    println!("{what:<50}{sizes} {:>8}", "ratio");
}

/// The time at each size, and the ratio of the last to the first.
fn row(what: &str, times: &[Duration]) {
    let us = |time: &Duration| time.as_secs_f64() * 1e6;
    let ratio = times.first().zip(times.last()).map_or(1.0, |(few, many)| us(many) / us(few));
    let times: String = times.iter().map(|time| format!(" {:>9.1} us", us(time))).collect();
    println!("{what:<50}{times} {ratio:>8.2}");
}
