//! `run --keep` and `enter`: the sandbox of a failed case stays until Ctrl-C, and then nothing of it is left.

use std::io::{BufRead, BufReader, Read};
use std::process::Child;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serial_test::serial;
use tempfile::TempDir;
use tests::{Ended, Residue, Volproof, built, has_root, settle};

const PATIENCE: Duration = Duration::from_secs(30);

const CASE: &str = "csi::lifecycle::file_system_is_set_up_and_torn_down";

/// A run that has kept a sandbox.
struct Keeping {
    run: Child,
    /// Its output so far.
    said: String,
    out: BufReader<std::process::ChildStdout>,
    directory: TempDir,
}

impl Keeping {
    /// Runs a case against a driver that leaves its mounts, until the run prints that it waits.
    fn start(name: &str, mark: &str) -> Keeping {
        let driver = format!(
            "{} __fake-csi --endpoint={{endpoint}} --node={{node}} --state-dir={{state}} --sabotage unpublish-leaves-mount",
            built().display()
        );
        let volproof = Volproof::new().args("run --keep --report out --driver-cmd").arg(driver).arg(CASE);
        let (mut run, directory) = volproof.env(name, mark).start();
        let mut out = BufReader::new(run.stdout.take().expect("it is piped"));
        let mut said = String::new();
        while !said.contains("kept until Ctrl-C") {
            let read = out.read_line(&mut said).expect("it can be read");
            assert_ne!(read, 0, "the run has ended:\n{said}");
        }
        Keeping { run, said, out, directory }
    }

    /// The id of the run, from the line with the `enter` command.
    fn id(&self) -> &str {
        let line = format!("volproof enter {CASE} --run ");
        let id = self.said.split_once(&line).and_then(|(_, rest)| rest.split_whitespace().next());
        id.unwrap_or_else(|| panic!("no id:\n{}", self.said))
    }

    fn signal(&self, signal: Signal) {
        let run = Pid::from_raw(self.run.id().try_into().expect("a process id"));
        kill(run, signal).expect("the run is there");
    }

    fn end(mut self) -> Ended {
        self.out.read_to_string(&mut self.said).expect("it can be read");
        let mut ended = Ended::of(self.run.wait_with_output().expect("its output"), self.directory);
        ended.stdout = self.said;
        ended
    }
}

/// Runs a line of shell in the sandbox of a case of a run: another run on the machine may have kept the same case.
fn enter(run: &str, case: &str, line: &str) -> Ended {
    Volproof::new().args("enter --run").arg(run).arg(case).args("-- sh -c").arg(line).run()
}

#[test]
#[serial]
fn failed_case_is_kept_until_ctrl_c() {
    if !has_root() {
        return;
    }
    let (name, mark) = Residue::mark();
    let before = Residue::see(&mark);
    let keeping = Keeping::start(name, &mark);

    // The mounts that the driver should have removed are there, the shell starts in the node's root, and the driver still
    // runs: nothing has been taken down.
    let id = keeping.id().to_owned();
    let mounts = enter(&id, CASE, "cat /proc/self/mountinfo");
    assert_eq!(mounts.code, Some(0), "{}", mounts.told());
    assert!(mounts.stdout.contains("/volumes/kubernetes.io~csi/"), "{}", mounts.told());
    let place = enter(&id, "file_system_is", "pwd");
    assert_eq!(place.stdout, "/var/lib/kubelet\n", "{}", place.told());
    let driver = enter(&id, CASE, "grep -l __fake-csi /proc/[0-9]*/cmdline");
    assert_eq!(driver.code, Some(0), "{}", driver.told());
    // The exit code is that of the command.
    assert_eq!(enter(&id, CASE, "exit 7").code, Some(7));
    assert_eq!(enter(&id, "no::such::case", "true").code, Some(3));

    keeping.signal(Signal::SIGINT);
    let ended = keeping.end();
    assert_eq!(ended.code, Some(1), "{}", ended.told());
    // This program is not on the path, so the line has its path.
    let look = format!("look   {} enter {CASE}", built().display());
    assert!(ended.stdout.contains(&look), "{}", ended.told());
    let cases = ended.results().cases();
    assert_eq!(cases.len(), 1, "{}", ended.told());
    assert_eq!(cases[0].status, "failed", "{}", ended.told());
    assert_eq!(settle(&before, &mark, PATIENCE), Vec::<String>::new(), "{}", ended.told());
    assert_eq!(enter(&id, CASE, "true").code, Some(3), "it is gone");
}

#[test]
#[serial]
fn case_that_two_runs_have_kept_is_entered_by_the_id_of_one() {
    if !has_root() {
        return;
    }
    let (name, mark) = Residue::mark();
    let before = Residue::see(&mark);
    let both = [Keeping::start(name, &mark), Keeping::start(name, &mark)];
    let ambiguous = Volproof::new().args("enter").arg(CASE).args("-- true").run();
    assert_eq!(ambiguous.code, Some(2), "{}", ambiguous.told());
    for keeping in &both {
        let line = format!(
            "there is: {CASE}  run {}, to be looked at, pid {}, begun ",
            keeping.id(),
            keeping.run.id()
        );
        assert!(ambiguous.stderr.contains(&line), "{line}\n{}", ambiguous.told());
        let entered = enter(keeping.id(), CASE, "cat /proc/1/comm");
        assert_eq!(entered.code, Some(0), "{}", entered.told());
    }
    for keeping in both {
        keeping.signal(Signal::SIGINT);
        assert_eq!(keeping.end().code, Some(1));
    }
    assert_eq!(settle(&before, &mark, PATIENCE), Vec::<String>::new());
}

#[test]
#[serial]
fn kept_sandbox_ends_with_its_killed_run() {
    if !has_root() {
        return;
    }
    let (name, mark) = Residue::mark();
    let before = Residue::see(&mark);
    let keeping = Keeping::start(name, &mark);
    keeping.signal(Signal::SIGKILL);
    let ended = keeping.end();
    assert_eq!(ended.code, None, "{}", ended.told());
    assert_eq!(settle(&before, &mark, PATIENCE), Vec::<String>::new(), "{}", ended.told());
}
