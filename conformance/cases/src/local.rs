//! local: directories and disks of the node as persistent volumes.

use crate::prelude::*;

/// A directory is bound into the pod and keeps its data; a restarted node reconstructs the volume and unbinds it.
///
/// Kubernetes, Volumes, local: a mounted local storage device such as a disk, partition or directory.
#[case(needs = [])]
async fn directory_is_bound_and_unbound(cx: &mut Cx) -> Result {
    let directory = cx.machine()?.join("data");
    std::fs::create_dir_all(&directory)?;
    let data = cx.local("data", &directory)?;

    let web = cx.pod("web").volume(&data, "/data").start().await?;
    let inside = web.container().await?;
    inside.writes("/data/greeting", "hello").await?;
    cx.sees(expect![[r#"
        mkdir  <web>/data
        bind   <web>/data          =  <machine>/data
    "#]])
        .await?;

    cx.node().kill().await?;
    web.remove().await?;
    cx.node().start().await?;
    cx.sees(expect![[r#"
        umount <web>/data
        rmdir  <web>/data
    "#]])
        .await?;
    cx.same("the file in the directory", &std::fs::read_to_string(directory.join("greeting"))?, "hello")
}

/// An empty disk is formatted, mounted once for the node and bound for each pod, and unmounted after the last one. The
/// next pod finds the data.
///
/// Kubernetes, Volumes, local: volumeMode Filesystem.
#[case(needs = [Owners, Loop])]
async fn empty_disk_is_formatted_and_mounted(cx: &mut Cx) -> Result {
    let data = cx.local("data", &cx.disk()?)?;

    let first = cx.pod("first").volume(&data, "/data").start().await?;
    let second = cx.pod("second").volume(&data, "/data").start().await?;
    first.container().await?.writes("/data/greeting", "hello").await?;
    second
        .container()
        .await?
        .sees(expect![[r#"
        /data                    dir  0755 0:0  rw
          greeting               file  0644 0:0  "hello"
    "#]])
        .await?;
    cx.sees(expect![[r#"
        mount  <global:data>       ext4
        mkdir  <first>/data
        bind   <first>/data        =  <global:data>
        mkdir  <second>/data
        bind   <second>/data       =  <global:data>
    "#]])
        .await?;

    first.stop().await?;
    second.stop().await?;
    cx.sees(expect![[r#"
        umount <first>/data
        rmdir  <first>/data
        umount <second>/data
        rmdir  <second>/data
        umount <global:data>
    "#]])
        .await?;
    let third = cx.pod("third").volume(&data, "/data").start().await?;
    third.container().await?.reads("/data/greeting", "hello").await?;
    third.stop().await
}

/// A container gets a local block volume as a device, and the next pod finds the data.
///
/// Kubernetes, Volumes, local: volumeMode Block.
#[case(needs = [Owners, Loop])]
async fn block_device_reaches_the_container(cx: &mut Cx) -> Result {
    let disk = cx.local_block("disk", &cx.disk()?)?;

    let web = cx.pod("web").device(&disk, "/dev/xvda").start().await?;
    let inside = web.container().await?;
    inside.writes("/dev/xvda", "hello").await?;
    inside
        .sees(expect![[r#"
        /dev/xvda                block  <device:disk>
    "#]])
        .await?;
    cx.sees(expect![[r#"
        bind   <map:disk/web>      =  <device:disk>
        link   <web>/disk          ->  <device:disk>
        lock   <map:disk/web>
    "#]])
        .await?;

    web.stop().await?;
    cx.sees(expect![[r#"
        unlock <map:disk/web>
        unlink <web>/disk
        umount <map:disk/web>
        rmdir  <map:disk>
    "#]])
        .await?;
    let next = cx.pod("next").device(&disk, "/dev/xvda").start().await?;
    next.container().await?.reads("/dev/xvda", "hello").await?;
    next.stop().await
}

/// A container with a read-only block volume cannot write to the device, although another pod can, and cannot open
/// another disk through a device node of its own.
///
/// Kubernetes, Volumes, local: readOnly. Kubernetes, Pod Security Standards: only privileged containers may use the
/// node's devices.
#[case(needs = [Owners, Loop, DeviceRules])]
async fn read_only_disk_cannot_be_written(cx: &mut Cx) -> Result {
    let disk = cx.local_block("disk", &cx.disk()?)?;
    let other = cx.disk()?;
    let writer = cx.pod("writer").device(&disk, "/dev/xvda").start().await?;
    writer.container().await?.writes("/dev/xvda", "hello").await?;

    let reader = cx.pod("reader").device(&disk, "/dev/xvda").read_only().start().await?;
    let inside = reader.container().await?;
    inside.reads("/dev/xvda", "hello").await?;
    inside.cannot_write("/dev/xvda", "EPERM").await?;
    inside.cannot_open_node_of(&other, "EPERM").await?;

    let guard = cx.pod("guard").inline("tmp", empty_dir(), "/tmp").privileged().start().await?;
    guard.container().await?.opens_node_of(&other).await?;
    reader.stop().await?;
    writer.stop().await
}

/// A disk with data that is no file system is not formatted: the pod waits with an event, the data stays, and nothing
/// is left mounted.
///
/// Kubernetes, Volumes, local: a disk is formatted only when it is empty.
#[case(needs = [Owners, Loop])]
async fn disk_with_other_data_is_not_formatted(cx: &mut Cx) -> Result {
    let disk = cx.disk()?;
    let mut table = [0_u8; 512];
    // One partition of type 0x83 from sector 2048 on, and the mark of a partition table.
    table[446..462].copy_from_slice(&[0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0]);
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    std::fs::write(&disk, table)?;
    let data = cx.local("data", &disk)?;

    let web = cx.pod("web").volume(&data, "/data").add().await?;
    web.has_event(expect![[r#"
        FailedMount: MountVolume.MountDevice failed for volume "<volume:data>" : local: failed to mount the volume's device: failed to mount the volume as "ext4", it already contains unknown data, probably partitions. Mount error: Invalid argument (os error 22)
    "#]]).await?;
    web.stop().await?;
    cx.sees(expect![""]).await?;
    let kept = std::fs::read(&disk)?;
    cx.same("the mark of the partition table", &format!("{:x?}", &kept[510..512]), "[55, aa]")
}

/// A corrupt file system is not mounted: the pod waits with an event that names no path of the node, the data stays,
/// and nothing is left mounted.
///
/// Kubernetes, Volumes, local: a file system whose errors fsck cannot correct is not mounted.
#[case(needs = [Owners, Loop])]
async fn corrupt_file_system_is_not_mounted(cx: &mut Cx) -> Result {
    let disk = cx.corrupt_disk()?;
    let data = cx.local("data", &disk)?;
    let web = cx.pod("web").volume(&data, "/data").add().await?;
    web.has_event(expect![[r#"
        FailedMount: MountVolume.MountDevice failed for volume "<volume:data>" : local: failed to mount the volume's device: its file system has errors that 'fsck' found but could not correct
    "#]]).await?;
    web.stop().await?;
    cx.sees(expect![""]).await
}

/// A path that is neither a directory nor a disk is refused with an event.
///
/// Kubernetes, Volumes, local.
#[case(needs = [])]
async fn path_of_another_type_is_refused(cx: &mut Cx) -> Result {
    let file = cx.machine()?.join("file");
    std::fs::write(&file, "x")?;
    let data = cx.local("data", &file)?;
    let web = cx.pod("web").volume(&data, "/data").add().await?;
    web.has_event(expect![[r#"
        FailedMount: MountVolume.MountDevice failed for volume "<volume:data>" : only directory and block device are supported, and `<machine>/file` is neither
    "#]]).await?;
    web.stop().await?;
    cx.sees(expect![""]).await
}
