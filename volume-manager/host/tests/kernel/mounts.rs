//! Mounting, binding, unmounting, and asking what is mounted.

use host::MountOptions;
use host::bind;

use crate::ground::on_both;

#[test]
fn a_read_only_bind_leaves_its_source_writable() {
    on_both(async |ground| {
        let (source, target) = (ground.tmpfs("source").await, ground.dir("target").await);
        bind::mount(&*ground.host, &source, &target, &MountOptions::new(["bind", "ro"])).await.unwrap();
        ground.host.write_file(&source.join("a"), b"1", 0o644).await.unwrap();
        let refused = ground.host.write_file(&target.join("b"), b"1", 0o644).await.unwrap_err();
        assert_eq!(refused.errno(), Some(host::errno::EROFS));
        assert_eq!(ground.host.read_file(&target.join("a")).await.unwrap(), b"1");
    });
}

#[test]
fn one_look_up_says_what_the_table_says() {
    on_both(async |ground| {
        let source = ground.tmpfs("source with blank").await;
        let target = ground.dir("target").await;
        bind::mount(&*ground.host, &source, &target, &MountOptions::new(["ro", "noexec"])).await.unwrap();
        let table = ground.host.mount_table().await.unwrap();
        let mut compared = 0;
        for entry in table.entries() {
            let Ok(one) = ground.host.mount_of(&entry.mount_point).await else { continue };
            if one.id == entry.id {
                assert_eq!(&one, entry);
                compared += 1;
            }
        }
        assert!(compared > 2, "{table:?}");
        assert_eq!(&ground.host.mount_of(&target.join("..")).await.unwrap().mount_point, &ground.root);
    });
}

#[test]
fn unmounting_what_is_no_mount_is_success() {
    on_both(async |ground| {
        let dir = ground.dir("plain").await;
        ground.host.unmount(&dir).await.unwrap();
        let missing = ground.host.unmount(&ground.path("missing")).await.unwrap_err();
        assert!(missing.is_not_found(), "{missing}");
    });
}

#[test]
fn a_device_node_is_bound_over_a_file_and_off_again() {
    on_both(async |ground| {
        let file = ground.path("node");
        let link = ground.file("plain", "x").await;
        bind::device_node(&*ground.host, "/dev/null".as_ref(), &file).await.unwrap();
        assert!(ground.host.metadata(&file).await.unwrap().kind.is_device());
        bind::device_node(&*ground.host, "/dev/null".as_ref(), &file).await.unwrap();
        assert_eq!(ground.host.mount_table().await.unwrap().layers(&file), 1, "it was there already");
        bind::undo_device_node(&*ground.host, &file).await.unwrap();
        bind::undo_device_node(&*ground.host, &file).await.unwrap();
        assert_eq!(ground.host.read_file(&link).await.unwrap(), b"x");
        assert!(ground.host.symlink_metadata(&file).await.unwrap_err().is_not_found());
    });
}
