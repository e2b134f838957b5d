//! Manifests that are edited while they are played.

use std::io::{BufRead, BufReader};
use std::process::Child;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serial_test::serial;
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

    /// Waits for a line that begins so, and returns the rest of it.
    #[track_caller]
    pub(super) fn rest_of(&mut self, told: &str) -> String {
        let rest = self.lines.find_map(|line| line.strip_prefix(told).map(str::to_owned));
        rest.unwrap_or_else(|| panic!("never told: {told}"))
    }

    pub(super) fn end(mut self) -> Option<i32> {
        let group = Pid::from_raw(self.run.id().try_into().expect("a process id"));
        killpg(group, Signal::SIGINT).expect("it waits");
        self.lines.for_each(drop);
        self.run.wait().expect("it ends").code()
    }
}

#[test]
#[serial]
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
    playing
        .wait_for("apply  PersistentVolumeClaim data stays as it is: a claim never shrinks to its capacity");
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

/// A pod with two volumes, whose claims have a label.
const TWO: &str = "\
kind: Pod
metadata: {name: db}
spec:
  containers: [{name: c, image: x, volumeMounts: [{name: d, mountPath: /d}, {name: l, mountPath: /l}]}]
  volumes: [{name: d, persistentVolumeClaim: {claimName: data}}, {name: l, persistentVolumeClaim: {claimName: log}}]
---
kind: PersistentVolumeClaim
metadata: {name: data, labels: {app: db}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 20Mi}}}
---
kind: PersistentVolumeClaim
metadata: {name: log, labels: {app: db}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 20Mi}}}
";

const GROUP: &str = "\
---
kind: VolumeGroupSnapshot
metadata: {name: weekly}
spec: {source: {selector: {matchLabels: {app: db}}}}
";

/// A pod with a volume that is made from a snapshot of the group.
fn restored(snapshot: &str) -> String {
    format!(
        "\
---
kind: Pod
metadata: {{name: reader}}
spec:
  containers: [{{name: c, image: x, volumeMounts: [{{name: d, mountPath: /d}}]}}]
  volumes: [{{name: d, persistentVolumeClaim: {{claimName: copy}}}}]
---
kind: PersistentVolumeClaim
metadata: {{name: copy}}
spec:
  accessModes: [ReadWriteOnce]
  dataSource: {{kind: VolumeSnapshot, name: {snapshot}}}
  resources: {{requests: {{storage: 20Mi}}}}
"
    )
}

#[test]
#[serial]
fn group_snapshot_is_taken_restored_and_deleted_by_the_controllers() {
    if !has_root() {
        return;
    }
    let (name, mark) = Residue::mark();
    let before = Residue::see(&mark);
    let play = Volproof::new().file("db.yaml", TWO).args("play db.yaml");
    let mut playing = Playing::start(play.env(name, &mark));
    playing.wait_for("all pods have their volumes");
    playing.write("db.yaml", &[TWO, GROUP].concat());
    playing.wait_for("event  Normal CreatingGroupSnapshot volumegroupsnapshot/weekly");
    let ready = playing.rest_of("event  Normal SnapshotReady volumesnapshot/");
    let (snapshot, _) = ready.split_once(':').expect("an event has a message");
    playing.write("db.yaml", &[TWO, GROUP, &restored(snapshot)].concat());
    playing.wait_for("csi    Publish copy reader");
    playing.wait_for("all pods have their volumes");
    playing.write("db.yaml", TWO);
    playing.wait_for("apply  VolumeGroupSnapshot weekly is deleted");
    assert_eq!(playing.end(), Some(0));
    assert_eq!(settle(&before, &mark, Duration::from_secs(30)), Vec::<String>::new());
}
