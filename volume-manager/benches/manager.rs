//! Measures how the manager's own costs grow with its number of volumes: `cargo xtask bench manager`.
//!
//! Compare the ratios within one run: times depend on the machine. Kernel, driver and API are simulated in memory; their
//! costs count as the manager's.
//!
//! - the time from the event of one more pod to its first operation, on nodes with 100 to 100,000 volumes;
//! - wake-ups of an idle manager;
//! - the memory per volume, which is freed when the manager ends;
//! - CPU time for one volume, and for 100 at once, in and out;
//! - the time per volume to mount, to reconstruct, to take over and to unmount volumes.

#![expect(clippy::disallowed_methods, reason = "what is measured here is real time")]

#[path = "manager/driver.rs"]
mod driver;
#[expect(dead_code, reason = "only the size of the memory is used here, not the number of allocations")]
#[path = "manager/memory.rs"]
mod memory;
#[path = "manager/node.rs"]
mod node;

use std::time::{Duration, Instant};

use measure::{Aim, ProcessTime, Program, Row};
use node::{Life, Node};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

const SUBJECT: &str = "manager";

fn main() {
    let program = Program::start();
    runtime().block_on(async {
        another_pod(&program).await;
        processor(&program).await;
        growth(&program).await;
    });
}

/// One thread for the manager and the simulation around it; the calling thread measures.
fn runtime() -> Runtime {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_time().build();
    runtime.expect("a thread can be started")
}

/// Measures one more pod on nodes of each size, and an idle manager that has many volumes.
async fn another_pod(program: &Program) {
    let sizes: &[usize] = if program.is_short() { &[100, 1000] } else { &[100, 1000, 10_000, 100_000] };
    let rounds = program.rounds(301);
    let (mut first, mut last) = (Vec::new(), Vec::new());
    // A node at a time, from the smallest: the memory that one frees would slow the next measurement on another.
    for size in sizes {
        let node = filled(*size).await;
        let mut lives = Vec::with_capacity(rounds);
        // The first lives fill caches on all sides.
        for round in 0..rounds + rounds.div_ceil(10) {
            lives.push(node.pod_life(size + round).await);
        }
        let of = |part: fn(&Life) -> Duration| {
            lives[rounds.div_ceil(10)..].iter().map(|life| us(part(life))).collect::<Vec<_>>()
        };
        first.push((*size, of(|life| life.first)));
        last.push((*size, of(|life| life.last)));
        if *size == 10_000 || program.is_short() {
            let woken = idle().await as f64;
            let name = format!("{size} volumes, idle for {IDLE_TIME:?}: wake-ups");
            program.row(&Row::new(SUBJECT, name, "", &[woken]).aim(Aim::AtMost(0.0)));
            memory(program, &node, *size).await;
        }
    }
    for (name, sizes) in [("one more pod: first operation", first), ("one pod less: first operation", last)] {
        program.row(&Row::growing(SUBJECT, name, "us", &sizes).aim(Aim::Ratio(1.5)));
    }
}

async fn filled(volumes: usize) -> Node {
    let node = Node::start().await;
    node.provide(0..volumes);
    // The driver's one connection does not survive 60,000 calls at once.
    for first in (0..volumes).step_by(AT_ONCE) {
        node.come(first..volumes.min(first + AT_ONCE)).await;
    }
    node
}

/// The pods that come together while a node is filled.
const AT_ONCE: usize = 1000;

const IDLE_TIME: Duration = Duration::from_secs(5);

/// How often the manager's thread wakes up while there is nothing to do, beyond one without a manager in the same time.
async fn idle() -> u64 {
    let without = std::thread::spawn(|| runtime().block_on(parks()));
    let with = parks().await;
    with.saturating_sub(without.join().expect("it only waits"))
}

