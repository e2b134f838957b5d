//! Files made from API objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::pod::{Content, DownwardItem, KeyFile, Projection};
use api::{ConfigMap, Meta, Node, Resource, Secret, Sensitive, VolumeSource};
use expect_test::expect;
use plugin_api::Before;

use crate::operation::Operation;
use crate::plugin::testing::Bench;

const MAP: &str = "pods/u1/volumes/kubernetes.io~configmap/data";

fn put_map(bench: &Bench, data: &[(&str, &str)]) {
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let meta = Meta::named("default", "cm");
    bench.put(ConfigMap { meta, data, binary: BTreeMap::from([("bin".into(), vec![0, 255])]) }.into_object());
}

fn map(items: &[(&str, &str, Option<u32>)], optional: bool) -> VolumeSource {
    let item = |(key, path, mode): &(&str, &str, Option<u32>)| KeyFile {
        key: (*key).into(),
        path: (*path).into(),
        mode: *mode,
    };
    let items = items.iter().map(item).collect();
    VolumeSource::ConfigMap(Content { name: "cm".into(), items, default_mode: 0o644, optional })
}

#[tokio::test]
async fn a_config_map_is_links_through_one_generation() {
    let mut bench = Bench::new();
    put_map(&bench, &[("k", "v")]);
    bench.inline(map(&[], false));
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    expect![[r#"
        mark pod uncertain
        mark pod mounted read-only to be labelled
        done
    "#]]
    .assert_eq(&story);
    expect![[r#"
        $R/pods 755/
        $R/pods/u1 755/
        $R/pods/u1/plugins 750/
        $R/pods/u1/plugins/kubernetes.io~empty-dir 750/
        $R/pods/u1/plugins/kubernetes.io~empty-dir/wrapped_data 750/
        $R/pods/u1/plugins/kubernetes.io~empty-dir/wrapped_data/ready 644
        $R/pods/u1/volumes 755/
        $R/pods/u1/volumes/kubernetes.io~configmap 755/
        $R/pods/u1/volumes/kubernetes.io~configmap/data 777/
        $R/pods/u1/volumes/kubernetes.io~configmap/data/..data -> ..generation_000001
        $R/pods/u1/volumes/kubernetes.io~configmap/data/..generation_000001 755/
        $R/pods/u1/volumes/kubernetes.io~configmap/data/..generation_000001/bin 644
        $R/pods/u1/volumes/kubernetes.io~configmap/data/..generation_000001/k 644
        $R/pods/u1/volumes/kubernetes.io~configmap/data/bin -> ..data/bin
        $R/pods/u1/volumes/kubernetes.io~configmap/data/k -> ..data/k
    "#]]
    .assert_eq(&bench.tree().await);
    bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
    assert_eq!(bench.files().await, [""; 0]);
}

#[tokio::test]
async fn a_change_replaces_the_generation_and_nothing_else_does() {
    let mut bench = Bench::new();
    let host = Arc::clone(&bench.context.host);
    put_map(&bench, &[("k", "1"), ("old", "x")]);
    bench.inline(map(&[], false));
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    let data = bench.path(MAP).join("..data");
    let first = host.read_link(&data).await.unwrap();

    let mut again = bench.mounting();
    again.before = Before::Mounted;
    let again = Arc::new(again);
    bench.run(Operation::Mount(Arc::clone(&again))).await;
    assert_eq!(host.read_link(&data).await.unwrap(), first, "nothing has changed");

    put_map(&bench, &[("k", "2"), ("new", "y")]);
    bench.run(Operation::Mount(Arc::clone(&again))).await;
    let second = host.read_link(&data).await.unwrap();
    assert_ne!(second, first);
    assert_eq!(host.read_file(&bench.path(MAP).join("k")).await.unwrap(), b"2");
    assert!(host.symlink_metadata(&bench.path(MAP).join("old")).await.unwrap_err().is_not_found());
    assert!(host.symlink_metadata(&bench.path(MAP).join(first)).await.unwrap_err().is_not_found());

    // The leftover of a crash between two steps is replaced.
    host.symlink(std::path::Path::new("nowhere"), &bench.path(MAP).join("..data_tmp")).await.unwrap();
    put_map(&bench, &[("k", "3")]);
    let story = bench.run(Operation::Mount(again)).await;
    assert!(story.ends_with("done\n"), "{story}");
    assert_eq!(host.read_file(&bench.path(MAP).join("k")).await.unwrap(), b"3");
}

#[tokio::test]
async fn items_choose_keys_names_and_modes() {
    let mut bench = Bench::new();
    put_map(&bench, &[("k", "v")]);
    bench.inline(map(&[("k", "sub/p", Some(0o400)), ("bin", "b", None)], false));
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    let host = &bench.context.host;
    let root = bench.path(MAP);
    assert_eq!(host.read_link(&root.join("sub")).await.unwrap(), std::path::Path::new("..data/sub"));
    assert_eq!(host.metadata(&root.join("sub/p")).await.unwrap().mode, 0o400);
    assert_eq!(host.read_file(&root.join("b")).await.unwrap(), [0, 255]);
}

#[tokio::test]
async fn missing_object_is_named_before_anything_changes() {
    let mut bench = Bench::new();
    bench.inline(map(&[], false));
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    expect![[r#"
        mark pod failed: Transient
        event Pod Warning FailedMount: MountVolume.SetUp failed for volume "data" : configmaps "cm" not found
        failed Transient: MountVolume.SetUp failed for volume "data" : configmaps "cm" not found
    "#]]
    .assert_eq(&story);
    put_map(&bench, &[("k", "v")]);
    bench.inline(map(&[("nope", "p", None)], false));
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.contains("configmap references non-existent config key: nope"), "{story}");
    assert_eq!(bench.tree().await, "");
    bench.inline(map(&[("nope", "p", None), ("k", "k", None)], true));
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.ends_with("mark pod mounted read-only to be labelled\ndone\n"), "{story}");
}

#[tokio::test]
async fn a_bad_path_leaves_nothing_of_a_new_volume_and_all_of_an_old_one() {
    for before in [Before::Absent, Before::Mounted] {
        let mut bench = Bench::new();
        put_map(&bench, &[("k", "v")]);
        if before == Before::Mounted {
            bench.inline(map(&[], false));
            bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        }
        let there = bench.files().await;
        for path in ["../x", "/x", "..x", "a/../../x"] {
            bench.inline(map(&[("k", path, None)], false));
            let mut mount = bench.mounting();
            mount.before = before;
            let story = bench.run(Operation::Mount(Arc::new(mount))).await;
            assert!(story.contains("invalid path"), "{path}: {story}");
            assert_eq!(bench.files().await, there, "{before:?} {path}");
        }
    }
}

#[tokio::test]
async fn secrets_are_in_memory_only_and_widened_for_the_group() {
    let mut bench = Bench::new();
    if !bench.private_mounts().await {
        return;
    }
    let data = BTreeMap::from([("password".to_owned(), Sensitive::new(b"hunter2".to_vec()))]);
    bench.put(Secret { meta: Meta::named("default", "s"), data }.into_object());
    bench.inline(VolumeSource::Secret(Content {
        name: "s".into(),
        default_mode: 0o400,
        ..Content::default()
    }));
    bench.pod.security.fs_group = Some(4711);
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(!story.contains("hunter2"), "{story}");
    let dir = "pods/u1/volumes/kubernetes.io~secret/data";
    assert!(bench.mount_at(dir).await.is_some_and(|mount| mount.starts_with("tmpfs ")));
    let root = bench.context.host.metadata(&bench.path(dir)).await.unwrap();
    assert_eq!((root.gid, root.mode), (4711, 0o3777));
    let file = bench.context.host.metadata(&bench.path(dir).join("password")).await.unwrap();
    assert_eq!((file.gid, file.mode), (4711, 0o440), "readable for the group, and not writable");
    let link = bench.context.host.symlink_metadata(&bench.path(dir).join("password")).await.unwrap();
    assert_eq!(link.gid, 4711, "its directory passes the group on");
    bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
    assert_eq!(bench.mount_at(dir).await, None);
    assert_eq!(bench.files().await, [""; 0]);
}

#[tokio::test]
async fn a_projection_mixes_sources_and_the_later_one_wins() {
    let mut bench = Bench::new();
    if !bench.private_mounts().await {
        return;
    }
    put_map(&bench, &[("name", "from the map"), ("k", "v")]);
    let field =
        DownwardItem { path: "name".into(), field: "metadata.name".into(), ..DownwardItem::default() };
    let amount =
        DownwardItem { path: "cpu".into(), resource: "limits.cpu".into(), ..DownwardItem::default() };
    let mut node = Node::default();
    node.allocatable.cpu = 3500;
    bench.know(|facts| facts.node = Some(Arc::new(node)));
    let sources = vec![
        Projection::ConfigMap(Content { name: "cm".into(), ..Content::default() }),
        Projection::DownwardApi { items: vec![field, amount] },
        Projection::ServiceAccountToken { audience: "aud".into(), expiration: 600, path: "token".into() },
    ];
    bench.inline(VolumeSource::Projected { sources, default_mode: 0o644 });
    bench.pod.security.run_as_user = Some(1000);
    bench.pod.containers = vec![api::Container::default()];
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    let root = bench.path("pods/u1/volumes/kubernetes.io~projected/data");
    let host = Arc::clone(&bench.context.host);
    assert_eq!(host.read_file(&root.join("name")).await.unwrap(), b"web");
    assert_eq!(host.read_file(&root.join("k")).await.unwrap(), b"v");
    assert_eq!(host.read_file(&root.join("cpu")).await.unwrap(), b"4", "what the node has is the limit");
    assert_eq!(host.read_file(&root.join("token")).await.unwrap(), b"secret-token-for-aud");
    let token = host.metadata(&root.join("token")).await.unwrap();
    assert_eq!((token.uid, token.mode), (1000, 0o600));
    bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
}

#[tokio::test]
async fn all_errors_of_a_projection_are_reported_together() {
    let mut bench = Bench::new();
    let field = DownwardItem { path: "x".into(), field: "spec.x".into(), ..DownwardItem::default() };
    let sources = vec![
        Projection::ConfigMap(Content { name: "cm".into(), ..Content::default() }),
        Projection::DownwardApi { items: vec![field] },
        Projection::Other { kind: "podCertificate".into() },
    ];
    bench.inline(VolumeSource::Projected { sources, default_mode: 0o644 });
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    expect![[r#"
        mark pod failed: Transient
        event Pod Warning FailedMount: MountVolume.SetUp failed for volume "data" : [configmaps "cm" not found, unsupported fieldPath: spec.x, no volume projection of kind podCertificate]
        failed Transient: MountVolume.SetUp failed for volume "data" : [configmaps "cm" not found, unsupported fieldPath: spec.x, no volume projection of kind podCertificate]
    "#]].assert_eq(&story);
}

/// A token is for one user, or for the pod's group where containers run as several.
#[test]
fn a_pods_user_is_the_one_that_all_its_containers_agree_on() {
    use api::{Container, Pod};
    let agreed = |of_the_pod: Option<u32>, of_containers: &[Option<u32>]| {
        let mut pod = Pod::default();
        pod.security.run_as_user = of_the_pod;
        let container = |user: &Option<u32>| Container { run_as_user: *user, ..Container::default() };
        pod.containers = of_containers.iter().map(container).collect();
        pod.common_user()
    };
    for (of_the_pod, of_containers, user) in [
        (None, &[][..], None),
        (None, &[Some(1)], Some(1)),
        (None, &[Some(1), Some(1)], Some(1)),
        (None, &[Some(1), Some(2)], None),
        (None, &[Some(1), None], None),
        (None, &[None, Some(1)], None),
        (Some(1), &[None, None], Some(1)),
        (Some(1), &[None, Some(2)], None),
        (Some(1), &[Some(2), Some(2)], Some(2)),
    ] {
        assert_eq!(agreed(of_the_pod, of_containers), user, "{of_the_pod:?} {of_containers:?}");
    }
}
