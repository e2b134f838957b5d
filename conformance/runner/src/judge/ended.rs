//! The finding of a driver that ended unasked.

use std::collections::BTreeMap;

use contracts::event::{Edge, Event, TraceLine};

use super::{LIMITS, promise_broken};
use crate::finding::Finding;

/// The promise that no request ends the driver.
const STAYS_UP: &str = "DRV-097";

/// The codes of a call whose driver is gone, in Go's spelling: the client's, and not the driver's.
const LOST: [&str; 3] = ["Unavailable", "Canceled", "Unknown"];

/// The finding of a driver that ended unasked, during a call to this method if one was under way, with the message of its
/// crash; `None` if another finding says that it reached a limit of the machine.
pub(crate) fn driver_ended(
    said: &str,
    method: Option<&str>,
    crash: Option<&str>,
    others: &[Finding],
) -> Option<Finding> {
    let is_explained = others.iter().any(|finding| finding.contract == LIMITS);
    let mut cause = "the driver ended by itself in the middle of a case".to_owned();
    let mut said = said.to_owned();
    // Two crashes are two faults. The numbers in a message are those of one case.
    if let Some(crash) = crash {
        cause = format!("{cause}: {}", crash.replace(|digit: char| digit.is_ascii_digit(), ""));
        said = format!("{}: `{crash}`.", said.trim_end_matches('.'));
    }
    let sentence = match method {
        Some(method) => format!("{said} {method} was under way."),
        None => said,
    };
    let found = Finding { sentence, ..promise_broken(STAYS_UP, method.unwrap_or_default(), &cause) };
    (!is_explained).then_some(found)
}

/// A finding of the body of a case as a consequence of the driver's end.
pub(crate) fn after_the_end(found: &Finding) -> Finding {
    Finding { consequence_of: STAYS_UP.to_owned(), ..found.clone() }
}

/// The method of the call that was under way when the driver ended: the last one, if the driver did not answer it.
pub(crate) fn call_at_the_end(trace: &[TraceLine]) -> Option<&str> {
    let mut under_way = BTreeMap::new();
    let mut last = None;
    for line in trace {
        match &line.event {
            Event::RpcStart(start) => {
                under_way.insert(start.id, &*start.method);
                last = Some(&*start.method);
            }
            Event::RpcEnd(end) => {
                under_way.remove(&end.id);
                last = LOST.contains(&&*end.code).then_some(&*end.method);
            }
            Event::DirectCall(call) if call.edge == Edge::End => {
                let answer = call.answer.as_ref().filter(|answer| LOST.contains(&&*answer.code));
                last = answer.map(|answer| &*answer.method);
            }
            _ => {}
        }
    }
    under_way.into_values().next_back().or(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_during_two_calls_are_two_findings() {
        let during =
            |method| driver_ended("The driver was killed.", Some(method), None, &[]).expect("a finding");
        let (stage, publish) = (during("NodeStageVolume"), during("NodePublishVolume"));
        assert_ne!(stage.key(), publish.key());
        assert_eq!(stage.sentence, "The driver was killed. NodeStageVolume was under way.");
    }

    #[test]
    fn two_crashes_are_two_findings_and_their_numbers_are_none() {
        let of = |crash| driver_ended("It ended.", None, Some(crash), &[]).expect("a finding");
        assert_eq!(of("panic: no size").sentence, "It ended: `panic: no size`.");
        assert_ne!(of("panic: index out of range [9]").key(), of("panic: nil pointer dereference").key());
        assert_eq!(of("panic: index out of range [9]").key(), of("panic: index out of range [17]").key());
    }
}
