//! Ctrl-C: the first one stops in order with exit code 130, the second one at once, with a list of what `sweep` would undo.

use std::io::{BufRead, BufReader};
use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serial_test::serial;
use tests::{Ended, Process, Residue, Role, Volproof, has_root};

const PATIENCE: Duration = Duration::from_secs(30);

/// Sends the signal to the whole foreground group, as a terminal does.
fn press_ctrl_c(run: &Child) {
    let group = Pid::from_raw(run.id().try_into().expect("a process id"));
    killpg(group, Signal::SIGINT).expect("the run is there");
}

fn wait_for_a_node(mark: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !Process::marked(mark).iter().any(|process| process.role == Role::Node) {
        assert!(Instant::now() < deadline, "no case has begun");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
#[serial]
fn ctrl_c_stops_tidily() {
    if !has_root() {
        return;
    }
    let (name, mark) = Residue::mark();
    let before = Residue::see(&mark);
    let (run, directory) = Volproof::new().args("run --repeat 50 --report out").env(name, &mark).start();
    wait_for_a_node(&mark);
    press_ctrl_c(&run);
    let ended = Ended::of(run.wait_with_output().expect("its output"), directory);
    assert_eq!(ended.code, Some(130), "{}", ended.told());
    ended.leaves_nothing(&before, &mark, PATIENCE);
}

#[test]
#[serial]
fn ctrl_c_twice_stops_at_once_and_names_sweep() {
    if !has_root() {
        return;
    }
    let (name, mark) = Residue::mark();
    let before = Residue::see(&mark);
    let (run, directory) = Volproof::new().args("run --repeat 50").env(name, &mark).start();
    wait_for_a_node(&mark);
    press_ctrl_c(&run);
    press_ctrl_c(&run);
    let ended = Ended::of(run.wait_with_output().expect("its output"), directory);
    assert_eq!(ended.code, Some(130), "{}", ended.told());
    assert!(ended.stderr.contains("sweep") || ended.stdout.contains("sweep"), "{}", ended.told());
    // The janitor notices the end of the run as of any other.
    ended.leaves_nothing(&before, &mark, PATIENCE);
}

/// A run over many sabotages can be ended at any time: by Ctrl-C, or by SIGKILL.
#[test]
#[serial]
fn a_matrix_that_is_cut_short_leaves_nothing() {
    if !has_root() {
        return;
    }
    for (signal, code) in [(Signal::SIGINT, Some(130)), (Signal::SIGKILL, None)] {
        let (name, mark) = Residue::mark();
        let before = Residue::see(&mark);
        let volproof = Volproof::new()
            .env(name, &mark)
            .args("sabotage unpublish-leaves-mount --case csi::lifecycle --timeout 60s");
        let (mut matrix, directory) = volproof.start();
        let mut begun = String::new();
        let mut said = BufReader::new(matrix.stderr.as_mut().expect("it is piped"));
        said.read_line(&mut begun).expect("it can be read");
        assert!(begun.starts_with("the honest driver passes"), "{begun}");
        kill(Pid::from_raw(matrix.id().cast_signed()), signal).expect("it is there");
        let ended = Ended::of(matrix.wait_with_output().expect("its output"), directory);
        assert_eq!(ended.code, code, "{}", ended.told());
        ended.leaves_nothing(&before, &mark, Duration::from_secs(30));
    }
}
