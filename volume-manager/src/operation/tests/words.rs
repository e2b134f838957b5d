//! The names of operations, the texts of their errors, and the sources of their data.

use api::AttachedVolume;
use host::errno;
use host::fake::{Order, Rule};
use plugin_api::{Changes, Mounted};

use super::*;

pub(super) fn expanding(bench: &Bench) -> ExpandVolume {
    ExpandVolume {
        volume: bench.name(),
        spec: Arc::clone(&bench.spec),
        plugin: "kubernetes.io/csi".into(),
        pod: Arc::new(bench.pod.clone()),
        mounted: Mounted { path: "/at".into(), read_only: false, managed: true, selinux_relabel: false },
        device_path: String::new(),
        new_size: Bytes(2),
        old_size: Bytes(1),
        expansion_failed: false,
    }
}

pub(super) fn verifying(bench: &Bench) -> VerifyAttached {
    VerifyAttached {
        volume: bench.name(),
        spec: Arc::clone(&bench.spec),
        plugin: "kubernetes.io/csi".into(),
        attachable: true,
        wants_size: false,
    }
}

#[test]
fn operations_are_called_as_the_kubelet_calls_them() {
    for (name, word) in [
        (OperationName::Verify, "verify_controller_attached_volume"),
        (OperationName::Attach, "volume_attach"),
        (OperationName::Detach, "volume_detach"),
        (OperationName::Mount, "volume_mount"),
        (OperationName::Map, "map_volume"),
        (OperationName::Unmount, "volume_unmount"),
        (OperationName::Unmap, "unmap_volume"),
        (OperationName::UnmountDevice, "unmount_device"),
        (OperationName::UnmapDevice, "unmap_device"),
        (OperationName::Expand, "volume_fs_resize"),
    ] {
        assert_eq!(name.as_str(), word);
        assert_eq!(serde_json::to_value(name).unwrap(), word, "a trace has the same word");
    }
}

/// The step and the reason of the event, if there is one. Each operation names a plugin that is not registered.
#[tokio::test]
async fn missing_plugin_is_reported_to_waiting_pods_only() {
    let plugin = PluginName::new("kubernetes.io/paper");
    let mut bench = Bench::new();
    let mount = Arc::new(MountVolume { plugin: plugin.clone(), ..bench.mounting() });
    let unmount = Arc::new(UnmountVolume { plugin: plugin.clone(), ..bench.unmounting() });
    let leave = Arc::new(UnmountDevice { plugin, ..bench.leaving() });
    for (operation, said) in [
        (Operation::Mount(Arc::clone(&mount)), "FailedMount: MountVolume.FindPluginBySpec failed"),
        (Operation::Map(mount), "FailedMapVolume: MapVolume.FindMapperPluginBySpec failed"),
        (Operation::Unmount(Arc::clone(&unmount)), "UnmountVolume.FindPluginByName failed"),
        (Operation::Unmap(unmount), "UnmapVolume.FindMapperPluginByName failed"),
        (Operation::UnmountDevice(Arc::clone(&leave)), "UnmountDevice.FindPluginByName failed"),
        (Operation::UnmapDevice(leave), "UnmapDevice.FindMapperPluginByName failed"),
    ] {
        let story = bench.run(operation).await;
        assert!(story.contains(&format!("{said} for volume \"")), "{story}");
        assert_eq!(story.contains("event Pod Warning"), said.contains(": "), "{story}");
        assert!(!story.contains("mark"), "{story}");
    }
}

/// An object that names no volume of the plugin has no place on the node.
#[tokio::test]
async fn missing_path_is_reported_with_its_step() {
    let mut bench = Bench::new();
    bench.change_volume(|volume| {
        let PersistentSource::Csi(csi) = &mut volume.source else { unreachable!() };
        csi.handle = "".into();
    });
    let (mount, unmount) = (Arc::new(bench.mounting()), Arc::new(bench.unmounting()));
    for (operation, said) in [
        (Operation::Mount(Arc::clone(&mount)), "FailedMount: MountVolume.GetDeviceMountPath failed"),
        (Operation::Map(mount), "FailedMapVolume: MapVolume.GetGlobalMapPath failed"),
        (Operation::Unmap(unmount), "UnmapVolume.GetGlobalMapPath failed"),
    ] {
        let story = bench.run(operation).await;
        assert!(story.contains(&format!("{said} for volume \"")), "{story}");
        assert_eq!(story.contains("event Pod Warning"), said.contains(": "), "{story}");
        assert!(!story.contains("mark"), "{story}");
    }
}

/// A device that cannot be mapped has the event reason of a failed mount; other errors of devices have their own.
#[tokio::test]
async fn refused_device_is_reported_with_its_step() {
    let mut bench = Bench::new();
    bench.change_volume(|volume| {
        volume.mode = Some(VolumeMode::Block);
        volume.access_modes = vec![AccessMode::ReadWriteOncePod];
        let requirement =
            Requirement { key: "zone".to_owned(), operator: "In".to_owned(), values: vec!["a".to_owned()] };
        volume.affinity = Some(NodeAffinity { terms: vec![vec![requirement]] });
    });
    for (zone, said) in [
        ("b", "event Pod Warning FailedMount: MapVolume.NodeAffinity check failed for volume \"pv\" : "),
        ("a", "event Pod Warning FailedMapVolume: MapVolume.SetUpDevice failed for volume \"pv\" : "),
    ] {
        bench.know(|facts| facts.node = Some(Arc::new(node(zone))));
        let map = MountVolume { used_elsewhere: true, ..bench.mounting() };
        let story = bench.run(Operation::Map(Arc::new(map))).await;
        assert!(story.contains(said), "{story}");
        assert!(!story.contains("mark"), "nothing has been risked: {story}");
    }
}

