//! The first event that a cluster's user would see when a pod does not get its volumes.

use contracts::event::{Event, TraceLine};
use harness::symbols::Symbols;

/// The first warning of a failure, as `pod/web FailedMount: …`, with the driver's message. A warning about an injected
/// answer says nothing about the driver, so the search begins anew after each of those.
pub(super) fn first_event(trace: &[TraceLine], symbols: &Symbols) -> Option<String> {
    let ordered = trace.iter().rposition(|line| match &line.event {
        Event::RpcEnd(end) => !end.is_from_the_driver() && end.unreadable.is_none(),
        _ => false,
    });
    let rest = ordered.map_or(trace, |at| &trace[at..]);
    rest.iter().find_map(|line| match &line.event {
        Event::Event(event) if event.kind == "Warning" && event.reason.starts_with("Failed") => {
            Some(format!("{} {}: {}", event.obj, event.reason, symbols.text(&event.message)))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use contracts::event::{Emitted, RpcEnd};
    use harness::layout::Layout;

    use super::*;

    fn warning(reason: &str, message: &str) -> Event {
        let (obj, kind) = ("pod/web".to_owned(), "Warning".to_owned());
        Event::Event(Emitted {
            obj,
            kind,
            reason: reason.into(),
            message: message.into(),
            by: contracts::event::Client::Node,
        })
    }

    fn answered(injected: Option<&str>) -> Event {
        Event::RpcEnd(RpcEnd {
            id: 1,
            method: "NodePublishVolume".into(),
            code: "Internal".into(),
            message: "no".into(),
            dur_ms: 1.0,
            resp: serde_json::Value::Null,
            injected: injected.map(str::to_owned),
            abandoned: false,
            unreadable: None,
        })
    }

    #[test]
    fn first_event_is_the_first_failure_that_was_not_injected() {
        let first = |events: Vec<Event>| {
            let line = |event| TraceLine { seq: 1, t_ms: 0.0, event };
            let trace: Vec<TraceLine> = events.into_iter().map(line).collect();
            first_event(&trace, &Symbols::new(Layout::standard()))
        };
        let (early, late) = (warning("FailedMount", "exists"), warning("FailedMapVolume", "no device"));
        assert_eq!(
            first(vec![warning("Slow", "x"), answered(None), early.clone(), late.clone()]).as_deref(),
            Some("pod/web FailedMount: exists")
        );
        let ordered = answered(Some("code=Internal hang=false"));
        assert_eq!(
            first(vec![early, ordered.clone(), late]).as_deref(),
            Some("pod/web FailedMapVolume: no device")
        );
        assert_eq!(first(vec![ordered]), None);
    }
}
