//! `SIGKILL` at any moment, of any process of a run: nothing is left, at the latest after `sweep`.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use harness::janitor;
use harness::loop_device::table::{self, BoundLoop};
use harness::wait::Deadline;
use libtest_mimic::{Failed, Trial};

use crate::{helper, rooted};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        rooted("kill::nobody", nobody),
        rooted("kill::the_run", || random_moments("run")),
        rooted("kill::the_keeper", || random_moments("keeper")),
        rooted("kill::init", || random_moments("init")),
        rooted("kill::the_worker", || random_moments("worker")),
        rooted("kill::the_janitor_and_the_run", || random_moments("janitor")),
    ]
}

/// How many moments a victim is killed at. More in the nightly run.
fn rounds() -> u64 {
    std::env::var("VOLPROOF_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(12)
}

fn nobody() -> Result<(), Failed> {
    let base = tempfile::tempdir()?;
    let before = world();
    let output = helper("run", &[path(base.path()), "naive"]).output()?;
    let told = String::from_utf8(output.stdout)?;
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    // Two devices with a lock each, of three workers. Six or twelve: losetup may lose a race, then it has none.
    assert!(told.lines().last().is_some_and(|line| line.ends_with("left 0")), "{told}");
    assert!(!told.contains("undone 0"), "the careless driver left devices, and they were found: {told}");
    nothing_is_left(&before, base.path());
    Ok(())
}

fn random_moments(victim: &'static str) -> Result<(), Failed> {
    let base = tempfile::tempdir()?;
    let before = world();
    for round in 0..rounds() {
        let kind = if round % 3 == 2 { "kind" } else { "naive" };
        let mut run =
            helper("run", &[path(base.path()), kind]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut lines = BufReader::new(run.stdout.take().expect("piped")).lines();
        lines.next();
        // The moment is spread evenly over the life of a run; nothing depends on hitting a certain one.
        std::thread::sleep(Duration::from_millis(3 * round * 12 / rounds() * 2));
        kill(&run, victim);
        drop(lines);
        run.wait()?;
        nothing_is_left(&before, base.path());
    }
    Ok(())
}

fn kill(run: &Child, victim: &str) {
    let run_pid = run.id() as i32;
    let of = |name: &str| descendants(run_pid).into_iter().find(|p| p.name.starts_with(name)).map(|p| p.pid);
    let pids = match victim {
        "run" => vec![Some(run_pid)],
        "keeper" => vec![of("volproof-keeper")],
        "init" => vec![of("volproof-init")],
        "worker" => vec![of("volproof-init").and_then(|init| descendants(init).first().map(|p| p.pid))],
        "janitor" => vec![of("volproof-janit"), Some(run_pid)],
        other => panic!("no such victim: {other}"),
    };
    for pid in pids.into_iter().flatten() {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    }
}

/// The processes below `pid`, children first.
fn descendants(pid: i32) -> Vec<harness::census::Process> {
    let mut found: Vec<harness::census::Process> = Vec::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        let list =
            std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        for child in list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()) {
            found.extend(harness::census::process::get(child));
            parents.push(child);
        }
    }
    found
}

/// What of the machine a run might change.
fn world() -> (Vec<BoundLoop>, BTreeSet<String>) {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    (table::bound(), table.lines().map(str::to_owned).collect())
}

fn nothing_is_left(before: &(Vec<BoundLoop>, BTreeSet<String>), base: &Path) {
    let name = base.file_name().and_then(|name| name.to_str()).expect("a temporary directory has a name");
    let clean = || {
        // What the janitor did, or was kept from doing: after a sweep it makes no difference.
        janitor::sweep_in(base).ok()?;
        let no_process = harness::census::process::all().iter().all(|process| {
            let line = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
            process.pid == std::process::id() as i32 || !String::from_utf8_lossy(&line).contains(name)
        });
        let no_run = std::fs::read_dir(base).ok()?.next().is_none();
        (no_process && no_run).then_some(())
    };
    Deadline::after(Duration::from_secs(30)).until("a run is not gone", clean).unwrap();
    let after = world();
    assert_eq!(after.1, before.1, "the mount table is as before");
    let strange: Vec<&BoundLoop> = after
        .0
        .iter()
        .filter(|bound| bound.inode != 0 && !before.0.iter().any(|old| old.is_same(bound)))
        .filter(|bound| is_a_sandboxs(bound))
        .collect();
    assert!(strange.is_empty(), "loop devices are left: {strange:?}");
}

/// The backing paths that devices of a dead sandbox show. Other tests attach loop devices meanwhile.
fn is_a_sandboxs(bound: &BoundLoop) -> bool {
    let path = bound.backing.to_string_lossy();
    path.contains("image") || path.contains("lock") || path == "/"
}

fn path(path: &Path) -> &str {
    path.to_str().expect("temporary directories have plain names")
}