#[tokio::test]
async fn only_a_volume_for_one_pod_and_nothing_else_is_kept_from_a_second_one() {
    let mut bench = Bench::new();
    bench.change_volume(|volume| {
        volume.access_modes = vec![AccessMode::ReadWriteOncePod, AccessMode::ReadWriteOnce];
    });
    let mount = MountVolume { used_elsewhere: true, ..bench.mounting() };
    let story = bench.run(Operation::Mount(Arc::new(mount))).await;
    assert!(story.ends_with("done\n"), "{story}");
}

/// The manager's copy of the node's object may be old: the object is read once more.
#[tokio::test]
async fn a_volume_is_attached_where_the_nodes_object_says_so_and_what_it_says() {
    let mut bench = Bench::new();
    let verify = Arc::new(verifying(&bench));
    let attached = |device_path: &str| Node {
        volumes_attached: vec![AttachedVolume { name: bench.name(), device_path: device_path.to_owned() }],
        ..node("a")
    };
    let (seen, there) = (attached("/dev/old"), attached("/dev/new"));
    bench.know(|facts| facts.node = Some(Arc::new(seen)));
    bench.put(node("a").into_object());
    let story = bench.run(Operation::Verify(Arc::clone(&verify))).await;
    assert_eq!(
        story,
        "failed Transient: VerifyControllerAttachedVolume failed for volume \"pv\" : Volume not attached \
         according to node status\n",
        "without an event"
    );
    bench.put(there.into_object());
    let story = bench.run(Operation::Verify(verify)).await;
    assert!(story.contains(r#"attachable: true, device_path: "/dev/new""#), "{story}");
}

#[tokio::test]
async fn a_mount_whose_places_cannot_be_listed_stays() {
    let (mut bench, host) = Bench::simulated();
    let global = bench.leaving().device_mount_path;
    host.kernel().make_dir_all(&global, 0o750).unwrap();
    host.kernel().mount("tmpfs", &global, "tmpfs", &[]).unwrap();
    host.faults().add(Rule::new(Order::Fail(errno::EIO)).on("references").times(1));
    let story = bench.run(Operation::UnmountDevice(Arc::new(bench.leaving()))).await;
    assert!(story.starts_with("failed") && story.contains("GetDeviceMountRefs check failed"), "{story}");
}

/// The volume's object may have changed since; the actual state has the values that were used.
#[tokio::test]
async fn device_without_a_known_path_keeps_the_path_in_the_books() {
    let (mut bench, _) = staged().await;
    let leaving = bench.leaving();
    bench.change_volume(|volume| volume.source = PersistentSource::Other { kind: "paper".into() });
    let leaving = UnmountDevice { spec: Arc::clone(&bench.spec), ..leaving };
    let story = bench.run(Operation::UnmountDevice(Arc::new(leaving.clone()))).await;
    assert!(story.contains("call NodeUnstageVolume") && story.ends_with("done\n"), "{story}");
    let nowhere = UnmountDevice { device_mount_path: Default::default(), ..leaving };
    let story = bench.run(Operation::UnmountDevice(Arc::new(nowhere))).await;
    assert!(story.starts_with("failed") && story.contains("GetDeviceMountPath failed"), "{story}");
}

#[tokio::test]
async fn attach_and_detach_errors_name_their_step() {
    let bench = Bench::new();
    let (clock, facts) = (TokioClock, Facts::default());
    let remote = Remote { api: &*bench.api, clock: &clock, facts: &facts, changes: &Changes::default() };
    for plugin in ["kubernetes.io/paper", "kubernetes.io/nfs"] {
        let attach = AttachVolume {
            volume: bench.name(),
            spec: Arc::clone(&bench.spec),
            plugin: plugin.into(),
            node: "node-1".into(),
            pods: Vec::new(),
        };
        let failed = attach::run(&attach, &remote, &crate::plugin::registry::kubelet()).await.unwrap_err();
        let words = "AttachVolume.FindAttachablePluginBySpec failed for volume \"pv\" : ";
        assert!(failed.message().starts_with(words), "{}", failed.message());
        assert_eq!(failed.reason, Some(Reason::FailedAttachVolume));
    }
    for (volume, words) in [
        (
            "kubernetes.io",
            "DetachVolume.SplitUniqueName failed for volume \"kubernetes.io\" : cannot split volume unique name \
             kubernetes.io to plugin/volume components",
        ),
        (
            "kubernetes.io/paper/h",
            "DetachVolume.FindAttachablePluginByName failed for volume \"kubernetes.io/paper/h\" : ",
        ),
        (
            "kubernetes.io/nfs/h",
            "DetachVolume.FindAttachablePluginByName failed for volume \"kubernetes.io/nfs/h\" : ",
        ),
    ] {
        let detach =
            DetachVolume { volume: volume.into(), spec: None, node: "node-1".into(), verify_safe: true };
        let failed = detach::run(&detach, &remote, &crate::plugin::registry::kubelet()).await.unwrap_err();
        assert!(failed.message().starts_with(words), "{}", failed.message());
        assert_eq!(failed.reason, None, "no pod waits for the volume");
    }
}
