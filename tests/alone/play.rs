//! `volproof play` as a user runs it: manifests with mounted volumes, and the errors of files that cannot be played.

mod changes;
mod nodes;

use std::io::{BufRead, BufReader};
use std::time::Duration;

use expect_test::{Expect, expect};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serial_test::serial;
use tests::{Ended, Residue, Volproof, built, has_root, settle};

const POD: &str = "\
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: c, image: x, volumeMounts: [{name: d, mountPath: /d}, {name: s, mountPath: /s}]}
  volumes:
  - {name: d, persistentVolumeClaim: {claimName: data}}
  - {name: s, secret: {secretName: s1, defaultMode: 0400}}
---
kind: Secret
metadata: {name: s1}
stringData: {p: hello}
---
kind: Service
metadata: {name: db}
spec: {ports: [{port: 5432}]}
";

const CLAIM: &str = "\
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 20Mi}}}
";

fn manifests() -> Volproof {
    Volproof::new().file("pod.yaml", POD).file("claim.yaml", CLAIM).args("play pod.yaml claim.yaml")
}

/// The story, with symbols instead of the sandbox's paths.
const STORY: &str = "\
event  Normal ExternalProvisioning pvc/data: Waiting for a volume to be created either by the external provisioner \
'fake.csi.volproof.dev' or manually by the system administrator. If volume creation is delayed, please verify that the \
provisioner is running and correctly registered.
event  Normal Provisioning pvc/data: External provisioner is provisioning volume for claim \"default/data\"
event  Normal ProvisioningSucceeded pvc/data: Successfully provisioned volume pvc-persistentvolumeclaim-data-8
event  Normal SuccessfulAttachVolume pod/web: AttachVolume.Attach succeeded for volume \
\"pvc-persistentvolumeclaim-data-8\"\x20
csi    Stage data
csi    Publish data web
mount  <publish:data/web>
mkdir  <web>/s
mount  <web>/s             tmpfs
all pods have their volumes
  web/d  /var/lib/kubelet/pods/uid-web/volumes/kubernetes.io~csi/pvc-persistentvolumeclaim-data-8/mount
  web/s  /var/lib/kubelet/pods/uid-web/volumes/kubernetes.io~secret/s
  web/c  /d                       dir  rw
  web/c  /s                       dir  ro
  web/c  /dev/termination-log     file  \"\"  rw
csi    Unpublish data web
umount <publish:data/web>
csi    Unstage data
umount <web>/s
rmdir  <web>/s
";

#[test]
#[serial]
fn manifests_are_mounted_and_taken_down() {
    if has_root() {
        let ended = manifests().arg("--once").run();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), STORY), "{}", ended.told());
    }
}

