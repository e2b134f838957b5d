//! Trees: removal, change of ownership, disk usage.

use std::path::PathBuf;

use host::{FileKind, HostError, MountOptions, OwnershipChange, Removal, WalkProgress, bind};

use super::ground::{Ground, on_both, on_the_kernel};

const WRITE: OwnershipChange = OwnershipChange { gid: 4242, read_only: false };

/// A tree with a file, an empty directory, and a link that leads out.
async fn tree(ground: &Ground) -> PathBuf {
    let tree = ground.dir("tree").await;
    ground.dir("tree/dir/empty").await;
    ground.file("tree/dir/file", "x").await;
    ground.file("outside", "kept").await;
    ground.host.symlink(&ground.path("outside"), &tree.join("link")).await.unwrap();
    ground.host.symlink(&ground.root, &tree.join("dir/link")).await.unwrap();
    tree
}

#[test]
fn removing_a_tree_keeps_the_targets_of_its_links() {
    on_both(async |ground| {
        for removal in [Removal::Everything, Removal::OneFilesystem] {
            let tree = tree(ground).await;
            ground.host.remove_tree(&tree, removal).await.unwrap();
            assert!(ground.host.metadata(&tree).await.unwrap_err().is_not_found());
            assert_eq!(ground.host.read_file(&ground.path("outside")).await.unwrap(), b"kept");
        }
    });
}

#[test]
fn missing_path_and_file_are_removed_like_a_tree() {
    on_both(async |ground| {
        let file = ground.file("file", "").await;
        ground.host.remove_tree(&ground.path("missing"), Removal::Everything).await.unwrap();
        ground.host.remove_tree(&file.join("below"), Removal::OneFilesystem).await.unwrap();
        let error = ground.host.remove_tree(&file, Removal::DirsOnly).await.unwrap_err();
        assert!(error.is_not_a_directory(), "{error:?}");
        ground.host.remove_tree(&file, Removal::OneFilesystem).await.unwrap();
        assert!(ground.host.metadata(&file).await.unwrap_err().is_not_found());
    });
}

#[test]
fn removal_on_one_filesystem_stops_at_a_mount_and_removes_the_rest() {
    on_both(async |ground| {
        for removal in [Removal::OneFilesystem, Removal::DirsOnly] {
            let tree = ground.dir("tree").await;
            ground.dir("tree/plain/deep").await;
            let mount = ground.tmpfs("tree/mount").await;
            ground.file("tree/mount/data", "kept").await;
            let error = ground.host.remove_tree(&tree, removal).await.unwrap_err();
            let expected = format!("cannot delete directory `{}`: it is a mount point", mount.display());
            assert_eq!(error.to_string(), expected);
            assert_eq!(ground.host.read_file(&mount.join("data")).await.unwrap(), b"kept");
            assert!(ground.host.metadata(&tree.join("plain")).await.unwrap_err().is_not_found());
            let error = ground.host.remove_tree(&mount, removal).await.unwrap_err();
            assert!(matches!(error, HostError::IsMountPoint { .. }), "{error:?}");
            ground.host.unmount(&mount).await.unwrap();
        }
    });
}

#[test]
fn removal_on_one_filesystem_stops_at_a_bind_of_the_same_filesystem() {
    on_both(async |ground| {
        let (source, tree) = (ground.dir("source").await, ground.dir("tree/bound").await);
        ground.file("source/data", "kept").await;
        bind::mount(&*ground.host, &source, &tree, &MountOptions::default()).await.unwrap();
        let error = ground.host.remove_tree(&ground.path("tree"), Removal::OneFilesystem).await.unwrap_err();
        assert!(matches!(error, HostError::IsMountPoint { .. }), "{error:?}");
        assert_eq!(ground.host.read_file(&source.join("data")).await.unwrap(), b"kept");
    });
}

