//! Updates of files made from API objects, on a simulated node that fails on order.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use api::pod::{Content, KeyFile, Projection, VolumeMount};
use api::{ConfigMap, Container, Meta, Resource, Secret, VolumeSource};
use host::Host;
use host::fake::{FakeHost, Order, Rule};
use nix::libc::EIO;
use plugin_api::Before;

use crate::operation::Operation;
use crate::plugin::testing::Bench;

const MAP: &str = "pods/u1/volumes/kubernetes.io~configmap/data";

/// A pod with a config map of these keys, mounted.
async fn mounted(keys: &[(&str, &str)]) -> (Bench, FakeHost) {
    let (mut bench, host) = Bench::simulated();
    put(&bench, keys);
    bench.inline(map(&[], 0o644));
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.ends_with("done\n"), "{story}");
    (bench, host)
}

fn put(bench: &Bench, keys: &[(&str, &str)]) {
    let data = keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let meta = Meta::named("default", "cm");
    bench.put(ConfigMap { meta, data, binary: BTreeMap::new() }.into_object());
}

/// The config map with these keys under these names; with all of them if none is given.
fn map(items: &[(&str, &str)], default_mode: u32) -> VolumeSource {
    let item = |(key, path): &(&str, &str)| KeyFile { key: (*key).into(), path: (*path).into(), mode: None };
    let items = items.iter().map(item).collect();
    VolumeSource::ConfigMap(Content { name: "cm".into(), items, default_mode, optional: false })
}

/// Syncs the pod, whose volume it has.
async fn sync(bench: &mut Bench) -> String {
    let mut again = bench.mounting();
    again.before = Before::Mounted;
    bench.run(Operation::Mount(Arc::new(again))).await
}

async fn generation(host: &FakeHost, bench: &Bench) -> PathBuf {
    host.read_link(&bench.path(MAP).join("..data")).await.unwrap()
}

#[tokio::test]
async fn another_mode_alone_changes_nothing() {
    let (mut bench, host) = mounted(&[("k", "v")]).await;
    let before = (generation(&host, &bench).await, bench.tree().await);
    bench.inline(map(&[], 0o400));
    sync(&mut bench).await;
    assert_eq!((generation(&host, &bench).await, bench.tree().await), before);

    put(&bench, &[("k", "w")]);
    sync(&mut bench).await;
    assert_eq!(host.metadata(&bench.path(MAP).join("k")).await.unwrap().mode, 0o400, "with the next content");
}

#[tokio::test]
async fn a_file_of_a_directory_goes_and_its_directory_stays_until_it_is_empty() {
    let (mut bench, host) = mounted(&[("a", "1"), ("b", "2")]).await;
    let root = bench.path(MAP);
    let visible = async |host: &FakeHost| {
        let names = host.read_dir(&root).await.unwrap();
        let names = names.iter().map(|entry| entry.name.to_str().unwrap().to_owned());
        names.filter(|name| !name.starts_with("..")).collect::<Vec<_>>()
    };
    for (items, shown, deep) in [
        (&[("a", "sub/a"), ("b", "sub/b")][..], &["sub"][..], true),
        (&[("a", "sub/a")], &["sub"], false),
        (&[("a", "other")], &["other"], false),
    ] {
        bench.inline(map(items, 0o644));
        let story = sync(&mut bench).await;
        assert!(story.ends_with("done\n"), "{story}");
        assert_eq!(visible(&host).await, shown);
        assert_eq!(host.metadata(&root.join("sub/b")).await.is_ok(), deep);
        assert_eq!(host.read_file(&root.join(items[0].1)).await.unwrap(), b"1");
    }
}

