//! NFS exports on a simulated node: their mount options, and the leftovers of a failed mount.

use std::sync::Arc;
use std::time::Duration;

use api::{PersistentSource, VolumeSource};
use expect_test::expect;
use host::fake::{FakeHost, Order, Rule};
use nix::libc::{EBUSY, EIO};
use plugin_api::Spec;

use crate::operation::Operation;
use crate::plugin::testing::Bench;

const DIR: &str = "pods/u1/volumes/kubernetes.io~nfs/pv";

/// An export of a server, used by the bench's volume.
fn export(server: &str) -> (Bench, FakeHost) {
    let (mut bench, host) = Bench::simulated();
    bench.change_volume(|volume| {
        let (server, path) = (server.to_owned(), "/data".to_owned());
        volume.source = PersistentSource::Nfs { server, path, read_only: false };
    });
    (bench, host)
}

/// The mount at the pod's directory: source, type and all options.
async fn mounted(bench: &Bench) -> Option<String> {
    let table = bench.context.host.mount_table().await.unwrap();
    let source = table.at(&bench.path(DIR))?.source.display().to_string();
    Some(format!("{source} {}", bench.mount_at(DIR).await?))
}

#[tokio::test]
async fn export_is_mounted_once_for_its_pod_and_unmount_removes_the_directory() {
    let (mut bench, host) = export("server");
    bench.pod.security.fs_group = Some(4711);
    for _ in 0..2 {
        let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        assert!(story.ends_with("mark pod mounted\ndone\n"), "{story}");
        assert_eq!(mounted(&bench).await.as_deref(), Some("server:/data nfs rw,relatime rw"));
        assert_eq!(host.kernel().mount_table().layers(&bench.path(DIR)), 1);
    }
    let root = host.kernel().metadata(&bench.path(DIR)).unwrap();
    assert_eq!(root.gid, 0, "an export's files are the server's");

    bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
    expect![[r#"
        $R/pods 750/
        $R/pods/u1 750/
        $R/pods/u1/volumes 750/
        $R/pods/u1/volumes/kubernetes.io~nfs 750/
    "#]]
    .assert_eq(&bench.tree().await);
}

#[tokio::test]
async fn address_with_colons_is_in_brackets() {
    for (server, source) in [("fe80::1", "[fe80::1]:/data"), ("[fe80::1]", "[fe80::1]:/data")] {
        let (mut bench, _) = export(server);
        bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        assert!(mounted(&bench).await.unwrap().starts_with(&format!("{source} ")), "{server}");
    }
}

#[tokio::test]
async fn options_of_the_annotation_are_used_once_each_in_order_with_ro_for_read_only() {
    for (annotation, read_only, options) in [
        (None, false, "rw,soft,timeo=5"),
        (None, true, "ro,soft,timeo=5"),
        (Some("vers=3,hard,vers=3"), true, "ro,hard,vers=3"),
    ] {
        let (mut bench, _) = export("server");
        bench.change_volume(|volume| {
            volume.mount_options = vec!["timeo=5".into(), "soft".into(), "timeo=5".into()];
            let key = "volume.beta.kubernetes.io/mount-options".to_owned();
            volume.meta.annotations.extend(annotation.map(|list| (key, list.to_owned())));
        });
        bench.spec = Arc::new(Spec { read_only, ..(*bench.spec).clone() });
        let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        assert_eq!(story.contains("mounted read-only"), read_only, "{story}");
        let mounted = mounted(&bench).await.unwrap();
        assert!(mounted.ends_with(&format!(" {options}")), "{annotation:?} {read_only}: {mounted}");
    }
}

#[tokio::test]
async fn inline_export_is_read_only_if_its_source_is() {
    for read_only in [false, true] {
        let (mut bench, _) = Bench::simulated();
        let (server, path) = ("server".to_owned(), "/data".to_owned());
        bench.inline(VolumeSource::Nfs { server, path, read_only });
        let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        assert_eq!(story.contains("mounted read-only"), read_only, "{story}");
        let mount = bench.mount_at("pods/u1/volumes/kubernetes.io~nfs/data").await.unwrap();
        assert_eq!(mount.starts_with("nfs ro"), read_only, "{mount}");
    }
}

#[tokio::test]
async fn mount_that_failed_after_its_effect_is_undone_and_its_error_reported() {
    for (order, stays) in
        [(Order::Fail(EIO), false), (Order::FailAfter(EIO), false), (Order::FailAfter(EIO), true)]
    {
        let (mut bench, host) = export("server");
        host.faults().add(Rule::new(order).on("mount").times(1));
        host.faults().add(Rule::new(Order::Fail(EBUSY)).on("unmount").times(u32::from(stays)));
        let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        let class = if stays { "Uncertain" } else { "Final" };
        assert!(story.contains(&format!("mark pod failed: {class}")), "{story}");
        assert!(story.contains("Input/output error"), "{story}");
        assert_eq!(host.kernel().is_mount_point(&bench.path(DIR)), stays);
        assert_eq!(
            host.kernel().metadata(&bench.path(DIR)).is_ok(),
            stays,
            "the directory stays with the mount"
        );
    }
}

/// The server has a minute to answer, then the unmount is forced.
#[tokio::test(start_paused = true)]
async fn hanging_unmount_is_forced_after_a_minute() {
    let (mut bench, host) = export("server");
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    host.faults().add(Rule::new(Order::Hang).on("unmount"));
    let began = bench.now();
    let story = bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
    assert!(story.ends_with("done\n"), "{story}");
    assert_eq!(bench.now().duration_since(began), Duration::from_secs(60));
    assert!(!host.kernel().is_mount_point(&bench.path(DIR)));
}