/// How often the thread of this runtime comes to rest within the time. Another thread measures that: a timer of the runtime
/// would wake it up by itself.
async fn parks() -> u64 {
    let metrics = Handle::current().metrics();
    // The last operations end first.
    tokio::time::sleep(IDLE_TIME / 10).await;
    let before = metrics.worker_park_count(0);
    let (over, wait) = oneshot::channel();
    let clock = std::thread::spawn(move || {
        std::thread::sleep(IDLE_TIME);
        over.send(())
    });
    wait.await.expect("it is sent after the time");
    let count = metrics.worker_park_count(0) - before;
    clock.join().expect("it only sleeps").expect("it is waited for");
    count
}

/// The memory that is freed when the manager ends, which then has the only copy of the objects.
async fn memory(program: &Program, node: &Node, many: usize) {
    node.forget(0..many);
    // The manager reads of it and forgets, too.
    tokio::time::sleep(Duration::from_millis(100)).await;
    node.idle().await;
    let before = memory::held();
    node.manager.shutdown().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let freed = (before - memory::held()) as f64 / many as f64 / 1024.0;
    let name = format!("{many} volumes: memory of each, with pod");
    program.row(&Row::new(SUBJECT, name, "KiB", &[freed]).aim(Aim::AtMost(4.0)));
}

/// CPU time of this process for volumes in and out: of the manager, and of kernel, driver and API in memory.
async fn processor(program: &Program) {
    for (volumes, aim) in [(1, 3.0), (100, 150.0)] {
        let node = Node::start().await;
        let mut rounds = Vec::new();
        for round in 0..program.rounds(30) + 1 {
            let pods = round * volumes..(round + 1) * volumes;
            node.provide(pods.clone());
            node.idle().await;
            let cpu = ProcessTime::now();
            node.come(pods.clone()).await;
            node.go(pods).await;
            rounds.push(cpu.elapsed().as_secs_f64() * 1e3);
        }
        let name = format!("{volumes} in and out: CPU, simulated kernel");
        program.row(&Row::new(SUBJECT, name, "ms", &rounds[1..]).aim(Aim::AtMost(aim)));
    }
}

/// Mounts, restarts with and unmounts many volumes at once, and fewer of them.
async fn growth(program: &Program) {
    let sizes: &[usize] = if program.is_short() { &[100, 1000] } else { &[100, 1000, 10_000] };
    let mut phases: [Vec<(usize, Vec<f64>)>; 4] = Default::default();
    let mut restarts = Vec::new();
    for size in sizes {
        let mut rounds: [Vec<f64>; 4] = Default::default();
        for _ in 0..program.rounds(3) {
            let lives = lives(*size).await;
            rounds.iter_mut().zip(lives).for_each(|(rounds, whole)| rounds.push(us(whole) / *size as f64));
            if Some(size) == sizes.last() {
                restarts.push(lives[1].as_secs_f64());
            }
        }
        phases.iter_mut().zip(rounds).for_each(|(phase, rounds)| phase.push((*size, rounds)));
    }
    for (name, sizes) in PHASES.iter().zip(phases) {
        let name = format!("a volume of many at once: {name}");
        program.row(&Row::growing(SUBJECT, name, "us", &sizes).aim(Aim::Ratio(1.5)));
    }
    let name = format!("restart with {} volumes: all known again", sizes.last().expect("there are sizes"));
    program.row(&Row::new(SUBJECT, name, "s", &restarts).aim(Aim::AtMost(1.0)));
}

const PHASES: [&str; 4] = ["mounted", "reconstructed", "taken over", "unmounted"];

/// The time of each phase, for all volumes.
async fn lives(volumes: usize) -> [Duration; 4] {
    let mut node = Node::start().await;
    node.provide(0..volumes);
    let began = Instant::now();
    node.come(0..volumes).await;
    let mounted = began.elapsed();
    let began = Instant::now();
    node.restart().await;
    node.idle().await;
    let reconstructed = began.elapsed();
    let began = Instant::now();
    node.come(0..volumes).await;
    let taken_over = began.elapsed();
    let began = Instant::now();
    node.go(0..volumes).await;
    [mounted, reconstructed, taken_over, began.elapsed()]
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
