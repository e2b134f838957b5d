//! The fields of requests: capabilities, contexts, secrets, groups, labels.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::names::{AttachmentName, DriverName, Namespaced};
use api::pod::InlineCsi;
use api::storage::{DriverToken, FsGroupPolicy, LifecycleMode};
use api::{
    AccessMode, Attachment, Meta, PersistentSource, PodVolume, Resource, Secret, Sensitive, VolumeSource,
};
use csi_proto::v1::node_service_capability::rpc::Type as Capability;
use csi_proto::v1::{NodeGetVolumeStatsResponse, VolumeCondition, VolumeUsage};
use expect_test::expect;
use plugin_api::{Meter as _, Spec};
use tonic::Code;

use crate::operation::{MountVolume, Operation};
use crate::plugin::csi::pod_info;
use crate::plugin::testing::{Bench, DRIVER};
use testing::Answer;

fn calls(story: &str) -> String {
    let calls = story.lines().filter(|line| line.starts_with("call Node") && line.contains('{'));
    calls.map(|line| format!("{line}\n")).collect()
}

#[tokio::test]
async fn everything_the_volume_says_reaches_both_calls() {
    let mut bench = Bench::new();
    bench.driver.tell_all();
    bench.change_volume(|volume| {
        volume.mount_options = vec!["noatime".into(), "nodev".into()];
        volume.access_modes = vec![AccessMode::ReadWriteMany, AccessMode::ReadWriteOnce];
        let PersistentSource::Csi(csi) = &mut volume.source else { unreachable!() };
        csi.fs_type = "xfs".into();
        csi.read_only = true;
        csi.attributes = BTreeMap::from([("tier".into(), "fast".into())]);
        csi.node_stage_secret = Some(Namespaced::new("ns", "stage").into());
        csi.node_publish_secret = Some(Namespaced::new("ns", "publish").into());
    });
    for name in ["stage", "publish"] {
        let value = Sensitive::new(format!("password-of-{name}").into_bytes());
        let data = BTreeMap::from([(name.to_owned(), value)]);
        bench.put(Secret { meta: Meta::named("ns", name), data }.into_object());
    }
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    expect![[r#"
        call NodeStageVolume {"secrets":{"stage":"***"},"stagingTargetPath":"$R/plugins/kubernetes.io/csi/d.example/$H/globalmount","volumeCapability":{"accessMode":{"mode":"MULTI_NODE_MULTI_WRITER"},"mount":{"fsType":"xfs","mountFlags":["noatime","nodev"]}},"volumeContext":{"tier":"fast"},"volumeId":"h"}
        call NodePublishVolume {"secrets":{"publish":"***"},"stagingTargetPath":"$R/plugins/kubernetes.io/csi/d.example/$H/globalmount","targetPath":"$R/pods/u1/volumes/kubernetes.io~csi/pv/mount","volumeCapability":{"accessMode":{"mode":"MULTI_NODE_MULTI_WRITER"},"mount":{"fsType":"xfs","mountFlags":["noatime","nodev"]}},"volumeContext":{"tier":"fast"},"volumeId":"h"}
    "#]].assert_eq(&calls(&story));
}

#[tokio::test]
async fn a_missing_secret_is_transient_and_asked_for_before_anything_is_risked() {
    let mut bench = Bench::new();
    bench.change_volume(|volume| {
        let PersistentSource::Csi(csi) = &mut volume.source else { unreachable!() };
        csi.node_stage_secret = Some(Namespaced::new("ns", "nope").into());
    });
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    expect![[r#"
        call NodeGetCapabilities
        mark device failed: Transient
        event Pod Warning FailedMount: MountVolume.MountDevice failed for volume "pv" : fetching NodeStageSecretRef ns/nope failed: kubernetes.io/csi: failed to find the secret nope in the namespace ns with error: secrets "nope" not found
        failed Transient: MountVolume.MountDevice failed for volume "pv" : fetching NodeStageSecretRef ns/nope failed: kubernetes.io/csi: failed to find the secret nope in the namespace ns with error: secrets "nope" not found
    "#]].assert_eq(&story);
}

#[tokio::test]
async fn the_pods_read_only_claim_is_read_only_in_publish_alone() {
    let mut bench = Bench::new();
    bench.driver.tell_all();
    bench.spec = Arc::new(Spec { read_only: true, ..(*bench.spec).clone() });
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    expect![[r#"
        call NodeStageVolume {"stagingTargetPath":"$R/plugins/kubernetes.io/csi/d.example/$H/globalmount","volumeCapability":{"accessMode":{"mode":"SINGLE_NODE_WRITER"},"mount":{}},"volumeId":"h"}
        call NodePublishVolume {"readonly":true,"stagingTargetPath":"$R/plugins/kubernetes.io/csi/d.example/$H/globalmount","targetPath":"$R/pods/u1/volumes/kubernetes.io~csi/pv/mount","volumeCapability":{"accessMode":{"mode":"SINGLE_NODE_WRITER"},"mount":{}},"volumeId":"h"}
    "#]].assert_eq(&calls(&story));
    assert!(story.contains("mark pod mounted read-only"), "{story}");
}

#[tokio::test]
async fn publish_context_goes_into_stage_and_publish() {
    let mut bench = Bench::new();
    bench.driver.tell_all();
    bench.object(|driver| driver.attach_required = true);
    let name = AttachmentName::of(&"h".into(), &DRIVER.into(), &"node-1".into());
    let attached = |attached| Attachment {
        meta: Meta::named("", name.as_str()),
        attached,
        metadata: BTreeMap::from([("lun".into(), "7".into())]),
        ..Attachment::default()
    };
    let mut mount = bench.mounting();
    mount.attachable = true;
    let mount = Arc::new(mount);
    let name = name.to_string();
    let mask = |story: String| story.replace(&name, "$VA");

    let story = bench.run(Operation::Mount(Arc::clone(&mount))).await;
    expect![[r#"
        event Pod Warning FailedMount: MountVolume.WaitForAttach failed for volume "pv" : volume h has GET error for volume attachment $VA: volumeattachments "$VA" not found
        failed Transient: MountVolume.WaitForAttach failed for volume "pv" : volume h has GET error for volume attachment $VA: volumeattachments "$VA" not found
    "#]].assert_eq(&mask(story));
    bench.put(attached(false).into_object());
    let story = bench.run(Operation::Mount(Arc::clone(&mount))).await;
    expect![[r#"
        event Pod Warning FailedMount: MountVolume.WaitForAttach failed for volume "pv" : volume h is not attached for volume attachment $VA
        failed Transient: MountVolume.WaitForAttach failed for volume "pv" : volume h is not attached for volume attachment $VA
    "#]].assert_eq(&mask(story));
    bench.put(attached(true).into_object());
    let story = bench.run(Operation::Mount(mount)).await;
    expect![[r#"
        call NodeGetCapabilities
        call NodeGetCapabilities
        call NodeGetCapabilities
        mark device uncertain
        call NodeStageVolume {"publishContext":{"lun":"7"},"stagingTargetPath":"$R/plugins/kubernetes.io/csi/d.example/$H/globalmount","volumeCapability":{"accessMode":{"mode":"SINGLE_NODE_WRITER"},"mount":{}},"volumeId":"h"}
             with a record beside the target
        mark device mounted from $VA
        call NodeGetCapabilities
        call NodeGetCapabilities
        call NodeGetCapabilities
        mark pod uncertain
        call NodePublishVolume {"publishContext":{"lun":"7"},"stagingTargetPath":"$R/plugins/kubernetes.io/csi/d.example/$H/globalmount","targetPath":"$R/pods/u1/volumes/kubernetes.io~csi/pv/mount","volumeCapability":{"accessMode":{"mode":"SINGLE_NODE_WRITER"},"mount":{}},"volumeId":"h"}
             with a record beside the target
        mark pod mounted
        done
    "#]].assert_eq(&mask(story));
}

#[tokio::test]
async fn a_group_is_the_drivers_business_if_it_takes_it() {
    let mut bench = Bench::new();
    bench.driver.tell_all();
    bench.pod.security.fs_group = Some(4711);
    bench.object(|driver| driver.fs_group_policy = Some(FsGroupPolicy::File));
    bench.driver.can(&[Capability::StageUnstageVolume, Capability::VolumeMountGroup]);
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert_eq!(story.matches(r#""volumeMountGroup":"4711""#).count(), 2, "{story}");
    let target = bench.path("pods/u1/volumes/kubernetes.io~csi/pv/mount");
    let there = bench.context.host.metadata(&target).await.unwrap();
    assert_ne!(there.gid, 4711, "only the driver changes the group");
}

#[tokio::test]
async fn a_label_is_mounted_with_and_remembered() {
    let mut bench = Bench::new();
    bench.driver.tell_all();
    bench.know(|facts| facts.selinux = true);
    let mut mount = bench.mounting();
    mount.selinux_label = "u:r:t:s0".into();
    let story = bench.run(Operation::Mount(Arc::new(mount))).await;
    assert_eq!(story.matches(r#""mountFlags":["context=\"u:r:t:s0\""]"#).count(), 2, "{story}");
    assert!(story.contains("mark device mounted as u:r:t:s0"), "{story}");
    let record = bench.path("pods/u1/volumes/kubernetes.io~csi/pv/vol_data.json");
    let record = String::from_utf8(bench.context.host.read_file(&record).await.unwrap()).unwrap();
    assert!(record.contains(r#""seLinuxMountContext":"u:r:t:s0""#), "{record}");
}

/// As the kubelet encodes them: a volume without a label has no such option.
#[tokio::test]
async fn both_records_name_the_label_where_there_is_one() {
    let key = "seLinuxMountContext";
    for (label, said) in [("u:r:t:s0", true), ("", false)] {
        let mut bench = Bench::new();
        let mount = MountVolume { selinux_label: label.to_owned(), ..bench.mounting() };
        bench.run(Operation::Mount(Arc::new(mount))).await;
        let staging = bench.context.paths.csi_global_mount(&DRIVER.into(), &"h".into());
        let target = bench.context.paths.csi_target(&"u1".into(), &"pv".into());
        for mount in [staging, target] {
            let record = bench.context.host.read_file(&mount.with_file_name("vol_data.json")).await.unwrap();
            let record = String::from_utf8(record).unwrap();
            assert_eq!(record.contains(key), said, "{record}");
            assert!(!said || record.contains(&format!(r#""{key}":"{label}""#)), "{record}");
        }
    }
}

fn inline() -> Spec {
    let csi = InlineCsi {
        driver: DRIVER.into(),
        fs_type: "ext4".into(),
        attributes: BTreeMap::from([("size".into(), "1".into())]),
        ..InlineCsi::default()
    };
    Spec::inline(Arc::new(PodVolume { name: "scratch".into(), source: VolumeSource::Csi(csi) }))
}

#[tokio::test]
async fn an_inline_volume_is_published_alone_with_all_the_driver_asked_for() {
    let mut bench = Bench::new();
    bench.driver.tell_all();
    bench.pod.service_account = "robot".into();
    bench.spec = Arc::new(inline());
    bench.object(|driver| {
        driver.lifecycle_modes = vec![LifecycleMode::Ephemeral];
        driver.pod_info = true;
        driver.tokens = vec![DriverToken { audience: "aud1".into(), expiration: Some(600) }];
    });
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    let handle = api::names::VolumeHandle::ephemeral(&"u1".into(), &"scratch".into()).to_string();
    expect![[r#"
        call NodeGetCapabilities
        call NodeGetCapabilities
        mark pod uncertain
        call NodePublishVolume {"targetPath":"$R/pods/u1/volumes/kubernetes.io~csi/scratch/mount","volumeCapability":{"accessMode":{"mode":"SINGLE_NODE_WRITER"},"mount":{"fsType":"ext4"}},"volumeContext":{"csi.storage.k8s.io/ephemeral":"true","csi.storage.k8s.io/pod.name":"web","csi.storage.k8s.io/pod.namespace":"default","csi.storage.k8s.io/pod.uid":"u1","csi.storage.k8s.io/serviceAccount.name":"robot","csi.storage.k8s.io/serviceAccount.tokens":"***","size":"1"},"volumeId":"$HANDLE"}
             with a record beside the target
        mark pod mounted
        done
    "#]].assert_eq(&story.replace(&handle, "$HANDLE"));
    let tree = bench.tree().await;
    assert!(!tree.contains("plugins"), "nothing is staged: {tree}");

    let story = bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
    expect![[r#"
        mark pod undoing
        call NodeUnpublishVolume {"targetPath":"$R/pods/u1/volumes/kubernetes.io~csi/scratch/mount","volumeId":"$HANDLE"}
        mark pod unmounted
        done
    "#]].assert_eq(&story.replace(&handle, "$HANDLE"));
    assert_eq!(bench.files().await, [""; 0]);
}

#[tokio::test]
async fn tokens_go_among_the_secrets_if_the_driver_wants_them_there() {
    let mut bench = Bench::new();
    bench.driver.tell_all();
    bench.object(|driver| {
        driver.tokens = vec![DriverToken::default()];
        driver.token_in_secrets = true;
    });
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    let publish = story.lines().find(|line| line.starts_with("call NodePublishVolume")).unwrap();
    assert!(publish.contains(r#""secrets":{"csi.storage.k8s.io/serviceAccount.tokens":"***"}"#), "{publish}");
    assert!(!publish.contains("volumeContext"), "{publish}");
}

/// Wherever a driver was given them, and whether it repeats them with their audiences or without.
#[tokio::test]
async fn tokens_in_what_a_driver_says_are_masked() {
    for token_in_secrets in [true, false] {
        let mut bench = Bench::new();
        bench.object(|driver| {
            driver.tokens = vec![DriverToken::default()];
            driver.token_in_secrets = token_in_secrets;
        });
        let object = Arc::clone(&bench.context.facts().csi_drivers[&DriverName::new(DRIVER)]);
        let tokens = pod_info::tokens(&*bench.api, &object, &bench.pod).await.unwrap().unwrap();
        let token = pod_info::each_token(&tokens).next().unwrap();
        for said in [tokens, token] {
            let said = Answer::Say(Code::Internal, format!("cannot read {said}"));
            bench.driver.answer("NodePublishVolume", &[said]);
            let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
            assert!(story.contains("desc = cannot read ***\n"), "{token_in_secrets}: {story}");
        }
    }
}

#[tokio::test]
async fn an_inline_volume_of_a_driver_without_an_object_is_refused() {
    let mut bench = Bench::new();
    bench.spec = Arc::new(inline());
    bench.know(|facts| facts.csi_drivers.clear());
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    expect![[r#"
        mark pod failed: Transient
        event Pod Warning FailedMount: MountVolume.SetUp failed for volume "scratch" : volume mode "Ephemeral" not supported by driver d.example (no CSIDriver object)
        failed Transient: MountVolume.SetUp failed for volume "scratch" : volume mode "Ephemeral" not supported by driver d.example (no CSIDriver object)
    "#]].assert_eq(&story);
    assert_eq!(bench.tree().await, "");
}

#[tokio::test]
async fn statistics_are_asked_of_drivers_that_have_some() {
    let bench = Bench::new();
    let plugin = crate::plugin::csi::CsiPlugin::new();
    let pod = bench.pod.uid();
    let error = plugin.stats(&bench.context, &bench.spec, &pod).await.unwrap_err();
    assert_eq!(error.chain(), "driver d.example does not report volume statistics");

    bench.driver.can(&[Capability::GetVolumeStats]);
    let error = plugin.stats(&bench.context, &bench.spec, &pod).await.unwrap_err();
    assert_eq!(error.chain(), "driver d.example reported no usage");

    let usage = |unit, used| VolumeUsage { unit, used, total: 10, available: 10 - used };
    let answer = NodeGetVolumeStatsResponse {
        usage: vec![usage(1, 3), usage(2, 4), usage(99, 5)],
        volume_condition: Some(VolumeCondition { abnormal: true, message: "it smokes".into() }),
    };
    bench.driver.set_stats(answer);
    let stats = plugin.stats(&bench.context, &bench.spec, &pod).await.unwrap();
    assert_eq!((stats.bytes.unwrap().used, stats.inodes.unwrap().used), (3, 4));
    assert_eq!(stats.abnormal, None, "a driver that does not claim to know is not believed");
    bench.driver.can(&[Capability::GetVolumeStats, Capability::VolumeCondition]);
    let stats = plugin.stats(&bench.context, &bench.spec, &pod).await.unwrap();
    assert_eq!(stats.abnormal.as_deref(), Some("it smokes"));
    let condition = VolumeCondition { abnormal: false, message: "it is well".into() };
    let answer = NodeGetVolumeStatsResponse { volume_condition: Some(condition), ..Default::default() };
    bench.driver.set_stats(answer);
    let stats = plugin.stats(&bench.context, &bench.spec, &pod).await.unwrap();
    assert_eq!(stats.abnormal, None);
}

#[tokio::test]
async fn the_group_is_given_the_files_as_the_drivers_policy_says() {
    for (policy, gid, mode) in [(FsGroupPolicy::File, 4711, 0o2775), (FsGroupPolicy::None, 0, 0o755)] {
        let mut bench = Bench::new();
        bench.pod.security.fs_group = Some(4711);
        bench.object(|driver| driver.fs_group_policy = Some(policy));
        bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        let target = bench.path("pods/u1/volumes/kubernetes.io~csi/pv/mount");
        let there = bench.context.host.metadata(&target).await.unwrap();
        let own = bench.context.host.metadata(bench.root.path()).await.unwrap().gid;
        assert_eq!((there.gid, there.mode), (if gid == 0 { own } else { gid }, mode), "{policy:?}");
    }
}
