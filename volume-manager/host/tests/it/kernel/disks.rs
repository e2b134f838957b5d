//! Disks: probing, formatting and growing them, and locking them with loop devices.

use std::path::{Path, PathBuf};

use host::fake::{Order, Rule};
use host::format::{CheckOutcome, DiskContent, FormatAndMount, FormatError, Grow, format_and_mount};
use host::{MountOptions, bind, errno};
use serial_test::file_serial;

use super::ground::{Ground, on_both, on_the_fake, on_the_kernel};

const MIB: u64 = 1 << 20;

/// The smallest disk that mkfs accepts.
fn size_for(fs_type: &str) -> u64 {
    match fs_type {
        "xfs" => 300 * MIB,
        "btrfs" => 128 * MIB,
        _ => 16 * MIB,
    }
}

fn order(device: &Path, target: PathBuf, fs_type: &str, options: &[&str]) -> FormatAndMount {
    FormatAndMount {
        device: device.to_owned(),
        target,
        fs_type: fs_type.to_owned(),
        options: MountOptions::new(options),
        format_options: Vec::new(),
    }
}

#[test]
#[file_serial(root)]
fn empty_disk_is_formatted_once_and_its_content_kept() {
    on_both(async |ground| {
        for (fs_type, expected) in [("", "ext4"), ("xfs", "xfs"), ("btrfs", "btrfs")] {
            let disk = ground.disk(size_for(expected)).await;
            assert_eq!(ground.host.probe_device(&disk).await.unwrap(), DiskContent::Nothing);
            let target = ground.dir(expected).await;
            for round in 0..2 {
                format_and_mount(&*ground.host, &order(&disk, target.clone(), fs_type, &[])).await.unwrap();
                let mount = ground.host.mount_of(&target).await.unwrap();
                assert_eq!((mount.fs_type.as_str(), mount.source.to_str()), (expected, disk.to_str()));
                let file = target.join("data");
                if round == 0 {
                    ground.host.write_file(&file, b"kept", 0o644).await.unwrap();
                }
                assert_eq!(ground.host.read_file(&file).await.unwrap(), b"kept");
                assert!(ground.host.device_opened(&disk).await.unwrap());
                ground.host.unmount(&target).await.unwrap();
                assert!(!ground.host.device_opened(&disk).await.unwrap());
            }
            let found = DiskContent::FileSystem(expected.to_owned());
            assert_eq!(ground.host.probe_device(&disk).await.unwrap(), found);
        }
    });
}

#[test]
#[file_serial(root)]
fn empty_disk_is_not_formatted_for_a_read_only_mount() {
    on_both(async |ground| {
        let (disk, target) = (ground.disk(size_for("ext4")).await, ground.dir("target").await);
        let mut order = order(&disk, target, "ext4", &["ro"]);
        let error = format_and_mount(&*ground.host, &order).await.unwrap_err();
        assert!(matches!(error, FormatError::UnformattedReadOnly { .. }), "{error:?}");
        // `ro` among the sensitive options counts too.
        order.options = MountOptions::default();
        order.options.push_sensitive("ro");
        let error = format_and_mount(&*ground.host, &order).await.unwrap_err();
        assert!(matches!(error, FormatError::UnformattedReadOnly { .. }), "{error:?}");
        assert_eq!(ground.host.probe_device(&disk).await.unwrap(), DiskContent::Nothing);
    });
}

#[test]
#[file_serial(root)]
fn disk_with_another_file_system_is_not_formatted() {
    on_both(async |ground| {
        let (disk, target) = (ground.disk(size_for("xfs")).await, ground.dir("target").await);
        format_and_mount(&*ground.host, &order(&disk, target.clone(), "ext4", &[])).await.unwrap();
        ground.host.unmount(&target).await.unwrap();
        let error = format_and_mount(&*ground.host, &order(&disk, target, "xfs", &[])).await.unwrap_err();
        assert!(error.is_mismatch(), "{error:?}");
        let text = "failed to mount the volume as \"xfs\", it already contains ext4. Mount error";
        assert_eq!(error.to_string(), text);
        let kept = DiskContent::FileSystem("ext4".to_owned());
        assert_eq!(ground.host.probe_device(&disk).await.unwrap(), kept);
    });
}

