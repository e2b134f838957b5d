//! Look-ups: mount points, existence, references, devices, SELinux labels.

use std::path::Path;

use host::fake::{Order, Rule};
use host::linux::LinuxHost;
use host::{Action, Host, HostError, MountOptions, Propagation, bind, errno, lookup};
use rustix::thread::CapabilitySet;

use super::ground::{on_both, on_the_fake, on_the_kernel, runtime};

#[test]
fn mount_points_are_found_through_links_and_binds() {
    on_both(async |ground| {
        let (plain, tmpfs, bound) =
            (ground.dir("plain").await, ground.tmpfs("tmpfs").await, ground.dir("bound").await);
        let file = ground.file("file", "").await;
        let bound_file = ground.file("bound-file", "").await;
        bind::mount(&*ground.host, &plain, &bound, &MountOptions::default()).await.unwrap();
        bind::mount(&*ground.host, &file, &bound_file, &MountOptions::default()).await.unwrap();
        let (to_mount, to_plain) = (ground.path("to-mount"), ground.path("to-plain"));
        ground.host.symlink(&tmpfs, &to_mount).await.unwrap();
        ground.host.symlink(&plain, &to_plain).await.unwrap();
        for (path, expected) in [
            (Path::new("/"), true),
            (&ground.root, true),
            (&plain, false),
            (&tmpfs, true),
            (&bound, true),
            (&file, false),
            (&bound_file, true),
            (&to_mount, true),
            (&to_plain, false),
            (&tmpfs.join("."), true),
            (&tmpfs.join("../plain"), false),
        ] {
            assert_eq!(ground.host.is_mount_point(path).await.unwrap(), expected, "{}", path.display());
            assert_eq!(
                ground.host.is_likely_mount_point(path).await.unwrap(),
                expected,
                "{}",
                path.display()
            );
        }
    });
}

#[test]
fn mount_point_check_of_a_missing_path_is_enoent() {
    on_both(async |ground| {
        let missing = ground.path("missing");
        assert!(ground.host.is_mount_point(&missing).await.unwrap_err().is_not_found());
        assert!(ground.host.is_likely_mount_point(&missing).await.unwrap_err().is_not_found());
        let dangling = ground.path("dangling");
        ground.host.symlink(&missing, &dangling).await.unwrap();
        assert!(ground.host.is_mount_point(&dangling).await.unwrap_err().is_not_found());
        assert!(ground.host.mount_of(&missing).await.unwrap_err().is_not_found());
    });
}

/// As for root on an export with root_squash.
#[test]
fn mount_point_check_reads_the_table_where_stat_is_forbidden() {
    on_the_kernel(async |ground| {
        let closed = ground.dir("closed").await;
        let (mounted, plain) = (ground.tmpfs("closed/mounted").await, ground.dir("closed/plain").await);
        ground.host.chmod(&closed, 0).await.unwrap();
        without_search_capability(async move |host| {
            for (path, expected) in [(&mounted, true), (&plain, false)] {
                let error = host.is_likely_mount_point(path).await.unwrap_err();
                assert!(error.is_permission_denied(), "stat was permitted: {error}");
                assert_eq!(host.is_mount_point(path).await.unwrap(), expected, "{}", path.display());
            }
        });
    });
}

