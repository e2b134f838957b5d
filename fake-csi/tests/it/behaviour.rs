//! Behaviour that a suite relies on besides the calls: faults, books, restarts, all backings.

use std::path::Path;

use csi_proto::v1::{self, VolumeCapability};
use fake_csi::control::Fault;
use serial_test::file_serial;
use tonic::Code;

use crate::scene::{Scene, WRITER, code};
use crate::world::{Csi, World, create, in_namespace, mounted, publish};

#[test]
#[file_serial(root)]
fn fault_before_prevents_the_work_and_fault_after_hides_it() {
    in_namespace(async |world| {
        let mut scene = Scene::mount(world).await;
        let method = "NodeStageVolume".to_owned();
        let before = Fault { method: method.clone(), times: 2, code: Some(14), ..Fault::default() };
        scene.world.control().fault(before).await.unwrap();
        for _ in 0..2 {
            assert_eq!(code(&scene.stage().await), Code::Unavailable);
            assert_eq!(scene.mounts_at(&scene.staging), 0);
        }
        let after = Fault {
            method: method.clone(),
            skip: 1,
            times: 1,
            after: true,
            code: Some(4),
            ..Fault::default()
        };
        scene.world.control().fault(after).await.unwrap();
        scene.stage().await.unwrap();
        scene.unstage().await.unwrap();
        assert_eq!(code(&scene.stage().await), Code::DeadlineExceeded);
        assert_eq!(scene.mounts_at(&scene.staging), 1);
        scene.stage().await.unwrap();
        let calls = scene.world.control().calls().await.unwrap();
        assert_eq!(calls["NodeStageVolume"], 5);
    });
}

#[test]
#[file_serial(root)]
fn crash_after_the_work_keeps_the_work() {
    in_namespace(async |world| {
        let mut scene = Scene::mount(world).await.staged().await;
        let crash =
            Fault { method: "NodePublishVolume".into(), after: true, crash: true, ..Fault::default() };
        scene.world.control().fault(crash).await.unwrap();
        assert!(scene.publish().await.is_err());
        scene.csi = scene.world.restart().await;
        assert_eq!(scene.mounts_at(&scene.target), 1);
        scene.publish().await.unwrap();
        assert_eq!(scene.mounts_at(&scene.target), 1);
        scene.world.control().crash().await.unwrap();
        scene.csi = scene.world.restart().await;
        scene.unpublish().await.unwrap();
        assert_eq!(scene.mounts_at(&scene.target), 0);
    });
}

#[test]
#[file_serial(root)]
fn books_have_context_and_tokens_and_mask_the_tokens() {
    in_namespace(async |world| {
        let scene = Scene::mount(world).await.with_flags(&["context=\"system_u:object_r:x:s0:c1,c2\""]);
        let mut scene = scene.staged().await;
        let mut request = scene.publish_request();
        request.volume_context = [
            ("csi.storage.k8s.io/pod.name".to_owned(), "web".to_owned()),
            (
                "csi.storage.k8s.io/serviceAccount.tokens".to_owned(),
                "{\"aud\":{\"token\":\"eyJ\"}}".to_owned(),
            ),
        ]
        .into();
        for _ in 0..2 {
            scene.csi.node.node_publish_volume(request.clone()).await.unwrap();
        }
        let books = scene.world.control().books().await.unwrap();
        let target = &books.volumes[&scene.id].targets[&scene.target];
        assert_eq!(target.calls, 2);
        assert_eq!(target.volume_context["csi.storage.k8s.io/pod.name"], "web");
        assert_eq!(target.selinux_context.as_deref(), Some("system_u:object_r:x:s0:c1,c2"));
        assert!(target.tokens.as_ref().unwrap().reveal().contains("eyJ"));
        assert!(!format!("{books:?}").contains("eyJ"));
    });
}