/// The kubelet leaves the generation behind where it could not be filled, and the link where it could not be shown.
#[tokio::test]
async fn an_attempt_that_fails_leaves_the_old_files_and_nothing_else() {
    for method in ["write_file", "chmod", "change_ownership", "symlink", "rename"] {
        let (mut bench, host) = mounted(&[("k", "older")]).await;
        bench.pod.security.fs_group = Some(4711);
        put(&bench, &[("k", "old")]);
        sync(&mut bench).await;
        let before = bench.tree().await;
        put(&bench, &[("k", "new")]);
        host.faults().add(Rule::new(Order::Fail(EIO)).on(method).below(bench.path(MAP)).times(1));
        let story = sync(&mut bench).await;
        assert!(story.contains("cannot write the files of the volume"), "{method}: {story}");
        assert_eq!(bench.tree().await, before, "{method}");
        assert_eq!(host.read_file(&bench.path(MAP).join("k")).await.unwrap(), b"old", "{method}");

        let story = sync(&mut bench).await;
        assert!(story.ends_with("done\n"), "{method}: {story}");
        assert_eq!(host.read_file(&bench.path(MAP).join("k")).await.unwrap(), b"new", "{method}");
    }
}

#[tokio::test]
async fn other_volumes_below_a_volume_have_their_places_in_it() {
    let (mut bench, host) = Bench::simulated();
    put(&bench, &[("k", "v")]);
    bench.inline(map(&[], 0o644));
    let mount = |volume: &str, path: &str| VolumeMount {
        volume: volume.to_owned(),
        path: path.to_owned(),
        ..VolumeMount::default()
    };
    let mounts = vec![mount("data", "/etc/app"), mount("other", "/etc/app/sub")];
    bench.pod.containers = vec![Container { mounts, ..Container::default() }];
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    let place = host.metadata(&bench.path(MAP).join("sub")).await.unwrap();
    assert!(place.is_dir() && place.mode == 0o755, "{place:?}");
    sync(&mut bench).await;
    assert!(host.metadata(&bench.path(MAP).join("sub")).await.is_ok(), "it is no key that is gone");

    // A place outside of the volume is refused after its directory was made, which stays to be taken away.
    bench.pod.containers[0].mounts[0].path = "../app".to_owned();
    bench.pod.meta.uid = "u2".into();
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.contains("invalid container mount point ../app"), "{story}");
    assert!(story.contains("mark pod failed: Uncertain"), "{story}");
    assert!(host.metadata(&bench.path(MAP.replace("u1", "u2"))).await.is_ok());
}

#[tokio::test]
async fn a_token_is_asked_for_at_each_sync_and_its_link_is_its_readers() {
    let (mut bench, host) = Bench::simulated();
    let token = |path: &str| Projection::ServiceAccountToken {
        audience: "aud".into(),
        expiration: 600,
        path: path.to_owned(),
    };
    bench.inline(VolumeSource::Projected { sources: vec![token("token")], default_mode: 0o644 });
    bench.pod.security.run_as_user = Some(1000);
    bench.pod.containers = vec![Container::default()];
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    let root = bench.path("pods/u1/volumes/kubernetes.io~projected/data");
    let link = host.symlink_metadata(&root.join("token")).await.unwrap();
    assert_eq!((link.uid, link.gid), (1000, 0));
    assert_eq!(bench.api.tokens().len(), 1);
    sync(&mut bench).await;
    assert_eq!(bench.api.tokens().len(), 2);

    // Without a user that all containers share, the file has the mode of all files.
    bench.pod.security.run_as_user = None;
    bench.inline(VolumeSource::Projected { sources: vec![token("other")], default_mode: 0o640 });
    sync(&mut bench).await;
    let file = host.metadata(&root.join("other")).await.unwrap();
    assert_eq!((file.uid, file.mode), (0, 0o640));
}

#[tokio::test]
async fn a_secret_names_its_missing_keys_and_may_be_missing_itself() {
    let (mut bench, host) = Bench::simulated();
    let secret = |optional| {
        let items = vec![KeyFile { key: "k".into(), path: "p".into(), mode: None }];
        VolumeSource::Secret(Content { name: "s".into(), items, default_mode: 0o644, optional })
    };
    bench.inline(secret(true));
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.ends_with("done\n"), "{story}");
    let dir = bench.path("pods/u1/volumes/kubernetes.io~secret/data");
    let data = host.read_dir(&dir.join("..data")).await.unwrap();
    assert!(data.is_empty(), "{data:?}");
    bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;

    bench.put(Secret { meta: Meta::named("default", "s"), data: BTreeMap::new() }.into_object());
    bench.inline(secret(false));
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.contains(": references non-existent secret key: k"), "{story}");
    assert!(host.metadata(&dir).await.is_err(), "before anything was touched");
}