/// Runs `ask` on threads without root's capability to search every directory.
fn without_search_capability(ask: impl AsyncFnOnce(LinuxHost) + Send + 'static) {
    let thread = std::thread::spawn(move || {
        let mut sets = rustix::thread::capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
        rustix::thread::set_capabilities(None, sets).unwrap();
        runtime().block_on(ask(LinuxHost::new()));
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn dead_mount_is_a_mount_point() {
    on_both(async |ground| {
        let corpse = ground.corpse("corpse").await;
        assert!(ground.host.is_likely_mount_point(&corpse).await.unwrap());
        assert_eq!(ground.host.mount_of(&corpse).await.unwrap().fs_type, "fuse");
    });
}

#[test]
fn path_exists_if_stat_or_access_finds_it() {
    on_both(async |ground| {
        let file = ground.file("file", "").await;
        assert!(lookup::path_exists(&*ground.host, &file).await.unwrap());
        assert!(!lookup::path_exists(&*ground.host, &ground.path("missing")).await.unwrap());
        let corpse = ground.corpse("corpse").await;
        assert!(lookup::path_exists(&*ground.host, &corpse).await.unwrap());
    });
}

#[test]
fn path_that_only_access_finds_is_a_stale_mount() {
    on_the_fake(async |ground| {
        let path = ground.tmpfs("cifs").await;
        ground
            .fake
            .as_ref()
            .unwrap()
            .faults()
            .add(Rule::new(Order::Fail(errno::ENOENT)).on("is_likely_mount_point"));
        let error = lookup::path_exists(&*ground.host, &path).await.unwrap_err();
        assert_eq!(error.errno(), Some(errno::ESTALE));
        assert!(error.is_corrupted_mount());
    });
}

#[test]
fn seven_error_numbers_mean_a_dead_mount() {
    let dead = [
        errno::ENOTCONN,
        errno::ESTALE,
        errno::EIO,
        errno::EACCES,
        errno::EHOSTDOWN,
        errno::EAGAIN,
        errno::ENODEV,
    ];
    for number in 1..134 {
        let error = HostError::os(Action::Stat, "/p", errno::Errno(number));
        assert_eq!(error.is_corrupted_mount(), dead.contains(&number), "{number}");
    }
}

#[test]
fn references_are_the_other_mounts_of_the_same_directory() {
    on_both(async |ground| {
        let (one, other) = (ground.tmpfs("one").await, ground.tmpfs("other").await);
        let sub = ground.dir("one/sub").await;
        let options = MountOptions::default();
        let mut bound = Vec::new();
        for (name, source) in [("one-a", &one), ("one-b", &one), ("sub-a", &sub), ("other-a", &other)] {
            let target = ground.dir(name).await;
            bind::mount(&*ground.host, source, &target, &options).await.unwrap();
            bound.push(target);
        }
        let [one_a, one_b, sub_a, other_a] = &bound[..] else { unreachable!() };
        let link = ground.path("link");
        ground.host.symlink(&one, &link).await.unwrap();
        for (path, expected) in [
            (&one, vec![one_a, one_b]),
            (&link, vec![one_a, one_b]),
            (one_a, vec![&one, one_b]),
            (&sub, vec![sub_a]),
            (sub_a, vec![]),
            (&other, vec![other_a]),
            (&ground.path("missing"), vec![]),
        ] {
            let mut found = lookup::mount_refs(&*ground.host, path).await.unwrap();
            found.sort();
            assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{}", path.display());
        }
        let corpse = ground.corpse("corpse").await;
        assert!(lookup::mount_refs(&*ground.host, &corpse).await.unwrap().is_empty());
        let below = ground.file("file", "").await.join("below");
        assert!(lookup::mount_refs(&*ground.host, &below).await.unwrap_err().is_not_a_directory());
    });
}

#[test]
fn mounts_below_the_root_of_another_node_are_no_references() {
    on_the_kernel(async |ground| {
        let (volume, other_root) = (ground.tmpfs("volume").await, ground.dir("node-2/kubelet").await);
        for name in ["pod", "node-2/kubelet/pod", "node-2/kubelet-of-node-1/pod"] {
            let target = ground.dir(name).await;
            bind::mount(&*ground.host, &volume, &target, &MountOptions::default()).await.unwrap();
        }
        let host = LinuxHost::new().beside(&[other_root]);
        let mut found = host.references(&volume).await.unwrap();
        found.sort();
        assert_eq!(found, [ground.path("node-2/kubelet-of-node-1/pod"), ground.path("pod")]);
    });
}

/// Newer kernels find them without the table.
#[test]
fn references_equal_those_of_the_table() {
    on_both(async |ground| {
        let (one, over) = (ground.tmpfs("one").await, ground.tmpfs("over").await);
        let mut paths = vec![ground.root.clone(), one.clone(), over.clone()];
        for name in
            ["plain", "a blank", "a\ttab", "a\nline", "a\\backslash", "a#hash", "ä", "deleted", "covered"]
        {
            let source = ground.dir(&format!("one/{name}")).await;
            for place in ["first", "second"] {
                let target = ground.dir(&format!("{place}/{name}")).await;
                bind::mount(&*ground.host, &source, &target, &MountOptions::default()).await.unwrap();
                paths.push(target);
            }
            paths.push(source);
        }
        let same = async || {
            let table = ground.host.mount_table().await.unwrap();
            let mut most = 0;
            for path in &paths {
                let mut found = ground.host.references(path).await.unwrap();
                let mut listed = table.references(path);
                found.sort();
                listed.sort();
                assert_eq!(found, listed, "{}", path.display());
                most = most.max(found.len());
            }
            most
        };
        assert_eq!(same().await, 2, "each directory is bound twice");
        ground.host.remove_dir(&one.join("deleted")).await.unwrap();
        bind::mount(&*ground.host, &over, &ground.path("first/covered"), &MountOptions::default())
            .await
            .unwrap();
        same().await;
        for name in ["plain", "a blank", "deleted"] {
            ground.host.unmount(&ground.path("second").join(name)).await.unwrap();
        }
        bind::mount(&*ground.host, &one, &ground.dir("third").await, &MountOptions::default()).await.unwrap();
        same().await;
        assert!(ground.host.references(&ground.path("missing")).await.unwrap().is_empty());
    });
}

#[test]
fn device_of_a_mount_is_found_with_the_number_of_its_mounts() {
    on_both(async |ground| {
        let (source, target) = (ground.dir("source").await, ground.dir("target").await);
        let spec = host::MountSpec::new("a-name-of-its-own", &source, "tmpfs");
        ground.host.mount(&spec).await.unwrap();
        bind::mount(&*ground.host, &source, &target, &MountOptions::default()).await.unwrap();
        let found = lookup::device_of_mount(&*ground.host, &target).await.unwrap();
        assert_eq!(found, Some(("a-name-of-its-own".into(), 2)));
        assert_eq!(lookup::device_of_mount(&*ground.host, &ground.dir("plain").await).await.unwrap(), None);
    });
}

#[test]
fn root_becomes_a_shared_mount_once() {
    on_both(async |ground| {
        let root = ground.dir("kubelet").await;
        for _ in 0..2 {
            lookup::make_root_shared(&*ground.host, &root).await.unwrap();
            let table = ground.host.mount_table().await.unwrap();
            assert_eq!(table.layers(&root), 1);
            assert!(table.at(&root).unwrap().shared.is_some());
        }
    });
}

#[test]
fn root_below_a_shared_mount_is_left_unchanged() {
    on_both(async |ground| {
        ground.host.set_propagation(&ground.root, Propagation::Shared, false).await.unwrap();
        let root = ground.dir("kubelet").await;
        lookup::make_root_shared(&*ground.host, &root).await.unwrap();
        assert_eq!(ground.host.mount_table().await.unwrap().layers(&root), 0);
    });
}

#[test]
fn labels_are_supported_with_selinux_on_and_seclabel_on_the_mount() {
    on_the_fake(async |ground| {
        let path = ground.tmpfs("labelled").await;
        let kernel = ground.kernel().unwrap();
        assert!(!lookup::supports_selinux(&*ground.host, &path).await.unwrap());
        kernel.set_selinux(&path, true).unwrap();
        assert!(lookup::supports_selinux(&*ground.host, &path.join(".")).await.unwrap());
        assert!(!lookup::supports_selinux(&*ground.host, &ground.root).await.unwrap(), "not this mount");
    });
}

#[test]
fn label_of_a_mount_is_read_without_quotes() {
    on_the_fake(async |ground| {
        let path = ground.dir("labelled").await;
        let label = "system_u:object_r:container_file_t:s0:c1,c2";
        let spec = host::MountSpec::new("tmpfs", &path, "tmpfs")
            .with_options(MountOptions::new([format!("context=\"{label}\"")]));
        ground.host.mount(&spec).await.unwrap();
        assert_eq!(lookup::mount_context(&*ground.host, &path).await.unwrap().as_deref(), Some(label));
        assert_eq!(lookup::mount_context(&*ground.host, &ground.root).await.unwrap(), None);
    });
}
