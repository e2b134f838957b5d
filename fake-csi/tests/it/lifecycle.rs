//! A volume's life from create to delete, honest and sabotaged, checked in the kernel.

use std::os::unix::fs::FileTypeExt as _;

use csi_proto::v1::volume_capability::access_mode::Mode;
use serial_test::file_serial;
use tonic::Code;

use crate::world::{block, in_namespace, mounted, publish};

const WRITER: Mode = Mode::SingleNodeWriter;

#[test]
#[file_serial(root)]
fn data_survives_unstage_and_stage() {
    in_namespace(async |mut world| {
        let mut csi = world.start(&[]).await;
        let id = csi.create("data", mounted("", WRITER)).await.volume_id;
        let (staging, target) = (world.directory("staging"), world.path("pod/mount"));
        for round in 0..3 {
            csi.stage(&id, &staging, mounted("", WRITER)).await.unwrap();
            csi.stage(&id, &staging, mounted("", WRITER)).await.unwrap();
            for _ in 0..2 {
                let request = publish(&id, &staging, &target, mounted("", WRITER));
                csi.node.node_publish_volume(request).await.unwrap();
            }
            assert_eq!(world.mounts(&target.join("..")).len(), 0);
            let file = target.join("round");
            if round > 0 {
                assert_eq!(std::fs::read_to_string(&file).unwrap(), (round - 1).to_string());
            }
            std::fs::write(&file, round.to_string()).unwrap();
            assert_eq!(csi.unstage(&id, &staging).await.unwrap_err().code(), Code::FailedPrecondition);
            csi.unpublish(&id, &target).await.unwrap();
            csi.unpublish(&id, &target).await.unwrap();
            assert!(!target.exists());
            assert_eq!(csi.delete(&id).await.unwrap_err().code(), Code::FailedPrecondition);
            csi.unstage(&id, &staging).await.unwrap();
            csi.unstage(&id, &staging).await.unwrap();
        }
        csi.delete(&id).await.unwrap();
        csi.delete(&id).await.unwrap();
        world.assert_clean().await;
    });
}

#[test]
#[file_serial(root)]
fn block_volume_outlives_the_driver() {
    in_namespace(async |mut world| {
        let mut csi = world.start(&[]).await;
        let id = csi.create("disk", block(WRITER)).await.volume_id;
        let (staging, target) = (world.directory("staging"), world.path("pod/device"));
        csi.stage(&id, &staging, block(WRITER)).await.unwrap();
        csi.node.node_publish_volume(publish(&id, &staging, &target, block(WRITER))).await.unwrap();
        assert!(std::fs::metadata(&target).unwrap().file_type().is_block_device());
        std::fs::write(&target, "first").unwrap();

        let mut csi = world.restart().await;
        assert_eq!(&std::fs::read(&target).unwrap()[..5], b"first");
        csi.node.node_publish_volume(publish(&id, &staging, &target, block(WRITER))).await.unwrap();
        csi.unpublish(&id, &target).await.unwrap();
        csi.unstage(&id, &staging).await.unwrap();
        csi.delete(&id).await.unwrap();
        world.assert_clean().await;
    });
}

#[test]
#[file_serial(root)]
fn publish_of_an_unstaged_volume_is_refused() {
    in_namespace(async |mut world| {
        let mut csi = world.start(&[]).await;
        let id = csi.create("data", mounted("ext4", WRITER)).await.volume_id;
        let (staging, target) = (world.directory("staging"), world.path("pod/mount"));
        let request = || publish(&id, &staging, &target, mounted("ext4", WRITER));
        let refused = csi.node.node_publish_volume(request()).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(!target.exists());

        // The mount vanishes without an unstage, as in a reboot.
        csi.stage(&id, &staging, mounted("ext4", WRITER)).await.unwrap();
        nix::mount::umount(&staging).unwrap();
        let refused = csi.node.node_publish_volume(request()).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        csi.stage(&id, &staging, mounted("ext4", WRITER)).await.unwrap();
        csi.node.node_publish_volume(request()).await.unwrap();
        csi.unpublish(&id, &target).await.unwrap();
        csi.unstage(&id, &staging).await.unwrap();
        csi.delete(&id).await.unwrap();
        world.assert_clean().await;
    });
}

