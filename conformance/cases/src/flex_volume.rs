//! FlexVolume: volumes that are mounted by a program which the node's administrator has installed.

use crate::prelude::*;

const DRIVER: &str = "example.com/memory";

/// A driver that mounts a tmpfs as its volume.
const PROGRAM: &str = r#"#!/bin/sh
case "$1" in
    init) echo '{"status": "Success", "capabilities": {"attach": false}}' ;;
    mount)
        case "$3" in
            *'"kubernetes.io/readwrite":"ro"'*) mode=ro ;;
            *) mode=rw ;;
        esac
        case "$3" in
            *'"size":"refused"'*) echo '{"status": "Failure", "message": "no such size"}' ;;
            *) mount -t tmpfs -o "$mode" memory "$2" && echo '{"status": "Success"}' ;;
        esac ;;
    unmount) umount "$2" && echo '{"status": "Success"}' ;;
    *) echo '{"status": "Not supported"}' ;;
esac
"#;

/// The program of a FlexVolume driver mounts a volume for its pod, and unmounts it after a restart of the node, too.
///
/// Kubernetes, FlexVolume: the driver is called with `mount <dir> <options>` and `unmount <dir>`.
#[case(needs = [])]
async fn program_mounts_and_unmounts_its_volume(cx: &mut Cx) -> Result {
    cx.flex_volume_driver(DRIVER, PROGRAM)?;
    let web = cx.pod("web").inline("scratch", flex_volume(DRIVER, false, &[]), "/scratch").start().await?;
    web.container().await?.writes("/scratch/greeting", "hello").await?;
    cx.sees(expect![[r#"
        mkdir  <web>/scratch
        mount  <web>/scratch       tmpfs
    "#]])
        .await?;
    cx.node().restart().await?;
    web.runs().await?;
    web.container().await?.reads("/scratch/greeting", "hello").await?;
    web.stop().await?;
    cx.sees(expect![[r#"
        umount <web>/scratch
        rmdir  <web>/scratch
    "#]])
        .await
}

/// A read-only FlexVolume is mounted read-only: its driver gets the option for it.
///
/// Kubernetes, FlexVolume: `kubernetes.io/readwrite` is `ro` or `rw`.
#[case(needs = [])]
async fn read_only_volume_cannot_be_written(cx: &mut Cx) -> Result {
    cx.flex_volume_driver(DRIVER, PROGRAM)?;
    let reader =
        cx.pod("reader").inline("scratch", flex_volume(DRIVER, true, &[]), "/scratch").start().await?;
    let written = std::fs::write(cx.place("scratch", &reader)?.join("other"), "never");
    cx.finds(
        written.is_err(),
        "The driver was not told that the volume is read-only, and mounted it for writing.",
    )?;
    reader.stop().await
}

/// A pod whose FlexVolume is refused has an event with the driver's message.
///
/// Kubernetes, FlexVolume: a status that is not `Success` comes with a message.
#[case(needs = [])]
async fn refused_volume_has_the_words_of_its_driver(cx: &mut Cx) -> Result {
    cx.flex_volume_driver(DRIVER, PROGRAM)?;
    let refused = flex_volume(DRIVER, false, &[("size", "refused")]);
    let web = cx.pod("web").inline("scratch", refused, "/scratch").add().await?;
    web.has_event(expect![[r#"
        FailedMount: MountVolume.SetUp failed for volume "scratch" : mount command failed, status: Failure, reason: no such size
    "#]]).await?;
    web.stop().await
}
