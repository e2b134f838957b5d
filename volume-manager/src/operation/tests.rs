//! The checks of operations before a risky call: each with a reason that fails it and without.

mod words;

use std::path::Path;
use std::sync::Arc;

use api::clock::TokioClock;
use api::names::{AttachmentName, Namespaced};
use api::storage::{ClaimReference, NodeAffinity, Requirement};
use api::{AccessMode, Attachment, Bytes, Claim, Meta, Node, PersistentSource, Resource, VolumeMode};
use host::fake::FakeKernel;
use plugin_api::{Changes, Facts, Remote};
use tonic::Code;

use super::*;
use crate::plugin::testing::{Bench, DRIVER};
use testing::MemoryApi;
use words::{expanding, verifying};

fn node(zone: &str) -> Node {
    let mut node = Node { meta: Meta::named("", "node-1"), ..Node::default() };
    node.meta.labels.insert("zone".to_owned(), zone.to_owned());
    node
}

/// A way of giving a volume to a pod.
type Way = fn(Arc<MountVolume>) -> Operation;

/// Both ways of giving a volume to a pod, each on a bench of its own. The driver stages no device.
fn benches() -> [(Bench, Way); 2] {
    let mut block = Bench::new();
    block.change_volume(|volume| volume.mode = Some(VolumeMode::Block));
    block.driver.fail("NodeStageVolume", Code::Internal);
    [(Bench::new(), Operation::Mount), (block, Operation::Map)]
}

/// Whether the driver was asked for anything.
fn asked(story: &str) -> bool {
    story.contains("call NodeStageVolume")
}

#[tokio::test]
async fn a_volume_some_nodes_do_not_reach_is_not_tried_on_those() {
    for known in [true, false] {
        for zone in ["a", "b"] {
            for (mut bench, operation) in benches() {
                bench.change_volume(|volume| {
                    let (key, operator) = ("zone".to_owned(), "In".to_owned());
                    let requirement = Requirement { key, operator, values: vec!["a".to_owned()] };
                    volume.affinity = Some(NodeAffinity { terms: vec![vec![requirement]] });
                });
                match known {
                    true => bench.know(|facts| facts.node = Some(Arc::new(node(zone)))),
                    false => bench.put(node(zone).into_object()),
                }
                let story = bench.run(operation(Arc::new(bench.mounting()))).await;
                assert_eq!(asked(&story), zone == "a", "{known} {story}");
                let refused = story.contains("NodeAffinity check failed for volume \"pv\" : no matching");
                assert_eq!(refused, zone == "b", "{known} {story}");
            }
        }
    }
}

#[tokio::test]
async fn a_volume_for_one_pod_goes_to_no_second_one() {
    for (mode, elsewhere, refused) in [
        (AccessMode::ReadWriteOncePod, true, true),
        (AccessMode::ReadWriteOncePod, false, false),
        (AccessMode::ReadWriteOnce, true, false),
    ] {
        for (mut bench, operation) in benches() {
            bench.change_volume(|volume| volume.access_modes = vec![mode]);
            let mount = MountVolume { used_elsewhere: elsewhere, ..bench.mounting() };
            let story = bench.run(operation(Arc::new(mount))).await;
            assert_eq!(!asked(&story), refused, "{mode:?} {elsewhere} {story}");
            assert_eq!(story.contains("already in use by another pod"), refused, "{story}");
        }
    }
}

#[tokio::test]
async fn mount_options_are_refused_for_a_plugin_without_them() {
    const ANNOTATION: &str = "volume.beta.kubernetes.io/mount-options";
    for (options, annotation, refused) in
        [("", None, false), ("noatime", None, true), ("", Some("noatime"), true), ("", Some(""), false)]
    {
        for takes in [false, true] {
            let mut bench = Bench::new();
            let path = bench.root.path().display().to_string();
            bench.change_volume(|volume| {
                volume.mount_options =
                    options.split(',').filter(|o| !o.is_empty()).map(str::to_owned).collect();
                let annotation = annotation.map(|list: &str| (ANNOTATION.to_owned(), list.to_owned()));
                volume.meta.annotations.extend(annotation);
                if !takes {
                    volume.source = PersistentSource::HostPath { path, kind: String::new() };
                }
            });
            let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
            assert_eq!(story.ends_with("done\n"), takes || !refused, "{options} {annotation:?} {story}");
            let said = story.contains("MountVolume.MountOptionSupport check failed for volume \"pv\"");
            assert_eq!(said, !takes && refused, "{options} {annotation:?} {story}");
        }
    }
}

