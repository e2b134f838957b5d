//! A file system that a driver could not grow because this machine forbids it to every process.

use contracts::event::{DriverAnswer, TraceLine};
use harness::facts::{Absence, absence_of_growth_in_use};
use harness::journal::Journal;
use testbed::failure::{Failure, What};

/// The error of a kernel, in the words of tools and libraries.
const FORBIDDEN: [&str; 2] = ["permission denied", "operation not permitted"];

/// A word of the tools that grow a file system, and of the drivers that call them.
const RESIZE: &str = "resize";

/// The beginning of the ids of promises about sizes.
const ABOUT_GROWTH: &str = "DRV-08";

/// A failure of a case with this machine as its cause, if that has kept the driver from growing a file system.
pub(super) fn blame(mut failure: Failure, journal: &Journal) -> Failure {
    // Whatever the machine forbids, a driver can refuse a wrong request.
    let is_about_growth = match &*failure.what {
        What::Broken { .. } | What::Story { .. } => true,
        What::Promise { contract, .. } => contract.starts_with(ABOUT_GROWTH),
        What::Ours(_) | What::Environment(_) => false,
    };
    let Some(lack) = absence_of_growth_in_use().filter(|_| is_about_growth) else { return failure };
    if let Some(lines) = forbidden_growth(&journal.trace(), Some(&lack)) {
        *failure.what = What::Environment(lines);
    }
    failure
}

/// The machine's part in a failed case: what it lacks, then the driver's answer; nothing if no growth has failed for
/// want of a permission.
fn forbidden_growth(trace: &[TraceLine], lack: Option<&Absence>) -> Option<Vec<String>> {
    let Absence { reason, fix } = lack?;
    let (method, message) = trace.iter().find_map(|line| {
        let DriverAnswer { method, message, .. } =
            DriverAnswer::by(&line.event).filter(|answer| !answer.is_ok())?;
        let words = message.to_lowercase();
        // Drivers grow a restored or expanded file system in these calls too, which fail for other reasons as well.
        let grows = match method {
            "NodeExpandVolume" => true,
            "NodeStageVolume" | "NodePublishVolume" => words.contains(RESIZE),
            _ => false,
        };
        (grows && FORBIDDEN.iter().any(|forbidden| words.contains(forbidden))).then_some((method, message))
    })?;
    Some(vec![
        format!("{reason}; {fix}"),
        format!("{method} answered: {}", message.trim_end().trim_end_matches('.')),
    ])
}

#[cfg(test)]
mod tests {
    use contracts::event::{DirectAnswer, DirectCall, Edge, Event};

    use super::*;

    fn answered(method: &str, code: &str, message: &str) -> TraceLine {
        let (method, code, message) = (method.to_owned(), code.to_owned(), message.to_owned());
        let answer = DirectAnswer { method, code, message, details: false, resp: serde_json::Value::Null };
        let (volume, paths, answer) = (String::new(), vec![], Some(answer));
        let event = Event::DirectCall(DirectCall { id: 1, edge: Edge::End, volume, paths, answer });
        TraceLine { seq: 1, t_ms: 0.0, event }
    }

    #[test]
    fn only_a_forbidden_growth_is_the_machine_s() {
        let lack = Absence { reason: "no right".to_owned(), fix: "get it".to_owned() };
        let words = "resize2fs: Permission denied to resize filesystem";
        let found = |line: TraceLine, lack| forbidden_growth(&[line], lack);
        let forbidden = || answered("NodeExpandVolume", "Internal", &format!("{words}.\n"));
        let lines = found(forbidden(), Some(&lack)).expect("the machine's");
        assert_eq!(lines, ["no right; get it", &format!("NodeExpandVolume answered: {words}")]);
        assert_eq!(found(forbidden(), None), None, "the machine lacks nothing");
        assert_eq!(found(answered("NodeExpandVolume", "Internal", "no space"), Some(&lack)), None);
        assert_eq!(found(answered("NodeExpandVolume", "OK", words), Some(&lack)), None);
        assert!(found(answered("NodeStageVolume", "Internal", words), Some(&lack)).is_some());
        let other = "mount: permission denied";
        assert_eq!(found(answered("NodeStageVolume", "Internal", other), Some(&lack)), None);
        assert_eq!(found(answered("ControllerExpandVolume", "Internal", words), Some(&lack)), None);
    }
}
