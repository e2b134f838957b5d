//! Findings about resources that a driver still holds after it has unstaged or deleted all volumes.

use contracts::event::{Event, TraceLine};
use testbed::bed::Held;

use super::promise_broken;
use crate::finding::Finding;

/// A device that outlives its staging breaks a promise; CSI has no rule about processes, files and descriptors.
pub(crate) fn held(held: &Held) -> Vec<Finding> {
    let finding = |id: &str, method: &str, cause: &str, lines: &[String]| {
        let sentence = format!("{cause}: {}.", lines.join(", "));
        (!lines.is_empty()).then(|| Finding { sentence, ..promise_broken(id, method, cause) })
    };
    let device = "A loop device is still attached after every volume was unstaged";
    let process = "A process that the driver started is still there after every volume was unstaged";
    let attached =
        "A loop device that CreateVolume had attached is still attached after its volume was deleted";
    let file = "Files in the driver's directory are left of volumes or snapshots that are not there";
    let descriptor = "The driver still has open what belonged to volumes that were deleted";
    let found = [
        finding("DRV-073", "NodeUnstageVolume", device, &held.loops),
        finding("DRV-098", "NodeStageVolume", process, &held.processes),
        finding("DRV-022", "DeleteVolume", file, &held.files),
        finding("DRV-022", "DeleteVolume", attached, &held.devices),
        finding("DRV-131", "DeleteVolume", descriptor, &held.descriptors),
    ];
    found.into_iter().flatten().collect()
}

/// A mount that the driver has made for itself and that outlives all volumes.
pub(crate) fn mounts_left(lines: &[String]) -> Option<Finding> {
    let cause = "A mount that the driver made for itself is still there after every volume was deleted";
    let sentence = format!("{cause}: {}.", lines.join(", "));
    (!lines.is_empty()).then(|| Finding { sentence, ..promise_broken("DRV-132", "DeleteVolume", cause) })
}

/// The promises about held devices that the trace shows as kept. They are tried only if the driver has staged a volume and
/// its volumes are loop devices.
pub(crate) fn released(trace: &[TraceLine], held: &Held, has_devices: bool) -> Vec<String> {
    let has_staged = trace.iter().any(|line| match &line.event {
        Event::RpcEnd(end) => end.method == "NodeStageVolume" && end.code == "OK" && end.is_from_the_driver(),
        _ => false,
    });
    let kept = [("DRV-073", has_devices && held.loops.is_empty()), ("DRV-098", held.processes.is_empty())];
    let kept = kept.into_iter().filter(|(_, is_kept)| has_staged && *is_kept);
    kept.map(|(id, _)| id.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_is_a_fault_and_process_is_advice() {
        let lines = |text: &str| vec![text.to_owned()];
        let (files, descriptors) = (lines("`/state/v1`"), lines("`/state/v1 (deleted)` in sleep[7]"));
        let found = held(&Held {
            loops: lines("loop3 on /state/v1"),
            processes: lines("sleep[7]"),
            devices: lines("loop4 on /state/v2"),
            files,
            descriptors,
        });
        let seen: Vec<_> = found.iter().map(|found| (found.contract.as_str(), found.is_fault())).collect();
        let advice = [("DRV-098", false), ("DRV-022", false), ("DRV-022", false), ("DRV-131", false)];
        assert_eq!((seen[0], &seen[1..]), (("DRV-073", true), &advice[..]));
        assert!(found[0].sentence.ends_with("unstaged: loop3 on /state/v1."), "{}", found[0].sentence);
        assert_eq!(held(&Held::default()), []);
    }
}
