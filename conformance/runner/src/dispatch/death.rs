//! The end of a worker that reported no outcome, as far as the kernel shows it.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use harness::sandbox::{LOST_LIFELINE, SIGNALLED};
use nix::sys::signal::Signal;

/// The signal that killed a worker: the keeper of its sandbox ends with its number.
fn signal(status: ExitStatus) -> Option<Signal> {
    let number = status.signal().or_else(|| status.code()?.checked_sub(SIGNALLED));
    Signal::try_from(number?).ok()
}

/// The end of a worker, in words.
pub(super) fn describe(status: ExitStatus) -> String {
    match signal(status) {
        Some(signal) => format!("the worker was killed by {signal} before it had an outcome"),
        None if status.code() == Some(LOST_LIFELINE) => {
            "the sandbox of the case ended before its worker had an outcome".to_owned()
        }
        None => format!("the worker ended without an outcome: {status}"),
    }
}

/// The possible senders of the signal that killed the worker, if it was not the kernel, which does not name the sender.
pub(super) fn suspects(status: ExitStatus) -> Option<&'static str> {
    match signal(status)? {
        Signal::SIGKILL | Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP | Signal::SIGQUIT => Some(
            "the kernel counts no process of this run as killed for memory, so another process sent the signal: one of \
             the sandbox, where the driver has all capabilities, or one from outside",
        ),
        // Nothing but its own fault raises these.
        _ => Some("a fault of the suite's own"),
    }
}

/// The possible senders of the signal that stopped processes of a worker that did not end; `stuck` are those that no
/// signal ends.
pub(super) fn stoppers(stuck: &[String]) -> Option<&'static str> {
    let is_stopped = stuck.iter().any(|process| process.starts_with("stopped"));
    is_stopped.then_some(
        "no process of the suite stops itself: one of the sandbox, where the driver has all capabilities, sent the signal, \
         or one from outside",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopped_process_has_suspects_and_a_sleeping_one_has_none() {
        let stuck = |line: &str| stoppers(&[line.to_owned()]);
        assert!(stuck("stopped: volproof[7]").is_some_and(|suspects| suspects.contains("the driver")));
        assert_eq!((stuck("asleep in the kernel: dd[8]"), stoppers(&[])), (None, None));
    }

    #[test]
    fn death_of_a_worker_names_its_signal() {
        // As wait(2) has them: killed itself, and through the keeper of its sandbox.
        for status in [9, (SIGNALLED + 9) << 8] {
            let status = ExitStatus::from_raw(status);
            assert_eq!(describe(status), "the worker was killed by SIGKILL before it had an outcome");
            assert!(suspects(status).is_some_and(|who| who.contains("the driver")));
        }
        let segfault = ExitStatus::from_raw((SIGNALLED + 11) << 8);
        assert_eq!(suspects(segfault), Some("a fault of the suite's own"));
        let exit = ExitStatus::from_raw(1 << 8);
        assert_eq!(
            (describe(exit).as_str(), suspects(exit)),
            ("the worker ended without an outcome: exit status: 1", None)
        );
    }
}
