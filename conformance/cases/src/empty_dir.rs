//! emptyDir: a directory that lives as long as its pod.

use crate::prelude::*;

/// An emptyDir is writable for every user, keeps its data while the pod lives, and is removed with the pod and
/// everything in it.
///
/// Kubernetes, Volumes, emptyDir: when a Pod is removed from a node, the data in the emptyDir is deleted.
#[case(needs = [])]
async fn data_lives_as_long_as_its_pod(cx: &mut Cx) -> Result {
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

/// An emptyDir keeps its data over a restart of the node, is not made a second time, and is removed with its pod.
///
/// Kubernetes, Volumes, emptyDir: the volume exists as long as the Pod is running on that node.
#[case(needs = [])]
async fn data_survives_a_node_restart(cx: &mut Cx) -> Result {
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

/// An emptyDir in memory is a tmpfs no larger than its sizeLimit or the pod's memory limit.
///
/// Kubernetes, Volumes, emptyDir: the limit for memory medium EmptyDir is the minimum of sizeLimit and the sum
/// of the memory limits of all containers in a pod.
#[case(needs = [Owners])]
async fn memory_medium_is_limited(cx: &mut Cx) -> Result {
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

/// An emptyDir of huge pages has pages of the size that its containers ask for, or that its medium names. One whose medium
/// names a size that no container asks for is refused, and nothing is made.
///
/// Kubernetes, Manage HugePages: a pod may use pages of several sizes, and names one in the medium of each volume.
#[case(needs = [HugePages])]
async fn huge_pages_are_of_the_size_that_is_asked_for(cx: &mut Cx) -> Result {
    let huge = |medium: &str| VolumeSource::EmptyDir { medium: medium.to_owned(), size_limit: None };
    let web = cx.pod("web").inline("any", huge("HugePages"), "/any").inline(
        "named",
        huge("HugePages-2Mi"),
        "/named",
    );
    let web = web.resource("requests.hugepages-2Mi", "4Mi").start().await?;
    cx.sees(expect![[r#"
        mkdir  <web>/any
        mount  <web>/any           hugetlbfs
        mkdir  <web>/named
        mount  <web>/named         hugetlbfs
    "#]])
        .await?;
    let inside = web.container().await?;
    inside
        .sees(expect![[r#"
            /any                     dir  0755 0:0  rw  hugetlbfs pagesize=2M
            /named                   dir  0755 0:0  rw  hugetlbfs pagesize=2M
        "#]])
        .await?;
    web.stop().await?;
    cx.sees(expect![[r#"
        umount <web>/any
        rmdir  <web>/any
        umount <web>/named
        rmdir  <web>/named
    "#]])
        .await?;

    let other = cx.pod("other").inline("named", huge("HugePages-1Gi"), "/named");
    let other = other.resource("requests.hugepages-2Mi", "4Mi").add().await?;
    other.has_event(expect![[r#"
        FailedMount: MountVolume.SetUp failed for volume "named" : medium HugePages-1Gi: hugePages storage requested, but there is no resource request for huge pages
    "#]]).await?;
    other.remove().await?;
    cx.sees(expect![""]).await
}

/// An emptyDir with an unknown medium is refused with an event, and nothing is made.
///
/// Kubernetes API, EmptyDirVolumeSource.medium: must be an empty string (default) or Memory.
#[case(needs = [])]
async fn unknown_medium_is_refused(cx: &mut Cx) -> Result {
    let paper = VolumeSource::EmptyDir { medium: "Paper".to_owned(), size_limit: None };
    let web = cx.pod("web").inline("cache", paper, "/cache").add().await?;
    web.has_event(expect![[r#"
        FailedMount: MountVolume.SetUp failed for volume "cache" : unknown storage medium "Paper"
    "#]])
        .await?;
    web.stop().await?;
    cx.sees(expect![""]).await
}
