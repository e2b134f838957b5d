//! Measures how the manager's own costs grow with its number of volumes: `cargo xtask bench manager [MANY]` (default
//! 10000).
//!
//! Compare the ratios within one run: times depend on the machine. Kernel, driver and API are simulated in memory; their
//! costs count as the manager's.
//!
//! - the time from the event of one more pod to its first operation, on a node with 100 volumes, with a tenth of MANY, and
//!   with MANY;
//! - wake-ups and CPU time of an idle manager;
//! - the memory per volume, which is freed when the manager ends;
//! - the time per volume to mount, to reconstruct, to take over and to unmount MANY volumes, and a tenth of them;
//! - events of the simulation per minute, on one core.

#![expect(clippy::disallowed_methods, reason = "what is measured here is real time")]

#[path = "manager/driver.rs"]
mod driver;
#[expect(dead_code, reason = "only the size of the memory is used here, not the number of allocations")]
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
    // `cargo bench` adds `--bench`: the first number counts.
    let many = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(10_000);
    // One thread for the manager and the simulation around it; this thread measures.
    let runtime = || Builder::new_multi_thread().worker_threads(1).enable_time().build();
    let unused = runtime().expect("a thread can be started").block_on(idle());
    runtime().expect("a thread can be started").block_on(async {
        another_pod(many, unused).await;
        growth(many).await;
    });
    simulation();
}

/// Measures one more pod, and an idle manager, on a node that has many volumes. `unused`: without any volume.
async fn another_pod(many: usize, unused: Idle) {
    const ROUNDS: usize = 301;
    let sizes = [FEW, many / 10, many];
    let nodes = [filled(sizes[0]).await, filled(sizes[1]).await, filled(sizes[2]).await];
    let (mut first, mut last) = (Vec::new(), Vec::new());
    // All rounds of a size together: the memory that one node frees would slow the next measurement on another.
    for (node, size) in nodes.iter().zip(sizes) {
        let mut lives = Vec::with_capacity(ROUNDS);
        for round in 0..ROUNDS {
            lives.push(node.pod_life(size + round).await);
        }
        let of = |part: fn(&Life) -> Duration| median(lives.iter().map(part).collect());
        first.push(of(|life| life.first));
        last.push(of(|life| life.last));
    }
    head("on a node with this number of volumes", &sizes);
    row("one more pod: time to its first operation (aim 1.5)", &first);
    row("one pod less: time to the first operation", &last);
    let [few, tenth, large] = nodes;
    drop((few, tenth));
    let (woken, busy) = idle().await;
    println!("{many} volumes, idle for {IDLE_TIME:?}: {woken} wake-ups, busy {:.3} %", busy * 100.0);
    println!("  without volumes: {} wake-ups, busy {:.3} %", unused.0, unused.1 * 100.0);
    memory(&large, many).await;
}

async fn filled(volumes: usize) -> Node {
    let node = Node::start().await;
    node.provide(0..volumes);
    node.come(0..volumes).await;
    node
}

const IDLE_TIME: Duration = Duration::from_secs(5);

/// The wake-ups of the manager's thread, and the share of the time in which it was busy.
type Idle = (u64, f64);

/// Wake-ups and CPU time of an idle manager. The timer of this wait adds a few wake-ups.
async fn idle() -> Idle {
    let metrics = Handle::current().metrics();
    let now = || (metrics.worker_park_count(0), metrics.worker_total_busy_duration(0));
    // The last operations end first.
    tokio::time::sleep(IDLE_TIME / 10).await;
    let before = now();
    tokio::time::sleep(IDLE_TIME).await;
    let after = now();
    (after.0 - before.0, (after.1 - before.1).as_secs_f64() / IDLE_TIME.as_secs_f64())
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

/// Mounts, restarts with and unmounts many volumes at once, and a tenth of them.
async fn growth(many: usize) {
    let sizes = [(many / 10).max(1), many];
    let (few, more) = (lives(sizes[0]).await, lives(sizes[1]).await);
    head("per volume, of this number at once", &sizes);
    for ((phase, few), (_, more)) in few.into_iter().zip(more) {
        row(phase, &[few, more]);
    }
}

/// The time per volume of each phase.
async fn lives(volumes: usize) -> [(&'static str, Duration); 4] {
    let each = |began: Instant| began.elapsed() / u32::try_from(volumes).expect("a node is not that large");
    let mut node = Node::start().await;
    node.provide(0..volumes);
    let began = Instant::now();
    node.come(0..volumes).await;
    let mounted = each(began);
    node.restart().await;
    let began = Instant::now();
    node.idle().await;
    let reconstructed = each(began);
    let began = Instant::now();
    node.come(0..volumes).await;
    let taken_over = each(began);
    let began = Instant::now();
    node.go(0..volumes).await;
    let unmounted = each(began);
    [
        ("mounted", mounted),
        ("reconstructed after a restart", reconstructed),
        ("taken over", taken_over),
        ("unmounted", unmounted),
    ]
}

/// The speed of the simulation.
fn simulation() {
    const DURATION: Duration = Duration::from_secs(10);
    const STEPS: usize = 40;
    let (mut events, mut simulated, mut seeds) = (0, 0, 0_u64);
    let began = Instant::now();
    while began.elapsed() < DURATION {
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
        "simulation: {:.2} million events per minute (aim 1); {seeds} seeds, {:.0} times real time",
        events as f64 / took * 60.0 / 1e6,
        simulated as f64 / 1e3 / took
    );
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn head(title: &str, sizes: &[usize]) {
    let sizes: String = sizes.iter().map(|size| format!(" {size:>12}")).collect();
    println!("{title:<50}{sizes} {:>8}", "ratio");
}

/// The time at each size, and the ratio of the last to the first.
fn row(label: &str, times: &[Duration]) {
    let us = |time: &Duration| time.as_secs_f64() * 1e6;
    let ratio = times.first().zip(times.last()).map_or(1.0, |(few, many)| us(many) / us(few));
    let times: String = times.iter().map(|time| format!(" {:>9.1} us", us(time))).collect();
    println!("{label:<50}{times} {ratio:>8.2}");
}
