//! Hostile drivers and servers, which hang, fork without end or fill their disk: the run ends by itself and names the
//! fault, nothing is left, and the machine is not affected.

use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serial_test::serial;
use tests::{Ended, Process, Residue, Role, Volproof, built, has_root, is_thorough, while_waiting};

const PATIENCE: Duration = Duration::from_secs(60);

/// Long enough for any of the cases below on a busy machine, and soon over for one that hangs.
const LIMIT: &str = "--timeout 15s --report out";

const CASE: &str = "csi::lifecycle::file_system_is_set_up_and_torn_down";

/// Waits until the driver has staged a volume, after it has answered the first questions.
const AT_WORK: &str = "until grep -q globalmount /proc/self/mountinfo; do sleep 0.02; done";

/// fake-csi, started by a shell that does something before it or beside it.
fn driver(mischief: &str) -> String {
    let serve = "__fake-csi --endpoint={endpoint} --node={node} --state-dir={state}";
    format!("sh -c '{mischief} exec {} {serve}'", built().display())
}

/// Runs to the end, and expects nothing to be left.
fn ended(volproof: Volproof, meanwhile: impl FnOnce(&mut Child, &str)) -> Ended {
    let (name, mark) = Residue::mark();
    let before = Residue::see(&mark);
    let (mut run, directory) = volproof.env(name, &mark).start();
    meanwhile(&mut run, &mark);
    let ended = Ended::of(run.wait_with_output().expect("its output"), directory);
    ended.leaves_nothing(&before, &mark, PATIENCE);
    ended
}

fn run_against(driver: &str) -> Ended {
    let volproof = Volproof::new().arg("run").arg(CASE).args(LIMIT).arg("--driver-cmd").arg(driver);
    ended(volproof, |_, _| {})
}

#[track_caller]
fn says(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, Some(code), "{}", ended.told());
    let told = ended.told();
    assert!(words.iter().all(|word| told.contains(word)), "expected {words:?}:\n{told}");
}

#[test]
#[serial]
fn a_driver_that_hangs_is_named_with_the_call_it_owes() {
    if !has_root() {
        return;
    }
    // `$$` is the shell, and then the driver.
    let stopped = run_against(&driver(&format!("({AT_WORK}; kill -STOP $$) &")));
    says(&stopped, 1, &["still under way: Node", "still stopped: volproof["]);
}

#[test]
#[serial]
fn a_driver_that_forks_without_end_meets_its_limit() {
    if !has_root() {
        return;
    }
    // The call waits until it is done: a shell ends with the first fork that is refused.
    let forks = "(while :; do sleep 600 & done)";
    let forking = run_against(&driver(&format!("({AT_WORK}; kill -STOP $$; {forks}; kill -CONT $$) &")));
    says(&forking, 1, &["The driver used up its processes"]);
}

#[test]
#[serial]
fn a_driver_that_fills_its_disk_fills_no_other() {
    if !has_root() {
        return;
    }
    let full = run_against(&driver("cat /dev/zero > {state}/junk;"));
    says(&full, 4, &["No space left on device"]);
}

#[test]
#[serial]
fn driver_that_prints_without_end_keeps_a_log_of_limited_size() {
    if !has_root() {
        return;
    }
    // 96 MiB, and then its last words.
    let flood = "(yes flood | head -c 100663296; echo last words) >&2;";
    let flooding = run_against(&driver(flood));
    says(&flooding, 0, &["The driver used up its log"]);
    let log = flooding.directory.path().join("out/cases").join(CASE).join("driver.log");
    let size = std::fs::metadata(&log).expect("a log").len();
    assert!((32 << 20..65 << 20).contains(&size), "{size} bytes are kept");
    let text = String::from_utf8_lossy(&std::fs::read(&log).expect("a log")).into_owned();
    assert!(
        text.starts_with("flood\n") && text.contains("bytes are left out here"),
        "no first part or no note"
    );
    assert!(text.contains("last words"), "no last part");

    let quiet = run_against(&driver("echo one line >&2;"));
    says(&quiet, 0, &["1 passed"]);
    assert!(!quiet.told().contains("used up its log"), "{}", quiet.told());
}

