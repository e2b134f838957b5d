//! emptyDir: a directory that lives as long as its pod.

use crate::prelude::*;

/// An empty directory is there for everybody to write to, keeps what is written while its pod lives, and goes
/// with the pod and all that is in it.
///
/// Kubernetes, Volumes, emptyDir: when a Pod is removed from a node, the data in the emptyDir is deleted.
#[case(needs = [])]
async fn lives_as_long_as_its_pod(cx: &mut Cx) -> Result {
    let web = cx.pod("web").inline("cache", empty_dir(), "/cache").start().await?;
    cx.sees(expect![[r#"
        mkdir  <web>/cache
    "#]])
        .await?;

    let inside = web.container().await?;
    inside.writes("/cache/greeting", "hello").await?;
    inside
        .sees(expect![[r#"
        /cache                   dir  0777 0:0  rw
          greeting               file  0644 0:0  "hello"
    "#]])
        .await?;

    // Another start of the container finds what the first has left.
    let inside = web.container().await?;
    inside.reads("/cache/greeting", "hello").await?;
    cx.forget().await?;

    web.stop().await?;
    cx.sees(expect![[r#"
        rmdir  <web>/cache
    "#]])
        .await
}

/// When the node dies and comes back, the container has lost nothing, the volume is not made again, and it is
/// taken away when the pod goes.
///
/// Kubernetes, Volumes, emptyDir: the volume exists as long as the Pod is running on that node.
#[case(needs = [])]
async fn survives_the_node(cx: &mut Cx) -> Result {
    let web = cx.pod("web").inline("cache", empty_dir(), "/cache").inline("fast", memory(1 << 20), "/fast");
    let web = web.start().await?;
    let inside = web.container().await?;
    inside.writes("/cache/greeting", "hello").await?;
    inside.writes("/fast/greeting", "adieu").await?;
    cx.forget().await?;

    cx.across(&[Restart, Kill, DriverRestart], async |_| {
        inside.reads("/cache/greeting", "hello").await?;
        web.runs().await?;
        let again = web.container().await?;
        again.reads("/cache/greeting", "hello").await?;
        again.reads("/fast/greeting", "adieu").await?;
        cx.sees(expect![""]).await
    })
    .await?;

    cx.node().kill().await?;
    web.remove().await?;
    cx.node().start().await?;
    cx.sees(expect![[r#"
        rmdir  <web>/cache
        umount <web>/fast
        rmdir  <web>/fast
    "#]])
        .await
}

/// A volume in memory is a file system of its own, no larger than it says or than its pod may be.
///
/// Kubernetes, Volumes, emptyDir: the limit for memory medium EmptyDir is the minimum of sizeLimit and the sum
/// of the memory limits of all containers in a pod.
#[case(needs = [Owners])]
async fn in_memory_it_is_limited(cx: &mut Cx) -> Result {
    let web = cx.pod("web").inline("fast", memory(64 << 20), "/fast").resource("limits.memory", "32Mi");
    let web = web.fs_group(2000).run_as(1000).start().await?;
    cx.sees(expect![[r#"
        mkdir  <web>/fast
        mount  <web>/fast          tmpfs
    "#]])
        .await?;

    let inside = web.container().await?;
    inside.writes("/fast/greeting", "hello").await?;
    inside
        .sees(expect![[r#"
        /fast                    dir  3777 0:2000  rw  tmpfs size=32768k
          greeting               file  0644 1000:2000  "hello"
    "#]])
        .await?;

    web.stop().await?;
    cx.sees(expect![[r#"
        umount <web>/fast
        rmdir  <web>/fast
    "#]])
        .await
}

/// A medium that nobody knows is told to the user, and nothing is made of it.
///
/// Kubernetes API, EmptyDirVolumeSource.medium: must be an empty string (default) or Memory.
#[case(needs = [])]
async fn medium_nobody_knows(cx: &mut Cx) -> Result {
    let paper = VolumeSource::EmptyDir { medium: "Paper".to_owned(), size_limit: None };
    let web = cx.pod("web").inline("cache", paper, "/cache").add().await?;
    web.is_told(expect![[r#"
        FailedMount: MountVolume.SetUp failed for volume "cache" : unknown storage medium "Paper"
    "#]])
        .await?;
    web.stop().await?;
    cx.sees(expect![""]).await
}
