//! Calls through the proxy, with the recorder beside it, and the same calls to the driver itself.

use std::path::Path;
use std::time::{Duration, Instant};

use csi_proto::v1::NodeGetCapabilitiesRequest;
use csi_proto::v1::node_client::NodeClient;
use harness::journal::Journal;
use harness::manifest::Manifest;
use harness::observe::MountWatch;
use harness::symbols::Symbols;
use harness::testbed::Testbed;
use measure::{Aim, Program, Row};
use tokio::task::JoinSet;
use tonic::transport::Channel;

use super::{SUBJECT, enter};

/// Calls under way at once.
const AT_ONCE: usize = 32;
/// Calls of a round, of which the rate is taken.
const CALLS: usize = 4000;
/// Calls of a round that are made one by one.
const TIMED: usize = 200;

pub(crate) fn proxy(program: &Program) {
    let sandbox = enter();
    let logs = tempfile::tempdir().unwrap();
    let layout = sandbox.layout();
    let journal = Journal::new(Symbols::new(layout.clone()), Some(Box::new(MountWatch::start().unwrap())));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let manifest = Manifest::fake_csi(&[]);
        let bed = Testbed::builder(journal, layout, manifest, logs.path().to_owned()).put_up().await.unwrap();
        let driver = bed.driver().lock().await.socket().to_owned();
        let proxy = bed.proxy().socket().to_owned();
        let rounds = program.rounds(10);
        // The calls come from another thread, as a node's come from another process.
        let rows = tokio::task::spawn_blocking(move || calls(&driver, &proxy, rounds)).await.unwrap();
        rows.iter().for_each(|row| program.row(row));
        report(program, &bed.journal, logs.path());
        bed.end(Duration::from_secs(10)).await;
    });
}

/// The report of all these calls, as a case writes it.
fn report(program: &Program, journal: &Journal, directory: &Path) {
    let events = journal.trace().len() as f64;
    let mut rates = Vec::new();
    for _ in 0..program.rounds(3) {
        let began = Instant::now();
        journal.write(directory).unwrap();
        rates.push(events / began.elapsed().as_secs_f64());
    }
    let name = format!("report of {:.0}k events", events / 1e3);
    program.row(&Row::new(SUBJECT, name, "events/s", &rates));
}

fn calls(driver: &Path, proxy: &Path, rounds: usize) -> [Row; 2] {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let direct = NodeClient::new(harness::proxy::connect(driver).unwrap());
        let through = NodeClient::new(harness::proxy::connect(proxy).unwrap());
        let (mut without, mut with, mut rates) = (Vec::new(), Vec::new(), Vec::new());
        at_once(&through, CALLS / 4).await;
        for _ in 0..rounds {
            for _ in 0..TIMED {
                without.push(call(&direct).await);
                with.push(call(&through).await);
            }
            let began = Instant::now();
            at_once(&through, CALLS).await;
            rates.push(CALLS as f64 / began.elapsed().as_secs_f64());
        }
        let one = Row::new(SUBJECT, "proxy: one call", "ms", &with).floor(&without);
        let rate = Row::new(SUBJECT, format!("proxy: calls, {AT_ONCE} at once"), "/s", &rates);
        [one, rate.aim(Aim::AtLeast(5000.0))]
    })
}

/// The time of one call, in milliseconds.
async fn call(client: &NodeClient<Channel>) -> f64 {
    let began = Instant::now();
    client.clone().node_get_capabilities(NodeGetCapabilitiesRequest {}).await.unwrap();
    began.elapsed().as_secs_f64() * 1e3
}

async fn at_once(client: &NodeClient<Channel>, calls: usize) {
    let mut tasks = JoinSet::new();
    for _ in 0..AT_ONCE {
        let client = client.clone();
        tasks.spawn(async move {
            for _ in 0..calls / AT_ONCE {
                call(&client).await;
            }
        });
    }
    tasks.join_all().await;
}