/// A case that kills the driver when it has published a volume, and starts it again: then no call is under way.
const RESTART: &str = "csi::recovery::driver_killed_during_publish";

/// Sets `$volume` to the directory of the pod's volume, for a driver that starts again. By then the call that was lost with
/// the driver is over.
const AGAIN: &str = "set -- /var/lib/kubelet/pods/*/volumes/kubernetes.io~csi/*; volume=$1; \
                     if [ -e $volume/vol_data.json ]; then sleep 0.2;";

/// The node announces all that it does, so an unannounced change while no call was under way was the driver's.
#[test]
#[serial]
fn driver_that_meddles_between_its_calls_is_named() {
    if !has_root() {
        return;
    }
    let run = |mischief: &str| {
        let driver = driver(&format!("{AGAIN} {mischief}; fi;"));
        let volproof = Volproof::new().arg("run").arg(RESTART).args(LIMIT).arg("--driver-cmd").arg(driver);
        ended(volproof, |_, _| {})
    };
    for (mischief, told) in [
        ("rm $volume/vol_data.json", "The driver did `remove "),
        (
            "mv $volume $volume.aside; mkdir {state}/canary; touch {state}/canary/vol_data.json; \
          ln -s {state}/canary $volume",
            "The driver did `link ",
        ),
        ("mount -t tmpfs none /var/lib/kubelet", "The driver did `mount /var/lib/kubelet`"),
    ] {
        let meddling = run(mischief);
        says(&meddling, 1, &[told, "while no call for it was under way"]);
        let findings = meddling.results().findings();
        let is_named = |finding: &tests::Finding| finding.contract == "stray" && finding.party == "driver";
        assert!(findings.iter().any(is_named), "{mischief}: {findings:#?}");
        assert!(!meddling.told().contains("Not the driver's fault"), "{mischief}: {}", meddling.told());
    }
    let meek = run("ls $volume");
    says(&meek, 0, &["1 passed"]);
}

/// Runs cases against fake-csi with these arguments.
fn run_fake(arguments: &str, cases: &str) -> Ended {
    let volproof = Volproof::new().args("run").args(cases).args(LIMIT);
    ended(volproof.arg("--driver-cmd").arg(fake(arguments)), |_, _| {})
}

/// The command of fake-csi with these arguments.
fn fake(arguments: &str) -> String {
    let serve = "__fake-csi --endpoint={endpoint} --node={node} --state-dir={state}";
    format!("{} {serve} {arguments}", built().display())
}

/// A driver that cannot do something now is asked again, by the node and by the cases.
#[test]
#[serial]
fn driver_that_asks_for_another_try_is_not_accused() {
    if !has_root() {
        return;
    }
    const CASES: &str = "csi::lifecycle::file_system_is_set_up_and_torn_down \
        csi::calls::missing_field_is_invalid_argument csi::mounts csi::copies";
    // 4 is DEADLINE_EXCEEDED, and 14 is UNAVAILABLE.
    let faults =
        [("NodeStageVolume", 14), ("NodeUnpublishVolume", 4), ("CreateSnapshot", 14), ("DeleteVolume", 4)];
    let faults = faults.map(|(method, code)| {
        format!(r#"--fault '{{"method":"{method}","skip":1,"times":1,"code":{code},"message":"try again"}}'"#)
    });
    let ended = run_fake(&faults.join(" "), CASES);
    assert_eq!((ended.code, found(&ended)), (Some(0), vec![]), "{}", ended.told());
    // Each time is for good, and a finding.
    let fault = r#"--fault '{"method":"NodeStageVolume","code":14,"message":"never"}'"#;
    let ended = run_fake(fault, "csi::mounts");
    assert_eq!(ended.code, Some(1), "{}", ended.told());
}

/// Whether this process has CAP_SYS_RESOURCE, by the text of its status.
fn may_grow_in_use() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or("0");
    u64::from_str_radix(set.trim(), 16).is_ok_and(|set| set >> 24 & 1 == 1)
}

