//! The text of stories, told from traces that are written by hand.

use contracts::event::{Lifecycle, MountDel, ProcessEdge, Role, RpcEnd, RpcStart};
use expect_test::{Expect, expect};
use serde_json::json;

use super::*;
use crate::Layout;

const ROOT: &str = "/var/lib/kubelet";

/// Writes a trace by hand.
#[derive(Default)]
struct Trace {
    lines: Vec<TraceLine>,
    calls: u64,
}

impl Trace {
    fn push(&mut self, event: Event) {
        let seq = self.lines.len() as u64 + 1;
        self.lines.push(TraceLine { seq, t_ms: 500.0 * seq as f64, event });
    }

    fn start(&mut self, method: &str, volume: &str, target: &str) -> u64 {
        self.calls += 1;
        let req = json!({ "volumeId": format!("handle-{volume}"), "targetPath": target });
        self.push(Event::RpcStart(RpcStart { id: self.calls, method: method.into(), req, deadline_s: None }));
        self.calls
    }

    fn end(&mut self, id: u64, code: &str, message: &str) {
        self.push(Event::RpcEnd(RpcEnd {
            id,
            method: String::new(),
            code: code.into(),
            message: message.into(),
            dur_ms: 1.0,
            resp: json!({}),
            injected: None,
            abandoned: false,
            unreadable: None,
        }));
    }

    fn call(&mut self, method: &str, volume: &str, target: &str) {
        let id = self.start(method, volume, target);
        self.end(id, "OK", "");
    }

    fn fails(&mut self, method: &str, volume: &str, code: &str, message: &str) {
        let id = self.start(method, volume, "");
        self.end(id, code, message);
    }

    fn effect(&mut self, effect: &str, path: &str, source: Option<&str>, to: Option<&str>) {
        let fields = to.map(|to| BTreeMap::from([("to".into(), to.into())])).unwrap_or_default();
        let source = source.map(str::to_owned);
        self.push(Event::Effect(Effect {
            effect: effect.parse().unwrap(),
            path: path.into(),
            source,
            fields,
            confirmed: true,
        }));
    }
}

fn mount(target: &str, by: Actor, opts: &str, rdev: Option<&str>) -> Mount {
    Mount {
        target: target.into(),
        root: "/".into(),
        fstype: "ext4".into(),
        source: "/dev/loop3".into(),
        opts: opts.into(),
        super_opts: "rw".into(),
        dev: "7:3".into(),
        rdev: rdev.map(str::to_owned),
        propagation: String::new(),
        id: 7,
        by,
        seen_by: "fanotify".into(),
        unnamed: false,
    }
}

fn teller() -> Teller {
    let symbols = Symbols::new(Layout::standard());
    symbols.name_pod("uid-web", "web");
    for volume in ["disk", "data"] {
        symbols.name_volume(volume, &format!("pv-{volume}"), &format!("handle-{volume}"));
    }
    Teller::new(symbols)
}

#[track_caller]
fn check(trace: &Trace, expected: Expect) {
    expected.assert_eq(&teller().tell(&trace.lines).with_times());
}

fn publish(volume: &str) -> String {
    format!("{ROOT}/pods/uid-web/volumes/kubernetes.io~csi/pv-{volume}/mount")
}