/// A volume that is staged and published on the simulated kernel, and unpublished again.
async fn staged() -> (Bench, FakeKernel) {
    let (mut bench, host) = Bench::simulated();
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.ends_with("done\n"), "{story}");
    let story = bench.run(Operation::Unmount(Arc::new(bench.unmounting()))).await;
    assert!(story.ends_with("done\n"), "{story}");
    (bench, host.kernel().clone())
}

#[tokio::test]
async fn a_volume_that_is_shown_elsewhere_stays_on_the_node() {
    let ours = "/other-root/plugins/kubernetes.io/csi/d.example";
    for (elsewhere, stays) in [(None, false), (Some("/mnt"), true), (Some(ours), false)] {
        let (mut bench, kernel) = staged().await;
        let global = bench.leaving().device_mount_path;
        kernel.mount("tmpfs", &global, "tmpfs", &[]).unwrap();
        if let Some(top) = elsewhere {
            let below = global.strip_prefix(bench.path("plugins/kubernetes.io/csi/d.example")).unwrap();
            let at = Path::new(top).join(below);
            kernel.make_dir_all(&at, 0o755).unwrap();
            kernel.bind(&global, &at, false).unwrap();
        }
        let story = bench.run(Operation::UnmountDevice(Arc::new(bench.leaving()))).await;
        assert_eq!(!story.contains("call NodeUnstageVolume"), stays, "{elsewhere:?} {story}");
        let said = story.contains("GetDeviceMountRefs check failed") && story.contains("/mnt/");
        assert_eq!(said, stays, "{elsewhere:?} {story}");
    }
}

#[tokio::test]
async fn device_held_open_is_not_unmounted() {
    for (path, claimed, leaves) in
        [("/dev/sdb", true, false), ("/dev/sdb", false, true), ("csi-attachment", true, true)]
    {
        let (mut bench, kernel) = staged().await;
        kernel.add_disk("sdb", 1 << 20).unwrap();
        kernel.claim_disk(Path::new("/dev/sdb"), claimed).unwrap();
        let leaving = UnmountDevice { device_path: path.to_owned(), ..bench.leaving() };
        let story = bench.run(Operation::UnmountDevice(Arc::new(leaving))).await;
        assert!(story.contains("call NodeUnstageVolume"), "{story}");
        assert_eq!(story.ends_with("mark device unmounted\ndone\n"), leaves, "{path} {claimed} {story}");
        assert_eq!(story.contains("`/dev/sdb` is in use when"), !leaves, "{path} {claimed} {story}");
    }
}

#[tokio::test]
async fn the_size_of_a_volume_is_what_its_claim_could_hold() {
    for wants_size in [true, false] {
        let mut bench = Bench::new();
        let claim = Namespaced::new("default", "data");
        bench.change_volume(|volume| volume.claim = Some(ClaimReference { claim, uid: "c1".into() }));
        let mut claim = Claim { meta: Meta::named("default", "data"), ..Claim::default() };
        claim.status.capacity = Bytes(7);
        bench.put(claim.into_object());
        let verify = VerifyAttached {
            volume: bench.name(),
            spec: Arc::clone(&bench.spec),
            plugin: "kubernetes.io/csi".into(),
            attachable: false,
            wants_size,
        };
        let story = bench.run(Operation::Verify(Arc::new(verify.clone()))).await;
        let size = if wants_size { "claim_size: Some(Bytes(7))" } else { "claim_size: None" };
        assert!(story.contains(size) && story.ends_with("done\n"), "{story}");
        bench.api.set_away(true);
        let story = bench.run(Operation::Verify(Arc::new(verify))).await;
        assert_eq!(story.contains("VerifyControllerAttachedVolume failed"), wants_size, "{story}");
    }
}

#[tokio::test]
async fn a_volume_is_detached_only_if_its_node_does_not_use_it() {
    let volume = VolumeName::new(format!("kubernetes.io/csi/{DRIVER}^h"));
    let detach = async |node: Option<Node>, away: bool, verify_safe: bool| {
        let api = MemoryApi::default();
        node.into_iter().for_each(|node| api.put(node.into_object()));
        api.set_away(away);
        let (clock, facts) = (TokioClock, Facts::default());
        let remote = Remote { api: &api, clock: &clock, facts: &facts, changes: &Changes::default() };
        let request = DetachVolume { volume: volume.clone(), spec: None, node: "node-1".into(), verify_safe };
        detach::run(&request, &remote, &crate::plugin::registry::kubelet())
            .await
            .map_err(|failed| failed.message())
    };
    let using = || Node { volumes_in_use: vec![volume.clone()], ..node("a") };
    let refused = detach(Some(using()), false, true).await.unwrap_err();
    assert!(refused.ends_with(": volume is still in use by node, according to Node status"), "{refused}");
    assert_eq!(detach(Some(using()), false, false).await, Ok(()), "no check of the node was asked for");
    assert_eq!(detach(Some(node("a")), false, true).await, Ok(()), "it uses others");
    assert_eq!(detach(None, false, true).await, Ok(()), "a node that is gone uses nothing");
    assert!(detach(Some(node("a")), true, true).await.is_err(), "whether the node uses it is unknown");
}