#[test]
#[serial]
fn mounts_stay_for_the_time_asked() {
    if !has_root() {
        return;
    }
    let (name, mark) = Residue::mark();
    let before = Residue::see(&mark);
    let (mut run, _directory) = manifests().env(name, &mark).start();
    let mut lines = BufReader::new(run.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
    let mut story = String::new();
    for line in lines.by_ref() {
        story += &format!("{line}\n");
        // The last line before the play waits.
        if line.starts_with("  web/c  /dev") {
            break;
        }
    }
    let group = Pid::from_raw(run.id().try_into().expect("a process id"));
    killpg(group, Signal::SIGINT).expect("it waits");
    lines.for_each(|line| story += &format!("{line}\n"));
    let status = run.wait().expect("it ends");
    assert_eq!((status.code(), story.as_str()), (Some(0), STORY));
    assert_eq!(settle(&before, &mark, Duration::from_secs(30)), Vec::<String>::new());
}

#[test]
#[serial]
fn volumes_that_cannot_come_are_waited_for_so_long_only() {
    if !has_root() {
        return;
    }
    let pod = POD.replace("secretName: s1", "secretName: other");
    let run = Volproof::new().file("pod.yaml", &pod).file("claim.yaml", CLAIM);
    let ended = run.args("play pod.yaml claim.yaml --once --quiet --timeout 6s").run();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{}", ended.told());
    for told in [
        "these pods lack volumes: web\n",
        "event  Warning FailedMount pod/web: MountVolume.SetUp failed for volume \"s\" : secrets \"other\" not found\n",
        "actual    volume kubernetes.io/secret/uid-web-s: DeviceNotMounted",
        "waiting   volume_mount kubernetes.io/secret/uid-web-s",
    ] {
        assert!(ended.stderr.contains(told), "{told}\n{}", ended.told());
    }
    assert_eq!(ended.temporary_files(), Vec::<String>::new());
}

/// A driver that never answers: what was seen is reported at the deadline, although nothing can be taken down.
#[test]
#[serial]
fn play_of_a_driver_that_hangs_ends_with_the_call_and_the_pods_that_wait() {
    if !has_root() {
        return;
    }
    let program = built().display().to_string();
    let fault = r#"--fault={"method":"NodeStageVolume","hang":true}"#;
    let command =
        [&program, "__fake-csi", "--endpoint={endpoint}", "--node={node}", "--state-dir={state}", fault];
    let driver = format!("name = \"fake.csi.volproof.dev\"\ncommand = {command:?}\n");
    let run = manifests().file("driver.toml", &driver);
    let ended = run.args("--driver driver.toml --once --timeout 8s --trace trace.jsonl").run();
    assert_eq!(ended.code, Some(1), "{}", ended.told());
    for told in [
        "these pods lack volumes: web\n",
        "were not taken down within 8 s (--timeout gives more time); under way: NodeStageVolume for ",
    ] {
        assert!(ended.stderr.contains(told), "{told}\n{}", ended.told());
    }
    let trace =
        std::fs::read_to_string(ended.directory.path().join("trace.jsonl")).expect("it was asked for");
    assert!(trace.contains("NodeStageVolume"), "{trace}");
}

/// GitHub's runner takes each line that begins with `::` for a command.
#[test]
#[serial]
fn message_of_a_driver_is_no_command_for_the_runner() {
    if !has_root() {
        return;
    }
    let fault = r#"{"method":"NodePublishVolume","code":13,"message":"no\n::error file=x::INJ"}"#;
    let serve = "__fake-csi --endpoint={endpoint} --node={node} --state-dir={state}";
    let driver = format!("{} {serve} --fault '{fault}'", built().display());
    let commands = |name: &str| {
        let ended = manifests().args("--once --timeout 4s --driver-cmd").arg(&driver).env(name, "true").run();
        assert!(ended.told().contains("error file=x::INJ"), "{}", ended.told());
        let lines = [ended.stdout.clone(), ended.stderr.clone()].join("\n");
        lines.lines().filter(|line| line.trim_start().starts_with("::")).count()
    };
    assert_eq!(commands("GITHUB_ACTIONS"), 0);
    assert_ne!(commands("ELSEWHERE"), 0);
}

/// A volume that is written down, a claim that waits for its pod, a copy, a claim of the pod's own, and a volume without
/// any claim.
const ALL_KINDS: &str = "\
kind: StorageClass
metadata: {name: local}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
---
kind: PersistentVolume
metadata: {name: disk}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: local
  local: {path: ROOTPATH}
  nodeAffinity:
    required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node-1]}]}]}
---
kind: PersistentVolumeClaim
metadata: {name: local}
spec: {accessModes: [ReadWriteOnce], storageClassName: local, resources: {requests: {storage: 32Mi}}}
---
kind: PersistentVolumeClaim
metadata: {name: copy}
spec:
  accessModes: [ReadWriteOnce]
  dataSource: {kind: PersistentVolumeClaim, name: data}
  resources: {requests: {storage: 20Mi}}
---
kind: Pod
metadata: {name: all}
spec:
  containers:
  - name: c
    image: x
    volumeMounts: [{name: l, mountPath: /l}, {name: c, mountPath: /c}, {name: e, mountPath: /e}, {name: i, mountPath: /i}]
  volumes:
  - {name: l, persistentVolumeClaim: {claimName: local}}
  - {name: c, persistentVolumeClaim: {claimName: copy}}
  - {name: i, csi: {driver: fake.csi.volproof.dev}}
  - name: e
    ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 32Mi}}}}}
";