/// Creates a volume, writes to it, unstages and stages it again, expands and deletes it.
async fn whole_life(csi: &mut Csi, scene: (&Path, &Path), capability: VolumeCapability, backing: &str) {
    let (staging, target) = scene;
    let mut request = create("life", capability.clone());
    request.parameters.insert("backing".into(), backing.into());
    let made = csi.controller.create_volume(request).await.unwrap().into_inner().volume.unwrap();
    let id = made.volume_id;
    csi.stage(&id, staging, capability.clone()).await.unwrap();
    csi.node.node_publish_volume(publish(&id, staging, target, capability.clone())).await.unwrap();
    std::fs::write(target.join("x"), "kept").unwrap();
    csi.unpublish(&id, target).await.unwrap();
    csi.unstage(&id, staging).await.unwrap();

    let required_bytes = made.capacity_bytes * 2;
    let grown = v1::ControllerExpandVolumeRequest {
        volume_id: id.clone(),
        capacity_range: Some(v1::CapacityRange { required_bytes, limit_bytes: 0 }),
        ..Default::default()
    };
    csi.controller.controller_expand_volume(grown).await.unwrap();
    csi.stage(&id, staging, capability.clone()).await.unwrap();
    csi.node.node_publish_volume(publish(&id, staging, target, capability)).await.unwrap();
    assert_eq!(std::fs::read_to_string(target.join("x")).unwrap(), "kept");
    let found = nix::sys::statvfs::statvfs(target).unwrap();
    let bytes = found.blocks() * found.fragment_size();
    assert!(bytes > u64::try_from(required_bytes).unwrap() * 3 / 4, "{backing} has only {bytes} bytes");
    csi.unpublish(&id, target).await.unwrap();
    csi.unstage(&id, staging).await.unwrap();
    csi.delete(&id).await.unwrap();
}

#[test]
#[file_serial(root)]
fn volume_of_every_backing_and_file_system_passes_its_whole_life() {
    in_namespace(async |mut world| {
        let mut csi = world.start(&[]).await;
        let (staging, target) = (world.directory("staging"), world.path("pod/target"));
        for fs_type in ["ext4", "xfs", "btrfs"] {
            whole_life(&mut csi, (&staging, &target), mounted(fs_type, WRITER), "loop").await;
        }
        let fuse = Path::new("/dev/fuse").exists().then_some("fuse");
        for backing in ["tmpfs", "directory", "shared"].into_iter().chain(fuse) {
            whole_life(&mut csi, (&staging, &target), mounted("", WRITER), backing).await;
        }
        world.assert_clean().await;
    });
}

/// A process that looks for the device of an image opens each device, and delays the end of one that was just unmounted.
#[test]
#[file_serial(root)]
fn file_system_grows_when_its_device_is_open_for_a_moment_after_the_unmount() {
    in_namespace(async |world| {
        let mut scene = Scene::mount(world).await.staged().await;
        let table = std::fs::read_to_string("/proc/thread-self/mounts").unwrap();
        let staging = scene.staging.display().to_string();
        let mount = table.lines().find(|line| line.split(' ').nth(1) == Some(&*staging));
        let device = mount.and_then(|line| line.split(' ').next()).unwrap().to_owned();
        let open = std::fs::File::open(device).unwrap();
        scene.unstage().await.unwrap();
        let grown = v1::ControllerExpandVolumeRequest {
            volume_id: scene.id.clone(),
            capacity_range: Some(v1::CapacityRange { required_bytes: 256 << 20, limit_bytes: 0 }),
            ..Default::default()
        };
        scene.csi.controller.controller_expand_volume(grown).await.unwrap();
        let reader = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(30));
            drop(open);
        });
        scene.stage().await.unwrap();
        reader.join().unwrap();
        let found = nix::sys::statvfs::statvfs(&scene.staging).unwrap();
        assert!(found.blocks() * found.fragment_size() > 192 << 20, "{found:?}");
        scene.unstage().await.unwrap();
    });
}

#[test]
#[file_serial(root)]
fn driver_without_staging_makes_a_private_one() {
    in_namespace(async |world| {
        let mut scene = Scene::with(world, &["--without=stage-unstage"], mounted("", WRITER)).await;
        assert_eq!(code(&scene.stage().await), Code::Unimplemented);
        scene.publish().await.unwrap();
        let second = scene.world.path("pod/second");
        scene.publish_at(&second).await.unwrap();
        std::fs::write(second.join("x"), "shared").unwrap();
        assert_eq!(std::fs::read_to_string(scene.target.join("x")).unwrap(), "shared");
        scene.csi = scene.world.restart().await;
        scene.unpublish().await.unwrap();
        assert_eq!(scene.mounts_at(&second), 1);
        scene.csi.unpublish(&scene.id, &second).await.unwrap();
        scene.csi.delete(&scene.id).await.unwrap();
        scene.world.assert_clean().await;
    });
}