#[tokio::test]
async fn nothing_is_detached_from_a_node_whose_object_cannot_be_read() {
    let api = MemoryApi::default();
    let name = AttachmentName::of(&"h".into(), &DRIVER.into(), &"node-1".into());
    api.put(Attachment { meta: Meta::named("", name.as_str()), ..Attachment::default() }.into_object());
    api.hide();
    let (clock, facts) = (TokioClock, Facts::default());
    let remote = Remote { api: &api, clock: &clock, facts: &facts, changes: &Changes::default() };
    let volume = VolumeName::new(format!("kubernetes.io/csi/{DRIVER}^h"));
    let request = DetachVolume { volume, spec: None, node: "node-1".into(), verify_safe: true };
    let refused =
        detach::run(&request, &remote, &crate::plugin::registry::kubelet()).await.unwrap_err().message();
    assert!(refused.starts_with("DetachVolume.Detach failed for volume"), "{refused}");
    assert!(refused.ends_with("it cannot be read"), "{refused}");
    assert!(api.read::<Attachment>("", name.as_str()).is_some(), "it stays attached");
}

#[tokio::test]
async fn operations_have_the_share_of_a_volume_that_they_need() {
    let bench = Bench::new();
    let (name, web) = (bench.name(), PodUid::new("u1"));
    let (mount, unmount) = (Arc::new(bench.mounting()), Arc::new(bench.unmounting()));
    assert_eq!(Key::of(&Operation::Mount(Arc::clone(&mount))), Key::volume(&name));
    assert_eq!(Key::of(&Operation::Map(mount)), Key::volume(&name));
    assert_eq!(Key::of(&Operation::Unmount(Arc::clone(&unmount))), Key::pod(&name, &web));
    assert_eq!(Key::of(&Operation::Unmap(unmount)), Key::pod(&name, &web));
    let leaving = Arc::new(bench.leaving());
    assert_eq!(Key::of(&Operation::UnmountDevice(Arc::clone(&leaving))), Key::volume(&name));
    assert_eq!(Key::of(&Operation::UnmapDevice(leaving)), Key::volume(&name));
    assert_eq!(Key::of(&Operation::Expand(Arc::new(expanding(&bench)))), Key::volume(&name));
    assert_eq!(Key::of(&Operation::Verify(Arc::new(verifying(&bench)))), Key::volume(&name));
    let own = VolumeName::new("kubernetes.io/csi/u1-data");
    let inline = Arc::new(MountVolume { volume: own.clone(), ..bench.mounting() });
    assert_eq!(Key::of(&Operation::Mount(inline)), Key::pod(&own, &web), "no other pod can have it");
}

#[tokio::test]
async fn attachments_of_volumes_for_many_nodes_do_not_wait_for_each_other() {
    let node = NodeName::new("node-1");
    for (modes, many) in [
        (vec![], true),
        (vec![AccessMode::ReadWriteOnce], false),
        (vec![AccessMode::ReadWriteOncePod], false),
        (vec![AccessMode::ReadWriteOnce, AccessMode::ReadOnlyMany], true),
        (vec![AccessMode::ReadWriteMany], true),
    ] {
        let mut bench = Bench::new();
        bench.change_volume(|volume| volume.access_modes = modes.clone());
        let (volume, spec) = (bench.name(), Arc::clone(&bench.spec));
        let expected = if many { Key::node(&volume, &node) } else { Key::volume(&volume) };
        let attach = AttachVolume {
            volume: volume.clone(),
            spec: Arc::clone(&spec),
            plugin: "kubernetes.io/csi".into(),
            node: node.clone(),
            pods: Vec::new(),
        };
        assert_eq!(Key::of(&Operation::Attach(Arc::new(attach))), expected, "{modes:?}");
        let detach = DetachVolume { volume, spec: Some(spec), node: node.clone(), verify_safe: true };
        assert_eq!(Key::of(&Operation::Detach(Arc::new(detach))), expected, "{modes:?}");
    }
    let unknown = DetachVolume {
        volume: "kubernetes.io/csi/d^h".into(),
        spec: None,
        node: node.clone(),
        verify_safe: true,
    };
    let expected = Key::node(&unknown.volume, &node);
    assert_eq!(Key::of(&Operation::Detach(Arc::new(unknown))), expected);
}
