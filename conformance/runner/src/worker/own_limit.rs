//! A time limit of the driver's own that ran out on a machine with too much other work.

use std::collections::BTreeMap;
use std::time::Duration;

use contracts::event::{DriverAnswer, Edge, Event, TraceLine};
use harness::journal::Journal;
use harness::load::{Late, Meter};
use testbed::failure::{Failure, What};

/// The words of drivers, tools and libraries about a limit that has run out.
const RAN_OUT: [&str; 4] = ["timed out", "timeout", "time out", "deadline exceeded"];

/// No driver gives its work a shorter limit than this many milliseconds.
const SHORTEST: f64 = 1000.0;

/// With fewer tasks than this for each processor a driver that runs out of time has chosen its limit badly.
const OVERLOADED: f64 = 4.0;

/// A failure of a case with the load of the machine as its cause, if a limit of the driver's ran out under it.
pub(super) fn blame(mut failure: Failure, journal: &Journal, meter: &Meter) -> Failure {
    let load = |from: f64, to: f64| meter.mean(journal.moment(from), journal.moment(to));
    if let Some(lines) = ran_out(&failure.what, &journal.trace(), load) {
        *failure.what = What::Environment(lines);
    }
    failure
}

/// The load, then the driver's answer; nothing unless a call that may have failed the case ran out of time under a load.
/// `load` gives the mean between two times of the trace.
fn ran_out(what: &What, trace: &[TraceLine], load: impl Fn(f64, f64) -> f64) -> Option<Vec<String>> {
    let failed: Option<&str> = match what {
        What::Broken { .. } | What::Story { .. } => None,
        What::Promise { method, .. } => Some(method),
        What::Ours(_) | What::Environment(_) => return None,
    };
    let mut begun: BTreeMap<(bool, u64), f64> = BTreeMap::new();
    trace.iter().find_map(|line| {
        match &line.event {
            Event::RpcStart(start) => drop(begun.insert((false, start.id), line.t_ms)),
            Event::DirectCall(call) if call.edge == Edge::Start => {
                begun.insert((true, call.id), line.t_ms);
            }
            _ => {}
        }
        let answer = DriverAnswer::by(&line.event).filter(|answer| !answer.is_ok())?;
        let begin = begun.remove(&(answer.to_case, answer.id))?;
        let words = answer.message.to_lowercase();
        let is_limit = answer.code == "DeadlineExceeded" || RAN_OUT.iter().any(|out| words.contains(out));
        if !is_limit || line.t_ms - begin < SHORTEST || failed.is_some_and(|failed| failed != answer.method) {
            return None;
        }
        let load = load(begin, line.t_ms);
        (load >= OVERLOADED).then(|| {
            let waited = Duration::from_secs_f64((line.t_ms - begin) / 1e3);
            let message = answer.message.trim_end().trim_end_matches('.');
            vec![
                Late { waited, load, is_cut_short: true }.to_string(),
                format!("{} answered: {message}", answer.method),
            ]
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SAID: &str = "iscsiadm: connection timed out";

    fn call(message: &str, code: &str, milliseconds: f64) -> Vec<TraceLine> {
        let start = json!({"ev": "rpc_start", "id": 4, "method": "NodeStageVolume", "req": {}});
        let end = json!({"ev": "rpc_end", "id": 4, "method": "NodeStageVolume", "code": code, "message": message,
                         "dur_ms": milliseconds});
        let line = |(event, t_ms): (serde_json::Value, f64)| {
            let event = serde_json::from_value(event).expect("an event");
            TraceLine { seq: 1, t_ms, event }
        };
        [(start, 500.0), (end, 500.0 + milliseconds)].map(line).into()
    }

    fn broken() -> What {
        What::Broken { chain: vec!["the volumes are not mounted".to_owned()], seen: None }
    }

    #[test]
    fn limit_that_ran_out_under_a_load_is_the_machine_s() {
        let lines = ran_out(&broken(), &call(SAID, "Internal", 3000.0), |from, to| {
            assert_eq!((from, to), (500.0, 3500.0));
            9.0
        });
        let lines = lines.expect("the machine's");
        assert!(lines[0].starts_with("the machine was overloaded: for 3 s, 9 tasks competed"), "{lines:?}");
        assert_eq!(lines[1], format!("NodeStageVolume answered: {SAID}"));
    }

    #[test]
    fn other_answers_are_the_driver_s() {
        let found = |what: &What, trace: &[TraceLine], load: f64| ran_out(what, trace, |_, _| load).is_some();
        let trace = call(SAID, "Internal", 3000.0);
        assert!(!found(&broken(), &trace, 3.0), "the machine was free");
        assert!(!found(&broken(), &call(SAID, "Internal", 900.0), 9.0), "it came at once");
        assert!(!found(&broken(), &call("no such device", "Internal", 3000.0), 9.0), "it names no limit");
        assert!(!found(&broken(), &call(SAID, "OK", 3000.0), 9.0), "it succeeded");
        assert!(found(&broken(), &call("", "DeadlineExceeded", 3000.0), 9.0));
        assert!(!found(&What::Ours(vec![]), &trace, 9.0));
        let promise = |method: &str| What::Promise {
            contract: "DRV-040",
            method: method.to_owned(),
            cause: "answered Internal".to_owned(),
        };
        assert!(found(&promise("NodeStageVolume"), &trace, 9.0));
        assert!(!found(&promise("NodePublishVolume"), &trace, 9.0), "the promise is about another call");
    }
}
