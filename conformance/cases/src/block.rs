//! A driver's block volumes as their containers have them.

use crate::prelude::*;

/// A container reads and writes the driver's device through a device node of its own. The next pod finds what was
/// written, and so does a pod that uses the volume read-only.
///
/// Kubernetes, Persistent Volumes, Raw Block Volume Support: a block device without any filesystem on it.
#[case(needs = [Block, Root, Owners, Loop, Persistent])]
async fn container_reads_and_writes_its_device(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().create().await?;

    let web = cx.pod("web").device(&disk, "/dev/xvda").start().await?;
    let inside = web.container().await?;
    inside.writes("/dev/xvda", "hello").await?;
    inside.reads("/dev/xvda", "hello").await?;
    cx.forget().await?;
    inside
        .sees(expect![[r#"
        /dev/xvda                block  <device:disk>
    "#]])
        .await?;
    web.stop().await?;

    let reader = cx.pod("reader").device(&disk, "/dev/xvda").read_only().start().await?;
    reader.container().await?.reads("/dev/xvda", "hello").await?;
    reader.stop().await
}

/// A container keeps its device while the node or the driver is killed and started again. The restarted node
/// reconstructs the device, hands it to the container's next start, and tears it down.
///
/// CSI, NodePublishVolume: this operation MUST be idempotent.
#[case(needs = [Block, Root, Owners, Loop, Persistent])]
async fn container_keeps_its_device_over_restarts(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().create().await?;
    let web = cx.pod("web").device(&disk, "/dev/xvda").start().await?;
    let inside = web.container().await?;
    inside.writes("/dev/xvda", "hello").await?;

    cx.across(&[Restart, Kill, DriverRestart], async |_| {
        inside.reads("/dev/xvda", "hello").await?;
        web.runs().await?;
        let again = web.container().await?;
        again.reads("/dev/xvda", "hello").await?;
        cx.forget().await?;
        again
            .sees(expect![[r#"
            /dev/xvda                block  <device:disk>
        "#]])
            .await
    })
    .await?;

    web.stop().await?;
    cx.sees(expect![[r#"
        unlock <map:disk/web>
        unlink <web>/disk
        umount <map:disk/web>
        csi    Unpublish disk web
        umount <publish:disk/web>
        csi    Unstage disk
        rmdir  <map:disk>
    "#]])
        .await
}

/// A pod that uses a block volume read-only cannot write it: the device or its bind is read-only, and the container's
/// device rule allows reads alone.
///
/// CSI, NodePublishVolumeRequest.readonly: the volume is published in read-only mode.
#[case(needs = [Block, Root, Owners, Loop, Persistent])]
async fn read_only_pod_cannot_write_its_device(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().create().await?;
    let writer = cx.pod("writer").device(&disk, "/dev/xvda").start().await?;
    writer.container().await?.writes("/dev/xvda", "hello").await?;
    cx.was_asked(Method::Publish, "/readonly", "")?;
    writer.stop().await?;

    let reader = cx.pod("reader").device(&disk, "/dev/xvda").read_only().start().await?;
    cx.was_asked(Method::Publish, "/readonly", "true")?;
    let read_only = cx.target_is_read_only(&disk, &reader)?;
    let cause = "Neither the device at the target nor its bind is read-only.";
    cx.keeps("DRV-050", "NodePublishVolume", read_only, cause)?;
    let inside = reader.container().await?;
    inside.reads("/dev/xvda", "hello").await?;
    inside.cannot_write("/dev/xvda", "EPERM").await?;
    reader.stop().await?;

    let writer = cx.pod("again").device(&disk, "/dev/xvda").start().await?;
    writer.container().await?.reads("/dev/xvda", "hello").await?;
    writer.stop().await
}

/// A local block volume whose path is a link gets the device that the link leads to.
///
/// Kubernetes, Volumes, local: volumeMode Block. Administrators name disks by links (`/dev/disk/by-id/…`).
#[case(needs = [Owners, Loop])]
async fn link_to_a_device_is_followed(cx: &mut Cx) -> Result {
    let link = cx.machine()?.join("by-id");
    std::os::unix::fs::symlink(cx.disk()?, &link)?;
    let disk = cx.local_block("disk", &link)?;

    let web = cx.pod("web").device(&disk, "/dev/xvda").start().await?;
    cx.sees(expect![[r#"
        bind   <map:disk/web>      =  <device:disk>
        link   <web>/disk          ->  <device:disk>
        lock   <map:disk/web>
    "#]])
        .await?;
    web.container()
        .await?
        .sees(expect![[r#"
            /dev/xvda                block  <device:disk>
        "#]])
        .await?;
    web.stop().await?;
    cx.sees(expect![[r#"
        unlock <map:disk/web>
        unlink <web>/disk
        umount <map:disk/web>
        rmdir  <map:disk>
    "#]])
        .await
}

/// A publish that answers OK and leaves no device at its target is reported without a path of the node. Nothing reaches
/// the pod, and the volume is unpublished all the same, since it may be published.
///
/// CSI, NodePublishVolume: on success the volume is at target_path.
#[case(needs = [StageUnstage, Block, Root, Loop])]
async fn missing_device_at_the_target_is_reported(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().create().await?;
    let publish = cx.hold(Method::Publish);
    let web = cx.pod("web").device(&disk, "/dev/xvda").add().await?;
    publish.succeeded().await?;
    cx.loses_target(&disk, &web)?;
    // Later retries of the node do not reach the driver.
    cx.fail(Method::Publish, Code::Internal).times(u32::MAX);
    publish.release();
    web.has_event(expect![[r#"
        FailedMapVolume: MapVolume.EvalHostSymlinks failed for volume "pv-disk" : No such file or directory (os error 2)
    "#]]).await?;

    web.remove().await?;
    cx.forget().await?;
    cx.was_asked(Method::Unpublish, "/volumeId", "<volume:disk>")?;
    cx.was_asked(Method::Unstage, "/volumeId", "<volume:disk>")
}

/// A file system volume cannot be used as a device, nor a block volume as a directory. The pod waits with an event, and
/// neither the driver nor the kernel is asked for anything.
///
/// Kubernetes API, PersistentVolumeSpec.volumeMode: volumeDevices need Block, volumeMounts need Filesystem.
#[case(needs = [Block, Filesystem, Root, TwoVolumes])]
async fn wrong_volume_mode_is_refused(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().create().await?;
    let data = cx.volume("data").create().await?;
    let mounts = cx.pod("mounts").volume(&disk, "/disk").add().await?;
    mounts.has_event(expect![[r#"
        FailedMount: Unable to attach or mount volumes: unmounted volumes=[disk], unattached volumes=[], failed to process volumes=[disk]: volume disk has volumeMode Block, but is specified in volumeMounts
    "#]]).await?;
    let maps = cx.pod("maps").device(&data, "/dev/xvda").add().await?;
    maps.has_event(expect![[r#"
        FailedMount: Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: volume data has volumeMode Filesystem, but is specified in volumeDevices
    "#]]).await?;
    mounts.stop().await?;
    maps.stop().await?;
    cx.sees(expect![""]).await
}

/// A restarted node recognises the bind and the loop device that its predecessor made, and makes no second one of
/// either.
///
/// Kubernetes, Raw Block Volume Support: a device is held open as long as a pod has it.
#[case(needs = [Block, Root, Loop])]
async fn device_is_bound_once_after_a_restart(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().create().await?;
    let web = cx.pod("web").device(&disk, "/dev/xvda").start().await?;
    cx.forget().await?;

    cx.node().restart().await?;
    web.runs().await?;
    cx.sees(expect![[r#"
        csi    Stage disk
        csi    Publish disk web
    "#]])
        .await?;
    web.stop().await?;
    cx.sees(expect![[r#"
        unlock <map:disk/web>
        unlink <web>/disk
        umount <map:disk/web>
        csi    Unpublish disk web
        umount <publish:disk/web>
        csi    Unstage disk
        rmdir  <map:disk>
    "#]])
        .await
}

/// A regular file where the pod's link to its device should be is not taken for the device: the container does not
/// start.
///
/// Kubernetes, Raw Block Volume Support: the pod's link is the node's, and nothing else of that name is.
#[case(needs = [Block, Root, Owners, Loop, Persistent])]
async fn file_in_place_of_the_device_link_is_refused(cx: &mut Cx) -> Result {
    let disk = cx.volume("disk").block().create().await?;
    let web = cx.pod("web").device(&disk, "/dev/xvda").start().await?;
    let link = cx.place("disk", &web)?;
    let aside = link.with_extension("aside");
    std::fs::rename(&link, &aside)?;
    std::fs::write(&link, "precious")?;
    web.container_is_refused(expect![[r#"
        Cannot find volume "disk" to pass into container "main".
    "#]])
        .await?;

    std::fs::rename(&aside, &link)?;
    web.container().await?.writes("/dev/xvda", "hello").await?;
    web.stop().await
}
