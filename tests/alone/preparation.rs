//! Preparation by a manifest before its driver starts: variables, files, commands around each case and around the run, and
//! a separate controller service.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use expect_test::{Expect, expect};
use serial_test::serial;
use tests::{Residue, Volproof, built, has_root, settle};

const PATIENCE: Duration = Duration::from_secs(60);

/// Two cases, which ask little.
const FEW: &str = "csi::calls::name_of_128 csi::calls::taken_name";

fn fake_csi(sabotage: &str) -> String {
    let program = built().display();
    format!(
        "exec {program} __fake-csi --endpoint={{endpoint}} --node={{node}} --state-dir={{state}} {sabotage}"
    )
}

/// A directory of the machine that commands of the manifest may write to.
fn outside(volproof: &Volproof) -> String {
    let directory = volproof.directory().join("outside");
    fs::create_dir(&directory).expect("a directory");
    directory.display().to_string()
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[test]
#[serial]
fn each_case_is_prepared_and_cleaned_up_and_the_run_once() {
    if !has_root() {
        return;
    }
    let volproof = Volproof::new();
    let outside = outside(&volproof);
    let command = format!(
        "test \"$COLOUR\" = \"blue node-1\" && grep -q \"at {{state}}\" {{state}}/conf/driver.yaml && \
         test -e {{state}}/prepared && {}",
        fake_csi("")
    );
    let manifest = format!(
        r#"
command = ["/bin/sh", "-c", '''{command}''']
host_paths = ["{outside}"]
env = {{ COLOUR = "blue {{node}}", WHERE = "{outside}" }}

[files]
"{{state}}/conf/driver.yaml" = "at {{state}}"

[per_case]
prepare = ["sh", "-c", "touch prepared; echo {{state}} >> $WHERE/prepared"]
cleanup = ["sh", "-c", "rm prepared && echo {{node}} >> $WHERE/cleaned"]

[per_run]
prepare = ["sh", "-c", "echo once >> $WHERE/run"]
cleanup = ["sh", "-c", "echo over >> $WHERE/run"]
"#
    );
    let run = volproof.file("driver.toml", &manifest).args("run --driver driver.toml --report out").args(FEW);
    let ended = run.run();
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    let at = |name: &str| lines(&ended.directory.path().join("outside").join(name));
    // The driver is asked first, as a case of its own.
    let times = ended.results().cases().len() + 1;
    assert_eq!(at("prepared"), vec!["/var/lib/volproof/drv"; times]);
    assert_eq!(at("cleaned"), vec!["node-1"; times]);
    assert_eq!(at("run"), ["once", "over"]);
}

/// The images of a driver on a disk that `prepare` has mounted, or that it mounts itself: the loop devices over them outlive
/// the sandbox, and end with the run.
#[test]
#[serial]
fn loop_devices_over_a_disk_of_the_driver_are_detached() {
    if !has_root() {
        return;
    }
    const CASES: &str = "csi::lifecycle::file_system_is csi::block::teardown csi::device::unreadable";
    let mount = "mkdir -p {state}/disk && mount -t tmpfs disk {state}/disk";
    let serve = fake_csi("").replace("{state}", "{state}/disk");
    let (prepared, own) = (["mountpoint -q {state}/disk", mount], [mount, "true"]);
    for [before_serving, prepare] in [prepared, own] {
        let attach = "truncate -s 1M {state}/disk/left && losetup -f {state}/disk/left";
        let manifest = format!(
            "command = [\"/bin/sh\", \"-c\", '{before_serving} && {attach} && {serve}']\n\
             [per_case]\nprepare = [\"/bin/sh\", \"-c\", '{prepare}']\n"
        );
        let (name, mark) = Residue::mark();
        let before = Residue::see(&mark);
        let run = Volproof::new().file("driver.toml", &manifest).env(name, &mark);
        let ended = run.args("run --report out --driver driver.toml").args(CASES).run();
        // The device that no call has attached is no fault of a case.
        assert!(ended.results().cases().iter().all(|case| case.status == "passed"), "{}", ended.told());
        ended.leaves_nothing(&before, &mark, PATIENCE);
    }
}

/// A driver whose volumes are on a disk of its manifest: the file system is there before `prepare`, and stays over a reboot of
/// the machine, unlike the driver's own loop devices.
#[test]
#[serial]
fn disks_of_the_manifest_are_there_before_the_driver() {
    if !has_root() {
        return;
    }
    let manifest = format!(
        r#"
command = ["/bin/sh", "-c", '{}']
[[disks]]
path = "{{state}}/volumes"
fs_type = "ext4"
size = "256MiB"
options = ["stripe=7"]
[per_case]
prepare = ["/bin/sh", "-c", "grep ' {{state}}/volumes .* ext4 .*stripe=7' /proc/self/mountinfo"]
"#,
        fake_csi("").replace("{state}", "{state}/volumes")
    );
    let (name, mark) = Residue::mark();
    let before = Residue::see(&mark);
    let run = Volproof::new().file("driver.toml", &manifest).env(name, &mark);
    let ended =
        run.args("run --report out --driver driver.toml csi::reboot::pod_has csi::lifecycle::file").run();
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    ended.leaves_nothing(&before, &mark, PATIENCE);

    let large = manifest.replace("256MiB", "1024GiB");
    let run = Volproof::new().file("driver.toml", &large).env(name, &mark);
    let ended = run.args("run --driver driver.toml csi::lifecycle::file").run();
    assert_eq!(ended.code, Some(4), "{}", ended.told());
    assert!(ended.told().contains("the disks have 1048576 MiB, and there is room for "), "{}", ended.told());

    let exporting = format!("nfs_export = \"{{state}}/export\"\n{manifest}");
    let run = Volproof::new().file("driver.toml", &exporting).env(name, &mark);
    let ended = run.args("run --driver driver.toml csi::lifecycle::file").run();
    assert_eq!(ended.code, Some(4), "{}", ended.told());
    assert!(ended.told().contains("hint: `--tier vm` runs it in a guest"), "{}", ended.told());

    let grouped = format!("{manifest}\n[[volume_groups]]\nname = \"csi-vg\"\n");
    let run = Volproof::new().file("driver.toml", &grouped).env(name, &mark);
    let ended = run.args("run --driver driver.toml csi::lifecycle::file").run();
    assert_eq!(ended.code, Some(4), "{}", ended.told());
    assert!(
        ended.told().contains("cannot make the volume group `csi-vg` on this machine"),
        "{}",
        ended.told()
    );

    let spoilt = manifest.replace("stripe=7\"]", "stripe=7\", \"no_such_option\"]");
    let run = Volproof::new().file("driver.toml", &spoilt).env(name, &mark);
    let ended = run.args("run --driver driver.toml csi::lifecycle::file").run();
    assert_eq!(ended.code, Some(4), "{}", ended.told());
    let hint = "hint: does the file system of this kernel have these `options`? `dmesg` may say more";
    assert!(ended.told().contains(hint), "{}", ended.told());
    ended.leaves_nothing(&before, &mark, PATIENCE);
}

#[track_caller]
fn refused(manifest: &str, told: Expect) {
    if !has_root() {
        return;
    }
    let (name, mark) = Residue::mark();
    let before = Residue::see(&mark);
    let run = Volproof::new().file("driver.toml", manifest).args("run --driver driver.toml").args(FEW);
    let ended = run.env(name, &mark).run();
    told.assert_eq(&ended.told());
    assert_eq!(settle(&before, &mark, PATIENCE), Vec::<String>::new());
}

#[test]
#[serial]
fn failed_prepare_is_reported_with_its_last_lines() {
    refused(
        r#"
command = ["/no/driver", "{endpoint}"]
[per_case]
prepare = ["sh", "-c", "echo vgcreate: no space; exit 5"]
"#,
        expect![[r#"
            exit 4
            --- stderr
            error: per_case.prepare of the manifest ended with status 5: `sh -c 'echo vgcreate: no space; exit 5'`
              its last words:
                vgcreate: no space

              hint: the driver has no part in it: run the command by hand, and mend it
        "#]],
    );
}

#[test]
#[serial]
fn prepare_that_hangs_is_killed_at_its_limit() {
    refused(
        r#"
command = ["/no/driver", "{endpoint}"]
[per_run]
prepare = ["sh", "-c", "echo waiting for the cloud; sleep 1000"]
[timeouts]
prepare = "300ms"
"#,
        expect![[r#"
            exit 4
            --- stderr
            error: per_run.prepare of the manifest did not end within 0.3 s: `sh -c 'echo waiting for the cloud; sleep 1000'`
              its last words:
                waiting for the cloud

              hint: if it only needs longer: `prepare` below [timeouts]
        "#]],
    );
}

#[test]
#[serial]
fn cleanup_that_fails_is_an_error_and_no_fault_of_the_driver() {
    if !has_root() {
        return;
    }
    // The first to be cleaned up is the driver's that is only asked.
    let manifest = format!(
        "command = [\"/bin/sh\", \"-c\", '''{}''']\nhost_paths = [\".\"]\n[per_case]\ncleanup = ['sh', '-c', \
         'if test -e $PWD_OF_RUN/asked; then exit 7; fi; touch $PWD_OF_RUN/asked']\n[env]\nPWD_OF_RUN = \"WHERE\"\n",
        fake_csi("")
    );
    let volproof = Volproof::new();
    let manifest = manifest.replace("WHERE", &volproof.directory().display().to_string());
    let run = volproof.file("driver.toml", &manifest).args("run --driver driver.toml --report out");
    let ended = run.args("csi::calls::name_of_128").run();
    assert_eq!(ended.code, Some(4), "{}", ended.told());
    assert!(ended.stdout.contains("ERROR ["), "{}", ended.told());
    assert!(
        ended.stdout.contains("per_case.cleanup of the manifest ended with status 7"),
        "{}",
        ended.told()
    );
}

#[test]
#[serial]
fn killed_run_is_cleaned_up_by_its_janitor() {
    if !has_root() {
        return;
    }
    let volproof = Volproof::new();
    let outside = outside(&volproof);
    let manifest = format!(
        r#"
command = ["/bin/sh", "-c", '''touch {outside}/runs; sleep 1000''', "{{endpoint}}"]
host_paths = ["{outside}"]
env = {{ WHERE = "{outside}" }}
[timeouts]
start = "1000s"
[per_case]
prepare = ["true"]
cleanup = ["sh", "-c", "echo case >> $WHERE/cleaned"]
[per_run]
cleanup = ["sh", "-c", "echo run >> $WHERE/cleaned"]
"#
    );
    let (name, mark) = Residue::mark();
    let before = Residue::see(&mark);
    let run = volproof.file("driver.toml", &manifest).args("run --driver driver.toml").args(FEW);
    let (mut child, directory) = run.env(name, &mark).start();
    let outside = directory.path().join("outside");
    let wait = |there: &dyn Fn() -> bool, what: &str| {
        let end = Instant::now() + PATIENCE;
        while !there() {
            assert!(Instant::now() < end, "{what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    wait(&|| outside.join("runs").exists(), "the driver was not started");
    assert!(!outside.join("cleaned").exists());
    child.kill().expect("the run can be killed");
    child.wait().expect("it has ended");
    wait(&|| lines(&outside.join("cleaned")).len() == 2, "nothing has cleaned up");
    assert_eq!(lines(&outside.join("cleaned")), ["case", "run"]);
    assert_eq!(settle(&before, &mark, PATIENCE), Vec::<String>::new());
}

/// Node and controller are the same driver: a case about `CreateVolume` can find only the controller's fault.
#[test]
#[serial]
fn controller_command_serves_the_controller_service() {
    if !has_root() {
        return;
    }
    let broken = "--sabotage create-ignores-conflict";
    for (of_node, of_controller, code) in [(broken, "", 0), ("", broken, 1)] {
        let manifest = format!(
            "command = ['sh', '-c', '''{}''']\ncontroller_command = ['sh', '-c', '''{}''']\n",
            fake_csi(of_node),
            fake_csi(of_controller)
        );
        let run =
            Volproof::new().file("driver.toml", &manifest).args("run --driver driver.toml --report out");
        let ended = run.args("csi::calls::taken_name csi::lifecycle csi::recovery").run();
        assert_eq!(ended.code, Some(code), "{}", ended.told());
        assert_eq!(ended.stdout.contains("DRV-011"), code == 1, "{}", ended.told());
    }
}

/// A name that CSI does not allow is the driver's fault, and one that the manifest does not have is the manifest's.
#[test]
#[serial]
fn name_of_the_driver_is_judged_before_it_is_compared() {
    if !has_root() {
        return;
    }
    for (name, code, words) in [("Fake_CSI!", 1, "DRV-001"), ("other.example", 4, "the manifest says")] {
        let manifest = format!(
            "name = 'fake.csi.volproof.dev'\ncommand = ['sh', '-c', '''{}''']\n",
            fake_csi(&format!("--driver-name={name}"))
        );
        let run = Volproof::new().file("driver.toml", &manifest).args("run --driver driver.toml csi::calls");
        let ended = run.run();
        assert_eq!(ended.code, Some(code), "{}", ended.told());
        assert!(ended.told().contains(words), "{}", ended.told());
        // Its control group is there, whatever it answers.
        assert!(!ended.told().contains("any of the machine's disks"), "{}", ended.told());
    }
}

/// Asks the API as a client would, with nothing but a shell.
const CLIENT: &str = r#"
server=$(sed -n 's/.*"server": "http:..\([^"/]*\).*/\1/p' $1); token=$(sed -n 's/.*"token": "\([^"]*\)".*/\1/p' $1)
ask() {
    exec 3<>/dev/tcp/${server%:*}/${server#*:}
    printf '%s\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %s\r\n\r\n%s' \
        "$1 HTTP/1.1" "$token" "${#2}" "$2" >&3
    cat <&3
}
ask 'GET /apis/x.io/v1/namespaces/drivers/things/there' '' | grep -q '"n":7' || exit 3
ask 'GET /api/v1/nodes/node-1' '' | grep -q '"kind":"Node"' || exit 4
ask 'POST /apis/coordination.k8s.io/v1/namespaces/kube-system/leases' '{"metadata":{"name":"lock"}}' | grep -q '201 Created' || exit 5
"#;

const OBJECTS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.x.io}
spec:
  group: x.io
  scope: Namespaced
  names: {plural: things, kind: Thing}
  versions: [{name: v1, served: true, storage: true}]
---
apiVersion: x.io/v1
kind: Thing
metadata: {name: there}
spec: {n: 7}
";

#[test]
#[serial]
fn driver_is_a_client_of_the_api_of_its_case() {
    if !has_root() {
        return;
    }
    let manifest = format!(
        "command = ['bash', '-c', '''bash {{state}}/client.sh $KUBECONFIG || exit $?; {}''']\n\
         env = {{ KUBECONFIG = \"{{kubeconfig}}\" }}\nkubernetes = {{ namespace = 'drivers', objects = ['objects.yaml'] }}\n\
         [files]\n\"{{state}}/client.sh\" = '''{CLIENT}'''\n",
        fake_csi("")
    );
    let run = Volproof::new().file("driver.toml", &manifest).file("objects.yaml", OBJECTS);
    let case = "csi::calls::name_of_128_bytes_is_accepted";
    let ended = run.args("run --driver driver.toml --report out").arg(case).run();
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    let trace = ended.directory.path().join("out/cases").join(case).join("trace.jsonl");
    let trace = fs::read_to_string(trace).expect("the case has a trace");
    assert!(
        trace.contains(r#""by":"driver","ev":"api","kind":"Other","object":"Lease kube-system/lock""#),
        "{trace}"
    );
}

/// A client as client-go in a pod, which knows only the path of these files.
const IN_POD: &str = r#"
account=/var/run/secrets/kubernetes.io/serviceaccount
test "$(cat $account/namespace)" = drivers || exit 8
curl -sSf --cacert $account/ca.crt -H "Authorization: Bearer $(cat $account/token)" -H 'Content-Type: application/json' \
  -d '{"metadata": {"name": "lock"}, "spec": {"holderIdentity": "driver"}}' \
  "https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/apis/coordination.k8s.io/v1/namespaces/drivers/leases"
"#;

#[test]
#[serial]
fn driver_finds_the_api_as_in_a_pod() {
    if !has_root() {
        return;
    }
    if !Command::new("curl").arg("--version").output().is_ok_and(|ended| ended.status.success()) {
        eprintln!("skipped: curl is not installed");
        return;
    }
    let manifest = format!(
        "command = ['bash', '-c', '''bash client.sh || exit $?; {}''']\n\
         directory = '{{state}}'\nkubernetes = {{ namespace = 'drivers' }}\n[files]\n\"{{state}}/client.sh\" = '''{IN_POD}'''\n",
        fake_csi("")
    );
    let run = Volproof::new().file("driver.toml", &manifest);
    let case = "csi::calls::name_of_128_bytes_is_accepted";
    let ended = run.args("run --driver driver.toml --report out").arg(case).run();
    assert_eq!(ended.code, Some(0), "{}", ended.told());
    let trace = ended.directory.path().join("out/cases").join(case).join("trace.jsonl");
    let trace = fs::read_to_string(trace).expect("the case has a trace");
    assert!(trace.contains(r#""object":"Lease drivers/lock""#), "{trace}");
    assert!(
        !Path::new("/var/run/secrets/kubernetes.io/serviceaccount").exists(),
        "it is the sandbox's alone"
    );
}

#[test]
#[serial]
fn invalid_objects_are_reported_before_the_driver_starts() {
    if !has_root() {
        return;
    }
    let manifest = "command = ['/no/driver', '{endpoint}']\nkubernetes = { objects = ['objects.yaml'] }\n";
    let thing = OBJECTS.split("---").last().expect("it has two");
    let run = Volproof::new().file("driver.toml", manifest).file("objects.yaml", thing);
    let ended = run.args("run --driver driver.toml").args(FEW).run();
    assert_eq!(ended.code, Some(4), "{}", ended.told());
    assert!(ended.stderr.contains("cannot give the driver the API of a cluster"), "{}", ended.told());
}