#[test]
#[serial]
fn claims_are_bound_and_provisioned_as_in_a_cluster() {
    if !has_root() {
        return;
    }
    let run = Volproof::new().file("all.yaml", ALL_KINDS).file("claim.yaml", CLAIM);
    let ended = run.args("play all.yaml claim.yaml --once").run();
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    for told in [
        "bind   <all>/disk ",
        "csi    Publish copy all\n",
        "csi    Publish all-e all\n",
        "csi    Publish i all\n",
        "event  Normal WaitForFirstConsumer pvc/local: ",
    ] {
        assert!(ended.stdout.contains(told), "{told}\n{}", ended.told());
    }
}

#[test]
#[serial]
fn claim_that_no_volume_fits_has_an_event_and_is_not_bound() {
    if !has_root() {
        return;
    }
    let small = "\
kind: PersistentVolume
metadata: {name: small}
spec:
  capacity: {storage: 1Mi}
  accessModes: [ReadOnlyMany]
  hostPath: {path: /tmp}
  claimRef: {namespace: default, name: data}
";
    let claim = CLAIM.replace("spec: {", "spec: {storageClassName: \"\", ");
    let run = Volproof::new().file("pod.yaml", POD).file("claim.yaml", &claim).file("small.yaml", small);
    let ended = run.args("play pod.yaml claim.yaml small.yaml --once --timeout 6s").run();
    assert_eq!(ended.code, Some(1), "{}", ended.told());
    let told = "event  Normal FailedBinding pvc/data: no persistent volumes available for this claim and no storage class is set";
    assert!(ended.stdout.contains(told), "{}", ended.told());
    assert!(ended.stderr.contains("error processing PVC default/data: PVC is not bound"), "{}", ended.told());
}

#[test]
#[serial]
fn refused_attachment_has_an_event_with_the_driver_s_message() {
    if !has_root() {
        return;
    }
    let volume = "\
kind: PersistentVolume
metadata: {name: disk}
spec:
  capacity: {storage: 20Mi}
  accessModes: [ReadWriteOnce]
  csi: {driver: fake.csi.volproof.dev, volumeHandle: unheard-of}
  claimRef: {namespace: default, name: data}
";
    let claim = CLAIM.replace("spec: {", "spec: {storageClassName: \"\", ");
    let run = Volproof::new().file("pod.yaml", POD).file("claim.yaml", &claim).file("disk.yaml", volume);
    let ended = run.args("play pod.yaml claim.yaml disk.yaml --once --timeout 6s").run();
    assert_eq!(ended.code, Some(1), "{}", ended.told());
    let told = "event  Warning FailedAttachVolume pod/web: AttachVolume.Attach failed for volume \"disk\" : \
                rpc error: code = NotFound desc = there is no volume `<volume:data>`";
    assert!(ended.stdout.contains(told) && ended.stderr.contains(told), "{}", ended.told());
}

#[test]
#[serial]
fn driver_that_mounts_nothing_is_judged_as_in_a_run() {
    if !has_root() {
        return;
    }
    let ended = manifests().args("--once --sabotage publish-creates-file").run();
    assert_eq!(ended.code, Some(1), "{}", ended.told());
    let finding = "     Finding NodePublishVolume: nothing is mounted at the target (`<publish:data/web>`).\n             DRV-055, MUST: ";
    assert!(ended.stdout.contains(finding), "{}", ended.told());
    assert!(!ended.stdout.contains("\nall pods have their volumes"), "{}", ended.told());
    assert!(
        ended.stdout.contains("  web/d: nothing is mounted at /var/lib/kubelet/pods/"),
        "{}",
        ended.told()
    );
}

/// A pod whose container sees its volume in three ways.
const WAYS: &str = "\
kind: Pod
metadata: {name: ways}
spec:
  securityContext: {runAsUser: 7}
  initContainers: [{name: first, image: x, volumeMounts: [{name: d, mountPath: /first}]}]
  containers:
  - name: c
    image: x
    securityContext: {runAsUser: 0}
    volumeMounts:
    - {name: d, mountPath: /all}
    - {name: d, mountPath: /part, subPath: a/b}
    - {name: d, mountPath: /usr/share/ways, readOnly: true}
  - {name: other, image: x, volumeMounts: [{name: d, mountPath: /all}]}
  volumes: [{name: d, persistentVolumeClaim: {claimName: data}}]