#[test]
#[file_serial(root)]
fn torn_line_of_the_journal_is_dropped() {
    in_namespace(async |world| {
        let mut scene = Scene::mount(world).await;
        scene.world.kill();
        let mut journal =
            std::fs::File::options().append(true).open(scene.world.state().join("journal")).unwrap();
        std::io::Write::write_all(&mut journal, b"[{\"volume-gone\":\"vol-0000").unwrap();
        drop(journal);
        scene.csi = scene.world.restart().await;
        scene.stage().await.unwrap();
        scene.unstage().await.unwrap();
        scene.csi.delete(&scene.id).await.unwrap();
        scene.world.assert_clean().await;
    });
}

#[test]
#[file_serial(root)]
fn thousand_volumes_take_no_blocks_and_a_short_journal() {
    use std::os::unix::fs::MetadataExt as _;
    in_namespace(async |mut world| {
        let mut csi = world.start(&[]).await;
        for number in 0..1000 {
            csi.create(&format!("data-{number}"), mounted("", WRITER)).await;
        }
        let files = std::fs::read_dir(world.state().join("volumes")).unwrap().flatten();
        let blocks: u64 = files.map(|file| file.metadata().unwrap().blocks()).sum();
        assert_eq!(blocks, 0, "an image without data takes no space");
        let listed = csi.controller.list_volumes(v1::ListVolumesRequest::default()).await.unwrap();
        assert_eq!(listed.into_inner().entries.len(), 1000);
        world.restart().await;
        let journal = std::fs::metadata(world.state().join("journal")).unwrap().len();
        assert!(journal < 1 << 20, "the journal has {journal} bytes");
    });
}

#[test]
#[file_serial(root)]
fn list_token_stays_valid_when_its_volume_is_deleted() {
    in_namespace(async |mut world| {
        let mut csi = world.start(&[]).await;
        for number in 0..4 {
            csi.create(&format!("data-{number}"), mounted("", WRITER)).await;
        }
        let page = v1::ListVolumesRequest { max_entries: 2, starting_token: String::new() };
        let first = csi.controller.list_volumes(page).await.unwrap().into_inner();
        let last = first.entries[1].volume.as_ref().unwrap().volume_id.clone();
        csi.delete(&last).await.unwrap();
        csi.create("data-4", mounted("", WRITER)).await;
        let page = v1::ListVolumesRequest { max_entries: 0, starting_token: first.next_token };
        let rest = csi.controller.list_volumes(page).await.unwrap().into_inner();
        assert_eq!(rest.entries.len(), 3);
    });
}

#[test]
#[file_serial(root)]
fn inline_volume_is_deleted_after_a_failed_publish() {
    in_namespace(async |mut world| {
        let mut csi = world.start(&[]).await;
        let inline = || v1::NodePublishVolumeRequest {
            volume_context: [("csi.storage.k8s.io/ephemeral".to_owned(), "true".to_owned())].into(),
            ..publish("csi-inline", Path::new(""), &world.path("pod/target"), mounted("", WRITER))
        };
        std::fs::write(world.path("pod/target"), "in the way").unwrap();
        assert!(csi.node.node_publish_volume(inline()).await.is_err());
        world.assert_clean().await;
        std::fs::remove_file(world.path("pod/target")).unwrap();
        csi.node.node_publish_volume(inline()).await.unwrap();
        csi.unpublish("csi-inline", &world.path("pod/target")).await.unwrap();
        world.assert_clean().await;
    });
}

#[test]
#[file_serial(root)]
fn file_system_frozen_by_a_dead_driver_is_thawed_at_start() {
    in_namespace(async |world| {
        let mut scene = Scene::mount(world).await.published().await;
        scene.world.kill();
        let freeze = |flag: &str| {
            std::process::Command::new("fsfreeze").arg(flag).arg(&scene.staging).status().unwrap()
        };
        assert!(freeze("-f").success());
        // The record that the driver writes before it freezes a file system.
        let record = format!("[{{\"held\":[{:?},\"node-1\"]}}]\n", scene.staging);
        let mut journal =
            std::fs::File::options().append(true).open(scene.world.state().join("journal")).unwrap();
        std::io::Write::write_all(&mut journal, record.as_bytes()).unwrap();
        scene.csi = scene.world.restart().await;
        assert!(!freeze("-u").success(), "the file system was still frozen");
        assert!(scene.world.control().books().await.unwrap().held.is_empty());
        std::fs::write(scene.target.join("x"), "goes on").unwrap();
    });
}

