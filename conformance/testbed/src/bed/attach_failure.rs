//! The failed attachment that a pod waits for. No call of the node shows it.

use contracts::event::{Event, TraceLine};

const FAILED: &str = "FailedAttachVolume";
const SUCCEEDED: &str = "SuccessfulAttachVolume";

/// The last event of a pod about its attachments, if that is a failure.
pub(super) fn of(lines: &[TraceLine], pod: &str) -> Option<String> {
    let object = format!("pod/{pod}");
    let last = lines.iter().rev().find_map(|line| match &line.event {
        Event::Event(event) if event.obj == object && [FAILED, SUCCEEDED].contains(&&*event.reason) => {
            Some(event)
        }
        _ => None,
    })?;
    (last.reason == FAILED).then(|| last.message.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use contracts::event::Emitted;

    use super::*;

    fn event_of(pod: &str, reason: &str, message: &str) -> TraceLine {
        let emitted = Emitted {
            obj: format!("pod/{pod}"),
            kind: "Warning".to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            by: contracts::event::Client::Controller,
        };
        TraceLine { seq: 0, t_ms: 0.0, event: Event::Event(emitted) }
    }

    #[test]
    fn failed_attachment_of_the_pod_is_the_reason_until_one_succeeds() {
        let mut lines = vec![event_of("web", FAILED, "no room"), event_of("db", FAILED, "no node")];
        assert_eq!(of(&lines, "web").as_deref(), Some("no room"));
        lines.push(event_of("web", "FailedMount", "timed out"));
        assert_eq!(of(&lines, "web").as_deref(), Some("no room"), "another event says nothing of it");
        lines.push(event_of("web", SUCCEEDED, "attached"));
        assert_eq!(of(&lines, "web"), None);
        assert_eq!(of(&lines, "other"), None);
    }
}