/// The kernel lets only a process with CAP_SYS_RESOURCE grow an ext4 that is mounted.
#[test]
#[serial]
fn growth_that_the_machine_forbids_is_not_the_drivers_fault() {
    if !has_root() {
        return;
    }
    let fault =
        r#"--fault '{"method":"NodeExpandVolume","code":13,"message":"Permission denied to resize"}'"#;
    let ended = run_fake(fault, "csi::growth::unused_file_system_grows");
    let parties: Vec<String> = ended.results().findings().into_iter().map(|finding| finding.party).collect();
    let expected = match may_grow_in_use() {
        true => (Some(1), vec!["driver".to_owned()]),
        false => (Some(4), vec!["environment".to_owned()]),
    };
    assert_eq!((ended.code, parties), expected, "{}", ended.told());
    // A wrong request is refused whatever the machine forbids.
    let ended = run_fake(fault, "csi::growth::growth_of_an_unknown_volume_is_not_found");
    assert_eq!(ended.code, Some(1), "{}", ended.told());
}

#[test]
#[serial]
fn list_without_an_end_is_the_drivers_fault() {
    if !has_root() {
        return;
    }
    let cases = "csi::calls::list_pages_hold_each_volume_once csi::calls::unknown_list_token_is_refused";
    let endless = run_fake("--sabotage list-repeats-token", cases);
    says(&endless, 1, &["ListVolumes answered the same next_token twice", "DRV-024"]);
    let findings = endless.results().findings();
    let found: Vec<&str> = findings.iter().map(|finding| finding.contract.as_str()).collect();
    assert_eq!(found, ["DRV-024"], "{}", endless.told());
    let honest = run_fake("", cases);
    says(&honest, 0, &["2 passed"]);
}

/// The promises that are broken in a run, each with the call and the cause, and a claim of the case's own by its id.
fn found(ended: &Ended) -> Vec<[String; 3]> {
    let findings = ended.results().findings();
    findings.into_iter().map(|finding| [finding.contract, finding.method, finding.cause]).collect()
}

#[track_caller]
fn finds(ended: &Ended, contract: &str, method: &str, cause: &str) {
    assert_eq!(ended.code, Some(1), "{}", ended.told());
    let found = found(ended);
    assert_eq!(found, [[contract, method, cause].map(str::to_owned)], "{}", ended.told());
}

#[test]
#[serial]
fn answer_that_is_too_large_is_no_missing_ability() {
    if !has_root() {
        return;
    }
    let huge = run_fake("--padding 20971520", CASE);
    says(&huge, 1, &["20971", "FAIL csi::lifecycle"]);
    let cause = "an answer is larger than the 4 MiB that the clients of a cluster read";
    finds(&huge, "DRV-009", "CreateVolume", cause);
    assert!(!huge.told().contains("refuses file system volumes"), "{}", huge.told());
    // CSI's limit: 4 KiB in one map.
    says(&run_fake("--padding 2048", CASE), 0, &["1 passed"]);
}

