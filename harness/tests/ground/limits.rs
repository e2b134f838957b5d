//! A driver that wants all of the machine gets its share of it.

use std::sync::Arc;

use harness::Layout;
use harness::census::process;
use harness::cgroup::{Cgroup, Limits};
use harness::driver::{Driver, DriverError, DriverOptions};
use harness::guard::Guard;
use harness::journal::Journal;
use harness::manifest::Manifest;
use harness::sandbox::SandboxOptions;
use harness::symbols::Symbols;
use libtest_mimic::{Failed, Trial};

use crate::inside::enter;
use crate::{rooted, told};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        rooted("limits::a_driver_that_forks_without_end", || greedy("forks")),
        rooted("limits::a_driver_that_eats_memory", || greedy("eats")),
        rooted("limits::a_driver_that_fills_the_disk", || greedy("fills")),
        rooted("limits::an_honest_driver_hits_none", || greedy("nothing")),
    ]
}

fn greedy(how: &'static str) -> Result<(), Failed> {
    told("greedy", &[how]).map(drop)
}

const TASKS: u64 = 32;
const MEMORY: u64 = 128 << 20;
const DISK: u64 = 32 << 20;

/// Starts a driver that never serves anything, and looks how far it came.
pub(crate) fn driver(how: &str) {
    let command = match how {
        "forks" => "while :; do sleep 60 & done 2>/dev/null",
        "eats" => "exec tail /dev/zero",
        "fills" => "dd if=/dev/zero of={state}/all bs=1M 2>/dev/null; exec sleep 60",
        _ => "exec sleep 60",
    };
    let sandbox = enter(SandboxOptions { state_bytes: DISK, ..SandboxOptions::default() });
    let name = format!("volproof-ground-{how}-{}", sandbox.devices().last().unwrap());
    let cgroup = Arc::new(Cgroup::create(&name, Limits { tasks: TASKS, memory: MEMORY }).unwrap());
    let error = start(command, sandbox.layout(), Arc::clone(&cgroup));

    let hits = cgroup.hits();
    assert_eq!(hits.tasks > 0, how == "forks", "{hits:?}");
    assert_eq!(hits.memory > 0, how == "eats", "{hits:?}");
    let disk = nix::sys::statvfs::statvfs(sandbox.layout().state()).unwrap();
    assert_eq!(disk.blocks_available() == 0, how == "fills");
    if how == "eats" {
        assert!(matches!(error, DriverError::Exited { .. }), "the kernel has killed it: {error}");
    }
    let cgroup = Arc::into_inner(cgroup).expect("the driver is gone");
    cgroup.close().unwrap();
    assert!(harness::cgroup::places(&name).unwrap().iter().all(|place| !place.exists()));
    let sleeps = process::all().into_iter().filter(|process| process.name == "sleep" && !process.zombie);
    assert_eq!(sleeps.count(), 0, "what it started went with its group");
}

fn start(command: &str, layout: Layout, cgroup: Arc<Cgroup>) -> DriverError {
    let manifest = format!("command = [\"sh\", \"-c\", {command:?}]\ntimeouts.start = \"2s\"");
    let manifest = Manifest::parse(&manifest, "driver.toml".as_ref()).unwrap();
    let log = layout.state().join("driver.log");
    let journal = Journal::new(Symbols::new(layout.clone()), None);
    let options = DriverOptions { manifest, layout, node: "node-1".to_owned(), log, cgroup: Some(cgroup) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { Driver::start(options, journal).await.unwrap_err() })
}
