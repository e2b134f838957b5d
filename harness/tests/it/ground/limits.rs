//! A driver that wants all of the machine gets its share of it.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use harness::Layout;
use harness::census::process;
use harness::cgroup::{Cgroup, Limits};
use harness::driver::{Driver, DriverError, DriverOptions};
use harness::guard::Guard;
use harness::journal::Journal;
use harness::loop_device::{LoopDevice, LoopOptions};
use harness::manifest::Manifest;
use harness::observe::Device;
use harness::sandbox::SandboxOptions;
use harness::symbols::Symbols;
use libtest_mimic::{Failed, Trial};

use super::inside::enter;
use crate::{rooted, run_helper};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        rooted("limits::a_driver_that_forks_without_end", || greedy("forks")),
        rooted("limits::a_driver_that_eats_memory", || greedy("eats")),
        rooted("limits::a_driver_that_fills_the_disk", || greedy("fills")),
        rooted("limits::an_honest_driver_hits_none", || greedy("nothing")),
        rooted("limits::disks_of_the_machine_are_refused", disks_are_refused),
    ]
}

fn greedy(how: &'static str) -> Result<(), Failed> {
    run_helper("greedy", &[how]).map(drop)
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
    let bytes = DISK / 2;
    let sandbox =
        enter(SandboxOptions { node_bytes: bytes, state_bytes: bytes, ..SandboxOptions::default() });
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
    let options = DriverOptions {
        manifest,
        layout,
        node: "node-1".to_owned(),
        log,
        other_controller: None,
        variables: Default::default(),
        cgroup: Some(cgroup),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { Driver::start(options, journal).await.unwrap_err() })
}

/// A disk of the machine that is neither a loop device nor stands on one.
fn machines_disk() -> Option<(String, String)> {
    let names = std::fs::read_dir("/sys/block").ok()?.flatten();
    let mut names = names.filter_map(|entry| entry.file_name().into_string().ok());
    let name = names.find(|name| ["vd", "sd", "nvme", "zram"].iter().any(|kind| name.starts_with(kind)))?;
    let number = std::fs::read_to_string(format!("/sys/block/{name}/dev")).ok()?;
    Some((name, number.trim().replace(':', " ")))
}

fn disks_are_refused() -> Result<(), Failed> {
    let Some((name, number)) = machines_disk() else {
        eprintln!("limits::disks_of_the_machine_are_refused: ignored, because this machine has no disk");
        return Ok(());
    };
    let limited = run_helper("disks", &["limited", &number])?;
    assert_eq!(limited, "machine: refused\nopened: used\nloop: used\n", "{name}");
    // The control: without the rules the same process opens the same disk.
    let unlimited = run_helper("disks", &["unlimited", &number])?;
    assert_eq!(unlimited, "machine: used\nopened: used\nloop: used\n", "{name}");
    Ok(())
}

/// Opens a disk of the machine, the same one where it was opened to the driver, and a loop device.
pub(crate) fn disks(kind: &str, number: &str) {
    let sandbox = enter(SandboxOptions::default());
    let loop_device =
        LoopDevice::create(&sandbox.layout().driver_state(), 1 << 20, &LoopOptions::default()).unwrap();
    let (major, minor) = number.split_once(' ').unwrap();
    let disk = Device { major: major.parse().unwrap(), minor: minor.parse().unwrap() };
    let node = sandbox.layout().driver_state().join("disk");
    let made = Command::new("mknod").arg(&node).args(["b", major, minor]).status().unwrap();
    assert!(made.success(), "a node may be made of anything");
    let uses = |opened: &[Device], path: &Path| {
        let name = format!("volproof-ground-disks-{}-{}", sandbox.devices().last().unwrap(), opened.len());
        let mut cgroup = Cgroup::create(&name, Limits { tasks: TASKS, memory: MEMORY }).unwrap();
        if kind == "limited" {
            cgroup.limit_disks(opened).unwrap();
            assert!(cgroup.disks_are_limited());
        }
        // The shell moves itself into the group.
        let enter: Vec<String> = harness::cgroup::places(&name)
            .unwrap()
            .iter()
            .map(|place| format!("echo 0 >{}/cgroup.procs; ", place.display()))
            .collect();
        let script = format!("{}exec head -c 1 {} >/dev/null 2>&1", enter.concat(), path.display());
        let used = Command::new("sh").args(["-c", &script]).status().unwrap().success();
        cgroup.close().unwrap();
        if used { "used" } else { "refused" }
    };
    println!("machine: {}", uses(&[], &node));
    println!("opened: {}", uses(&[disk], &node));
    println!("loop: {}", uses(&[], &loop_device.path()));
    loop_device.close().unwrap();
}
