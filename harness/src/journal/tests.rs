//! The journal's order of lines, its actors, strays and phantoms, with a witness whose events the test sends.

use std::sync::mpsc::{Receiver, Sender, channel};

use contracts::event::{Actor, Irregular, Mount, OperationEdge, OperationName};
use expect_test::{Expect, expect};
use serde_json::json;

use super::*;
use crate::Layout;

const TARGET: &str = "/var/lib/kubelet/pods/uid-web/volumes/kubernetes.io~csi/pv-data/mount";
/// A process id that no process has.
const NODE: i32 = i32::MAX - 1;

struct Scripted(Receiver<Seen>);

impl Witness for Scripted {
    fn drain(&mut self) -> Vec<Seen> {
        self.0.try_iter().collect()
    }
}

fn journal() -> (Journal, Sender<Seen>) {
    let symbols = Symbols::new(Layout::standard());
    symbols.name_pod("uid-web", "web");
    symbols.name_volume("data", "pv-data", "handle-data");
    let (sender, receiver) = channel();
    let journal = Journal::new(symbols, Some(Box::new(Scripted(receiver))));
    journal.with_actors(|actors| actors.node = Some(NODE));
    (journal, sender)
}

fn added(target: &str, pid: i32) -> Seen {
    let mount = Mount {
        target: target.into(),
        root: "/".into(),
        fstype: "ext4".into(),
        source: "/dev/loop3".into(),
        opts: "rw".into(),
        super_opts: "rw".into(),
        dev: "7:3".into(),
        rdev: None,
        propagation: String::new(),
        id: 7,
        by: Actor::Unknown,
        seen_by: "fanotify".into(),
        unnamed: false,
    };
    Seen::Added { mount, pid: Some(pid) }
}

/// A node that says one thing at a time.
#[derive(Debug, Default, Clone)]
struct Talker(Arc<Mutex<Option<Announced>>>);

impl Announcements for Talker {
    fn drain(&mut self) -> Vec<Announced> {
        self.0.lock().unwrap().take().into_iter().collect()
    }

    fn let_go_on(&mut self) -> bool {
        true
    }

    fn is_open(&self) -> bool {
        true
    }
}

fn hear(journal: &Journal, said: Announced) {
    let talker = Talker::default();
    journal.listen_to(Box::new(talker.clone()));
    *talker.0.lock().unwrap() = Some(said);
    assert!(journal.catch_up());
}

fn announce(effect: &str, path: &str) -> Announcement {
    Announcement { effect: effect.parse().unwrap(), path: path.into(), source: None, fields: BTreeMap::new() }
}

fn ok() -> Outcome {
    Outcome { code: "OK".into(), ..Outcome::default() }
}

#[track_caller]
fn check(journal: &Journal, expected: Expect) {
    expected.assert_eq(&journal.look().to_string());
}

#[test]
fn mount_below_another_nodes_root_is_not_recorded() {
    let (journal, kernel) = journal();
    journal.leave_out(Path::new("/var/lib/volproof/node-2/kubelet"));
    let elsewhere = "/var/lib/volproof/node-2/kubelet/pods/uid-web/volumes/kubernetes.io~csi/pv-data/mount";
    kernel.send(added(elsewhere, NODE)).unwrap();
    kernel.send(added(TARGET, NODE)).unwrap();
    assert_eq!(journal.mounted(), [Path::new(TARGET)]);
    let targets: Vec<String> = journal
        .trace()
        .into_iter()
        .filter_map(|line| match line.event {
            Event::MountAdd(mount) => Some(mount.target),
            _ => None,
        })
        .collect();
    assert_eq!(targets, [TARGET]);
}