";

fn inside(words: &[&str]) -> Ended {
    let play = Volproof::new()
        .file("ways.yaml", WAYS)
        .file("claim.yaml", CLAIM)
        .args("play ways.yaml claim.yaml -q");
    words.iter().fold(play, |play, word| play.arg(word)).run()
}

#[test]
#[serial]
fn command_in_a_container_sees_the_volumes_as_its_pod_asks() {
    if !has_root() {
        return;
    }
    let script =
        "echo hi >/part/f; cat /all/a/b/f /usr/share/ways/a/b/f; echo no >/usr/share/ways/f; id -u; exit 3";
    let ended = inside(&["--", "sh", "-c", script]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), "hi\nhi\n0\n"), "{}", ended.told());
    assert!(ended.stderr.contains("Read-only file system"), "{}", ended.told());
    assert!(ended.stderr.contains("the command ended with exit code 3"), "{}", ended.told());

    let ended = inside(&["--in", "ways/other", "--", "id", "-u"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "7\n"), "{}", ended.told());
    let ended = inside(&["--in", "ways/none", "--", "true"]);
    assert_eq!(ended.code, Some(1), "{}", ended.told());
    assert!(ended.stderr.contains("no container `none` of the pod `ways` runs"), "{}", ended.told());
}

#[test]
#[serial]
fn sub_path_that_leads_out_of_the_volume_is_refused() {
    if !has_root() {
        return;
    }
    let pod = WAYS.replace("a/b", "../../etc");
    let ended =
        Volproof::new().file("p.yaml", &pod).file("c.yaml", CLAIM).args("play p.yaml c.yaml --once").run();
    assert_eq!(ended.code, Some(1), "{}", ended.told());
    let told =
        "  the container ways/c cannot start: unable to provision SubPath `../../etc`: must not contain '..'";
    assert!(ended.stdout.contains(told), "{}", ended.told());
}

#[test]
fn field_that_is_not_honoured_is_named() {
    let pod = POD.replace("spec:\n", "spec:\n  nodeName: node-7\n");
    let claim = CLAIM.replace("spec: {", "spec: {dataSourceRef: {kind: Backup, name: b}, ");
    let run = Volproof::new().file("pod.yaml", &pod).file("claim.yaml", &claim);
    let ended = run.args("play pod.yaml claim.yaml --once").arg("--driver-cmd").arg("/nowhere/driver").run();
    for field in ["`spec.nodeName` of Pod `web`", "`spec.dataSourceRef` of PersistentVolumeClaim `data`"] {
        assert!(ended.stderr.contains(&format!("note: {field} is not honoured: ")), "{}", ended.told());
    }
}

/// The parameters of a class and the secrets that it names reach the driver, and a missing secret is reported.
#[test]
#[serial]
fn class_whose_secret_is_missing_is_not_ignored() {
    if !has_root() {
        return;
    }
    let class = "\
kind: StorageClass
metadata: {name: fast}
provisioner: fake.csi.volproof.dev
parameters:
  csi.storage.k8s.io/node-stage-secret-name: missing
  csi.storage.k8s.io/node-stage-secret-namespace: default
";
    let claim = CLAIM.replace("spec: {", "spec: {storageClassName: fast, ");
    let run = Volproof::new().file("pod.yaml", POD).file("claim.yaml", &claim).file("class.yaml", class);
    let ended = run.args("play pod.yaml claim.yaml class.yaml --once --timeout 6s").run();
    assert_eq!(ended.code, Some(1), "{}", ended.told());
    assert!(ended.stderr.contains("secrets \"missing\" not found"), "{}", ended.told());
}

const SCENARIO: &str = "\
name: x
volumes:
- {name: v1}
pods:
- metadata: {name: a, uid: uid-a}
  spec:
    containers: [{name: c, volumeMounts: [{name: d, mountPath: /d}]}]
    volumes: [{name: d, persistentVolumeClaim: {claimName: v1}}]
steps:
- {do: addPod, pod: a}
";