/// Garbage in place of one answer, of all answers, in the first questions and later: one finding each, with the call.
#[test]
#[serial]
fn answer_that_no_client_can_read_is_one_finding_of_the_driver() {
    if !has_root() {
        return;
    }
    let (no_message, no_grpc, no_http) = (
        "the answer is not the message that CSI defines for the call",
        "the answer has no gRPC status",
        "what the driver writes into its socket is no HTTP/2",
    );
    let each = vec![
        ("NodeStageVolume", "no_protobuf", "NodeStageVolume", no_message),
        ("NodePublishVolume", "html", "NodePublishVolume", no_grpc),
        ("NodeUnpublishVolume", "no_status", "NodeUnpublishVolume", no_grpc),
        ("CreateVolume", "wrong_type", "CreateVolume", no_message),
        ("NodeGetInfo", "wrong_type", "NodeGetInfo", no_message),
        ("DeleteVolume", "html", "DeleteVolume", no_grpc),
        ("NodePublishVolume", "noise", "", no_http),
        ("Probe", "noise", "", no_http),
    ];
    while_waiting(each, |(method, garbage, named, cause)| {
        let fault = format!(r#"--fault '{{"method":"{method}","garbage":"{garbage}"}}'"#);
        finds(&run_fake(&fault, CASE), "DRV-009", named, cause);
    });
    // Another garbage each time.
    let kinds = ["html", "no_protobuf", "no_status"];
    let fault =
        |kind: &str| format!(r#"--fault '{{"method":"NodeStageVolume","times":1,"garbage":"{kind}"}}'"#);
    let mixed = run_fake(&kinds.map(fault).join(" "), CASE);
    says(&mixed, 1, &[]);
    let of_the_answer =
        |[contract, method, _]: &[String; 3]| contract == "DRV-009" && method == "NodeStageVolume";
    assert!(found(&mixed).iter().all(of_the_answer), "{}", mixed.told());
    // A refusal that can be read is tried again.
    let refusal = r#"--fault '{"method":"NodeUnstageVolume","times":1,"code":14,"message":"not now"}'"#;
    let refused = run_fake(refusal, "csi::order::data_outlives_each_call");
    assert!(!refused.told().contains("DRV-009"), "{}", refused.told());
}

/// A driver that replaces a path of the node by a link during a call has one finding, with the call and the path.
#[test]
#[serial]
fn link_made_during_a_call_is_named_with_call_and_path() {
    if !has_root() {
        return;
    }
    let kubelet = "/var/lib/kubelet";
    for (method, place, told) in [
        ("NodePublishVolume", format!("{kubelet}/pods/*/volumes/kubernetes.io~csi/*"), "pods/"),
        ("NodeStageVolume", format!("{kubelet}/plugins/kubernetes.io/csi/*/*/globalmount"), "stag"),
    ] {
        let link = format!(
            "mkdir -p {{state}}/canary; touch {{state}}/canary/vol_data.json; set -- {place}; mv $1 $1.aside; \
             ln -s {{state}}/canary $1"
        );
        let fault = format!(r#"--fault '{{"method":"{method}","times":1,"run":"{link}"}}'"#);
        // Of one volume: with two, the first entry may be the one of the other.
        let linked = run_fake(&fault, "csi::publish::read_only_claim_cannot_be_written");
        let words = ["the driver replaced what is the node's by a link", told];
        assert!(words.iter().all(|word| linked.told().contains(word)), "{}", linked.told());
        assert!(!linked.told().contains("broke its own rule"), "{}", linked.told());
        let findings = linked.results().findings();
        let is_named = |finding: &tests::Finding| {
            [finding.contract.as_str(), &finding.method, &finding.party] == ["DRV-076", method, "driver"]
        };
        assert!(findings.iter().any(is_named), "{}", linked.told());
    }
}

/// A file at a target is reported with the call during which it appeared.
#[test]
#[serial]
fn file_in_the_way_is_reported_with_its_maker() {
    if !has_root() {
        return;
    }
    let touch =
        "for volume in /var/lib/kubelet/pods/*/volumes/kubernetes.io~csi/*; do touch $volume/mount; done";
    let fault = |run: &str| {
        format!(
            r#"--fault '{{"method":"NodePublishVolume","times":1,"code":13,"message":"lost","run":"{run}"}}'"#
        )
    };
    let lies = "was called: it appeared during NodePublishVolume (call";
    let blocked = run_fake(&fault(touch), CASE);
    // Whichever of the two volumes is published first.
    says(&blocked, 1, &["a file lay at `<publish:", "/web>` when NodePublishVolume", lies]);
    let free = run_fake(&fault("true"), CASE);
    assert!(!free.told().contains(lies), "{}", free.told());
}

/// Files and descriptors of deleted volumes are reported before the driver ends, and fail no case.
#[test]
#[serial]
fn remains_of_deleted_volumes_are_advice_with_their_holder() {
    if !has_root() {
        return;
    }
    let files = run_fake("--sabotage delete-leaves-image", CASE);
    says(&files, 0, &["left of volumes or snapshots that are not there: `"]);
    // The image stays open in a process that outlives the volume.
    let hold = "for image in $(find {state}/volumes -type f); do sleep 600 < $image > /dev/null 2>&1 & done";
    let fault = format!(r#"--fault '{{"method":"DeleteVolume","run":"{hold}"}}'"#);
    let open = run_fake(&fault, CASE);
    says(&open, 0, &["still has open what belonged to volumes that were deleted: `", "in sleep["]);
    let strengths = |ended: &Ended| -> Vec<[String; 2]> {
        let findings = ended.results().findings().into_iter();
        findings.map(|finding| [finding.contract, finding.strength]).collect()
    };
    assert_eq!(strengths(&files), [["DRV-022", "advice"]]);
    assert!(strengths(&open).contains(&["DRV-131".to_owned(), "advice".to_owned()]), "{}", open.told());
}

/// The kernel does not name the sender of a signal; the report has what it does name.
#[test]
#[serial]
fn killed_worker_is_reported_with_its_signal_and_the_suspects() {
    if !has_root() {
        return;
    }
    // The driver is a child of the worker.
    let kill = "kill -9 $(grep PPid /proc/$PPID/status | cut -f 2)";
    let killed = run_fake(&format!(r#"--fault '{{"method":"NodePublishVolume","run":"{kill}"}}'"#), CASE);
    let words = ["killed by SIGKILL", "killed for memory", "where the driver has all capabilities"];
    assert!(words.iter().all(|word| killed.told().contains(word)), "{}", killed.told());
}

#[test]
#[serial]
fn stopped_worker_is_reported_with_the_suspects() {
    if !has_root() || !is_thorough("no run whose worker is stopped, which takes its time to be given up") {
        return;
    }
    let stop = "kill -STOP $(grep PPid /proc/$PPID/status | cut -f 2)";
    let fault = format!(r#"--fault '{{"method":"NodePublishVolume","run":"{stop}"}}'"#);
    let volproof = Volproof::new().args("run --report out --timeout 3s").arg(CASE);
    let stopped = ended(volproof.arg("--driver-cmd").arg(fake(&fault)), |_, _| {});
    let words = ["still stopped: ", "where the driver has all capabilities"];
    assert!(words.iter().all(|word| stopped.told().contains(word)), "{}", stopped.told());
}

/// A call that is never answered, in the first questions and later.
#[test]
#[serial]
fn call_that_is_never_answered_is_one_finding_of_the_driver() {
    if !has_root() {
        return;
    }
    // Each waits for an answer most of the time.
    let methods = vec!["Probe", "GetPluginInfo", "NodeStageVolume", "NodeUnpublishVolume", "DeleteVolume"];
    let silent = while_waiting(methods, |method| {
        let fault = format!(r#"--fault '{{"method":"{method}","hang":true}}'"#);
        (method, run_fake(&fault, CASE))
    });
    for (method, silent) in silent {
        if silent.told().contains("the machine was overloaded") {
            // On an overloaded machine a late answer is no finding.
            println!("skipped: {method}: the machine is overloaded");
            continue;
        }
        finds(&silent, "DRV-093", method, "not answered");
    }
}

/// A process that waits for a stopped FUSE server cannot be killed: only the server's end frees it.
#[test]
#[serial]
fn a_file_system_that_hangs_does_not_hang_the_run() {
    if !has_root() {
        return;
    }
    let volproof = Volproof::new().args("run fuse::").args(LIMIT).args("--jobs 1");
    let stop_the_server = |run: &mut Child, mark: &str| {
        // As soon as a pod has a mount of it, since then the node deals with it.
        let is_used = |server: &Process| {
            let table =
                std::fs::read_to_string(format!("/proc/{}/mountinfo", server.pid)).unwrap_or_default();
            table.lines().any(|line| line.contains("/pods/") && line.contains(" - fuse"))
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let servers = Process::marked(mark).into_iter().filter(|process| process.role == Role::FaultFs);
            let stop = |server: Process| kill(Pid::from_raw(server.pid), Signal::SIGSTOP).is_ok();
            if servers.filter(is_used).any(stop) {
                return;
            }
            assert!(run.try_wait().expect("it can be asked").is_none(), "no pod has used a FUSE server");
            assert!(Instant::now() < deadline, "no server has come");
        }
    };
    let hung = ended(volproof, stop_the_server);
    says(&hung, 1, &["still stopped: faultfs["]);
}