/// Makes an image among the driver's volumes and attaches a loop device to it. Returns the device.
fn attach_image(world: &World) -> String {
    let volumes = world.state().join("volumes");
    std::fs::create_dir_all(&volumes).unwrap();
    let image = volumes.join("v7");
    std::fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
    let attached = std::process::Command::new("losetup").args(["-f", "--show"]).arg(&image).output().unwrap();
    assert!(attached.status.success(), "{attached:?}");
    String::from_utf8(attached.stdout).unwrap().trim().to_owned()
}

fn is_attached(device: &str) -> bool {
    std::process::Command::new("losetup").arg(device).output().unwrap().status.success()
}

#[test]
#[file_serial(root)]
fn unused_loop_device_is_detached_at_start_and_logged() {
    in_namespace(async |mut world| {
        let device = attach_image(&world);
        world.start(&[]).await;
        assert!(!is_attached(&device));
        let log = std::fs::read_to_string(world.log()).unwrap();
        assert_eq!(log.matches("detached the loop device").count(), 1, "{log}");
    });
}

/// Another run in its own mount namespace has images of the same paths.
#[test]
#[file_serial(root)]
fn loop_device_of_another_run_is_neither_detached_nor_logged() {
    in_namespace(async |mut world| {
        let device = attach_image(&world);
        let mut cover = std::process::Command::new("mount");
        assert!(cover.args(["-t", "tmpfs", "mine"]).arg(world.state()).status().unwrap().success());
        world.start(&[]).await;
        assert!(is_attached(&device));
        let log = std::fs::read_to_string(world.log()).unwrap();
        assert!(!log.contains("detach"), "{log}");
    });
}

#[test]
#[file_serial(root)]
fn statistics_of_a_block_volume_need_a_path_to_its_device() {
    in_namespace(async |world| {
        let mut scene = Scene::block(world).await.published().await;
        let link = scene.world.path("link");
        std::os::unix::fs::symlink(&scene.target, &link).unwrap();
        for (path, expected) in [(link.as_path(), Code::Ok), (Path::new("/dev/null"), Code::NotFound)] {
            let request = v1::NodeGetVolumeStatsRequest {
                volume_id: scene.id.clone(),
                volume_path: path.to_str().unwrap().to_owned(),
                ..Default::default()
            };
            assert_eq!(code(&scene.csi.node.node_get_volume_stats(request).await), expected);
        }
    });
}

#[test]
#[file_serial(root)]
fn snapshot_metadata_lists_allocated_and_changed_blocks() {
    use csi_proto::v1::snapshot_metadata_client::SnapshotMetadataClient;
    in_namespace(async |world| {
        let mut scene = Scene::block(world).await.published().await;
        let write = |offset: u64| {
            use std::os::unix::fs::FileExt as _;
            let device = std::fs::File::options().write(true).open(&scene.target).unwrap();
            device.write_all_at(&[7; 4096], offset).unwrap();
        };
        let mut snapshots = Vec::new();
        for offset in [0, 1 << 20] {
            write(offset);
            let request = v1::CreateSnapshotRequest {
                name: format!("at-{offset}"),
                source_volume_id: scene.id.clone(),
                ..Default::default()
            };
            let made = scene.csi.controller.create_snapshot(request).await.unwrap().into_inner();
            snapshots.push(made.snapshot.unwrap().snapshot_id);
        }
        let endpoint = format!("unix:{}", scene.world.root.join("csi.sock").display());
        let mut client = SnapshotMetadataClient::connect(endpoint).await.unwrap();
        let request =
            v1::GetMetadataAllocatedRequest { snapshot_id: snapshots[1].clone(), ..Default::default() };
        let mut answers = client.get_metadata_allocated(request).await.unwrap().into_inner();
        let allocated = answers.message().await.unwrap().unwrap().block_metadata;
        assert_eq!(allocated.iter().map(|block| block.byte_offset).collect::<Vec<_>>(), [0, 1 << 20]);
        let request = v1::GetMetadataDeltaRequest {
            base_snapshot_id: snapshots[0].clone(),
            target_snapshot_id: snapshots[1].clone(),
            ..Default::default()
        };
        let mut answers = client.get_metadata_delta(request).await.unwrap().into_inner();
        let changed = answers.message().await.unwrap().unwrap().block_metadata;
        assert_eq!(changed.iter().map(|block| block.byte_offset).collect::<Vec<_>>(), [1 << 20]);
    });
}
