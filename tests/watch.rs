//! `volproof watch` between a node and a driver that both know nothing of it.
//!
//! The node is a run of our own with `--socket`: what it calls is the watcher's socket, and its mounts are the
//! machine's. Each test looks for what is left behind.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serial_test::file_serial;
use tempfile::TempDir;
use tests::{Ended, Residue, RunningDriver, Volproof, has_root, settle};

const CASE: &str = "csi::lifecycle::file_system_is_set_up_and_torn_down";

/// A watcher that listens.
struct Watching {
    watch: Child,
    directory: TempDir,
    /// Where it listens, and the node's root: in a directory that outlives it.
    socket: PathBuf,
    place: TempDir,
}

impl Watching {
    fn start(driver: &RunningDriver, name: &str, mark: &str) -> Watching {
        let place = tempfile::tempdir().expect("a temporary directory");
        let socket = place.path().join("watched.sock");
        let volproof = Volproof::new().env(name, mark).args("watch --trace seen.jsonl --socket");
        let volproof =
            volproof.arg(driver.socket()).arg("--listen").arg(&socket).arg("--root").arg(place.path());
        let (mut watch, directory) = volproof.start();
        let mut begun = String::new();
        let mut said = BufReader::new(watch.stderr.as_mut().expect("it is piped"));
        said.read_line(&mut begun).expect("it can be read");
        assert!(begun.starts_with("watching fake.csi.volproof.dev at "), "{begun}");
        Watching { watch, directory, socket, place }
    }

    /// A node that uses the driver through the watcher.
    fn node(&self) -> Ended {
        let manifest = format!(
            "name = \"fake.csi.volproof.dev\"\nsocket = {:?}\nshared_dir = {:?}\n",
            self.socket,
            self.place.path()
        );
        Volproof::new()
            .file("driver.toml", &manifest)
            .args("run --driver driver.toml --timeout 15s")
            .arg(CASE)
            .run()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.watch.id().cast_signed()), signal).expect("the watcher is there");
    }

    /// What it said, and what it wrote down.
    fn end(mut self) -> (Ended, String) {
        let mut said = String::new();
        self.watch.stderr.take().expect("it is piped").read_to_string(&mut said).expect("it can be read");
        let trace = std::fs::read_to_string(self.directory.path().join("seen.jsonl")).unwrap_or_default();
        let mut ended = Ended::of(self.watch.wait_with_output().expect("its output"), self.directory);
        ended.stderr = said;
        assert!(!self.socket.exists(), "its socket is left: {}", ended.told());
        (ended, trace)
    }
}

/// Watches a node with a driver, and gives what the watcher said and wrote down.
fn watched(sabotage: &[&str]) -> (Ended, String) {
    let (name, mark) = Residue::mark();
    let before = Residue::see(&mark);
    let driver = RunningDriver::start_with(sabotage);
    let watching = Watching::start(&driver, name, &mark);
    let node = watching.node();
    assert_eq!(node.code, Some(i32::from(!sabotage.is_empty())), "{}", node.told());
    watching.signal(Signal::SIGINT);
    let (ended, trace) = watching.end();
    drop(driver);
    assert_eq!(settle(&before, &mark, Duration::from_secs(10)), Vec::<String>::new(), "was left behind");
    (ended, trace)
}

#[test]
#[file_serial(root)]
fn a_node_and_a_driver_are_watched_at_work() {
    if !has_root() {
        return;
    }
    let (ended, trace) = watched(&[]);
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    for told in ["NodeStageVolume", "NodePublishVolume", "mount ", "umount ", "none broken"] {
        assert!(ended.stdout.contains(told), "{told}: {}", ended.told());
    }
    let later = Volproof::new().file("seen.jsonl", &trace).args("check seen.jsonl").run();
    assert_eq!(later.code, Some(0), "{}", later.told());
}

#[test]
#[file_serial(root)]
fn a_broken_promise_is_told_where_it_breaks() {
    if !has_root() {
        return;
    }
    let (ended, _) = watched(&["--sabotage", "unpublish-leaves-mount"]);
    assert_eq!(ended.code, Some(1), "{}", ended.told());
    let line = |what: &str| ended.stdout.lines().position(|line| line.contains(what));
    let (call, broken) = (line("NodeUnpublishVolume"), line("BROKEN  DRV-060"));
    assert!(call.is_some() && call < broken, "{}", ended.told());
}

#[test]
#[file_serial(root)]
fn a_watcher_that_is_killed_leaves_no_socket() {
    if !has_root() {
        return;
    }
    let (name, mark) = Residue::mark();
    let before = Residue::see(&mark);
    let driver = RunningDriver::start();
    let watching = Watching::start(&driver, name, &mark);
    watching.signal(Signal::SIGKILL);
    let socket = watching.socket.clone();
    drop(watching.watch.wait_with_output());
    drop(driver);
    assert_eq!(settle(&before, &mark, Duration::from_secs(10)), Vec::<String>::new(), "was left behind");
    assert!(!socket.exists(), "its socket is left");
}

#[test]
fn impossible_watch_is_refused() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let place = |name: &str| root.path().join(name);
    let listener = UnixListener::bind(place("driver.sock")).expect("a socket");
    std::fs::write(place("file"), "mine").expect("a file");
    let watch = |socket: &str, listen: &str, below: &str| {
        let volproof =
            Volproof::new().args("watch --socket").arg(place(socket)).arg("--listen").arg(place(listen));
        volproof.arg("--root").arg(place(below)).run()
    };
    for (socket, listen, below, code, told) in [
        ("driver.sock", "w.sock", "nowhere", 2, "there is no directory"),
        ("nothing.sock", "w.sock", "", 4, "no driver answers at"),
        ("driver.sock", "file", "", 2, "is in use"),
        ("driver.sock", "driver.sock", "", 2, "is in use"),
    ] {
        let ended = watch(socket, listen, below);
        assert_eq!(ended.code, Some(code), "{}", ended.told());
        assert!(ended.stderr.contains(told), "{}", ended.told());
    }
    assert_eq!(std::fs::read_to_string(place("file")).expect("it is there"), "mine");
    drop(listener);
}