#[test]
#[file_serial(root)]
fn read_only_target_is_read_only_in_the_kernel() {
    in_namespace(async |mut world| {
        for (sabotage, read_only) in [(None, true), (Some("--sabotage=publish-ignores-read-only"), false)] {
            let mut csi = world.start(sabotage.as_slice()).await;
            let id = csi.create("data", mounted("", WRITER)).await.volume_id;
            let (staging, target) = (world.directory("staging"), world.path("pod/mount"));
            csi.stage(&id, &staging, mounted("", WRITER)).await.unwrap();
            let mut request = publish(&id, &staging, &target, mounted("", WRITER));
            request.readonly = true;
            csi.node.node_publish_volume(request).await.unwrap();
            let written = std::fs::write(target.join("x"), "x");
            assert_eq!(written.is_err_and(|error| error.raw_os_error() == Some(30)), read_only);
            csi.unpublish(&id, &target).await.unwrap();
            csi.unstage(&id, &staging).await.unwrap();
            csi.delete(&id).await.unwrap();
            world.assert_clean().await;
        }
    });
}

#[test]
#[file_serial(root)]
fn sabotaged_unpublish_and_unstage_leave_their_mounts() {
    in_namespace(async |mut world| {
        for (sabotage, left) in
            [("unpublish-leaves-mount", "pod/mount"), ("unstage-succeeds-but-mounted", "staging")]
        {
            let mut csi = world.start(&["--sabotage", sabotage]).await;
            let id = csi.create("data", mounted("", WRITER)).await.volume_id;
            let (staging, target) = (world.directory("staging"), world.path("pod/mount"));
            csi.stage(&id, &staging, mounted("", WRITER)).await.unwrap();
            csi.node.node_publish_volume(publish(&id, &staging, &target, mounted("", WRITER))).await.unwrap();
            csi.unpublish(&id, &target).await.unwrap();
            csi.unstage(&id, &staging).await.unwrap();
            let left = world.path(left);
            let mounts: Vec<_> = world.mounts(&world.root).into_iter().map(|(path, _)| path).collect();
            assert_eq!(mounts, std::slice::from_ref(&left));
            nix::mount::umount(&left).unwrap();
            csi.delete(&id).await.unwrap();
            drop(std::fs::remove_dir(&target));
        }
        world.assert_clean().await;
    });
}

#[test]
#[file_serial(root)]
fn sabotaged_publish_binds_a_regular_file_or_another_volume() {
    in_namespace(async |mut world| {
        let mut csi = world.start(&["--sabotage=block-target-is-regular-file"]).await;
        let id = csi.create("disk", block(WRITER)).await.volume_id;
        let (staging, target) = (world.directory("staging"), world.path("pod/device"));
        csi.stage(&id, &staging, block(WRITER)).await.unwrap();
        csi.node.node_publish_volume(publish(&id, &staging, &target, block(WRITER))).await.unwrap();
        assert!(std::fs::metadata(&target).unwrap().file_type().is_file());
        csi.unpublish(&id, &target).await.unwrap();
        csi.unstage(&id, &staging).await.unwrap();
        csi.delete(&id).await.unwrap();

        let mut csi = world.start(&["--sabotage=publish-wrong-volume"]).await;
        let id = csi.create("data", mounted("", WRITER)).await.volume_id;
        csi.stage(&id, &staging, mounted("", WRITER)).await.unwrap();
        std::fs::write(staging.join("mine"), "").unwrap();
        csi.node.node_publish_volume(publish(&id, &staging, &target, mounted("", WRITER))).await.unwrap();
        assert!(!target.join("mine").exists());
        csi.unpublish(&id, &target).await.unwrap();
        csi.unstage(&id, &staging).await.unwrap();
        csi.delete(&id).await.unwrap();
        world.assert_clean().await;
    });
}
