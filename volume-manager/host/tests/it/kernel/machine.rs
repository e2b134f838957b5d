//! Controls of the simulated machine: break and mend a file system, remove a disk, reboot.

use std::path::Path;

use host::errno::{self, Errno};
use host::fake::FakeKernel;
use host::{DeviceNumber, FileKind};

fn machine() -> FakeKernel {
    let kernel = FakeKernel::new();
    for dir in ["/a", "/b", "/c"] {
        kernel.make_dir(Path::new(dir), 0o755).unwrap();
    }
    kernel
}

fn formatted(kernel: &FakeKernel) -> &'static Path {
    kernel.add_disk("sda", 1 << 30).unwrap();
    kernel.format(Path::new("/dev/sda"), "ext4").unwrap();
    Path::new("/dev/sda")
}

#[test]
fn reboot_keeps_files_on_disks() {
    let kernel = machine();
    let (a, b, disk) = (Path::new("/a"), Path::new("/b"), formatted(&kernel));
    kernel.mount("/dev/sda", a, "ext4", &[]).unwrap();
    kernel.mount("tmpfs", b, "tmpfs", &[]).unwrap();
    kernel.bind(a, Path::new("/c"), true).unwrap();
    kernel.write_file(&a.join("kept"), b"1", 0o644).unwrap();
    kernel.write_file(&b.join("lost"), b"1", 0o644).unwrap();
    kernel.write_file(Path::new("/kept"), b"1", 0o644).unwrap();
    kernel.attach_loop(Path::new("/kept")).unwrap();
    kernel.claim_disk(disk, true).unwrap();
    kernel.reboot();
    assert_eq!(kernel.mount_table().entries().len(), 2, "the root and /dev");
    assert!(kernel.loops().is_empty());
    assert_eq!(kernel.read_dir(b).unwrap(), []);
    assert_eq!(kernel.read_file(Path::new("/kept")).unwrap(), b"1");
    kernel.format(disk, "xfs").unwrap_or_else(|error| panic!("the disk is not busy any more: {error:?}"));
    kernel.format(disk, "ext4").unwrap();
    kernel.mount("/dev/sda", a, "ext4", &[]).unwrap();
    assert_eq!(kernel.read_file(&a.join("kept")), Err(Errno(errno::ENOENT)), "formatted over");
}

#[test]
fn unmounted_disk_keeps_its_files() {
    let kernel = machine();
    let (a, disk) = (Path::new("/a"), formatted(&kernel));
    for round in 0..3 {
        kernel.mount("/dev/sda", a, "ext4", &[]).unwrap();
        assert_eq!(kernel.read_file(&a.join("file")).is_ok(), round > 0);
        kernel.write_file(&a.join("file"), b"1", 0o644).unwrap();
        assert_eq!(kernel.format(disk, "ext4"), Err(Errno(errno::EBUSY)));
        kernel.unmount(a, false).unwrap();
    }
}

#[test]
fn two_mounts_of_a_disk_show_the_same_file_system() {
    let kernel = machine();
    formatted(&kernel);
    kernel.mount("/dev/sda", Path::new("/a"), "ext4", &[]).unwrap();
    kernel.mount("/dev/sda", Path::new("/b"), "ext4", &[]).unwrap();
    kernel.write_file(Path::new("/a/file"), b"1", 0o644).unwrap();
    assert_eq!(kernel.read_file(Path::new("/b/file")).unwrap(), b"1");
    assert_eq!(kernel.mount("/dev/sda", Path::new("/a"), "ext4", &[]), Err(Errno(errno::EBUSY)));
    assert_eq!(kernel.mount("/dev/sda", Path::new("/c"), "ext4", &["ro"]), Err(Errno(errno::EBUSY)));
    assert_eq!(kernel.mount("/dev/sda", Path::new("/c"), "xfs", &[]), Err(Errno(errno::EINVAL)));
    assert_eq!(kernel.mount("/dev/null", Path::new("/c"), "ext4", &[]), Err(Errno(errno::ENOTBLK)));
    assert_eq!(kernel.mount("/dev/none", Path::new("/c"), "ext4", &[]), Err(Errno(errno::ENOENT)));
    assert_eq!(kernel.mount("x", Path::new("/c"), "no-such-fs", &[]), Err(Errno(errno::ENODEV)));
}

#[test]
fn file_system_of_a_removed_disk_answers_eio_and_can_be_unmounted() {
    let kernel = machine();
    let (a, disk) = (Path::new("/a"), formatted(&kernel));
    kernel.mount("/dev/sda", a, "ext4", &[]).unwrap();
    kernel.remove_disk(disk).unwrap();
    assert_eq!(kernel.metadata(a), Err(Errno(errno::EIO)));
    assert_eq!(kernel.read_dir(a), Err(Errno(errno::EIO)));
    kernel.unmount(a, false).unwrap();
    assert_eq!(kernel.read_dir(a).unwrap(), []);
}

#[test]
fn broken_file_system_can_be_mended() {
    let kernel = machine();
    let a = Path::new("/a");
    kernel.mount("server:/x", a, "nfs", &[]).unwrap();
    kernel.write_file(&a.join("file"), b"1", 0o644).unwrap();
    kernel.break_filesystem(a, errno::ESTALE).unwrap();
    assert_eq!(kernel.metadata(&a.join("file")), Err(Errno(errno::ESTALE)));
    kernel.bind(a, Path::new("/b"), false).unwrap();
    kernel.unmount(a, false).unwrap();
    kernel.mend_filesystem(Path::new("/b")).unwrap();
    assert_eq!(kernel.read_file(Path::new("/b/file")).unwrap(), b"1");
    kernel.unmount(Path::new("/b"), false).unwrap();
    kernel.mount("server:/x", a, "nfs", &[]).unwrap();
    assert_eq!(kernel.read_file(&a.join("file")).unwrap(), b"1", "the server has it");
}

#[test]
fn open_file_makes_its_mount_busy_and_outlives_a_lazy_unmount() {
    let kernel = machine();
    let a = Path::new("/a");
    kernel.mount("tmpfs", a, "tmpfs", &[]).unwrap();
    kernel.make_dir(&a.join("dir"), 0o755).unwrap();
    let hold = kernel.hold(&a.join("dir")).unwrap();
    assert_eq!(kernel.unmount(a, false), Err(Errno(errno::EBUSY)));
    kernel.unmount(a, true).unwrap();
    assert!(!kernel.is_mount_point(a));
    drop(hold);
    kernel.mount("tmpfs", a, "tmpfs", &[]).unwrap();
    assert_eq!(kernel.read_dir(a).unwrap(), [], "another one");
}

#[test]
fn nodes_of_all_kinds_can_be_made() {
    let kernel = machine();
    let number = DeviceNumber::new(252, 7);
    for (name, kind, rdev) in [
        ("block", FileKind::BlockDevice, number),
        ("char", FileKind::CharDevice, number),
        ("socket", FileKind::Socket, DeviceNumber::default()),
        ("pipe", FileKind::Fifo, DeviceNumber::default()),
    ] {
        let path = Path::new("/a").join(name);
        kernel.make_node(&path, kind, number, 0o600).unwrap();
        let there = kernel.metadata(&path).unwrap();
        assert_eq!((there.kind, there.rdev), (kind, rdev));
    }
    let dir = kernel.make_node(Path::new("/a/dir"), FileKind::Directory, number, 0o700);
    assert_eq!(dir, Err(Errno(errno::EINVAL)));
}