#[test]
fn removal_of_directories_fails_at_a_file_and_keeps_it() {
    on_both(async |ground| {
        ground.dir("dirs/a/b/c").await;
        ground.dir("dirs/d").await;
        let file = ground.file("dirs/a/b/data", "kept").await;
        let error = ground.host.remove_tree(&ground.path("dirs"), Removal::DirsOnly).await.unwrap_err();
        assert!(error.is_not_a_directory(), "{error:?}");
        assert_eq!(ground.host.read_file(&file).await.unwrap(), b"kept");
        assert!(ground.host.metadata(&ground.path("dirs/d")).await.unwrap_err().is_not_found());
        ground.host.remove_file(&file).await.unwrap();
        ground.host.remove_tree(&ground.path("dirs"), Removal::DirsOnly).await.unwrap();
    });
}

#[test]
fn removal_of_everything_empties_a_mount_and_fails_at_its_root() {
    on_both(async |ground| {
        let tree = ground.dir("tree").await;
        let mount = ground.tmpfs("tree/mount").await;
        ground.file("tree/mount/data", "lost").await;
        let error = ground.host.remove_tree(&tree, Removal::Everything).await.unwrap_err();
        assert!(error.is_busy(), "{error:?}");
        assert!(ground.host.read_dir(&mount).await.unwrap().is_empty(), "the kubelet's quirk");
    });
}

#[test]
fn tree_deeper_than_the_longest_path_is_removed() {
    on_the_kernel(async |ground| {
        let tree = ground.dir("deep").await;
        let mut here = rustix::fs::open(&tree, OPEN, rustix::fs::Mode::empty()).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&here, "directory", 0o755.into()).unwrap();
            here = rustix::fs::openat(&here, "directory", OPEN, rustix::fs::Mode::empty()).unwrap();
        }
        drop(here);
        let progress = WalkProgress::new();
        ground.host.change_ownership(&tree, WRITE, &progress).await.unwrap();
        assert_eq!(progress.entries(), 3001);
        assert_eq!(ground.host.disk_usage(&tree).await.unwrap().inodes, 3001);
        ground.host.remove_tree(&tree, Removal::OneFilesystem).await.unwrap();
        assert!(ground.host.metadata(&tree).await.unwrap_err().is_not_found());
    });
}

const OPEN: rustix::fs::OFlags = rustix::fs::OFlags::DIRECTORY;

#[test]
fn ownership_walk_gives_every_entry_the_group_and_at_least_the_bits() {
    on_both(async |ground| {
        let tree = tree(ground).await;
        ground.tmpfs("tree/mount").await;
        ground.file("tree/mount/below", "").await;
        for (name, mode) in [("dir/file", 0o604), ("dir", 0o700), ("mount/below", 0o4711)] {
            ground.host.chmod(&tree.join(name), mode).await.unwrap();
        }
        let progress = WalkProgress::new();
        ground.host.change_ownership(&tree, WRITE, &progress).await.unwrap();
        for (name, mode) in [
            ("", 0o2775),
            ("dir", 0o2770),
            ("dir/empty", 0o2775),
            ("dir/file", 0o664),
            ("mount", 0o3777),
            ("mount/below", 0o4771),
        ] {
            let there = ground.host.metadata(&tree.join(name)).await.unwrap();
            assert_eq!((there.gid, there.uid, there.mode), (4242, 0, mode), "{name}: {:o}", there.mode);
        }
        let link = ground.host.symlink_metadata(&tree.join("link")).await.unwrap();
        assert_eq!((link.kind, link.gid), (FileKind::Symlink, 4242));
        let outside = ground.host.metadata(&ground.path("outside")).await.unwrap();
        assert_eq!((outside.gid, outside.mode), (0, 0o644), "a link is not followed");
        assert_eq!(progress.entries(), 8);
        assert!(WRITE.root_matches(&ground.host.metadata(&tree).await.unwrap()));
    });
}

