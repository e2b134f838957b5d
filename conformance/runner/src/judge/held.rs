//! What a driver holds after it has unstaged everything.

use contracts::event::{Event, TraceLine};
use testbed::bed::Held;

use super::promise_broken;
use crate::finding::Finding;

/// A device that outlives its staging breaks a promise; of processes CSI says nothing.
pub(crate) fn held(held: &Held) -> Vec<Finding> {
    let finding = |id: &str, method: &str, cause: &str, lines: &[String]| {
        let sentence = format!("{cause}: {}.", lines.join(", "));
        (!lines.is_empty()).then(|| Finding { sentence, ..promise_broken(id, method, cause) })
    };
    let device = "A loop device is still attached after every volume was unstaged";
    let process = "A process that the driver started is still there after every volume was unstaged";
    let found = [
        finding("DRV-073", "NodeUnstageVolume", device, &held.loops),
        finding("DRV-098", "NodeStageVolume", process, &held.processes),
    ];
    found.into_iter().flatten().collect()
}

/// The promises that showed to be kept: only of a driver that has staged something, and of one whose volumes are loop
/// devices.
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
        let found = held(&Held { loops: lines("loop3 on /state/v1"), processes: lines("sleep[7]") });
        let told: Vec<_> = found.iter().map(|found| (found.contract.as_str(), found.is_fault())).collect();
        assert_eq!(told, [("DRV-073", true), ("DRV-098", false)]);
        assert!(found[0].sentence.ends_with("unstaged: loop3 on /state/v1."), "{}", found[0].sentence);
        assert_eq!(held(&Held::default()), []);
    }
}
