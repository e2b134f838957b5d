//! Mounting, binding, unmounting, and looking up mounts.

use host::fake::{Order, Rule};
use host::{Bind, FileKind, HostError, MountOptions, MountSpec, Scope, bind, errno};

use super::ground::{on_both, on_the_fake, on_the_kernel};

#[test]
fn read_only_bind_leaves_its_source_writable() {
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
fn look_up_of_a_mount_equals_its_line_in_the_table() {
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
fn unmounting_a_plain_directory_is_success() {
    on_both(async |ground| {
        let dir = ground.dir("plain").await;
        ground.host.unmount(&dir).await.unwrap();
        let missing = ground.host.unmount(&ground.path("missing")).await.unwrap_err();
        assert!(missing.is_not_found(), "{missing}");
    });
}

#[test]
fn device_node_is_bound_over_a_file_and_released() {
    on_both(async |ground| {
        let file = ground.path("node");
        let link = ground.file("plain", "x").await;
        bind::device_node(&*ground.host, "/dev/null".as_ref(), &file).await.unwrap();
        assert!(ground.host.metadata(&file).await.unwrap().kind.is_device());
        bind::device_node(&*ground.host, "/dev/null".as_ref(), &file).await.unwrap();
        assert_eq!(
            ground.host.mount_table().await.unwrap().layers(&file),
            1,
            "a second bind of the same device changes nothing"
        );
        bind::release_device_node(&*ground.host, &file).await.unwrap();
        bind::release_device_node(&*ground.host, &file).await.unwrap();
        assert_eq!(ground.host.read_file(&link).await.unwrap(), b"x");
        let stays = ground.host.symlink_metadata(&file).await.unwrap().kind;
        assert!(stays == FileKind::File, "the file stays, with no device over it: {stays:?}");
    });
}

/// Each row: options of the source's mount, options of the bind, options that the bind then has.
#[test]
fn bind_has_the_requested_options_and_those_of_its_source() {
    on_both(async |ground| {
        for (index, (source, asked, expected)) in [
            ("", "", "rw,relatime"),
            ("", "bind", "rw,relatime"),
            ("", "bind,ro", "ro,relatime"),
            ("", "ro,nosuid,nodev,noexec", "ro,nosuid,nodev,noexec,relatime"),
            ("nodev", "bind", "rw,nodev,relatime"),
            ("nosuid,noexec", "bind,ro", "ro,nosuid,noexec,relatime"),
            ("nodev", "dev", "rw,nodev,relatime"),
            ("noatime", "bind", "rw,noatime"),
            ("noatime,nodiratime", "", "rw,noatime,nodiratime"),
            ("", "noatime", "rw,noatime"),
            ("noatime", "relatime", "rw,noatime"),
            ("strictatime", "", "rw"),
            ("strictatime", "ro", "ro"),
            ("", "_netdev,x-systemd.automount,uid=7", "rw,relatime"),
            ("ro", "rw", "ro,relatime"),
        ]
        .into_iter()
        .enumerate()
        {
            let (from, to) =
                (ground.dir(&format!("from{index}")).await, ground.dir(&format!("to{index}")).await);
            let spec = MountSpec::new("tmpfs", &from, "tmpfs").with_options(MountOptions::new([source]));
            ground.host.mount(&spec).await.unwrap();
            bind::mount(&*ground.host, &from, &to, &MountOptions::new([asked])).await.unwrap();
            let has = ground.host.mount_of(&to).await.unwrap().options.join(",");
            assert_eq!(has, expected, "[{source}] bound with [{asked}]");
        }
    });
}

#[test]
fn bind_stays_after_its_remount_failed() {
    on_the_fake(async |ground| {
        let (from, to) = (ground.dir("from").await, ground.dir("to").await);
        for step in ["statfs", "remount_bind"] {
            let faults = ground.fake.as_ref().unwrap().faults();
            faults.add(Rule::new(Order::Fail(errno::EPERM)).on(step).times(1));
            bind::mount(&*ground.host, &from, &to, &MountOptions::new(["ro"])).await.unwrap_err();
            assert!(ground.host.is_mount_point(&to).await.unwrap(), "{step}");
            ground.host.unmount(&to).await.unwrap();
        }
    });
}

#[test]
fn failed_mount_has_its_paths_and_error_number() {
    on_both(async |ground| {
        let (dir, file) = (ground.dir("dir").await, ground.file("file", "").await);
        for (source, target, fs_type, expected) in [
            ("x", &dir, "no-such-fs", errno::ENODEV),
            ("x", &ground.path("missing"), "tmpfs", errno::ENOENT),
            ("x", &file, "tmpfs", errno::ENOTDIR),
            ("/no-such-device", &dir, "ext4", errno::ENOENT),
            (file.to_str().unwrap(), &dir, "ext4", errno::ENOTBLK),
        ] {
            let error = ground.host.mount(&MountSpec::new(source, target, fs_type)).await.unwrap_err();
            assert_eq!(error.errno(), Some(expected), "{error:?}");
            assert_eq!(error.to_string(), format!("cannot mount `{source}` on `{}`", target.display()));
        }
        let error = ground.host.bind(&Bind::new(&dir, &file)).await.unwrap_err();
        assert!(error.is_not_a_directory(), "{error:?}");
        let error = ground.host.remount_bind(&dir, &dir, &MountOptions::default()).await.unwrap_err();
        assert_eq!(error.errno(), Some(errno::EINVAL), "no mount point");
    });
}

#[test]
fn mount_of_a_type_with_a_helper_runs_mount_and_returns_its_output() {
    on_the_kernel(async |ground| {
        let target = ground.dir("target").await;
        let mut spec = MountSpec::new("server:/x", &target, "fuse.no-such-daemon");
        spec.options = MountOptions::new(["soft"]);
        spec.options.push_sensitive("password=secret");
        for scope in [Scope::Plain, Scope::Systemd] {
            spec.scope = scope;
            let error = ground.host.mount(&spec).await.unwrap_err();
            let HostError::Tool(tool) = &error else { panic!("{error:?}") };
            assert!(tool.arguments.ends_with(&format!(
                "-t fuse.no-such-daemon -o soft,<masked> server:/x {}",
                target.display()
            )));
            assert!(error.to_string().starts_with("mount failed: exit status "), "{error}");
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
        assert!(!ground.host.is_mount_point(&target).await.unwrap());
    });
}
