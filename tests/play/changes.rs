//! Manifests that are edited while they are played.

use std::io::{BufRead, BufReader};
use std::process::Child;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serial_test::file_serial;
use tempfile::TempDir;
use tests::{Residue, Volproof, has_root, settle};

use super::{CLAIM, POD, manifests};

/// A play that goes on until it is interrupted, whose files are edited meanwhile.
pub(super) struct Playing {
    run: Child,
    directory: TempDir,
    lines: Box<dyn Iterator<Item = String>>,
}

impl Playing {
    pub(super) fn start(play: Volproof) -> Self {
        let (mut run, directory) = play.start();
        let lines = BufReader::new(run.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        Self { run, directory, lines: Box::new(lines) }
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.directory.path().join(name), text).expect("its directory is there");
    }

    #[track_caller]
    pub(super) fn wait_for(&mut self, told: &str) {
        assert!(self.lines.any(|line| line.starts_with(told)), "never told: {told}");
    }

    pub(super) fn end(mut self) -> Option<i32> {
        let group = Pid::from_raw(self.run.id().try_into().expect("a process id"));
        killpg(group, Signal::SIGINT).expect("it waits");
        self.lines.for_each(drop);
        self.run.wait().expect("it ends").code()
    }
}

#[test]
#[file_serial(root)]
fn changed_files_are_applied_while_it_plays() {
    if !has_root() {
        return;
    }
    let (name, mark) = Residue::mark();
    let before = Residue::see(&mark);
    let mut playing = Playing::start(manifests().env(name, &mark));
    playing.wait_for("all pods have their volumes");
    // A claim grows, and does not shrink.
    playing.write("claim.yaml", &CLAIM.replace("20Mi", "40Mi"));
    playing.wait_for("apply  PersistentVolumeClaim data asks for 40Mi instead of 20Mi");
    playing.wait_for("csi    Expand data");
    playing.write("claim.yaml", CLAIM);
    playing.wait_for("apply  PersistentVolumeClaim data stays as it is: a claim never shrinks");
    // A half-written file changes nothing.
    playing.write("pod.yaml", &POD.replace("kind: Pod", "kind: ["));
    // The volume moves to another pod: the first pod is gone before the second one has it.
    playing.write("pod.yaml", &POD.replace("name: web", "name: other"));
    playing.wait_for("apply  Pod other is created");
    playing.wait_for("apply  Pod web is deleted");
    playing.wait_for("all pods have their volumes");
    playing.wait_for("  other/d  ");
    assert_eq!(playing.end(), Some(0));
    assert_eq!(settle(&before, &mark, Duration::from_secs(30)), Vec::<String>::new());
}
