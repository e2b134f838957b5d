//! What one change costs each controller, and the API in memory, among 100 to 100,000 claims with all that
//! belongs to them: `cargo xtask bench cluster`.
//!
//! The clock stands still while there is work, so the times are those of the work. The driver does at once what it is
//! asked. Compare the ratios within one run: times depend on the machine.

#![expect(clippy::disallowed_methods, reason = "what is measured here is real time")]

#[path = "cluster/changes.rs"]
mod changes;
#[path = "../tests/it/obedient.rs"]
mod obedient;
#[path = "../tests/it/others.rs"]
mod others;

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::clock::TokioClock;
use api::{ApiSource, Key, Kind, Object, Resource};
use measure::{Aim, Program, Row};
use mimalloc::MiMalloc;
use testing::MemoryApi;
use tokio::runtime::Builder;

use changes::Change;

const SUBJECT: &str = "cluster";

/// As `volproof` has it.
#[global_allocator]
static MEMORY: MiMalloc = MiMalloc;

/// The requests of one kind in a round: one alone takes less than the clock can tell.
const REQUESTS: usize = 20;

/// Longer than a controller needs for a change.
const LONG: Duration = Duration::from_secs(30);

/// For one name: the rounds at each size.
type Growing = Vec<(usize, Vec<f64>)>;

fn main() {
    let program = Program::start();
    let sizes: &[usize] = if program.is_short() { &[100, 1000] } else { &[100, 1000, 10_000, 100_000] };
    let rounds = program.rounds(301);
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let all = runtime.expect("a runtime needs nothing").block_on(measure_all(sizes, rounds));
    for (name, sizes) in all {
        program.row(&Row::growing(SUBJECT, format!("one change: {name}"), "us", &sizes).aim(Aim::Ratio(1.5)));
    }
}

async fn measure_all(sizes: &[usize], rounds: usize) -> Vec<(&'static str, Growing)> {
    let changes = changes::all();
    let mut all: Vec<(&str, Growing)> = changes.iter().map(|change| (change.controller, vec![])).collect();
    let mut api_rows: Vec<(&str, Growing)> =
        ["API: put", "API: get", "API: list a namespace"].map(|name| (name, vec![])).into();
    for size in sizes {
        let api = Arc::new(MemoryApi::default());
        others::furnish(&api);
        (0..*size).for_each(|number| others::add(&api, number));
        for (change, (_, growing)) in changes.iter().zip(&mut all) {
            growing.push((*size, change_times(&api, change, rounds).await));
        }
        for ((_, growing), times) in api_rows.iter_mut().zip(requests(&api, rounds).await) {
            growing.push((*size, times));
        }
    }
    all.append(&mut api_rows);
    all
}

/// The times of a change, in microseconds, while its controller runs and no other.
async fn change_times(api: &Arc<MemoryApi>, change: &Change, rounds: usize) -> Vec<f64> {
    let running = (change.start)(Arc::<MemoryApi>::clone(api));
    settle().await;
    let of = change.controller.replace(' ', "-");
    let namespace = format!("of-{of}");
    let warm_up = rounds.div_ceil(10);
    let mut times = Vec::with_capacity(rounds);
    for round in 0..rounds + warm_up {
        let name = format!("{of}-{round}");
        (change.before)(api, &namespace, &name);
        settle().await;
        let began = Instant::now();
        (change.make)(api, &namespace, &name);
        settle().await;
        times.push(us(began.elapsed()));
        assert!(
            (change.is_done)(api, &namespace, &name),
            "{}: nothing was done about `{name}`",
            change.controller
        );
        // As many as before, and as much memory.
        changes::made(api, &namespace, &name).iter().for_each(|key| api.remove(key));
        settle().await;
    }
    drop(running);
    times.split_off(warm_up)
}

/// The time of a request to the API itself, in each round.
async fn requests(api: &MemoryApi, rounds: usize) -> [Vec<f64>; 3] {
    let mut times: [Vec<f64>; 3] = Default::default();
    for round in 0..rounds {
        let claims = (0..REQUESTS).map(|number| others::bound("requests", &format!("{round}-{number}")));
        let claims: Vec<Object> = claims.map(Resource::into_object).collect();
        let keys: Vec<Key> = claims.iter().map(Object::key).collect();
        let began = Instant::now();
        claims.into_iter().for_each(|claim| api.put(claim));
        times[0].push(us(began.elapsed()) / REQUESTS as f64);
        let began = Instant::now();
        for key in &keys {
            api.get(key).await.expect("it was put in");
        }
        times[1].push(us(began.elapsed()) / REQUESTS as f64);
        let began = Instant::now();
        for _ in 0..REQUESTS {
            assert_eq!(api.list_in(Kind::Claim, "n7").await.expect("it answers").len(), 20);
        }
        times[2].push(us(began.elapsed()) / REQUESTS as f64);
        keys.iter().for_each(|key| api.remove(key));
    }
    times
}

async fn settle() {
    TokioClock::shared().sleep(LONG).await;
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
