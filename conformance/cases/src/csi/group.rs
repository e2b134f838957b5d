//! fsGroup: the driver or the node gives a driver's volume to its pod's group.

use crate::prelude::*;

/// A driver with VOLUME_MOUNT_GROUP gets the pod's group with NodePublishVolume, and the group can write to files of
/// another owner.
///
/// CSI, VolumeCapability.MountVolume.volume_mount_group: the volume must be readable and writable by the group.
#[case(needs = [Filesystem, GivesGroups, Root, Owners, Persistent])]
async fn publish_applies_the_group(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    root_writes(cx, "root", &data).await?;
    let web = cx.pod("web").volume(&data, "/data").fs_group(2000).run_as(1000).start().await?;
    cx.was_asked(Method::Publish, GROUP, "2000")?;
    let inside = web.container().await?;
    inside.writes("/data/greeting", "written").await?;
    web.stop().await?;

    let web = cx.pod("other").volume(&data, "/data").start().await?;
    cx.was_asked(Method::Publish, GROUP, "")?;
    web.stop().await
}

/// A driver with VOLUME_MOUNT_GROUP gets the pod's group with NodeStageVolume too.
///
/// CSI, NodeStageVolumeRequest.volume_capability: volume_mount_group.
#[case(needs = [Filesystem, GivesGroups, StageUnstage, Root, Owners])]
async fn stage_gets_the_group(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let web = cx.pod("web").volume(&data, "/data").fs_group(2000).run_as(1000).start().await?;
    cx.was_asked(Method::Stage, GROUP, "2000")?;
    cx.was_asked(Method::Publish, GROUP, "2000")?;
    web.container().await?.writes("/data/greeting", "written").await?;
    web.stop().await
}

/// A process of the requested group can write to the root of the volume.
///
/// CSI, VolumeCapability.MountVolume.volume_mount_group: the volume must be readable and writable by the group.
#[case(needs = [Filesystem, GivesGroups, Root, Owners, Persistent], driver = Shared)]
async fn group_can_write_to_the_root(cx: &mut Cx) -> Result {
    let data = cx.volume("data").create().await?;
    let node = cx.node_calls(&data).await?;
    node.ask_with(|asked| asked["mount"]["volumeMountGroup"] = json!("4711"));
    node.set_up("web").await?;
    let cause = "Published with `volume_mount_group`, the root of the volume cannot be written by the group.";
    let can_write = node.group_can_write(&node.target("web"), 4711).await?;
    cx.keeps("DRV-049", "NodePublishVolume", can_write, cause)?;
    node.tear_down("web").await
}

/// Without VOLUME_MOUNT_GROUP the node applies the group as fsGroupPolicy says: always, never, or for a single-node
/// volume whose file system type is known.
///
/// Kubernetes, CSIDriver.spec.fsGroupPolicy: ReadWriteOnceWithFSType, File, None.
#[case(needs = [Creates, Filesystem, LeavesGroups, Root, Owners, FsTypes, Persistent])]
async fn policy_selects_who_applies_the_group(cx: &mut Cx) -> Result {
    use FsGroupPolicy::{File, None, ReadWriteOnceWithFsType};
    let known = &cx.fs_types()[0][..];
    for (policy, fs_type, given) in [
        (ReadWriteOnceWithFsType, known, true),
        (ReadWriteOnceWithFsType, "", false),
        (File, "", true),
        (None, known, false),
    ] {
        let name = format!("{policy:?}-{fs_type}").to_lowercase();
        // Without a type it is as large as one with it: the driver may choose the same.
        let data = cx.volume(&format!("data-{name}")).fs_type(fs_type).size(cx.ordinary_size());
        let data = data.create().await?;
        root_writes(cx, &format!("root-of-{name}"), &data).await?;
        cx.group_policy(policy)?;
        let web = cx.pod(&format!("web-{name}")).volume(&data, "/data").fs_group(2000).run_as(1000);
        let web = web.start().await?;
        cx.was_asked(Method::Publish, GROUP, "")?;
        let inside = web.container().await?;
        match given {
            true => inside.writes("/data/greeting", "written").await?,
            false => inside.cannot_write("/data/greeting", "EACCES").await?,
        }
        web.stop().await?;
    }
    Ok(())
}

/// A container gets the group of its volume as a supplementary group, once.
///
/// Kubernetes, `pv.beta.kubernetes.io/gid`: every container that uses the volume belongs to the group.
#[case(needs = [Filesystem, Root, Owners, Persistent, TwoVolumes])]
async fn container_joins_the_group_of_its_volume(cx: &mut Cx) -> Result {
    let data = cx.volume("data").gid(3000).create().await?;
    let logs = cx.volume("logs").gid(3000).create().await?;
    let web = cx.pod("web").volume(&data, "/data").volume(&logs, "/logs").run_as(1000).groups(&[4000]);
    let web = web.start().await?;
    web.container()
        .await?
        .is(expect![[r#"
            user   1000:0
            groups 3000 4000
            host   web
        "#]])
        .await?;
    web.stop().await
}

/// The path of the group in a request.
const GROUP: &str = "/volumeCapability/mount/volumeMountGroup";

/// Makes a file that only root may write to, from a pod of this name.
async fn root_writes(cx: &Cx, name: &str, data: &Volume) -> Result {
    let root = cx.pod(name).volume(data, "/data").start().await?;
    root.container().await?.writes("/data/greeting", "hello").await?;
    root.stop().await
}
