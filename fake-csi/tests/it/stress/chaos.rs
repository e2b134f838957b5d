//! Random calls, some of them invalid, on volumes that all clients share.

use csi_proto::v1;
use csi_proto::v1::volume_capability::access_mode::Mode;
use tonic::{Code, Status};

use super::{Dice, Run, WRITER, is_unavailable, lossy, path_of};
use crate::world::{Csi, block, create, mounted, publish, stage};

/// Number of shared volumes.
const VOLUMES: u64 = 6;
/// Number of targets of each.
const TARGETS: u64 = 3;

pub(super) async fn calls(mut csi: Csi, run: &Run, dice: &mut Dice) {
    while run.goes_on() {
        let answer = call(&mut csi, run, dice).await;
        run.calls.set(run.calls.get() + 1);
        if let Err(status) = answer {
            let is_expected = match status.code() {
                // The codes that an invalid or conflicting call may get.
                Code::InvalidArgument
                | Code::NotFound
                | Code::AlreadyExists
                | Code::FailedPrecondition
                | Code::OutOfRange
                | Code::Aborted => true,
                _ => run.killed && is_unavailable(&status),
            };
            assert!(is_expected, "{status:?}");
            if is_unavailable(&status) {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        }
    }
}

async fn call(csi: &mut Csi, run: &Run, dice: &mut Dice) -> Result<(), Status> {
    let volume = dice.below(VOLUMES);
    let (staging, target) =
        (path_of(run, volume, "staging"), path_of(run, volume, &format!("target-{}", dice.below(TARGETS))));
    // Every third volume is a device.
    let capability = if volume.is_multiple_of(3) { block(WRITER) } else { mounted("", WRITER) };
    let id = run.ids.borrow().get(&volume).cloned().unwrap_or_else(|| "vol-none".to_owned());
    match dice.below(20) {
        0..=2 => {
            let name = format!("shared-{volume}");
            let made = csi.controller.create_volume(create(&name, capability)).await?.into_inner().volume;
            run.ids.borrow_mut().insert(volume, made.unwrap().volume_id);
            Ok(())
        }
        3 => csi.delete(&id).await,
        4..=6 => csi.node.node_stage_volume(stage(&id, &staging, capability)).await.map(drop),
        7..=8 => csi.unstage(&id, &staging).await,
        9..=11 => {
            let mut request = publish(&id, &staging, &target, capability);
            request.readonly = dice.below(4) == 0;
            csi.node.node_publish_volume(request).await.map(drop)
        }
        12..=14 => csi.unpublish(&id, &target).await,
        15 => attach(csi, id, dice).await,
        16 => snapshot(csi, id, volume, dice).await,
        17 => measure(csi, id, &target).await,
        18 => expand(csi, id, dice).await,
        _ => nonsense(csi, id, dice).await,
    }
}

async fn attach(csi: &mut Csi, id: String, dice: &mut Dice) -> Result<(), Status> {
    let node_id = "node-1".to_owned();
    if dice.below(2) == 0 {
        let request = v1::ControllerUnpublishVolumeRequest { volume_id: id, node_id, ..Default::default() };
        return csi.controller.controller_unpublish_volume(request).await.map(drop);
    }
    let request = v1::ControllerPublishVolumeRequest {
        volume_id: id,
        node_id,
        volume_capability: Some(mounted("", Mode::SingleNodeWriter)),
        ..Default::default()
    };
    csi.controller.controller_publish_volume(request).await.map(drop)
}

async fn snapshot(csi: &mut Csi, id: String, volume: u64, dice: &mut Dice) -> Result<(), Status> {
    if dice.below(2) == 0 {
        let name = format!("snapshot-{volume}-{}", dice.below(2));
        let request = v1::CreateSnapshotRequest { source_volume_id: id, name, ..Default::default() };
        return csi.controller.create_snapshot(request).await.map(drop);
    }
    let listed = csi.controller.list_snapshots(v1::ListSnapshotsRequest::default()).await?.into_inner();
    let Some(snapshot) = listed.entries.into_iter().find_map(|entry| entry.snapshot) else { return Ok(()) };
    let request = v1::DeleteSnapshotRequest { snapshot_id: snapshot.snapshot_id, ..Default::default() };
    csi.controller.delete_snapshot(request).await.map(drop)
}

async fn measure(csi: &mut Csi, id: String, target: &std::path::Path) -> Result<(), Status> {
    let request =
        v1::NodeGetVolumeStatsRequest { volume_id: id, volume_path: lossy(target), ..Default::default() };
    csi.node.node_get_volume_stats(request).await.map(drop)
}

async fn expand(csi: &mut Csi, id: String, dice: &mut Dice) -> Result<(), Status> {
    let bytes = (16 << 20) + i64::try_from(dice.below(4)).unwrap() * 4096;
    let request = v1::ControllerExpandVolumeRequest {
        volume_id: id,
        capacity_range: Some(v1::CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
        ..Default::default()
    };
    csi.controller.controller_expand_volume(request).await.map(drop)
}

async fn nonsense(csi: &mut Csi, id: String, dice: &mut Dice) -> Result<(), Status> {
    match dice.below(4) {
        0 => csi.node.node_stage_volume(v1::NodeStageVolumeRequest::default()).await.map(drop),
        1 => csi.unpublish(&"x".repeat(129), std::path::Path::new("/nowhere")).await,
        2 => csi.unstage(&id, std::path::Path::new("/../../etc")).await,
        _ => csi.stage(&id, std::path::Path::new("/proc/self"), mounted("ext9", WRITER)).await,
    }
}
