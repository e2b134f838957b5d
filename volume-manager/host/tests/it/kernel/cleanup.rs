//! Cleaning up a mount point in any state.

use std::future::{pending, ready};

use host::cleanup::{self, Check};
use host::fake::{Order, Rule};
use host::{HostError, errno, lookup};

use super::ground::{on_both, on_the_fake};

const CHECKS: [Check; 2] = [Check::Likely, Check::Extensive];

#[test]
fn missing_mount_point_is_clean() {
    on_both(async |ground| {
        for check in CHECKS {
            cleanup::mount_point(&*ground.host, &ground.path("missing"), check).await.unwrap();
        }
    });
}

#[test]
fn plain_directory_is_removed_only_if_empty() {
    on_both(async |ground| {
        for check in CHECKS {
            let dir = ground.dir("plain").await;
            let file = ground.file("plain/data", "kept").await;
            let error = cleanup::mount_point(&*ground.host, &dir, check).await.unwrap_err();
            assert!(error.is_not_empty(), "{error:?}");
            ground.host.remove_file(&file).await.unwrap();
            cleanup::mount_point(&*ground.host, &dir, check).await.unwrap();
            assert!(ground.host.metadata(&dir).await.unwrap_err().is_not_found());
        }
    });
}

#[test]
fn mount_is_removed_with_its_directory_and_its_content_stays() {
    on_both(async |ground| {
        for check in CHECKS {
            let (source, target) = (ground.tmpfs("source").await, ground.dir("target").await);
            ground.file("source/data", "kept").await;
            host::bind::mount(&*ground.host, &source, &target, &Default::default()).await.unwrap();
            cleanup::mount_point(&*ground.host, &target, check).await.unwrap();
            assert!(ground.host.metadata(&target).await.unwrap_err().is_not_found());
            assert_eq!(ground.host.read_file(&source.join("data")).await.unwrap(), b"kept");
        }
    });
}

#[test]
fn bind_over_a_file_is_removed_with_that_file() {
    on_both(async |ground| {
        for check in CHECKS {
            let (source, target) = (ground.file("source", "kept").await, ground.file("target", "").await);
            host::bind::mount(&*ground.host, &source, &target, &Default::default()).await.unwrap();
            cleanup::mount_point(&*ground.host, &target, check).await.unwrap();
            assert!(ground.host.metadata(&target).await.unwrap_err().is_not_found());
            assert_eq!(ground.host.read_file(&source).await.unwrap(), b"kept");
        }
    });
}

#[test]
fn clean_up_removes_one_layer_of_mounts_per_call() {
    on_both(async |ground| {
        for check in CHECKS {
            let path = ground.tmpfs("stack").await;
            ground.tmpfs("stack").await;
            let error = cleanup::mount_point(&*ground.host, &path, check).await.unwrap_err();
            assert!(matches!(error, HostError::StillMounted { .. }), "{error:?}");
            assert_eq!(error.to_string(), format!("failed to cleanup mount point `{}`", path.display()));
            assert_eq!(ground.host.mount_table().await.unwrap().layers(&path), 1);
            cleanup::mount_point(&*ground.host, &path, check).await.unwrap();
        }
    });
}

#[test]
fn dead_mount_is_removed() {
    on_both(async |ground| {
        for check in CHECKS {
            let corpse = ground.corpse("corpse").await;
            assert!(ground.host.metadata(&corpse).await.unwrap_err().is_corrupted_mount());
            cleanup::mount_point(&*ground.host, &corpse, check).await.unwrap();
            assert!(ground.host.metadata(&corpse).await.unwrap_err().is_not_found());
        }
    });
}

#[test]
fn clean_up_fails_if_stat_fails() {
    on_both(async |ground| {
        let below = ground.file("file", "").await.join("below");
        let error = cleanup::mount_point(&*ground.host, &below, Check::Likely).await.unwrap_err();
        assert!(error.is_not_a_directory(), "{error:?}");
    });
}

#[test]
fn busy_mount_stays() {
    on_both(async |ground| {
        let path = ground.tmpfs("busy").await;
        let held = ground.host.open_beneath(&path, "".as_ref()).await.unwrap();
        let error = cleanup::mount_point(&*ground.host, &path, Check::Extensive).await.unwrap_err();
        assert!(error.is_busy(), "{error:?}");
        assert!(ground.host.is_mount_point(&path).await.unwrap());
        drop(held);
        cleanup::mount_point(&*ground.host, &path, Check::Extensive).await.unwrap();
    });
}

#[test]
fn directory_that_was_removed_meanwhile_is_clean() {
    on_the_fake(async |ground| {
        let path = ground.tmpfs("target").await;
        ground.fake.as_ref().unwrap().faults().add(Rule::new(Order::Fail(errno::ENOENT)).on("remove_dir"));
        cleanup::mount_point(&*ground.host, &path, Check::Likely).await.unwrap();
    });
}

#[test]
fn force_is_used_only_after_the_deadline() {
    on_the_fake(async |ground| {
        let path = ground.tmpfs("nfs").await;
        let faults = ground.fake.as_ref().unwrap().faults();
        faults.add(Rule::new(Order::Fail(errno::EBUSY)).on("unmount").times(1));
        faults.add(Rule::new(Order::Hang).on("unmount").times(1));
        // A failure before the deadline is returned, and force is not used.
        let force =
            |deadline| cleanup::mount_point_with_force(&*ground.host, &path, Check::Extensive, deadline);
        let never: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(pending());
        assert!(force(never).await.unwrap_err().is_busy());
        assert!(ground.host.is_mount_point(&path).await.unwrap());
        force(Box::pin(ready(()))).await.unwrap();
        assert!(ground.host.metadata(&path).await.unwrap_err().is_not_found());
    });
}

#[test]
fn forced_unmount_succeeds_after_a_hung_one_has_removed_the_mount() {
    on_the_fake(async |ground| {
        let path = ground.tmpfs("nfs").await;
        let faults = ground.fake.as_ref().unwrap().faults();
        faults.add(Rule::new(Order::HangAfter).on("unmount").times(1));
        cleanup::mount_point_with_force(&*ground.host, &path, Check::Extensive, ready(())).await.unwrap();
        assert!(ground.host.metadata(&path).await.unwrap_err().is_not_found());
    });
}

#[test]
fn clean_up_does_not_stat_through_a_hung_server() {
    on_the_fake(async |ground| {
        let path = ground.tmpfs("nfs").await;
        let faults = ground.fake.as_ref().unwrap().faults();
        for method in ["metadata", "symlink_metadata", "statfs", "access", "read_dir"] {
            faults.add(Rule::new(Order::Hang).on(method));
        }
        lookup::mount_refs(&*ground.host, &path).await.unwrap();
        cleanup::mount_point(&*ground.host, &path, Check::Extensive).await.unwrap();
        assert_eq!(ground.host.mount_table().await.unwrap().layers(&path), 0);
    });
}

#[test]
fn forced_unmount_of_a_live_mount_unmounts_it() {
    on_both(async |ground| {
        let path = ground.tmpfs("nfs").await;
        cleanup::mount_point_with_force(&*ground.host, &path, Check::Extensive, pending()).await.unwrap();
        assert!(ground.host.metadata(&path).await.unwrap_err().is_not_found());
    });
}
