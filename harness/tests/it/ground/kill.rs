//! `SIGKILL` at any moment, of any process of a run: nothing is left, at the latest after `sweep`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use harness::census::{Process, process};
use harness::janitor;
use harness::loop_device::table;
use harness::wait::Deadline;
use libtest_mimic::{Failed, Trial};

use crate::{helper, rooted};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        rooted("kill::careless_driver", careless_driver_without_a_kill),
        rooted("kill::the_run", || random_moments("run")),
        rooted("kill::the_keeper", || random_moments("keeper")),
        rooted("kill::init", || random_moments("init")),
        rooted("kill::the_worker", || random_moments("worker")),
        rooted("kill::the_janitor_and_the_run", || random_moments("janitor")),
    ]
}

/// The number of moments at which a victim is killed; more in the nightly run.
fn rounds() -> u64 {
    std::env::var("VOLPROOF_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(12)
}

fn careless_driver_without_a_kill() -> Result<(), Failed> {
    let base = tempfile::tempdir()?;
    let output = helper("run", &[path(base.path()), "naive"]).output()?;
    let printed = String::from_utf8(output.stdout)?;
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    // Each of three workers leaves two devices, which may have a lock each: losetup can lose a race and set none.
    assert!(printed.lines().last().is_some_and(|line| line.ends_with("left 0")), "{printed}");
    assert!(
        !printed.contains("undone 0"),
        "the careless driver left devices, and they were found: {printed}"
    );
    nothing_is_left(base.path());
    Ok(())
}

fn random_moments(victim: &'static str) -> Result<(), Failed> {
    let base = tempfile::tempdir()?;
    for round in 0..rounds() {
        let kind = if round % 3 == 2 { "kind" } else { "naive" };
        let mut run =
            helper("run", &[path(base.path()), kind]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut lines = BufReader::new(run.stdout.take().expect("piped")).lines();
        lines.next();
        // The moments are spread evenly over the life of a run; the test needs no particular one.
        std::thread::sleep(Duration::from_millis(3 * round * 12 / rounds() * 2));
        kill(&run, victim);
        drop(lines);
        run.wait()?;
        nothing_is_left(base.path());
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
fn descendants(pid: i32) -> Vec<Process> {
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        let list =
            std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        for child in list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()) {
            found.extend(process::get(child));
            parents.push(child);
        }
    }
    found
}

/// Waits until the run below `base` is gone, janitor and all, and looks for what it left.
fn nothing_is_left(base: &Path) {
    let tag = path(Path::new(base.file_name().expect("a temporary directory has a name")));
    let gone = || {
        // If the janitor was killed, `sweep` does its work.
        janitor::sweep_in(base).ok()?;
        // The last run takes the directory with it.
        let no_run = std::fs::read_dir(base).map_or(true, |mut runs| runs.next().is_none());
        (no_run && processes_of(tag).is_empty()).then_some(())
    };
    Deadline::after(Duration::from_secs(30)).until("a run is not gone", gone).unwrap();
    let all = table::bound();
    let left = table::lying_on(&all, |bound| bound.backing.to_string_lossy().contains(tag));
    assert!(left.is_empty(), "loop devices are left: {left:?}");
    for place in harness::cgroup::places("any").unwrap_or_default() {
        let groups =
            std::fs::read_dir(place.parent().expect("it is below the top")).into_iter().flatten().flatten();
        let left: Vec<_> =
            groups.map(|group| group.path()).filter(|path| path.to_string_lossy().contains(tag)).collect();
        assert!(left.is_empty(), "control groups are left: {left:?}");
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("always there");
    assert!(!mounts.contains(tag), "mounts are left: {mounts}");
}

/// The processes that have the tag on their command line.
fn processes_of(tag: &str) -> Vec<Process> {
    let mut all = process::all();
    all.retain(|process| {
        let line = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(tag)
    });
    all
}

fn path(path: &Path) -> &str {
    path.to_str().expect("temporary directories have plain names")
}