#[test]
fn driver_mount_is_recorded_between_start_and_end_of_its_call() {
    let (journal, kernel) = journal();
    let call = journal.rpc_start(
        "NodePublishVolume",
        json!({"volumeId": "handle-data", "targetPath": TARGET}),
        None,
    );
    kernel.send(added(TARGET, 0)).unwrap();
    journal.rpc_end(call, ok());
    let names: Vec<&str> = journal
        .trace()
        .iter()
        .map(|line| match &line.event {
            Event::RpcStart(_) => "start",
            Event::MountAdd(mount) if mount.by == Actor::Driver => "mount by driver",
            Event::RpcEnd(_) => "end",
            other => panic!("{other:?} was not expected"),
        })
        .collect();
    assert_eq!(names, ["start", "mount by driver", "end"]);
    assert!(journal.irregular().is_empty());
}

#[test]
fn announced_mount_is_in_the_story_once() {
    let (journal, kernel) = journal();
    kernel.send(added(TARGET, NODE)).unwrap();
    assert!(journal.effect(announce("mount", TARGET)));
    check(
        &journal,
        expect![[r#"
        mount  <publish:data/web>
    "#]],
    );
    assert!(journal.irregular().is_empty());
}

#[test]
fn two_mounts_without_a_pid_are_one_of_the_node_and_one_of_the_driver() {
    let (journal, kernel) = journal();
    let req = json!({"volumeId": "handle-data", "targetPath": TARGET});
    let call = journal.rpc_start("NodePublishVolume", req, None);
    let Seen::Added { mount, .. } = added(TARGET, 0) else { panic!("`added` makes another event") };
    kernel.send(Seen::Added { mount: mount.clone(), pid: None }).unwrap();
    kernel.send(Seen::Added { mount, pid: None }).unwrap();
    // The node announces one mount; the other is the driver's, whose call is under way.
    assert!(journal.effect(announce("mount", TARGET)));
    journal.rpc_end(call, ok());
    assert!(journal.irregular().is_empty());
}

#[test]
fn unannounced_mount_of_the_node_is_a_stray() {
    let (journal, kernel) = journal();
    kernel.send(added(TARGET, NODE)).unwrap();
    check(
        &journal,
        expect![[r#"
        stray  mount <publish:data/web>
    "#]],
    );
    assert_eq!(journal.irregular().len(), 1);
}

#[test]
fn unannounced_mount_is_no_stray_while_its_operation_runs() {
    let (journal, kernel) = journal();
    let edge = |edge: event::Edge| {
        journal.record(Event::Operation(OperationEdge {
            name: OperationName::Mount,
            volume: "kubernetes.io/csi/data".into(),
            pod: "uid-web".into(),
            edge,
            error: None,
        }));
    };
    edge(event::Edge::Start);
    kernel.send(added(TARGET, NODE)).unwrap();
    check(&journal, expect![""]);
    assert!(journal.irregular().is_empty());
    edge(event::Edge::End);
    assert_eq!(journal.irregular().len(), 1);
}

#[test]
fn message_of_a_killed_node_is_ignored() {
    let (journal, _kernel) = journal();
    let change = || {
        let (world, key) = (event::World::Actual, "pod uid-web data".into());
        Announced::Notice(Event::State(contracts::event::StateChange {
            world,
            key,
            from: String::new(),
            to: "VolumeMounted".into(),
        }))
    };
    hear(&journal, change());
    for (edge, heard) in [(Lifecycle::Kill, 1), (Lifecycle::Exit, 1), (Lifecycle::Start, 2)] {
        journal.process(Role::Node, edge, None);
        hear(&journal, change());
        let trace = journal.trace();
        let changes = trace.iter().filter(|line| matches!(line.event, Event::State(_)));
        assert_eq!(changes.count(), heard, "{edge}");
    }
}

#[test]
fn unannounced_mount_of_a_killed_node_is_no_stray() {
    let (journal, kernel) = journal();
    kernel.send(added(TARGET, NODE)).unwrap();
    journal.process(Role::Node, Lifecycle::Exit, Some("signal 9".into()));
    assert!(journal.irregular().is_empty());
}

#[test]
fn announced_mount_that_the_kernel_does_not_show_is_a_phantom() {
    let (journal, _kernel) = journal();
    assert!(!journal.effect(announce("mount", TARGET)));
    check(
        &journal,
        expect![[r#"
        phantom mount <publish:data/web>
    "#]],
    );
}

/// Counts the strays when a driver mounts after its call was abandoned and `retry` has made calls.
fn strays_after_retry(retry: impl FnOnce(&Journal)) -> usize {
    let (journal, kernel) = journal();
    // The parent plays the driver: it is alive, and not this process.
    let pid = nix::unistd::getppid().as_raw();
    let group = nix::unistd::getpgid(Some(nix::unistd::Pid::from_raw(pid))).unwrap().as_raw();
    journal.with_actors(|actors| actors.drivers.insert(group));
    let lost = Outcome { code: "DeadlineExceeded".into(), abandoned: true, ..Outcome::default() };
    publish(&journal, TARGET, lost);
    retry(&journal);
    kernel.send(added(TARGET, pid)).unwrap();
    journal.irregular().len()
}

fn publish(journal: &Journal, target: &str, outcome: Outcome) {
    let req = json!({"volumeId": "handle-data", "targetPath": target});
    let call = journal.rpc_start("NodePublishVolume", req, None);
    journal.rpc_end(call, outcome);
}

#[test]
fn only_a_successful_retry_at_its_path_ends_an_abandoned_call() {
    let code = |code: &str| Outcome { code: code.into(), ..Outcome::default() };
    assert_eq!(strays_after_retry(|_| {}), 0);
    // The driver refuses the retry because the first call still runs: with ABORTED, as CSI asks, or with another code.
    for refused in
        ["Aborted", "Unavailable", "DeadlineExceeded", "Canceled", "Internal", "FailedPrecondition"]
    {
        assert_eq!(strays_after_retry(|journal| publish(journal, TARGET, code(refused))), 0, "{refused}");
    }
    let other = TARGET.replace("uid-web", "uid-other");
    assert_eq!(strays_after_retry(|journal| publish(journal, &other, ok())), 0, "another target");
    let injected = Some("code=OK delay=0 after=0 forward=false hang=false".to_owned());
    let replaced = Outcome { injected, ..ok() };
    assert_eq!(
        strays_after_retry(|journal| publish(journal, TARGET, replaced)),
        0,
        "not the driver's answer"
    );

    assert_eq!(strays_after_retry(|journal| publish(journal, TARGET, ok())), 1);
    let injected = Some("code= delay=20 after=0 forward=false hang=false".to_owned());
    let delayed = Outcome { injected, ..ok() };
    assert_eq!(
        strays_after_retry(|journal| publish(journal, TARGET, delayed)),
        1,
        "the driver's answer, late"
    );
}

/// Where the kernel names no process, an unmount is the node's, unless the harness unmounts in its place, as for a reboot.
#[test]
fn unmount_without_a_pid_is_the_harnesses_while_it_acts() {
    let (journal, kernel) = journal();
    let removed = || Seen::Removed { target: TARGET.into(), id: 7, pid: None, seen_by: "mountinfo".into() };
    kernel.send(removed()).unwrap();
    journal.act(|| assert!(kernel.send(removed()).is_ok()));
    kernel.send(removed()).unwrap();
    journal.look();
    let actors: Vec<Actor> = journal
        .trace()
        .into_iter()
        .filter_map(|line| match line.event {
            Event::MountDel(removed) => Some(removed.by),
            _ => None,
        })
        .collect();
    assert_eq!(actors, [Actor::Node, Actor::Harness, Actor::Node]);
}

#[test]
fn mount_for_a_call_of_the_case_is_no_stray() {
    let (journal, kernel) = journal();
    let pid = nix::unistd::getppid().as_raw();
    let group = nix::unistd::getpgid(Some(nix::unistd::Pid::from_raw(pid))).unwrap().as_raw();
    journal.with_actors(|actors| actors.drivers.insert(group));
    let unpublish = json!({"volumeId": "handle-data", "targetPath": TARGET});
    let excuse = journal.excuse("NodeUnpublishVolume", &unpublish);
    kernel.send(added(TARGET, pid)).unwrap();
    drop(excuse);
    assert!(journal.irregular().is_empty());
    kernel.send(added(TARGET, pid)).unwrap();
    assert_eq!(journal.irregular().len(), 1);
    assert!(journal.in_flight().is_empty());
}

#[tokio::test]
async fn wait_for_a_call_ends_when_it_starts() {
    let (journal, _kernel) = journal();
    let waiting = journal.wait_rpc("NodeStageVolume", Edge::Start, 1, Duration::from_secs(60));
    let acting = async {
        journal.rpc_start("NodeGetCapabilities", json!({}), None);
        journal.rpc_start("NodeStageVolume", json!({}), None);
    };
    let (in_time, ()) = tokio::join!(waiting, acting);
    assert!(in_time);
}

#[test]
fn jsonl_uses_the_symbols_of_the_recordings() {
    let (journal, _kernel) = journal();
    journal.rpc_start("NodePublishVolume", json!({"volumeId": "handle-data", "targetPath": TARGET}), None);
    let text = journal.jsonl();
    let mut lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    assert_eq!(lines.next().unwrap()["version"], 2);
    let line = lines.next().unwrap();
    assert_eq!(line["ev"], "rpc_start");
    assert_eq!(line["req"]["volumeId"], "$VOLID_data");
    assert_eq!(line["req"]["targetPath"], "$ROOT/kl/pods/uid-web/volumes/kubernetes.io~csi/pv-data/mount");
}

#[test]
fn kept_journal_writes_each_line_at_once() {
    let (journal, _kernel) = journal();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.jsonl");
    journal.keep(&path, None).unwrap();
    journal.pod("web", PodPhase::Added);
    let text = std::fs::read_to_string(path).unwrap();
    let (header, line) = text.trim().split_once('\n').unwrap();
    assert_eq!(header, contracts::recording::header());
    assert_eq!(vec![serde_json::from_str::<TraceLine>(line).unwrap()], journal.trace());
}

/// A journal whose node has announced a `vol_data.json` in a temporary root.
fn journal_with_record() -> (tempfile::TempDir, Journal, std::path::PathBuf) {
    let scratch = tempfile::tempdir().unwrap();
    let symbols = Symbols::new(Layout::new(scratch.path(), scratch.path().join("state")));
    let (_, receiver) = channel();
    let journal = Journal::new(symbols, Some(Box::new(Scripted(receiver))));
    journal.with_actors(|actors| actors.node = Some(NODE));
    let volume = scratch.path().join("pods/uid/volumes/kubernetes.io~csi/pv");
    std::fs::create_dir_all(&volume).unwrap();
    let record = volume.join("vol_data.json");
    std::fs::write(&record, "{}").unwrap();
    assert!(journal.effect(announce("write", record.to_str().unwrap())));
    (scratch, journal, record)
}

/// Compares the node's own entries with the file system, and returns all irregular changes so far.
fn irregular(journal: &Journal) -> Vec<Irregular> {
    journal.change(State::compare_own);
    journal.irregular().into_iter().map(|found| found.what).collect()
}

/// Makes a call, at whose start and end the journal compares the node's own entries.
fn call(journal: &Journal) {
    let call = journal.rpc_start("NodeGetCapabilities", json!({}), None);
    journal.rpc_end(call, ok());
}

#[test]
fn record_that_is_removed_or_replaced_between_calls_is_a_stray() {
    let replace: fn(&Path) = |record| std::fs::rename(copy(record), record).unwrap();
    let link: fn(&Path) = |record| {
        std::fs::remove_file(record).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", record).unwrap();
    };
    for (verb, change) in [("remove", remove as fn(&Path)), ("replace", replace), ("link", link)] {
        let (_scratch, journal, record) = journal_with_record();
        call(&journal);
        assert_eq!(irregular(&journal), []);
        change(&record);
        let what = format!("{verb} {}", record.display());
        assert_eq!(irregular(&journal), [Irregular { what, by: Actor::Driver }]);
        assert_eq!(irregular(&journal).len(), 1, "it is reported once");
    }
}

fn write(record: &Path) {
    std::fs::write(record, "{}").unwrap();
}

fn remove(record: &Path) {
    std::fs::remove_file(record).unwrap();
}

fn copy(record: &Path) -> std::path::PathBuf {
    let copy = record.with_extension("copy");
    std::fs::copy(record, &copy).unwrap();
    copy
}

#[test]
fn record_that_is_replaced_before_the_node_writes_it_is_a_stray() {
    let (_scratch, journal, record) = journal_with_record();
    call(&journal);
    // Renamed over the record: a file that is removed and made anew may get the same inode number.
    std::fs::rename(copy(&record), &record).unwrap();
    assert!(journal.effect(announce("write", record.to_str().unwrap())));
    let what = format!("replace {}", record.display());
    assert_eq!(irregular(&journal), [Irregular { what, by: Actor::Driver }]);
    // A write in place keeps the inode, and is the node's own.
    std::fs::write(&record, "{ }").unwrap();
    assert!(journal.effect(announce("write", record.to_str().unwrap())));
    assert_eq!(irregular(&journal).len(), 1);
    // The node writes and removes the record later, which does not explain why it was gone before.
    let (_scratch, journal, record) = journal_with_record();
    std::fs::remove_file(&record).unwrap();
    call(&journal);
    for (verb, change) in [("write", write as fn(&Path)), ("remove", remove)] {
        change(&record);
        assert!(journal.effect(announce(verb, record.to_str().unwrap())));
    }
    assert_eq!(irregular(&journal).len(), 1);
}

#[test]
fn abandoned_call_explains_changes_at_its_own_path_only() {
    let (_scratch, journal, record) = journal_with_record();
    let staging = record.with_file_name("mount");
    std::fs::create_dir(&staging).unwrap();
    assert!(journal.effect(announce("mkdir", staging.to_str().unwrap())));
    let flight = journal.rpc_start(
        "NodeUnstageVolume",
        json!({ "volumeId": "v", "stagingTargetPath": staging }),
        None,
    );
    journal.rpc_end(flight, Outcome { code: "Canceled".into(), abandoned: true, ..Outcome::default() });
    std::fs::remove_dir(&staging).unwrap();
    assert_eq!(irregular(&journal), []);
    std::fs::remove_file(&record).unwrap();
    assert_eq!(irregular(&journal).len(), 1);
}

#[test]
fn explained_removal_of_a_record_is_no_stray() {
    // The node announces the removal later.
    let (_scratch, journal, record) = journal_with_record();
    call(&journal);
    std::fs::remove_file(&record).unwrap();
    call(&journal);
    assert!(journal.effect(announce("remove", record.to_str().unwrap())));
    assert_eq!(irregular(&journal), []);
    // A change by hand, a call under way, a node that dies: it is unknown who changed the record.
    type Reason = fn(&Journal) -> Option<u64>;
    let reasons: [Reason; 3] = [
        |journal| {
            journal.touched_by_hand();
            None
        },
        |journal| Some(journal.rpc_start("NodeGetCapabilities", json!({}), None)),
        |journal| {
            journal.process(Role::Node, Lifecycle::Exit, None);
            None
        },
    ];
    for reason in reasons {
        let (_scratch, journal, record) = journal_with_record();
        call(&journal);
        let flight = reason(&journal);
        std::fs::remove_file(&record).unwrap();
        flight.into_iter().for_each(|flight| journal.rpc_end(flight, ok()));
        call(&journal);
        assert_eq!(irregular(&journal), []);
    }
}

#[test]
fn link_in_place_of_another_volumes_record_is_recorded_with_its_call() {
    let touched = |disturbed: bool| {
        let (scratch, journal, record) = journal_with_record();
        let target = scratch.path().join("pods/uid/volumes/kubernetes.io~csi/other/mount");
        let req = json!({ "volumeId": "v", "targetPath": target });
        let other = journal.rpc_start("NodeGetCapabilities", json!({}), None);
        let call = journal.rpc_start("NodePublishVolume", req, None);
        if disturbed {
            journal.record(Event::Case(event::Step { action: "damage".into(), on: String::new(), at: None }));
        }
        std::fs::remove_file(&record).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", &record).unwrap();
        journal.rpc_end(call, ok());
        journal.rpc_end(other, ok());
        let lines = journal.trace().into_iter();
        let touched = lines.filter_map(|line| match line.event {
            Event::Touched(touched) => {
                Some((touched.id, touched.how, touched.path == record.to_str().unwrap()))
            }
            _ => None,
        });
        (call, touched.collect::<Vec<_>>())
    };
    let (call, found) = touched(false);
    assert_eq!(found, [(call, event::Touch::Linked, true)]);
    assert_eq!(touched(true).1, []);
}

#[test]
fn driver_mount_over_the_nodes_directories_is_a_stray_in_a_call_too() {
    let (journal, kernel) = journal();
    let req = json!({"volumeId": "handle-data", "targetPath": TARGET});
    let call = journal.rpc_start("NodePublishVolume", req, None);
    for covered in ["/var/lib/kubelet", "/var/lib/kubelet/plugins"] {
        kernel.send(added(covered, 0)).unwrap();
    }
    // Not this one: it is a directory of the driver's own.
    kernel.send(added("/var/lib/kubelet/plugins/my.csi/data", 0)).unwrap();
    journal.rpc_end(call, ok());
    let found: Vec<String> = irregular(&journal).into_iter().map(|found| found.what).collect();
    assert_eq!(found, ["mount /var/lib/kubelet", "mount /var/lib/kubelet/plugins"]);
}

/// A removal that the node may announce in a moment is not reported yet.
#[tokio::test]
async fn removal_is_no_stray_before_the_node_had_time_to_announce_it() {
    let (_scratch, journal, record) = journal_with_record();
    call(&journal);
    std::fs::remove_file(&record).unwrap();
    call(&journal);
    assert!(!journal.look().to_string().contains("stray"));
    assert!(journal.effect(announce("remove", record.to_str().unwrap())));
    journal.suspects_settle().await;
    assert_eq!(irregular(&journal), []);
}

/// Lines that were forgotten are counted, and those that a call under way looks back to are kept.
#[test]
fn forgotten_lines_are_counted_and_a_call_keeps_its_own() {
    let journal = Journal::new(Symbols::new(Layout::standard()), None);
    let target = "/var/lib/kubelet/pods/uid-a/volumes/kubernetes.io~csi/pv/mount";
    let req = serde_json::json!({ "volumeId": "v", "targetPath": target });
    journal.step("first", "x");
    assert_eq!(journal.since_and_forget(0).len(), 1);
    let call = journal.rpc_start("NodePublishVolume", req, None);
    journal.step("second", "x");
    let lines = journal.since_and_forget(1);
    assert_eq!((lines.len(), lines[0].seq, journal.length()), (2, 2, 3));
    // The lines from the start of the call on are kept.
    assert_eq!(journal.trace().len(), 2);
    journal.rpc_end(call, Outcome { code: "OK".to_owned(), ..Outcome::default() });
    let lines = journal.since_and_forget(3);
    assert!(lines.iter().all(|line| line.seq > 3) && !lines.is_empty());
    assert_eq!(journal.trace().len(), 0);
}