#[test]
fn block_volume_is_mapped_and_unmapped() {
    let devices = format!("{ROOT}/plugins/kubernetes.io/csi/volumeDevices");
    let target = format!("{devices}/publish/pv-disk/uid-web");
    let map = format!("{devices}/pv-disk/dev/uid-web");
    let link = format!("{ROOT}/pods/uid-web/volumeDevices/kubernetes.io~csi/pv-disk");
    let mut trace = Trace::default();
    trace.call("NodeGetCapabilities", "disk", "");
    trace.call("NodeStageVolume", "disk", "");
    let id = trace.start("NodePublishVolume", "disk", &target);
    trace.push(Event::MountAdd(mount(&target, Actor::Driver, "rw", Some("7:3"))));
    trace.end(id, "OK", "");
    trace.effect("mkdir", &format!("{devices}/pv-disk/dev"), None, None);
    trace.push(Event::MountAdd(mount(&map, Actor::Node, "rw", Some("7:3"))));
    trace.effect("bind", &map, Some(&target), None);
    trace.effect("link", &link, None, Some(&target));
    trace.effect("lock", &map, Some("/dev/loop9"), None);
    trace.effect("unlock", "/dev/loop9", None, None);
    trace.effect("unlink", &link, None, None);
    trace.effect("umount", &map, None, None);
    trace.effect("remove", &map, None, None);
    trace.call("NodeUnpublishVolume", "disk", &target);
    trace.call("NodeUnstageVolume", "disk", "");
    trace.effect("remove", &format!("{devices}/pv-disk"), None, None);
    check(
        &trace,
        expect![[r#"
            csi    Stage disk
            csi    Publish disk web
            bind   <publish:disk/web>  =  <device:disk>
            bind   <map:disk/web>      =  <device:disk>
            link   <web>/disk          ->  <publish:disk/web>
            lock   <map:disk/web>
            unlock <map:disk/web>
            unlink <web>/disk
            umount <map:disk/web>
            csi    Unpublish disk web
            csi    Unstage disk
            rmdir  <map:disk>
        "#]],
    );
}

#[test]
fn retries_that_fail_alike_are_one_line() {
    let mut trace = Trace::default();
    trace.fails("NodeStageVolume", "data", "Unavailable", "not yet");
    trace.fails("NodeStageVolume", "data", "Unavailable", "not yet");
    trace.fails("NodeStageVolume", "data", "Internal", "handle-data is broken");
    trace.call("NodeStageVolume", "data", "");
    check(
        &trace,
        expect![[r#"
            csi    Stage data          UNAVAILABLE "not yet", 2 times in 1.5 s
            csi    Stage data          INTERNAL "<volume:data> is broken"
            csi    Stage data
        "#]],
    );
}

#[test]
fn put_off_call_is_left_out_if_it_was_repeated() {
    let mut trace = Trace::default();
    trace.fails("NodeStageVolume", "data", "Unavailable", "not now");
    trace.call("NodeStageVolume", "data", "");
    trace.fails("NodePublishVolume", "data", "Internal", "broken");
    let story = teller().tell(&trace.lines);
    let text = story.without_put_off_calls().to_string();
    assert!(story.to_string().contains("not now") && !text.contains("not now"), "{text}");
    // A call that failed for good stays, and so does a call that was put off and not made again.
    assert!(text.contains("broken"), "{text}");
    trace.fails("NodeUnstageVolume", "data", "Unavailable", "not now");
    assert!(teller().tell(&trace.lines).without_put_off_calls().to_string().contains("not now"));
}

#[test]
fn story_is_grouped_by_volume() {
    let mut trace = Trace::default();
    let disk = trace.start("NodeStageVolume", "disk", "");
    trace.call("NodeStageVolume", "data", "");
    trace.end(disk, "OK", "");
    trace.call("NodePublishVolume", "data", &publish("data"));
    check(
        &trace,
        expect![[r#"
            csi    Stage data
            csi    Publish data web
            csi    Stage disk
        "#]],
    );
}

#[test]
fn mount_has_its_final_options_in_the_story() {
    let mut trace = Trace::default();
    let id = trace.start("NodePublishVolume", "data", &publish("data"));
    trace.push(Event::MountAdd(mount(&publish("data"), Actor::Driver, "rw,relatime", None)));
    trace.push(Event::MountChg(mount(&publish("data"), Actor::Driver, "ro,relatime", None)));
    trace.end(id, "OK", "");
    check(
        &trace,
        expect![[r#"
            csi    Publish data web
            mount  <publish:data/web>  ro
        "#]],
    );
}

#[test]
fn call_under_way_is_in_the_story_again_when_it_has_ended() {
    let mut teller = teller();
    let mut trace = Trace::default();
    let id = trace.start("NodeStageVolume", "data", "");
    let first = teller.tell(&trace.lines);
    let before = trace.lines.len();
    trace.end(id, "DeadlineExceeded", "");
    let second = teller.tell(&trace.lines[before..]);
    expect![[r#"
        csi    Stage data          under way
        ---
        csi    Stage data          DEADLINE_EXCEEDED
    "#]]
    .assert_eq(&format!("{first}---\n{second}"));
}

#[test]
fn changes_without_a_call_are_strays_at_node_paths_only() {
    let mut trace = Trace::default();
    let stage = format!("{ROOT}/plugins/kubernetes.io/csi/volumeDevices/staging/pv-data");
    trace.push(Event::MountAdd(mount("/var/lib/volproof/driver/x", Actor::Driver, "rw", None)));
    let call = trace.start("NodeStageVolume", "data", &stage);
    trace.push(Event::MountAdd(mount(&stage, Actor::Driver, "rw", None)));
    trace.end(call, "OK", "");
    let unmounted = MountDel {
        target: publish("data"),
        id: 7,
        by: Actor::Driver,
        seen_by: "fanotify".into(),
        unnamed: false,
    };
    trace.push(Event::MountDel(unmounted));
    let exit = ProcessEdge {
        who: Role::Driver,
        edge: Lifecycle::Exit,
        status: Some("signal 9".into()),
        root: None,
        hides_driver: false,
    };
    trace.push(Event::Process(exit));
    check(
        &trace,
        expect![[r#"
            csi    Stage data
            umount <publish:data/web>
            stray  umount <publish:data/web>
            exit   driver              signal 9
        "#]],
    );
}
