//! Trees of small traces, line by line.

use contracts::event::TraceLine;
use expect_test::{Expect, expect};

use super::*;

fn mount(target: &str, id: u64, by: Actor) -> Mount {
    let json = serde_json::json!({
        "target": target, "root": "/", "fstype": "ext4", "source": format!("/dev/loop{id}"), "opts": "rw",
        "super": "rw", "dev": "7:0", "id": id, "by": by, "seen_by": "poll",
    });
    serde_json::from_value(json).unwrap()
}

fn add(target: &str, id: u64) -> Event {
    Event::MountAdd(mount(target, id, Actor::Driver))
}

/// A mount that the harness makes for the case.
fn given(target: &str, id: u64) -> Event {
    Event::MountAdd(mount(target, id, Actor::Harness))
}

fn read_only(target: &str, id: u64) -> Event {
    Event::MountChg(Mount { opts: "ro".to_owned(), ..mount(target, id, Actor::Driver) })
}

fn remove(target: &str, id: u64) -> Event {
    let seen_by = "poll".to_owned();
    Event::MountDel(MountDel { target: target.to_owned(), id, by: Actor::Driver, seen_by, unnamed: false })
}

fn mounts(events: &[Event]) -> Mounts {
    let mut mounts = Mounts::default();
    events.iter().for_each(|event| mounts.event(event));
    mounts
}

fn check(events: &[Event], tree: Expect) {
    let lines = mounts(events).lines();
    tree.assert_eq(&lines.iter().map(|line| format!("{line}\n")).collect::<String>());
}

#[test]
fn mounts_are_nested_by_path_and_directories_joined() {
    check(
        &[
            add("/var/kubelet/pods/web/data", 1),
            add("/var/kubelet/plugins/csi/globalmount", 2),
            add("/var/kubelet/plugins/csi/globalmount/sub/dir", 3),
            add("/var/kubelet/plugins-old", 4),
        ],
        expect![[r"
              /var/kubelet/
            +   plugins/csi/globalmount  =  ext4 /dev/loop2 (rw)
            +     sub/dir  =  ext4 /dev/loop3 (rw)
            +   plugins-old  =  ext4 /dev/loop4 (rw)
            +   pods/web/data  =  ext4 /dev/loop1 (rw)
        "]],
    );
}

#[test]
fn mounts_on_one_path_are_listed_from_the_lowest() {
    check(
        &[add("/a", 2), add("/a", 3), add("/", 1)],
        expect![[r"
            + /  =  ext4 /dev/loop1 (rw)
            +   a  =  ext4 /dev/loop2 (rw)
            +   a  =  ext4 /dev/loop3 (rw)
        "]],
    );
}

#[test]
fn mount_that_came_and_went_is_in_no_difference() {
    check(&[add("/a", 1), read_only("/a", 1), remove("/a", 1)], expect![""]);
    check(&[given("/a", 1)], expect![""]);
}

#[test]
fn removed_and_changed_mounts_were_there_at_the_beginning() {
    check(
        &[
            given("/a", 1),
            given("/b", 2),
            remove("/a", 1),
            read_only("/b", 2),
            remove("/c", 3),
            read_only("/d", 4),
            add("/e", 5),
            read_only("/e", 5),
        ],
        expect![[r"
              /
            -   a  =  ext4 /dev/loop1 (rw)
            ~   b  options rw → ro
            -   c
            ~   d  is  ext4 /dev/loop4 (ro) after a change
            +   e  =  ext4 /dev/loop5 (ro)
        "]],
    );
}

#[test]
fn unchanged_mounts_without_a_change_below_are_counted() {
    check(
        &[
            given("/n", 1),
            given("/n/a", 2),
            given("/n/a/b", 3),
            given("/n/c", 4),
            given("/o", 5),
            add("/n/c/d", 6),
        ],
        expect![[r"
              /
                n  =  ext4 /dev/loop1 (rw)
                  c  =  ext4 /dev/loop4 (rw)
            +       d  =  ext4 /dev/loop6 (rw)
                  2 unchanged
                1 unchanged
        "]],
    );
}

#[test]
fn hostile_path_is_one_escaped_line() {
    let long = "x".repeat(4000);
    let target = format!("/<b>&amp;\n\u{1b}[2J\u{202e}/{long}");
    let page = mounts(&[add(&target, 1)]).difference().into_string();
    assert!(page.contains(r"+ /&lt;b&gt;&amp;amp;\n\u{1b}[2J\u{202e}/xxx"), "{page}");
    assert!(page.contains(&long) && !page.contains(['\n', '\u{1b}', '\u{202e}']), "{page}");
    let other = mounts(&[add("/a\\012b", 1)]).lines();
    assert_eq!(other[0].to_string(), "+ /a\\012b  =  ext4 /dev/loop1 (rw)");
}

#[test]
fn long_tree_is_cut() {
    let events: Vec<Event> = (1..1000).map(|id| add(&format!("/m/{id}"), id)).collect();
    let page = mounts(&events).difference().into_string();
    assert_eq!(page.matches("<span").count(), LINES + 1);
    assert!(page.contains("… and 800 lines more"), "{page}");
}

#[test]
fn mount_of_a_trace_is_read() {
    let line = r#"{"seq":1,"t_ms":1.0,"ev":"mount_add","target":"/a","root":"/sub","fstype":"ext4","source":"/dev/loop0","opts":"rw","super":"rw","dev":"7:0","id":1,"by":"node","seen_by":"poll"}"#;
    let line: TraceLine = serde_json::from_str(line).unwrap();
    check(
        &[line.event],
        expect![[r"
        + /a  =  ext4 /dev/loop0[/sub] (rw)
    "]],
    );
}
