//! `volproof watch` between a running node and a running driver.
//!
//! The node is a run of our own with `--socket`: what it calls is the watcher's socket, and its mounts are the
//! machine's. Each test looks for what is left behind.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serial_test::serial;
use tempfile::TempDir;
use tests::{Ended, Residue, RunningDriver, Volproof, has_root, settle};

const CASE: &str = "csi::lifecycle::file_system_is_set_up_and_torn_down";

/// A watcher that listens.
struct Watching {
    watch: Child,
    directory: TempDir,
    /// The socket of the watch and the node's root, in a directory that outlives the watch.
    socket: PathBuf,
    place: TempDir,
}

impl Watching {
    fn start(driver: &RunningDriver, name: &str, mark: &str) -> Watching {
        Self::start_with(driver, name, mark, "")
    }

    fn start_with(driver: &RunningDriver, name: &str, mark: &str, flags: &str) -> Watching {
        let place = tempfile::tempdir().expect("a temporary directory");
        let socket = place.path().join("watched.sock");
        let volproof =
            Volproof::new().env(name, mark).args("watch --trace seen.jsonl").args(flags).arg("--socket");
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

    /// Ends the watch. Returns its output and its trace.
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

/// Watches a node with a driver. Returns the output of the watch and its trace.
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
#[serial]
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
#[serial]
fn broken_promise_is_reported_at_its_line() {
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
#[serial]
fn findings_and_metrics_say_what_broke() {
    if !has_root() {
        return;
    }
    let (name, mark) = Residue::mark();
    let driver = RunningDriver::start_with(&["--sabotage", "unpublish-leaves-mount"]);
    let flags = "--findings found.jsonl --metrics unix:metrics.sock --trace-size 2KiB --trace-files 2";
    let watching = Watching::start_with(&driver, name, &mark, flags);
    watching.node();
    let mut reader = UnixStream::connect(watching.directory.path().join("metrics.sock")).expect("it listens");
    reader.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("it reads");
    let mut metrics = String::new();
    reader.read_to_string(&mut metrics).expect("it answers");
    let driver_label = r#"driver="fake.csi.volproof.dev""#;
    for counted in [
        format!("volproof_answers_total{{{driver_label},method=\"NodeStageVolume\",code=\"OK\"}} "),
        format!("volproof_findings_total{{{driver_label},promise=\"DRV-060\",strength=\"MUST\"}} "),
    ] {
        assert!(metrics.lines().any(|line| line.starts_with(&counted)), "{counted}\n{metrics}");
    }
    let written = watching.directory.path().to_owned();
    let found = std::fs::read_to_string(written.join("found.jsonl")).expect("findings were written");
    let first = found.lines().find(|line| line.contains("DRV-060")).expect("a finding");
    let finding: serde_json::Value = serde_json::from_str(first).expect("it is JSON");
    assert_eq!((&finding["strength"], &finding["method"]), (&"MUST".into(), &"NodeUnpublishVolume".into()));
    // The trace is split into files, of which three earlier ones are kept.
    let files = ["seen.jsonl", "seen.jsonl.1", "seen.jsonl.2", "seen.jsonl.3"]
        .map(|file| written.join(file).exists());
    assert_eq!(files, [true, true, true, false]);
    watching.signal(Signal::SIGINT);
    let (ended, _) = watching.end();
    assert_eq!(ended.code, Some(1), "{}", ended.told());
}

/// An upgrade: the new watch takes the socket over, and there is no moment at which the node finds none.
#[test]
#[serial]
fn watcher_takes_over_from_another_one() {
    if !has_root() {
        return;
    }
    let (name, mark) = Residue::mark();
    let before = Residue::see(&mark);
    let driver = RunningDriver::start();
    let first = Watching::start(&driver, name, &mark);
    let volproof = Volproof::new().env(name, &mark).args("watch --socket").arg(driver.socket());
    let root = first.place.path();
    let refused =
        Volproof::new().args("watch --socket").arg(driver.socket()).arg("--listen").arg(&first.socket);
    let refused = refused.arg("--root").arg(root).run();
    assert_eq!(refused.code, Some(2), "{}", refused.told());
    assert!(refused.stderr.contains("--replace takes over"), "{}", refused.told());
    let (mut second, _directory) =
        volproof.arg("--listen").arg(&first.socket).arg("--replace").arg("--root").arg(root).start();
    let mut first = first;
    // The first one ends by itself, as soon as the second one listens; until then one of them listens at each moment.
    let ended = loop {
        assert!(UnixStream::connect(&first.socket).is_ok(), "nothing listens");
        if let Some(ended) = first.watch.try_wait().expect("it can be asked") {
            break ended;
        }
    };
    assert_eq!(ended.code(), Some(0));
    assert!(UnixStream::connect(&first.socket).is_ok(), "the first watch has taken the second one's socket");
    let node = first.node();
    assert_eq!(node.code, Some(0), "{}", node.told());
    kill(Pid::from_raw(second.id().cast_signed()), Signal::SIGTERM).expect("the second watch is there");
    assert_eq!(second.wait().expect("it ends").code(), Some(0));
    drop(driver);
    assert_eq!(settle(&before, &mark, Duration::from_secs(10)), Vec::<String>::new(), "was left behind");
}

#[test]
#[serial]
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

/// The manifests that an operator applies: a patch that puts the watch beside a driver's registrar.
#[test]
fn sidecar_manifests_fit_the_command_line() {
    let read = |text: &str| -> serde_json::Value {
        let value: serde_json::Value = serde_yaml_ng::from_str(text).expect("it is YAML");
        value
    };
    let kustomization = read(include_str!("../../examples/watch/kustomization.yaml"));
    let patch = &kustomization["patches"][0];
    assert_eq!(patch["path"], "sidecar.yaml");
    assert_eq!(patch["target"]["kind"], "DaemonSet");
    let sidecar = read(include_str!("../../examples/watch/sidecar.yaml"));
    assert_eq!((&sidecar["apiVersion"], &sidecar["kind"]), (&"apps/v1".into(), &"DaemonSet".into()));
    let pod = &sidecar["spec"]["template"]["spec"];
    let container = |name: &str| {
        let all = pod["containers"].as_array().expect("containers");
        all.iter().find(|container| container["name"] == name).expect("a container of that name")
    };
    let args = |name: &str| -> Vec<String> {
        let args = container(name)["args"].as_array().expect("arguments").iter();
        args.map(|arg| arg.as_str().expect("a text").to_owned()).collect()
    };
    // Each flag exists: the program gets as far as to look for the node's directory.
    let watch = args("volproof");
    let flags = watch.iter().filter(|arg| !arg.starts_with("--root"));
    let run = flags.fold(Volproof::new(), |run, arg| run.arg(arg)).arg("--root=/nowhere/kubelet").run();
    assert_eq!(run.code, Some(2), "{}", run.told());
    assert!(run.stderr.contains("there is no directory `/nowhere/kubelet`"), "{}", run.told());
    // The node gets the socket of the watch.
    let value = |args: &[String], flag: &str| {
        args.iter().find_map(|arg| arg.strip_prefix(&format!("{flag}="))).map(str::to_owned)
    };
    assert_eq!(
        value(&watch, "--listen"),
        value(&args("node-driver-registrar"), "--kubelet-registration-path")
    );
    // Each mount of a container is a volume of the pod.
    let volumes = pod["volumes"].as_array().expect("volumes");
    for mount in container("volproof")["volumeMounts"].as_array().expect("mounts") {
        assert!(volumes.iter().any(|volume| volume["name"] == mount["name"]), "{mount}");
    }
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