#[track_caller]
fn scenario(steps: &str, told: Expect) {
    let text = format!("{SCENARIO}{steps}\n");
    let ended = Volproof::new().file("x.yaml", &text).args("play --scenario x.yaml").run();
    told.assert_eq(&ended.told());
}

#[test]
fn invalid_step_is_refused_with_its_line() {
    scenario(
        "- {do: waitMountd, pod: a}",
        expect![[r#"
        exit 2
        --- stderr
        error: cannot play `x.yaml`, line 11: unknown step `waitMountd`

          hint: did you mean `waitMounted`?
    "#]],
    );
    scenario(
        "- {do: removePod, pod: b}",
        expect![[r#"
        exit 2
        --- stderr
        error: cannot play `x.yaml`, line 11: there is no pod `b`

          hint: did you mean `a`?
    "#]],
    );
}

/// Ends a scenario in the middle of a call without an answer, and returns its exit code once nothing is left of it.
fn interrupted(signal: Signal) -> Option<i32> {
    let steps = "- {do: waitMounted, pod: a}\n- {do: inject, rule: {method: NodeUnpublishVolume, hang: true}}\n\
                 - {do: removePod, pod: a}\n- {do: waitRPC, method: NodeUnpublishVolume}\n- {do: sh, cmd: sleep 100}";
    let (name, mark) = Residue::mark();
    let before = Residue::see(&mark);
    let text = format!("{SCENARIO}{steps}\n");
    let run = Volproof::new().file("x.yaml", &text).args("play --scenario x.yaml").env(name, &mark);
    let (mut run, _directory) = run.start();
    let mut lines = BufReader::new(run.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
    // The step is printed when it begins.
    assert!(lines.any(|line| line.contains("sh sleep 100")), "the scenario ended before that step");
    let group = Pid::from_raw(run.id().try_into().expect("a process id"));
    killpg(group, signal).expect("it waits");
    lines.for_each(drop);
    let status = run.wait().expect("it ends");
    assert_eq!(settle(&before, &mark, Duration::from_secs(30)), Vec::<String>::new());
    status.code()
}

#[test]
#[serial]
fn a_scenario_that_is_interrupted_or_killed_leaves_nothing() {
    if has_root() {
        assert_eq!(interrupted(Signal::SIGINT), Some(130));
        assert_eq!(interrupted(Signal::SIGKILL), None);
    }
}

#[test]
#[serial]
fn failed_command_is_reported_with_its_line() {
    if has_root() {
        scenario(
            "- {do: waitMounted, pod: a}\n- {do: sh, cmd: 'echo no; exit 3'}",
            expect![[r#"
                exit 1
                --- stdout
                  1  addPod a
                  2  waitMounted a
                       csi    Stage v1
                       csi    Publish v1 a
                       mount  <publish:v1/a>
                  3  sh echo no; exit 3
                     ! exit status: 3: no
                --- stderr
                line 12, step 3, sh echo no; exit 3: exit status: 3: no
            "#]],
        );
    }
}

#[test]
#[serial]
fn missed_expectation_is_reported_with_the_state() {
    if has_root() {
        let steps = "- {do: waitMounted, pod: a}\n- {do: waitRPC, method: NodeUnstageVolume, timeoutMs: 500}";
        scenario(
            steps,
            expect![[r#"
                exit 1
                --- stdout
                  1  addPod a
                  2  waitMounted a
                       csi    Stage v1
                       csi    Publish v1 a
                       mount  <publish:v1/a>
                  3  waitRPC NodeUnstageVolume
                     ! no call of NodeUnstageVolume has started after 500 ms
                --- stderr
                line 12, step 3, waitRPC NodeUnstageVolume: no call of NodeUnstageVolume has started after 500 ms
                actual    pod uid-a kubernetes.io/csi/hostpath.csi.k8s.io^$VOLID_v1: VolumeMounted
                actual    volume kubernetes.io/csi/hostpath.csi.k8s.io^$VOLID_v1: DeviceGloballyMounted attachable=false devicePath="" deviceMountPath="$ROOT/kl/plugins/kubernetes.io/csi/hostpath.csi.k8s.io/$SHA256_VOLID_v1/globalmount"
                desired   pod uid-a kubernetes.io/csi/hostpath.csi.k8s.io^$VOLID_v1: outer=d attachable=false reportedInUse=false desiredSize=16Mi
            "#]],
        );
    }
}

#[test]
#[serial]
fn driver_of_a_play_is_in_a_control_group_with_limits() {
    if !has_root() {
        return;
    }
    let out = tempfile::tempdir().expect("a directory");
    let said = out.path().join("groups");
    let (said_at, program) = (said.display(), tests::built().display());
    let serve = "__fake-csi --endpoint={endpoint} --node={node} --state-dir={state}";
    let script = format!("cat /proc/self/cgroup >{said_at}; exec {program} {serve}");
    let manifest = format!("command = ['sh', '-c', {script:?}]\nhost_paths = [{:?}]\n", out.path());
    let ended = manifests().file("driver.toml", &manifest).args("--once --driver driver.toml").run();
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    let groups = std::fs::read_to_string(&said).expect("the driver said it");
    assert!(groups.contains("/volproof-"), "in no group of ours: {groups}");
}

/// The files that README plays.
#[test]
#[serial]
fn examples_are_played_and_a_misspelled_field_is_not() {
    let (pod, claim) = (include_str!("../../examples/pod.yaml"), include_str!("../../examples/claim.yaml"));
    let play = |pod: &str| {
        let volproof = Volproof::new().file("pod.yaml", pod).file("claim.yaml", claim);
        volproof.args("play pod.yaml claim.yaml --once").run()
    };
    let misspelled = play(&pod.replace("volumeMounts:", "volumeMount:"));
    assert_eq!(misspelled.code, Some(2), "{}", misspelled.told());
    let told = "there is no field `spec.containers[0].volumeMount`; the nearest is `volumeMounts`";
    assert!(misspelled.stderr.contains(told), "{}", misspelled.told());
    if has_root() {
        let played = play(pod);
        assert_eq!(played.code, Some(0), "{}", played.told());
        assert!(played.stdout.contains("all pods have their volumes"), "{}", played.told());
    }
}

#[test]
#[serial]
fn snapshot_is_taken_and_restored_by_the_controllers() {
    if !has_root() {
        return;
    }
    let manifests = include_str!("../../examples/snapshot.yaml");
    let played = Volproof::new().file("all.yaml", manifests).args("play all.yaml --once").run();
    assert_eq!(played.code, Some(0), "{}", played.told());
    for line in ["SnapshotReady volumesnapshot/monday", "ProvisioningSucceeded pvc/restored", "web/restored"]
    {
        assert!(played.stdout.contains(line), "{line}: {}", played.told());
    }
}

/// Files that a pod or a scenario's command makes on the machine are thrown away, unless the user allows host paths.
#[test]
#[serial]
fn machine_is_changed_only_where_it_is_allowed() {
    if !has_root() {
        return;
    }
    // Not below `/tmp`, which is replaced in the sandbox.
    let ground = tempfile::tempdir_in("/var/lib").expect("a directory");
    let made = ground.path().join("made");
    let pod = format!(
        "kind: Pod\nmetadata: {{name: web}}\nspec:\n  \
         containers: [{{name: c, image: x, volumeMounts: [{{name: h, mountPath: /h}}]}}]\n  \
         volumes: [{{name: h, hostPath: {{path: {}, type: DirectoryOrCreate}}}}]\n",
        made.display()
    );
    let play = |flags: &str| {
        let ended = Volproof::new().file("pod.yaml", &pod).args("play pod.yaml --once").args(flags).run();
        assert_eq!(ended.code, Some(0), "{}", ended.told());
        ended
    };
    let contained = play("");
    assert!(!made.exists(), "{}", contained.told());
    assert!(contained.stderr.contains("--allow-host-path"), "{}", contained.told());

    let written = ground.path().join("written");
    let steps = format!("- {{do: sh, cmd: 'echo x >{0} && cat {0}'}}", written.display());
    let text = format!("{SCENARIO}{steps}\n");
    let ended = Volproof::new().file("x.yaml", &text).args("play --scenario x.yaml").run();
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    assert!(!written.exists(), "{}", ended.told());

    let allowed = play("--allow-host-path");
    assert!(made.is_dir(), "{}", allowed.told());
}