#[test]
#[file_serial(root)]
fn partitions_are_never_formatted() {
    on_both(async |ground| {
        let (disk, target) = (ground.disk(size_for("ext4")).await, ground.dir("target").await);
        if let Some(kernel) = ground.kernel() {
            kernel.set_content(&disk, DiskContent::Partitions).unwrap();
        } else {
            write_partition_table(&disk);
        }
        let error = format_and_mount(&*ground.host, &order(&disk, target, "ext4", &[])).await.unwrap_err();
        assert!(error.to_string().contains("unknown data, probably partitions"), "{error}");
        assert_eq!(ground.host.probe_device(&disk).await.unwrap(), DiskContent::Partitions);
    });
}

/// A DOS label with one partition.
fn write_partition_table(disk: &Path) {
    use std::os::unix::fs::FileExt as _;
    let mut sector = [0u8; 512];
    sector[446..462].copy_from_slice(&[0, 0, 2, 0, 0x83, 0, 8, 0, 0x08, 0, 0, 0, 0x10, 0, 0, 0]);
    (sector[510], sector[511]) = (0x55, 0xaa);
    let file = std::fs::File::options().write(true).open(disk).unwrap();
    file.write_all_at(&sector, 0).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn disk_is_mounted_unless_the_check_leaves_errors() {
    on_the_fake(async |ground| {
        let (disk, target) = (ground.disk(size_for("ext4")).await, ground.dir("target").await);
        let kernel = ground.kernel().unwrap();
        kernel.format(&disk, "ext4").unwrap();
        let output = || "left".to_owned();
        for (outcome, mounted) in [
            (CheckOutcome::Clean, true),
            (CheckOutcome::Corrected, true),
            (CheckOutcome::NoTool, true),
            (CheckOutcome::Failed { code: Some(8), output: output() }, true),
            (CheckOutcome::Uncorrected { output: output() }, false),
        ] {
            kernel.set_check(&disk, outcome.clone()).unwrap();
            let result = format_and_mount(&*ground.host, &order(&disk, target.clone(), "ext4", &[])).await;
            assert_eq!(result.is_ok(), mounted, "{outcome:?}");
            assert_eq!(ground.host.is_mount_point(&target).await.unwrap(), mounted);
            ground.host.unmount(&target).await.unwrap();
        }
        // A read-only mount is not checked, and so not repaired.
        let read_only = order(&disk, target.clone(), "ext4", &["ro"]);
        format_and_mount(&*ground.host, &read_only).await.unwrap();
    });
}

#[test]
fn newly_formatted_disk_is_not_checked() {
    on_the_fake(async |ground| {
        let (disk, target) = (ground.disk(size_for("ext4")).await, ground.dir("target").await);
        let faults = ground.fake.as_ref().unwrap().faults();
        faults.add(Rule::new(Order::Fail(errno::EIO)).on("check_device"));
        let order = order(&disk, target.clone(), "ext4", &[]);
        format_and_mount(&*ground.host, &order).await.unwrap();
        assert_eq!(ground.kernel().unwrap().scoped(), std::slice::from_ref(&target));
        ground.host.unmount(&target).await.unwrap();
        let error = format_and_mount(&*ground.host, &order).await.unwrap_err();
        assert!(matches!(error, FormatError::Check { .. }), "{error:?}");
        assert!(!ground.host.is_mount_point(&target).await.unwrap());
    });
}

#[test]
fn each_failed_step_has_its_error() {
    on_the_fake(async |ground| {
        let (disk, target) = (ground.disk(size_for("ext4")).await, ground.dir("target").await);
        let faults = ground.fake.as_ref().unwrap().faults();
        let order = order(&disk, target, "ext4", &[]);
        for (step, expected) in [
            ("probe_device", "failed to get disk format of disk `/dev/disk0`"),
            ("make_filesystem", "cannot format `/dev/disk0` as ext4"),
            ("mount", "cannot mount `/dev/disk0`"),
            ("check_device", "cannot check `/dev/disk0`"),
        ] {
            faults.add(Rule::new(Order::Fail(errno::EIO)).on(step).times(1));
            let error = format_and_mount(&*ground.host, &order).await.unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    });
}

#[test]
#[file_serial(root)]
fn file_system_grows_to_its_disk() {
    on_both(async |ground| {
        for fs_type in ["ext4", "xfs", "btrfs"] {
            if fs_type == "ext4" && ground.fake.is_none() && !may_grow_ext4() {
                eprintln!("ext4 not grown on the real kernel: CAP_SYS_RESOURCE is missing");
                continue;
            }
            let (disk, target) = (ground.disk(size_for(fs_type)).await, ground.dir(fs_type).await);
            format_and_mount(&*ground.host, &order(&disk, target.clone(), fs_type, &[])).await.unwrap();
            let before = ground.host.statfs(&target).await.unwrap().bytes;
            ground.resize_disk(&disk, 2 * size_for(fs_type));
            assert_eq!(ground.host.device_size(&disk).await.unwrap(), 2 * size_for(fs_type));
            let (device, mounted_at) = (disk.clone(), target.clone());
            let grow = Grow { device, fs_type: fs_type.to_owned(), mounted_at };
            ground.host.grow_filesystem(&grow).await.unwrap();
            let after = ground.host.statfs(&target).await.unwrap().bytes;
            assert!(after > before + before / 2, "{fs_type}: {before} -> {after}");
            ground.host.unmount(&target).await.unwrap();
        }
        let (device, mounted_at) = (ground.disk(MIB).await, ground.root.clone());
        let grow = Grow { device, fs_type: "vfat".to_owned(), mounted_at };
        let error = ground.host.grow_filesystem(&grow).await.unwrap_err().to_string();
        assert!(error.ends_with("resize of format vfat is not supported"), "{error}");
    });
}

/// Growing a mounted ext4 needs this capability.
fn may_grow_ext4() -> bool {
    const SYS_RESOURCE: u64 = 1 << 24;
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(effective.trim(), 16).unwrap() & SYS_RESOURCE != 0
}

#[test]
#[file_serial(root)]
fn free_disk_plain_file_and_missing_path_are_not_opened() {
    on_both(async |ground| {
        let disk = ground.disk(MIB).await;
        assert!(!ground.host.device_opened(&disk).await.unwrap());
        let file = ground.file("file", "").await;
        assert!(!ground.host.device_opened(&file).await.unwrap(), "no device");
        assert!(!ground.host.device_opened(&ground.path("missing")).await.unwrap());
    });
}

#[test]
#[file_serial(root)]
fn device_lock_is_one_loop_device_over_the_bound_node() {
    on_both(async |ground| {
        let disk = ground.disk(MIB).await;
        let map = ground.dir("dev").await.join("pod-uid");
        bind::device_node(&*ground.host, &disk, &map).await.unwrap();
        assert_eq!(
            bind::device_nodes_in(&*ground.host, &ground.path("dev")).await.unwrap(),
            std::slice::from_ref(&map)
        );
        assert_eq!(ground.host.find_lock(&map).await.unwrap(), None);
        let lock = ground.host.lock_device(&map).await.unwrap();
        ground.owns_loop(&lock);
        assert_eq!(ground.host.lock_device(&map).await.unwrap(), lock, "an existing loop device is reused");
        assert_eq!(ground.host.find_lock(&map).await.unwrap(), Some(lock.clone()));
        let link = ground.path("link");
        ground.host.symlink(&map, &link).await.unwrap();
        assert_eq!(
            ground.host.find_lock(&link).await.unwrap(),
            Some(lock.clone()),
            "by the path that the link resolves to"
        );
        assert_eq!(ground.host.device_size(&lock).await.unwrap(), MIB);
        ground.host.unlock_device(&lock).await.unwrap();
        ground.host.unlock_device(&lock).await.unwrap();
        ground.host.unlock_device(Path::new("/dev/no-such-loop")).await.unwrap();
        assert_eq!(ground.host.find_lock(&map).await.unwrap(), None);
        bind::release_device_node(&*ground.host, &map).await.unwrap();
        assert!(bind::device_nodes_in(&*ground.host, &ground.path("dev")).await.unwrap().is_empty());
        assert!(bind::device_nodes_in(&*ground.host, &ground.path("missing")).await.unwrap().is_empty());
    });
}

#[test]
#[file_serial(root)]
fn bind_of_a_new_device_replaces_the_old_node_and_its_lock() {
    on_both(async |ground| {
        let (old, new) = (ground.disk(MIB).await, ground.disk(MIB).await);
        let map = ground.path("pod-uid");
        bind::device_node(&*ground.host, &old, &map).await.unwrap();
        let lock = ground.host.lock_device(&map).await.unwrap();
        ground.owns_loop(&lock);
        bind::device_node(&*ground.host, &new, &map).await.unwrap();
        let shown = ground.host.metadata(&map).await.unwrap().rdev;
        assert_eq!(shown, ground.host.metadata(&new).await.unwrap().rdev);
        assert_eq!(ground.host.mount_table().await.unwrap().layers(&map), 1);
        assert_eq!(ground.host.find_lock(&map).await.unwrap(), None);
        // The old device is free: its bind and lock are gone.
        ground.host.unlock_device(&old).await.unwrap();
        let bound = Path::new("/sys/block").join(old.file_name().unwrap()).join("loop");
        assert!(ground.fake.is_some() || !bound.exists());
    });
}

#[test]
#[file_serial(root)]
fn loop_device_over_another_file_of_the_same_path_is_not_ours() {
    on_the_kernel(async |ground| {
        let file = ground.file("backing", &"x".repeat(4096)).await;
        let lock = ground.host.lock_device(&file).await.unwrap();
        ground.owns_loop(&lock);
        // As from another mount namespace: the same path, another file.
        ground.host.rename(&file, &ground.path("moved")).await.unwrap();
        let other = ground.file("backing", &"y".repeat(4096)).await;
        assert_eq!(ground.host.find_lock(&other).await.unwrap(), None);
        assert_eq!(ground.host.find_lock(&ground.path("moved")).await.unwrap(), Some(lock));
    });
}

/// Several threads find the same free number.
#[test]
#[file_serial(root)]
fn concurrent_locks_get_different_loop_devices() {
    on_the_kernel(async |ground| {
        let mut tasks = Vec::new();
        for index in 0..16 {
            let file = ground.file(&format!("file{index}"), &"x".repeat(4096)).await;
            let host = ground.host.clone();
            tasks.push(tokio::spawn(async move { host.lock_device(&file).await }));
        }
        let mut locks = Vec::new();
        for task in tasks {
            let lock = task.await.unwrap().unwrap();
            ground.owns_loop(&lock);
            locks.push(lock);
        }
        locks.sort();
        locks.dedup();
        assert_eq!(locks.len(), 16);
        for lock in locks {
            unlock(ground, &lock).await;
        }
    });
}

async fn unlock(ground: &Ground, lock: &Path) {
    ground.host.unlock_device(lock).await.unwrap();
    let bound = Path::new("/sys/block").join(lock.file_name().unwrap()).join("loop");
    assert!(!bound.exists(), "detached when the call returns");
}
