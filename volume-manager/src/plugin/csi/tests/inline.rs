//! Inline volumes: their requests, and their records after a restart.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::names::{PluginName, VolumeHandle};
use api::pod::InlineCsi;
use api::storage::{DriverToken, LifecycleMode};
use api::{
    CsiDriver, Kind, Meta, PodVolume, Reference, Resource, Secret, Sensitive, TokenRequest, VolumeMode,
    VolumeSource,
};
use expect_test::expect;
use plugin_api::{Found, Rebuilt, Scene, Spec, VolumePlugin};

use crate::operation::Operation;
use crate::plugin::csi::volume_data::{Lifecycle, VolumeData};
use crate::plugin::csi::{CsiPlugin, pod_info};
use crate::plugin::testing::{Bench, DRIVER};

/// A bench with an inline volume `scratch`.
fn inline(change: impl FnOnce(&mut InlineCsi)) -> Bench {
    let mut bench = Bench::new();
    let mut csi = InlineCsi { driver: DRIVER.into(), ..InlineCsi::default() };
    change(&mut csi);
    bench.spec = Arc::new(Spec::inline(Arc::new(PodVolume {
        name: "scratch".into(),
        source: VolumeSource::Csi(csi),
    })));
    bench.object(|driver| driver.lifecycle_modes = vec![LifecycleMode::Ephemeral]);
    bench
}

fn masked(bench: &Bench, story: &str) -> String {
    let handle = api::names::VolumeHandle::ephemeral(&bench.pod.uid(), &"scratch".into());
    story.replace(handle.as_str(), "$HANDLE")
}

/// The driver attaches other volumes, and its secret is where the pod is.
#[tokio::test]
async fn its_secret_is_of_the_pods_namespace_and_its_read_only_its_own() {
    let mut bench = inline(|csi| (csi.secret, csi.read_only) = (Some("key".to_owned()), true));
    bench.driver.tell_all();
    bench.object(|driver| driver.attach_required = true);
    let data = BTreeMap::from([("password".to_owned(), Sensitive::new(b"of-default".to_vec()))]);
    bench.put(Secret { meta: Meta::named("default", "key"), data }.into_object());
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    expect![[r#"
        call NodeGetCapabilities
        call NodeGetCapabilities
        mark pod uncertain
        call NodePublishVolume {"readonly":true,"secrets":{"password":"***"},"targetPath":"$R/pods/u1/volumes/kubernetes.io~csi/scratch/mount","volumeCapability":{"accessMode":{"mode":"SINGLE_NODE_WRITER"},"mount":{}},"volumeId":"$HANDLE"}
             with a record beside the target
        mark pod mounted read-only
        done
    "#]].assert_eq(&masked(&bench, &story));
}

async fn read_back(bench: &Bench) -> Rebuilt {
    let inner = bench.spec.name();
    let found = Found {
        pod: bench.pod.uid(),
        plugin: PluginName::new("kubernetes.io/csi"),
        path: bench.path(format!("pods/u1/volumes/kubernetes.io~csi/{inner}")),
        inner,
        mode: VolumeMode::Filesystem,
    };
    let cx = &bench.context;
    let scene = Scene { host: &*cx.host, paths: &cx.paths, api: &*cx.api };
    CsiPlugin::new().reconstruct(&scene, &found).await.unwrap()
}

#[tokio::test]
async fn a_restart_finds_it_inline_and_nothing_staged() {
    let mut bench = inline(|_| {});
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    let rebuilt = read_back(&bench).await;
    assert_eq!(rebuilt.device_mount_path, None);
    assert_eq!(rebuilt.selinux_label, None);
    let volume = rebuilt.spec.pod_volume().expect("it is written in a pod");
    assert_eq!(volume.name.as_str(), "scratch");
    let csi = InlineCsi { driver: DRIVER.into(), ..InlineCsi::default() };
    assert_eq!(volume.source, VolumeSource::Csi(csi));

    bench.spec = Arc::new(rebuilt.spec);
    let story = bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
    assert_eq!(story, "mark pod undoing\ncall NodeUnpublishVolume\nmark pod unmounted\ndone\n");
}

/// Pods have volumes of the same names, and ids that differ.
#[tokio::test]
async fn the_record_of_another_pod_is_not_believed() {
    let mut bench = inline(|_| {});
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    let record = bench.path("pods/u1/volumes/kubernetes.io~csi/scratch/vol_data.json");
    let theirs = VolumeData {
        spec_name: Some("scratch".into()),
        lifecycle: Some(Lifecycle::Ephemeral),
        ..VolumeData::of_stage(DRIVER, VolumeHandle::ephemeral(&"u2".into(), &"scratch".into()))
    };
    bench.context.host.write_file(&record, &theirs.to_bytes(), 0o600).await.unwrap();
    let mut unmount = bench.unmounting();
    unmount.spec = None;
    let story = bench.run(Operation::Unmount(Arc::new(unmount))).await;
    assert!(!story.contains("call") && story.contains("it is another volume's"), "{story}");
}

/// The next pod must use the same label, or wait.
#[tokio::test]
async fn a_restart_finds_the_label_it_was_mounted_with() {
    for inlined in [false, true] {
        let mut bench = if inlined { inline(|_| {}) } else { Bench::new() };
        let mut mount = bench.mounting();
        mount.selinux_label = "u:r:t:s0".to_owned();
        bench.run(Operation::Mount(Arc::new(mount))).await;
        assert_eq!(read_back(&bench).await.selinux_label.as_deref(), Some("u:r:t:s0"), "{inlined}");
    }
}

#[tokio::test]
async fn a_token_is_asked_for_each_audience_in_the_name_of_the_pod() {
    let mut bench = Bench::new();
    bench.pod.service_account = "robot".into();
    let tokens = vec![
        DriverToken { audience: "aud1".into(), expiration: Some(600) },
        DriverToken { audience: String::new(), expiration: None },
    ];
    let driver = CsiDriver { tokens, ..CsiDriver::default() };
    let said = pod_info::tokens(&*bench.api, &driver, &bench.pod).await.unwrap();
    expect![[r#"{"":{"token":"secret-token-for-","expirationTimestamp":"2030-01-01T00:00:00Z"},"aud1":{"token":"secret-token-for-aud1","expirationTimestamp":"2030-01-01T00:00:00Z"}}"#]]
        .assert_eq(&said.expect("there are two"));
    let request = |audiences: &[&str], expiration| TokenRequest {
        namespace: "default".into(),
        account: "robot".into(),
        audiences: audiences.iter().map(|name| (*name).to_owned()).collect(),
        expiration,
        pod: Reference::to(Kind::Pod, &bench.pod.meta),
    };
    assert_eq!(bench.api.tokens(), [request(&["aud1"], Some(600)), request(&[], None)]);

    let driver = CsiDriver { tokens: Vec::new(), ..driver };
    assert_eq!(pod_info::tokens(&*bench.api, &driver, &bench.pod).await.unwrap(), None);
}
