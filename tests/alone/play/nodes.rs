//! Pods on the two nodes of a play.

use std::time::Duration;

use serial_test::serial;
use tests::{Residue, Volproof, has_root, settle};

use super::changes::Playing;

/// The first pod of a StatefulSet, with its claim, on a node.
fn db(node: &str, size: &str) -> String {
    format!(
        "\
kind: Pod
metadata: {{name: db-0}}
spec:
  nodeName: {node}
  containers: [{{name: db, image: x, volumeMounts: [{{name: data, mountPath: /data}}]}}]
  volumes: [{{name: data, persistentVolumeClaim: {{claimName: data-db-0}}}}]
---
kind: PersistentVolumeClaim
metadata: {{name: data-db-0}}
spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: {size}}}}}}}
"
    )
}

const SNAPSHOT: &str = "\
---
kind: VolumeSnapshot
metadata: {name: nightly}
spec: {source: {persistentVolumeClaimName: data-db-0}}
";

/// The second pod, whose claim is made from the snapshot.
const RESTORED: &str = "\
---
kind: Pod
metadata: {name: db-1}
spec:
  containers: [{name: db, image: x, volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data-db-1}}]
---
kind: PersistentVolumeClaim
metadata: {name: data-db-1}
spec:
  accessModes: [ReadWriteOnce]
  dataSource: {kind: VolumeSnapshot, name: nightly}
  resources: {requests: {storage: 40Mi}}
";

#[test]
#[serial]
fn stateful_pod_grows_is_snapshotted_and_moves_to_the_other_node() {
    if !has_root() {
        return;
    }
    let (name, mark) = Residue::mark();
    let before = Residue::see(&mark);
    let play = Volproof::new().file("db.yaml", &db("node-1", "20Mi")).args("play db.yaml");
    let mut playing = Playing::start(play.env(name, &mark));
    playing.wait_for("all pods have their volumes");
    playing.write("db.yaml", &db("node-1", "40Mi"));
    playing.wait_for("csi    Expand data-db-0");
    playing.write("db.yaml", &(db("node-1", "40Mi") + SNAPSHOT));
    playing.wait_for("event  Normal SnapshotReady volumesnapshot/nightly");
    // Its node lets the volume go before the other one gets it.
    playing.write("db.yaml", &(db("node-2", "40Mi") + SNAPSHOT));
    playing.wait_for("apply  Pod db-0 is replaced, on node-2");
    playing.wait_for("csi    Unstage data-db-0");
    playing.wait_for("node-2  csi    Publish data-db-0 db-0");
    playing.wait_for("all pods have their volumes");
    playing.write("db.yaml", &(db("node-2", "40Mi") + SNAPSHOT + RESTORED));
    playing.wait_for("csi    Publish data-db-1 db-1");
    playing.wait_for("all pods have their volumes");
    assert_eq!(playing.end(), Some(0));
    assert_eq!(settle(&before, &mark, Duration::from_secs(30)), Vec::<String>::new());
}

#[test]
#[serial]
fn program_runs_in_a_pod_of_the_second_node() {
    if !has_root() {
        return;
    }
    let play = Volproof::new().file("db.yaml", &db("node-2", "20Mi")).args("play db.yaml --in db-0 --");
    let ended =
        ["sh", "-c", "echo hi >/data/f; cat /data/f"].iter().fold(play, |play, word| play.arg(word)).run();
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    assert!(ended.stdout.contains("node-2  csi    Stage data-db-0\n"), "{}", ended.told());
    assert!(ended.stdout.contains("\nhi\n"), "{}", ended.told());
    assert!(!ended.stderr.contains("note: "), "{}", ended.told());
}

#[test]
#[serial]
fn driver_of_the_second_node_is_judged() {
    if !has_root() {
        return;
    }
    let play = Volproof::new().file("db.yaml", &db("node-2", "20Mi"));
    let ended = play.args("play db.yaml --once --sabotage publish-creates-file").run();
    assert_eq!(ended.code, Some(1), "{}", ended.told());
    let finding = "Finding NodePublishVolume: nothing is mounted at the target";
    assert!(ended.stdout.contains(finding), "{}", ended.told());
    assert!(ended.stdout.contains("node-2  csi    Publish data-db-0 db-0"), "{}", ended.told());
}

#[test]
fn node_that_is_not_there_is_named() {
    let run = Volproof::new().file("db.yaml", &db("node-3", "20Mi")).args("play db.yaml --once");
    let ended = run.arg("--driver-cmd").arg("/nowhere/driver").run();
    let told = "note: `spec.nodeName` of Pod `db-0` is not honoured: there is one node here, `node-1`; the driver's manifest \
                adds `node-2` with `nodes = 2`";
    assert!(ended.stderr.contains(told), "{}", ended.told());
}
