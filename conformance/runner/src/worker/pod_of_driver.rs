//! A driver that leaves a call's work to a pod that it creates: no pod of a driver's runs here.

use std::collections::BTreeMap;

use contracts::event::{ApiChange, Client, DriverAnswer, Edge, Event, ObjectKind, TraceLine, Verb};
use harness::journal::Journal;
use testbed::failure::{Failure, What};

/// A failure of a case with this suite as its cause, if a call failed that waited for a pod of the driver's.
pub(super) fn blame(mut failure: Failure, journal: &Journal) -> Failure {
    let Some(Waited { pod, answer }) = waited_for_a_pod(&journal.trace()) else { return failure };
    let because = match (&*failure.what, answer) {
        (What::Promise { method: of, .. }, Some((method, _))) if *of != method => return failure,
        (What::Ours(_) | What::Environment(_), _) | (What::Promise { .. }, None) => return failure,
        (_, Some((method, message))) => format!("{method} answered: {message}"),
        // The failure is that there was no answer.
        (What::Broken { chain, .. }, None) => chain.first().cloned().unwrap_or_default(),
        (What::Story { .. }, None) => "the driver did not answer".to_owned(),
    };
    *failure.what = What::Environment(vec![
        format!("the driver waits for a pod that it has created, and no such pod runs here: `{pod}`"),
        because.trim_end_matches('.').to_owned(),
    ]);
    failure
}

/// A call that failed after the driver had created a pod during it.
struct Waited {
    pod: String,
    /// The method and the driver's message, unless the call was not answered in time.
    answer: Option<(String, String)>,
}

fn waited_for_a_pod(trace: &[TraceLine]) -> Option<Waited> {
    // The pods that were created during each call, by the numbers of the node's calls and of the case's own.
    let mut under_way: BTreeMap<(bool, u64), Vec<&str>> = BTreeMap::new();
    for line in trace {
        match &line.event {
            Event::RpcStart(start) => drop(under_way.insert((false, start.id), Vec::new())),
            Event::DirectCall(call) if call.edge == Edge::Start => {
                under_way.insert((true, call.id), Vec::new());
            }
            Event::Api(change) if is_pod_of_driver(change) => {
                under_way.values_mut().for_each(|pods| pods.push(&change.object));
            }
            // A call that was not answered in time.
            Event::DirectCall(call) if call.answer.is_none() => {
                let pods = under_way.remove(&(true, call.id)).unwrap_or_default();
                if let Some(pod) = pods.first() {
                    return Some(Waited { pod: (*pod).to_owned(), answer: None });
                }
            }
            event => {
                let Some(end) = DriverAnswer::by(event) else { continue };
                let pods = under_way.remove(&(end.to_case, end.id)).unwrap_or_default();
                if let (Some(pod), false) = (pods.first(), end.is_ok()) {
                    let answer = Some((end.method.to_owned(), end.message.to_owned()));
                    return Some(Waited { pod: (*pod).to_owned(), answer });
                }
            }
        }
    }
    None
}

/// Whether the driver creates a pod.
fn is_pod_of_driver(change: &ApiChange) -> bool {
    (change.by, change.kind, change.verb) == (Client::Driver, ObjectKind::Pod, Verb::Create)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(events: &[Value]) -> Option<String> {
        let line = |(event, seq): (&Value, u64)| {
            let mut event = event.clone();
            (event["seq"], event["t_ms"]) = (json!(seq), json!(0.0));
            serde_json::from_value(event).expect("a line of a trace")
        };
        let trace: Vec<TraceLine> = events.iter().zip(1..).map(line).collect();
        waited_for_a_pod(&trace).map(|waited| waited.pod)
    }

    #[test]
    fn pod_created_by_the_driver_during_a_call_that_fails_is_waited_for() {
        let method = "ControllerExpandVolume";
        let start = json!({"ev": "rpc_start", "id": 1, "method": method, "req": {}});
        let end = |code: &str| json!({"ev": "rpc_end", "id": 1, "method": method, "code": code, "message": "no", "dur_ms": 1, "resp": {}});
        let creates = |by: &str| json!({"ev": "api", "verb": "create", "kind": "Pod", "object": "default/task", "by": by, "body": null});
        let task = Some("default/task".to_owned());
        assert_eq!(pod(&[start.clone(), creates("driver"), end("Unknown")]), task);
        assert_eq!(pod(&[start.clone(), creates("driver"), end("OK")]), None);
        assert_eq!(pod(&[start.clone(), creates("case"), end("Unknown")]), None);
        assert_eq!(pod(&[creates("driver"), start, end("Unknown")]), None);

        let direct =
            |edge: &str| json!({"ev": "direct_call", "id": 2, "edge": edge, "volume": "", "paths": []});
        assert_eq!(pod(&[direct("start"), creates("driver"), direct("end")]), task, "not answered in time");
        assert_eq!(pod(&[direct("start"), creates("driver")]), None, "under way");
    }
}
