//! Disks that fail under `local` volumes: while they are formatted, while they are mounted, and when power is lost.
//!
//! They need a kernel of their own: guests have one.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use expect_test::Expect;

use crate::prelude::*;

/// The number of flushes after which power is lost.
const CUTS: usize = 8;

/// A disk that cannot be read is neither formatted nor mounted: the pod waits with an event, and gets the disk once it
/// can be read.
///
/// Kubernetes, Volumes, local: a disk is formatted only when it is empty, and what cannot be read may not be.
#[case(needs = [Owners, Loop, OwnKernel, DeviceMapper])]
async fn unreadable_disk_is_not_formatted(cx: &mut Cx) -> Result {
    let event = expect![[r#"
        FailedMount: MountVolume.MountDevice failed for volume "<volume:data>" : local: failed to mount the volume's device: cannot find out what is on it: Input/output error (os error 5)
    "#]];
    let disk = cx.faulty_disk()?;
    disk.is(Manner::Fails)?;
    refused_until_sound(cx, disk.path(), || disk.is(Manner::Sound), event).await
}

/// A disk that cannot be written cannot be formatted: the pod waits with an event and nothing is left, and it gets the
/// disk once it can be written.
///
/// Kubernetes, Volumes, local.
#[case(needs = [Owners, Loop, OwnKernel, DeviceMapper])]
async fn unwritable_disk_is_reported(cx: &mut Cx) -> Result {
    let event = expect![[r#"
        FailedMount: MountVolume.MountDevice failed for volume "<volume:data>" : local: failed to mount the volume's device: cannot format it as ext4: the node's log says why
    "#]];
    let disk = cx.faulty_disk()?;
    disk.is(Manner::FailsWrites)?;
    refused_until_sound(cx, disk.path(), || disk.is(Manner::Sound), event).await
}

/// A disk whose first sectors are bad may hold data behind them, and is not formatted.
///
/// Kubernetes, Volumes, local: a disk is formatted only when it is empty.
#[case(needs = [Owners, OwnKernel])]
async fn disk_with_bad_sectors_is_not_formatted(cx: &mut Cx) -> Result {
    const FIRST: Range<u64> = 0..16;
    let disk = cx.spotty_disk()?;
    disk.is_bad_at(FIRST)?;
    let event = expect![[r#"
        FailedMount: MountVolume.MountDevice failed for volume "<volume:data>" : local: failed to mount the volume's device: cannot find out what is on it: Input/output error (os error 5)
    "#]];
    refused_until_sound(cx, disk.path(), || disk.is_good_at(FIRST), event).await
}

/// When a disk is unplugged under a pod, writes fail and the pod can still be deleted with all its mounts. The next pod
/// waits with an event that the disk does not exist.
///
/// Kubernetes, Pod Lifecycle: a pod whose volume is broken can be deleted.
#[case(needs = [Owners, OwnKernel])]
async fn unplugged_disk_is_unmounted(cx: &mut Cx) -> Result {
    let disk = cx.plugged_disk()?;
    let data = cx.local("data", disk.path())?;
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    let inside = web.container().await?;
    inside.writes("/data/greeting", "hello").await?;
    cx.forget().await?;

    disk.is_pulled_out()?;
    inside.cannot_write_to_lost_disk("/data/other").await?;
    web.stop().await?;
    cx.sees(expect![[r#"
        umount <web>/data
        rmdir  <web>/data
        umount <global:data>
    "#]])
        .await?;

    let next = cx.pod("next").volume(&data, "/data").add().await?;
    next.has_event(expect![[r#"
        FailedMount: MountVolume.MountDevice failed for volume "<volume:data>" : local: cannot look at `<device:data>`: No such file or directory (os error 2)
    "#]]).await?;
    next.stop().await
}

/// A disk is in use as long as a pod has it. After the last pod nothing holds it, and its kernel module can be
/// unloaded.
///
/// Linux, delete_module(2): EWOULDBLOCK, the module is in use.
#[case(needs = [Owners, OwnKernel])]
async fn disk_is_released_with_its_last_pod(cx: &mut Cx) -> Result {
    let disk = cx.plugged_disk()?;
    let data = cx.local("data", disk.path())?;
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    web.container().await?.writes("/data/greeting", "hello").await?;
    disk.is_held()?;
    web.stop().await?;
    disk.is_let_go()
}

/// When a disk fails under a pod, writes fail and the pod can still be deleted with all its mounts. Synced data is
/// there when the disk works again.
///
/// Kubernetes, Pod Lifecycle: a pod whose volume is broken can be deleted.
#[case(needs = [Owners, Loop, OwnKernel, DeviceMapper])]
async fn failed_disk_is_unmounted(cx: &mut Cx) -> Result {
    let disk = cx.faulty_disk()?;
    let data = cx.local("data", disk.path())?;
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    let inside = web.container().await?;
    inside.writes("/data/greeting", "hello").await?;
    cx.forget().await?;

    disk.is(Manner::Fails)?;
    inside.cannot_write_to_lost_disk("/data/other").await?;
    web.stop().await?;
    cx.sees(expect![[r#"
        umount <web>/data
        rmdir  <web>/data
        umount <global:data>
    "#]])
        .await?;

    disk.is(Manner::Sound)?;
    let next = cx.pod("next").volume(&data, "/data").start().await?;
    next.container().await?.reads("/data/greeting", "hello").await?;
    next.stop().await
}

/// A slow disk is waited for, and the pod gets it.
#[case(needs = [Owners, Loop, OwnKernel, DeviceMapper])]
async fn slow_disk_is_waited_for(cx: &mut Cx) -> Result {
    let disk = cx.faulty_disk()?;
    disk.is(Manner::Slow(Duration::from_millis(20)))?;
    let data = cx.local("data", disk.path())?;
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    web.container().await?.writes("/data/greeting", "hello").await?;
    web.stop().await
}

/// While one disk hangs, other pods come and go. When it answers again its pod is torn down and has lost nothing.
#[case(needs = [Owners, Loop, OwnKernel, DeviceMapper])]
async fn hung_disk_blocks_no_other_pod(cx: &mut Cx) -> Result {
    let disk = cx.faulty_disk()?;
    let data = cx.local("data", disk.path())?;
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    web.container().await?.writes("/data/greeting", "hello").await?;
    cx.forget().await?;

    disk.hangs()?;
    web.remove().await?;
    let other = cx.pod("other").inline("cache", empty_dir(), "/cache").start().await?;
    other.container().await?.writes("/cache/greeting", "hello").await?;
    other.stop().await?;
    disk.goes_on()?;
    cx.forget().await?;

    let next = cx.pod("next").volume(&data, "/data").start().await?;
    next.container().await?.reads("/data/greeting", "hello").await?;
    next.stop().await
}

/// Whenever power is lost after formatting has begun, the disk can be given to a pod again, and everything that a pod
/// had synced is there.
///
/// Linux, device-mapper log-writes: a disk holds what was written before its last flush.
#[case(needs = [Owners, Loop, OwnKernel, DeviceMapper])]
async fn synced_data_survives_a_power_loss(cx: &mut Cx) -> Result {
    let disk = cx.logged_disk()?;
    let data = cx.local("data", disk.path())?;
    let web = cx.pod("web").volume(&data, "/data").start().await?;
    web.container().await?.writes("/data/greeting", "hello").await?;
    disk.mark("written")?;
    web.stop().await?;
    let log = disk.log()?;

    let written = log.marked("written");
    cx.same("whether the log has the mark", &written.is_some().to_string(), "true")?;
    let mut read = 0;
    let most = if cx.is_thorough() { usize::MAX } else { CUTS };
    let cuts = log.some_cuts(most, cx.seed());
    for (number, cut) in cuts.iter().copied() {
        let name = format!("after-{number}");
        let left = cx.local(&name, &cx.disk_as_of(&log, cut)?)?;
        let pod = cx.pod(&name).volume(&left, "/data").start().await?;
        if written.is_some_and(|written| cut >= written) {
            pod.container().await?.reads("/data/greeting", "hello").await?;
            read += 1;
        }
        pod.stop().await?;
    }
    cx.tries("power cuts", cuts.len(), log.cuts().len());
    cx.same("whether anything was read after a cut", &(read > 0).to_string(), "true")
}

/// A pod that wants the failing disk gets an event and no mount; after the disk is mended the next pod gets it.
async fn refused_until_sound(cx: &Cx, disk: &Path, mended: impl FnOnce() -> Result, event: Expect) -> Result {
    let data = cx.local("data", disk)?;
    let web = cx.pod("web").volume(&data, "/data").add().await?;
    web.has_event(event).await?;
    web.stop().await?;
    cx.sees(expect![""]).await?;

    mended()?;
    let web = cx.pod("again").volume(&data, "/data").start().await?;
    web.container().await?.writes("/data/greeting", "hello").await?;
    web.stop().await
}
