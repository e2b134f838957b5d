//! The classes of failures outside of the call itself: before it nothing was risked, and after it the volume exists.

use std::path::Path;
use std::sync::Arc;

use api::names::{AttachmentName, Namespaced};
use api::storage::{DriverToken, FsGroupPolicy};
use api::{Attachment, Meta, PersistentSource, Resource, VolumeMode};
use host::fake::{Order, Rule};
use plugin_api::Before;
use tonic::Code;

use crate::operation::{MountVolume, Operation};
use crate::plugin::testing::{Bench, DRIVER};

/// An object that the API does not give now may come at the next attempt: the actual state does not change.
#[tokio::test]
async fn api_failure_changes_no_state() {
    type Need = fn(&mut Bench);
    let attaches: Need = |bench| bench.object(|driver| driver.attach_required = true);
    let tokens: Need = |bench| bench.object(|driver| driver.tokens = vec![DriverToken::default()]);
    let secret: Need = |bench| {
        bench.change_volume(|volume| {
            let PersistentSource::Csi(csi) = &mut volume.source else { unreachable!() };
            csi.node_stage_secret = Some(Namespaced::new("ns", "stage").into());
            csi.node_publish_secret = Some(Namespaced::new("ns", "publish").into());
        });
    };
    use VolumeMode::{Block, Filesystem};
    for (mode, need, device, mark) in [
        (Filesystem, attaches, Before::Absent, "device"),
        (Filesystem, attaches, Before::Mounted, "pod"),
        (Filesystem, secret, Before::Absent, "device"),
        (Filesystem, secret, Before::Mounted, "pod"),
        (Filesystem, tokens, Before::Mounted, "pod"),
        (Block, attaches, Before::Absent, "device"),
        (Block, attaches, Before::Mounted, "pod"),
        (Block, secret, Before::Absent, "device"),
        (Block, secret, Before::Mounted, "pod"),
    ] {
        let mut bench = Bench::new();
        bench.change_volume(|volume| volume.mode = Some(mode));
        need(&mut bench);
        bench.api.set_away(true);
        let mount = Arc::new(MountVolume { device, ..bench.mounting() });
        let story = bench
            .run(match mode {
                Filesystem => Operation::Mount(mount),
                Block => Operation::Map(mount),
            })
            .await;
        assert!(story.contains(&format!("mark {mark} failed: Transient\n")), "{mode:?} {device:?}: {story}");
        assert!(!story.contains("Volume\n") && !story.contains("uncertain"), "{mode:?} {device:?}: {story}");
    }
}

/// An error of the node before the call ends the attempt.
#[tokio::test]
async fn a_directory_or_a_record_that_cannot_be_made_is_a_final_error_and_leaves_nothing() {
    for (method, done, mark, staged) in [
        ("make_dir_all", 0, "device", false),
        ("write_file", 0, "device", false),
        ("make_dir_all", 1, "pod", true),
        ("write_file", 1, "pod", true),
    ] {
        let (mut bench, host) = Bench::simulated();
        let rule = Rule::new(Order::Fail(host::errno::EIO)).on(method);
        host.faults().add(rule.after(done).times(1));
        let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
        assert!(story.contains(&format!("mark {mark} failed: Final\n")), "{method} {done}: {story}");
        assert!(!story.contains(&format!("mark {mark} uncertain")), "{method} {done}: {story}");
        assert_eq!(story.contains("call NodeStageVolume"), staged, "{method} {done}: {story}");
        let has = |path: &Path| host.kernel().symlink_metadata(path).is_ok();
        let paths = &bench.context.paths;
        assert_eq!(has(&paths.csi_global_mount(&DRIVER.into(), &"h".into())), staged, "{method} {done}");
        assert!(!has(&paths.csi_pod_volume(&"u1".into(), &"pv".into())), "{method} {done}");
    }
}

/// The driver has published: the pod has the volume, even if its files cannot change their owner.
#[tokio::test]
async fn a_volume_whose_files_cannot_be_given_away_is_there() {
    let (mut bench, host) = Bench::simulated();
    bench.pod.security.fs_group = Some(4711);
    bench.object(|driver| driver.fs_group_policy = Some(FsGroupPolicy::File));
    let target = bench.context.paths.csi_target(&"u1".into(), &"pv".into());
    host.kernel().make_dir_all(&target, 0o755).unwrap();
    host.faults().add(Rule::new(Order::Fail(host::errno::EIO)).on("change_ownership"));
    let story = bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    assert!(story.contains("call NodePublishVolume"), "{story}");
    assert!(story.contains("mark pod failed: Uncertain\n"), "{story}");
    assert!(
        story.contains("MountVolume.SetUp failed for volume \"pv\" : applyFSGroup failed for vol h: "),
        "{story}"
    );
    assert!(host.kernel().symlink_metadata(&target).is_ok(), "it stays published");
}

