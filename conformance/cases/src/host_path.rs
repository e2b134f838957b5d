//! hostPath: a path of the node's machine, as it is.

use crate::prelude::*;

/// DirectoryOrCreate makes a missing directory with its parents, FileOrCreate a missing file in an existing directory.
/// Both stay when the pod is gone, with what it wrote.
///
/// Kubernetes, Volumes, hostPath volume types: DirectoryOrCreate and FileOrCreate.
#[case(needs = [])]
async fn missing_path_is_made_and_stays(cx: &mut Cx) -> Result {
    let machine = cx.machine()?;
    let data = machine.join("data/deep").display().to_string();
    let file = machine.join("settings").display().to_string();

    let web = cx.pod("web").inline("data", host_path(&data, "DirectoryOrCreate"), "/data");
    let web = web.inline("settings", host_path(&file, "FileOrCreate"), "/etc/settings").start().await?;
    let inside = web.container().await?;
    inside.writes("/data/greeting", "hello").await?;
    inside.writes("/etc/settings", "a = 1").await?;
    inside
        .sees(expect![[r#"
        /data                    dir  0755 0:0  rw
          greeting               file  0644 0:0  "hello"
        /etc/settings            file  0644 0:0  "a = 1"  rw
    "#]])
        .await?;
    web.stop().await?;
    cx.sees(expect![""]).await?;

    let next = cx.pod("next").inline("data", host_path(&data, "Directory"), "/data").read_only();
    let next = next.inline("settings", host_path(&file, "File"), "/etc/settings").start().await?;
    let inside = next.container().await?;
    inside.reads("/etc/settings", "a = 1").await?;
    inside.reads("/data/greeting", "hello").await?;
    inside.cannot_write("/data/greeting", "EROFS").await?;
    next.stop().await
}

/// A path that is not of the type asked for, links followed, is reported with an event, and no container starts.
///
/// Kubernetes, Volumes, hostPath volume types: a directory, file, socket or device must exist at the given path.
#[case(needs = [])]
async fn wrong_type_is_refused(cx: &mut Cx) -> Result {
    let machine = cx.machine()?;
    std::fs::write(machine.join("file"), "x")?;
    std::os::unix::fs::symlink("/dev/null", machine.join("null"))?;
    let path = |name: &str| machine.join(name).display().to_string();
    for (pod, name, kind, event) in [
        (
            "a",
            "file",
            "Directory",
            expect![[r#"
            FailedMount: MountVolume.SetUp failed for volume "data" : hostPath type check failed: <machine>/file is not a directory
        "#]],
        ),
        (
            "b",
            "file",
            "Socket",
            expect![[r#"
            FailedMount: MountVolume.SetUp failed for volume "data" : hostPath type check failed: <machine>/file is not a socket file
        "#]],
        ),
        (
            "c",
            "null",
            "BlockDevice",
            expect![[r#"
            FailedMount: MountVolume.SetUp failed for volume "data" : hostPath type check failed: <machine>/null is not a block device
        "#]],
        ),
        (
            "d",
            "absent",
            "File",
            expect![[r#"
            FailedMount: MountVolume.SetUp failed for volume "data" : hostPath type check failed: <machine>/absent is not a file
        "#]],
        ),
        (
            "e",
            "absent/file",
            "FileOrCreate",
            expect![[r#"
            FailedMount: MountVolume.SetUp failed for volume "data" : cannot create `<machine>/absent/file`: No such file or directory (os error 2)
        "#]],
        ),
        (
            "f",
            "file/../file",
            "File",
            expect![[r#"
            FailedMount: MountVolume.SetUp failed for volume "data" : invalid HostPath `<machine>/file/../file`: must not contain '..'
        "#]],
        ),
        (
            "g",
            "file",
            "Paper",
            expect![[r#"
            FailedMount: MountVolume.SetUp failed for volume "data" : Paper is an invalid volume type
        "#]],
        ),
    ] {
        let web = cx.pod(pod).inline("data", host_path(&path(name), kind), "/data").add().await?;
        web.has_event(event).await?;
        web.stop().await?;
    }
    let link = cx.pod("link").inline("null", host_path(&path("null"), "CharDevice"), "/null").start().await?;
    link.container()
        .await?
        .sees(expect![[r#"
        /null                    char  1:3  rw
    "#]])
        .await?;
    link.stop().await?;
    cx.sees(expect![""]).await
}