/// A pod whose volume has such a file starts all the same.
#[test]
fn ownership_walk_skips_a_file_that_it_cannot_change() {
    on_both(async |ground| {
        let (tree, fixed) = (tree(ground).await, ground.dir("fixed").await);
        ground.file("fixed/file", "").await;
        let shown = ground.dir("tree/a").await;
        bind::mount(&*ground.host, &fixed, &shown, &MountOptions::new(["ro"])).await.unwrap();
        ground.host.change_ownership(&tree, WRITE, &WalkProgress::new()).await.unwrap();
        for (name, gid) in [("a", 0), ("a/file", 0), ("dir/file", 4242), ("", 4242)] {
            assert_eq!(ground.host.metadata(&tree.join(name)).await.unwrap().gid, gid, "{name}");
        }
    });
}

#[test]
fn ownership_walk_makes_a_read_only_volume_readable_only() {
    on_both(async |ground| {
        let tree = ground.dir("tree").await;
        let file = ground.file("tree/file", "").await;
        ground.host.chmod(&file, 0o600).await.unwrap();
        ground.host.chmod(&tree, 0o700).await.unwrap();
        let read = OwnershipChange { read_only: true, ..WRITE };
        ground.host.change_ownership(&tree, read, &WalkProgress::new()).await.unwrap();
        assert_eq!(ground.host.metadata(&file).await.unwrap().mode, 0o640);
        assert_eq!(ground.host.metadata(&tree).await.unwrap().mode, 0o2750);
    });
}

#[test]
fn stopped_ownership_walk_leaves_the_root_unchanged() {
    on_both(async |ground| {
        let tree = tree(ground).await;
        let progress = WalkProgress::new();
        progress.stop();
        let error = ground.host.change_ownership(&tree, WRITE, &progress).await.unwrap_err();
        assert!(matches!(error, HostError::Stopped { .. }), "{error:?}");
        assert!(!WRITE.root_matches(&ground.host.metadata(&tree).await.unwrap()));
    });
}

#[test]
fn unreadable_directory_ends_the_ownership_walk() {
    on_both(async |ground| {
        let tree = ground.dir("tree").await;
        ground.corpse("tree/corpse").await;
        let error = ground.host.change_ownership(&tree, WRITE, &WalkProgress::new()).await.unwrap_err();
        assert!(error.is_corrupted_mount(), "{error:?}");
        assert!(!WRITE.root_matches(&ground.host.metadata(&tree).await.unwrap()));
    });
}

#[test]
fn removed_directory_that_a_bind_still_shows_is_empty() {
    on_both(async |ground| {
        let (from, to) = (ground.dir("from").await, ground.dir("to").await);
        bind::mount(&*ground.host, &from, &to, &MountOptions::default()).await.unwrap();
        ground.host.remove_dir(&from).await.unwrap();
        assert_eq!(ground.host.read_dir(&to).await.unwrap(), []);
        let progress = WalkProgress::new();
        ground.host.change_ownership(&to, WRITE, &progress).await.unwrap();
        assert_eq!(progress.entries(), 1);
        assert_eq!(ground.host.disk_usage(&to).await.unwrap().inodes, 1);
    });
}

#[test]
fn listing_does_not_stat_the_entries() {
    on_both(async |ground| {
        let dir = ground.dir("volumes").await;
        ground.corpse("volumes/corpse").await;
        ground.file("volumes/file", "").await;
        let listed = ground.host.read_dir(&dir).await.unwrap();
        let listed: Vec<_> = listed.iter().map(|entry| (entry.name.to_str().unwrap(), entry.kind)).collect();
        assert_eq!(listed, [("corpse", FileKind::Directory), ("file", FileKind::File)]);
    });
}

#[test]
fn disk_usage_counts_a_file_with_two_names_once() {
    on_the_kernel(async |ground| {
        let tree = ground.dir("tree").await;
        let file = ground.file("tree/file", &"x".repeat(8192)).await;
        std::fs::hard_link(&file, tree.join("other")).unwrap();
        let other = ground.tmpfs("tree/mount").await;
        ground.host.write_file(&other.join("below"), &[0; 8192], 0o644).await.unwrap();
        let usage = ground.host.disk_usage(&tree).await.unwrap();
        assert_eq!((usage.bytes, usage.inodes), (8192, 2), "and skips other file systems");
    });
}