/// An attachment that is deleted, or cannot be made, has an error text of its own.
#[tokio::test]
async fn an_attachment_that_goes_or_fails_ends_the_attempt() {
    let name = AttachmentName::of(&"h".into(), &DRIVER.into(), &"node-1".into());
    let there = || Attachment { meta: Meta::named("", name.as_str()), ..Attachment::default() };
    let mut going = Attachment { attached: true, ..there() };
    going.meta.deleted = Some("2026-01-01T00:00:00Z".to_owned());
    let error = api::storage::AttachmentError { message: "no room".to_owned(), code: None };
    let failed = Attachment { attach_error: Some(error.clone()), ..there() };
    for (attachment, why) in [(going, "volume attachment is being deleted"), (failed, "no room")] {
        let mut bench = Bench::new();
        bench.object(|driver| driver.attach_required = true);
        bench.put(attachment.into_object());
        let mount = Arc::new(MountVolume { attachable: true, ..bench.mounting() });
        let text = format!("MountVolume.WaitForAttach failed for volume \"pv\" : {why}");
        assert_eq!(
            bench.run(Operation::Mount(mount)).await,
            format!("event Pod Warning FailedMount: {text}\nfailed Transient: {text}\n")
        );
    }
    // An earlier attach error does not count once the volume is attached.
    let mut bench = Bench::new();
    bench.object(|driver| driver.attach_required = true);
    bench.put(Attachment { attached: true, attach_error: Some(error), ..there() }.into_object());
    let mount = Arc::new(MountVolume { attachable: true, ..bench.mounting() });
    let story = bench.run(Operation::Mount(mount)).await;
    assert!(story.ends_with("done\n"), "{story}");
}

/// An operation waits for a missing driver: no volume of it is forgotten, and no pod gets an event.
#[tokio::test]
async fn volume_of_a_missing_driver_is_kept() {
    let mut bench = Bench::new();
    bench.run(Operation::Mount(Arc::new(bench.mounting()))).await;
    let there = bench.tree().await;
    let registered = bench.context.facts().registered.clone();
    bench.know(|facts| facts.registered.clear());
    let missing = "driver name d.example not found in the list of registered CSI drivers";
    let unmounting = Arc::new(bench.unmounting());
    assert_eq!(
        bench.run(Operation::Unmount(Arc::clone(&unmounting))).await,
        format!(
            "mark pod undoing\nfailed Transient: UnmountVolume.TearDown failed for volume \
             \"kubernetes.io/csi/d.example^h\" : kubernetes.io/csi: Unmounter.TearDownAt failed to get CSI client: \
             {missing}\n"
        )
    );
    let leaving = Arc::new(bench.leaving());
    assert_eq!(
        bench.run(Operation::UnmountDevice(Arc::clone(&leaving))).await,
        format!(
            "mark device undoing\nfailed Transient: UnmountDevice failed for volume \
             \"kubernetes.io/csi/d.example^h\" : kubernetes.io/csi: attacher.UnmountDevice failed to create \
             newCsiDriverClient: {missing}\n"
        )
    );
    assert_eq!(bench.tree().await, there);
    bench.know(|facts| facts.registered = registered);
    bench.run(Operation::Unmount(unmounting)).await;
    bench.run(Operation::UnmountDevice(leaving)).await;
    assert_eq!(bench.files().await, [""; 0]);
}

/// A device that may be attached is detached even if it is not visible.
#[tokio::test]
async fn invisible_device_is_unpublished() {
    let mut bench = Bench::new();
    bench.change_volume(|volume| volume.mode = Some(VolumeMode::Block));
    bench.driver.fail("NodePublishVolume", Code::Unavailable);
    bench.run(Operation::Map(Arc::new(bench.mounting()))).await;
    let story = bench.run(Operation::Unmap(Arc::new(bench.unmounting()))).await;
    assert_eq!(story, "mark pod undoing\ncall NodeUnpublishVolume\nmark pod unmounted\ndone\n");
}
