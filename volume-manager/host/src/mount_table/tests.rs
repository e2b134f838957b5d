//! Tests of the mountinfo parser and of the look-ups in a table.

use super::*;

fn table(text: &str) -> MountTable {
    MountTable::parse(text.as_bytes()).unwrap()
}

const NODE: &str = "\
21 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 21 0:40 / /var/lib/kubelet rw,relatime shared:5 - tmpfs tmpfs rw,size=1024k
31 30 0:41 / /var/lib/kubelet/pods/a/volumes/x rw shared:6 master:2 propagate_from:1 unbindable odd:3 - tmpfs none rw
32 30 7:3 / /var/lib/kubelet/plugins/g/globalmount rw - ext4 /dev/loop3 rw,context=\"system_u:object_r:c_t:s0:c1,c2\"
33 30 7:3 / /var/lib/kubelet/pods/a/volumes/csi/mount ro,nodev - ext4 /dev/loop3 rw,seclabel
34 30 0:6 /loop7 /var/lib/kubelet/plugins/dev/a rw - devtmpfs udev rw
35 30 254:0 /data/with\\040blank\\011tab\\134 /mnt/with\\040blank rw - ext4 /dev/vda rw
36 30 254:0 /gone /mnt/gone\\040(deleted) rw - ext4 /dev/vda rw
";

#[test]
fn fields_are_parsed() {
    let table = table(NODE);
    let entry = &table.entries()[2];
    assert_eq!((entry.id, entry.parent, entry.dev), (31, 30, DeviceNumber::new(0, 41)));
    assert_eq!((entry.shared, entry.master, entry.propagate_from), (Some(6), Some(2), Some(1)));
    assert!(entry.unbindable);
    assert_eq!((entry.fs_type.as_str(), entry.source.as_os_str()), ("tmpfs", OsStr::new("none")));
    assert_eq!(table.entries()[1].super_options, ["rw", "size=1024k"]);
}

#[test]
fn octal_escapes_are_undone() {
    let table = table(NODE);
    assert_eq!(table.entries()[6].root, Path::new("/data/with blank\ttab\\"));
    assert_eq!(table.entries()[6].mount_point, Path::new("/mnt/with blank"));
    assert_eq!(unescape(br"a\0b\9"), br"a\0b\9", "not three octal digits, so unchanged");
    assert_eq!(unescape(br"\777"), br"\777", "more than a byte, so unchanged");
}

#[test]
fn commas_in_quotes_belong_to_the_value() {
    let entry = &table(NODE).entries()[3].clone();
    assert_eq!(entry.selinux_context(), Some("system_u:object_r:c_t:s0:c1,c2"));
    assert_eq!(entry.super_options.len(), 2);
}

#[test]
fn deleted_mount_point_is_found_by_its_old_path() {
    let table = table(NODE);
    assert_eq!(table.at(Path::new("/mnt/gone")).map(|entry| entry.id), Some(36));
}

#[test]
fn containing_mount_follows_the_tree_and_not_the_order_of_lines() {
    let table = table(
        "\
5 2 0:5 / /a/b rw - tmpfs moved rw
6 3 0:6 / /a/b rw - tmpfs hidden rw
4 3 0:4 / /a rw - tmpfs cover rw
2 4 0:2 / /a rw - tmpfs top rw
3 1 0:3 / /a rw - tmpfs bottom rw
1 0 0:1 / / rw - ext4 /dev/vda rw
",
    );
    let source = |entry: Option<&MountEntry>| entry.map(|entry| entry.source.to_str().unwrap().to_owned());
    assert_eq!(source(table.containing(Path::new("/a/b/c"))).as_deref(), Some("moved"));
    assert_eq!(source(table.containing(Path::new("/a/x"))).as_deref(), Some("top"));
    assert_eq!(source(table.at(Path::new("/a"))).as_deref(), Some("top"));
    assert_eq!(source(table.at(Path::new("/a/b"))).as_deref(), Some("moved"));
    assert_eq!(source(table.containing(Path::new("/b"))).as_deref(), Some("/dev/vda"));
}

#[test]
fn nearest_mount_above_a_path_contains_it() {
    let table = table(NODE);
    let id = |path: &str| table.containing(Path::new(path)).map(|entry| entry.id);
    assert_eq!(id("/"), Some(21));
    assert_eq!(id("/var/lib/kubelet/pods/a"), Some(30));
    assert_eq!(id("/var/lib/kubeletten"), Some(21), "components of the path are compared whole");
    assert_eq!(id("/var/lib/kubelet/pods/a/volumes/csi/mount/deep"), Some(33));
}

#[test]
fn references_are_other_mounts_of_the_same_root_and_device() {
    let table = table(NODE);
    assert_eq!(
        table.references(Path::new("/var/lib/kubelet/plugins/g/globalmount")),
        [Path::new("/var/lib/kubelet/pods/a/volumes/csi/mount")]
    );
    assert_eq!(table.references(Path::new("/data/with blank\ttab\\")), [Path::new("/mnt/with blank")]);
    assert!(table.references(Path::new("/var/lib/kubelet/pods/a/volumes/x")).is_empty());
}

#[test]
fn device_of_counts_the_mounts_of_a_source() {
    let table = table(NODE);
    let (device, count) = table.device_of(Path::new("/var/lib/kubelet/pods/a/volumes/csi/mount")).unwrap();
    assert_eq!((device, count), (OsStr::new("/dev/loop3"), 2));
    assert_eq!(table.device_of(Path::new("/nowhere")), None);
}

#[test]
fn malformed_line_is_an_error_with_its_number_and_defect() {
    for (line, defect) in [
        ("21", "it has no parent"),
        ("x 1 254:0 / / rw - ext4 /dev/vda rw", "a field is not a number"),
        ("21 1 254 / / rw - ext4 /dev/vda rw", "its device is not major:minor"),
        ("21 1 254:0 / / rw shared:1", "it has no separator"),
        ("21 1 254:0 / / rw - ext4 /dev/vda", "it has no file system options"),
        ("21 1 254:0 / / rw shared:x - ext4 /dev/vda rw", "a field is not a number"),
    ] {
        let error = MountTable::parse(line.as_bytes()).unwrap_err();
        assert_eq!((error.line, error.defect), (1, defect), "{line}");
    }
}

#[test]
fn mountinfo_of_this_machine_is_parsed() {
    let table = MountTable::parse(&std::fs::read("/proc/self/mountinfo").unwrap()).unwrap();
    assert!(table.containing(Path::new("/")).is_some());
}
